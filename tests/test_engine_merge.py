"""Scatter files merged where slices are small: the gathers read the same rows in the same order, so all that is made of them is equal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runs import hashes

from corpusmill.jobs.reporter import SilentReporter
from corpusmill.jobs.run import run_recipe
from corpusmill.pipeline.engine import merge
from corpusmill.pipeline.engine.manifest import read_manifest
from corpusmill.pipeline.engine.place import place_of
from corpusmill.pipeline.recipe import parse_recipe
from corpusmill.pipeline.run import Run
from corpusmill.shards.verify import verify

MERGED = ("dedup.bands.merged", "dedup.shingles.merged", "shard.scatter.merged")


def write_pages(folder: Path) -> None:
    """Three sources of 80 texts, each with near copies of its own and of the others."""
    for source in range(3):
        rows = []
        for i in range(80):
            words = [
                f"word{((i + 40 * (i % 4 == 3) * source) * 7919 + j * 104729) % 9973}" for j in range(60)
            ]
            words[i % 60] = f"of{source}" if i % 4 == 3 else words[i % 60] + "x" * (i % 3 == 2)
            rows.append({"text": " ".join(words), "url": f"https://s{source}.example/{i}"})
        (folder / f"s{source}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
        )


def run(folder: Path, out: Path) -> Run:
    recipe = parse_recipe(
        {
            "inputs": [{"path": str(folder / f"s{i}.jsonl"), "source": f"s{i}"} for i in range(3)],
            "partition_bytes": "9 KB",
            "stages": [
                {"extract": {}},
                {"dedup": {"bucket_bytes": 40_000, "bands": 28, "rows": 4}},
                {
                    "shard": {
                        "tokenizer": {"train": "bpe", "vocab": 400},
                        "sequence_length": 32,
                        "block_bytes": 1024,
                        "shard_bytes": 8192,
                    }
                },
            ],
        }
    )
    return run_recipe(recipe, out, workers=2, reporter=SilentReporter())


def files(out: Run, name: str) -> int:
    """Files that a stage made, those of a spent one too."""
    stage = out.state.stage(name)
    assert stage is not None
    manifest = read_manifest(place_of(out.out) / stage.folder)
    assert manifest is not None
    return sum(len(result.files) for result in manifest.results.values())


def made(out: Run, name: str) -> dict[str, str]:
    """The files of a stage by name, with their hashes; manifests name fingerprints, and so differ."""
    stage = out.state.stage(name)
    assert stage is not None
    below = stage.folder + "/"
    return {
        path.removeprefix(below): digest
        for path, digest in hashes(Path(str(out.out))).items()
        if path.startswith(below) and not Path(path).name.startswith("_")
    }


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("straight")
    write_pages(folder)
    return run(folder, folder / "out")


def test_nothing_is_merged_where_slices_are_few(straight: Run) -> None:
    assert [files(straight, name) for name in MERGED] == [0, 0, 0]


@pytest.mark.parametrize("aim", [1, 1 << 30], ids=["by twos", "all into one"])
def test_merged_slices_give_the_same_verdicts_and_shards(
    straight: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aim: int
) -> None:
    monkeypatch.setattr(merge, "BOUNDS", merge.Bounds(small=1 << 40, aim=aim, many=0, most=256))
    write_pages(tmp_path)
    merged = run(tmp_path, tmp_path / "out")
    for name in MERGED:
        scattered = files(merged, name.removesuffix(".merged"))
        # A unit's files stay together, and a unit of shingles has several.
        assert 0 < files(merged, name) <= (1 if aim > 1 else scattered // 2 + 1) < scattered
    for name in ("dedup.verdict", "shard.write"):
        assert made(merged, name) == made(straight, name) and made(merged, name)
    assert verify(tmp_path / "out") == []
