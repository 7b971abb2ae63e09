"""Dedup under the real engine: the bytes of a run do not depend on workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runs import hashes

from corpusmill.jobs.reporter import SilentReporter
from corpusmill.jobs.run import run_recipe
from corpusmill.pipeline.recipe import parse_recipe
from corpusmill.pipeline.run import Run


@pytest.fixture(scope="module")
def pages() -> list[str]:
    """300 texts of 60 words; every third is the one before with a word changed, every seventh the same again."""
    texts = []
    for i in range(300):
        words = [f"word{(i * 7919 + j * 104729) % 9973}" for j in range(60)]
        if i % 3 == 2:
            words = texts[-1].split()
            words[i % 60] = "changed"
        texts.append(texts[-1] if i % 7 == 6 else " ".join(words))
    return texts


def run(folder: Path, pages: list[str], workers: int) -> Run:
    """Extract and dedup the pages from two files; each page keeps its URL wherever it stands."""
    folder.mkdir()
    for name, half in zip(("a.jsonl", "b.jsonl"), (slice(0, 150), slice(150, 300)), strict=True):
        rows = [
            json.dumps({"text": text, "url": f"https://site.example/{i}"})
            for i, text in list(enumerate(pages))[half]
        ]
        (folder / name).write_text("\n".join(rows) + "\n", encoding="utf-8")
    recipe = parse_recipe(
        {
            "inputs": [{"path": str(folder / "*.jsonl"), "source": "site"}],
            "partition_bytes": "25 KB",
            "stages": [{"extract": {}}, {"dedup": {"bucket_bytes": 100_000, "bands": 28, "rows": 4}}],
        }
    )
    return run_recipe(recipe, folder / "out", workers=workers, reporter=SilentReporter())


def test_bytes_do_not_depend_on_workers(tmp_path: Path, pages: list[str]) -> None:
    one = run(tmp_path / "one", pages, 1)
    two = run(tmp_path / "two", pages, 2)
    assert {
        k: v for k, v in hashes(Path(str(one.out))).items() if "run.json" not in k and "recipe.yaml" not in k
    } == {
        k: v for k, v in hashes(Path(str(two.out))).items() if "run.json" not in k and "recipe.yaml" not in k
    }
    assert len(one.partitions()) > 4
    counts = dict(one.ledger())["dedup"]
    # A hundred pages have one word of sixty changed (Jaccard 0.84 and more), so each pair loses one; 42 are copies besides.
    assert counts["in"] == 300 and counts["dropped.dedup.near"] + counts["dropped.dedup.exact"] >= 100
    assert counts["dropped.dedup.exact"] > 0
