"""Holdout: a share of each component in components of its own, whole clusters of duplicates, and never in a plan for training."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from shard_runs import Document, Run, documents

from corpusmill.mixing.stage import Mix
from corpusmill.pipeline.errors import RecipeError, ShardError
from corpusmill.shards.components import HELD, Components, slug_of
from corpusmill.shards.holdout import held_out
from corpusmill.shards.layout import read_manifest
from corpusmill.shards.plan_file import read_plan
from corpusmill.shards.reader import Shards
from corpusmill.shards.stage import Shard, TokenizerSource
from corpusmill.shards.stream import stream
from corpusmill.shards.verify import verify

SMALL = Shard(
    TokenizerSource(train="bpe", vocab=300),
    sequence_length=16,
    block_bytes=1 << 10,
    shard_bytes=1 << 14,
    holdout=0.1,
)


def corpus() -> list[Document]:
    web = documents(f"page {i} of the web says {i * 7919}" for i in range(300))
    return [*web, *documents((f"book {i} tells of {i * 104729} things" for i in range(100)), "books")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("holdout"), [corpus()], SMALL, Mix())


def ids_below(folder: Path) -> set[bytes]:
    return {row["id"] for file in folder.glob("docs-*.parquet") for row in pq.read_table(file).to_pylist()}


def test_documents_go_to_one_side_by_the_hash_of_their_id(run: Run) -> None:
    folder = run.folder("shard.write")
    for source in ("web", "books"):
        every = {row.id for row in corpus() if row.source == source}
        held = {name for name in every if held_out(name, None, run.seed, 0.1)}
        assert 0 < len(held) < len(every) / 4
        assert ids_below(folder / "holdout" / source) == held
        assert ids_below(folder / source) == every - held


def test_no_plan_for_training_names_what_is_held_out(run: Run) -> None:
    plan = read_plan(run.out / "shards" / "plan.json")
    assert [component.name for component in plan.components] == ["books", "web"]
    assert not any("holdout" in component.folder for component in plan.components)
    assert "holdout" not in (run.out / "mixture.yaml").read_text()


def test_the_plan_of_the_holdout_reads_each_row_once_component_after_component(run: Run) -> None:
    path = run.out / "shards" / "holdout.json"
    shards = Shards(path)
    samples = shards.order.samples(0, shards.plan.samples or 0)
    rows = [reader.manifest.rows for reader in shards.components]
    assert [reader.component.name for reader in shards.components] == ["holdout/books", "holdout/web"]
    assert samples.component.tolist() == [0] * rows[0] + [1] * rows[1]
    assert sorted(samples.row[: rows[0]].tolist()) == list(range(rows[0]))
    assert sorted(samples.row[rows[0] :].tolist()) == list(range(rows[1]))
    with stream(path, batch_size=1) as batches:
        assert sum(1 for _ in batches) == sum(rows)
    assert verify(path) == []


def test_a_manifest_finds_its_tokenizer_from_where_it_lies(run: Run) -> None:
    folder = run.folder("shard.write") / "holdout" / "web"
    assert (folder / read_manifest(folder).tokenizer_file).resolve() == run.folder(
        "shard.write"
    ) / "tokenizer.json"


def test_whoever_shares_a_cluster_shares_a_side() -> None:
    sides = {
        cluster: {held_out(bytes([i] * 16), cluster, 17, 0.5) for i in range(50)} for cluster in range(40)
    }
    assert all(len(side) == 1 for side in sides.values())
    assert {side for found in sides.values() for side in found} == {True, False}
    # Another seed holds out others, and the share is about what was asked for.
    held = [[held_out(b"", cluster, seed, 0.2) for cluster in range(4000)] for seed in (1, 2)]
    assert held[0] != held[1]
    assert all(700 < sum(each) < 900 for each in held)


def test_what_is_held_out_follows_a_merged_component(tmp_path: Path) -> None:
    days = [datetime(2024, 1, 1 + i % 3, tzinfo=UTC) for i in range(60)]
    rows = [Document(f"a few words {i}", number=i, date=day) for i, day in enumerate(days)]
    shard = replace(SMALL, components=Components(("source", "date")), holdout=0.3)
    run = Run(tmp_path, [rows], shard)
    names = {read_manifest(path.parent).name for path in run.folder("shard.write").rglob("manifest.json")}
    assert names == {"web.rest", "holdout/web.rest"}


def test_a_source_called_holdout_has_a_folder_of_its_own() -> None:
    assert slug_of("holdout") != "holdout"


@pytest.mark.parametrize("share", [-0.1, 1.0, 2.0])
def test_a_holdout_is_a_share(share: float, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="a share from 0 to below 1"):
        Run(tmp_path, [corpus()], replace(SMALL, holdout=share))


def test_a_holdout_that_keeps_back_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(ShardError, match="holdout keeps back none of 3 documents"):
        Run(tmp_path, [documents(["one", "two", "three"])], replace(SMALL, holdout=1e-9))


def test_without_a_holdout_there_is_no_plan_for_one(tmp_path: Path) -> None:
    plain: Any = replace(SMALL, holdout=0.0)
    run = Run(tmp_path, [corpus()[:50]], plain, Mix())
    assert not (run.out / "shards" / "holdout.json").exists()


def test_a_holdout_that_keeps_back_all_says_so(tmp_path: Path) -> None:
    with pytest.raises(ShardError, match="keeps back every document"):
        Run(tmp_path, [documents(["one", "two", "three"])], replace(SMALL, holdout=1 - 1e-9))


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_no_value_of_the_data_holds_a_document_out(tmp_path: Path, share: float) -> None:
    """The word that marks what is held out, as a page's own value of what components are told by."""
    rows = [Document(f"a few words {i}", source=HELD if i % 2 else "web", number=i) for i in range(60)]
    shard = replace(SMALL, components=Components(("source",)), holdout=share)
    run = Run(tmp_path, [rows], shard, Mix())
    held = {row.id for row in rows if share and held_out(row.id, None, run.seed, share)}
    folders = [path.parent for path in run.folder("shard.write").rglob("manifest.json")]
    found = {side: [f for f in folders if ("holdout" in f.parts) == side] for side in (True, False)}
    assert len(found[False]) == 2
    assert set().union(*map(ids_below, found[True])) == held
    assert set().union(*map(ids_below, found[False])) == {row.id for row in rows} - held


def test_damage_of_what_is_held_out_is_found_from_the_folder_of_shards(run: Run, tmp_path: Path) -> None:
    copied = tmp_path / "shards"
    shutil.copytree(run.out / "shards", copied)
    assert verify(copied) == []
    (part,) = copied.rglob("holdout/web/part-00000.arrow")
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    assert [finding.file for finding in verify(copied)] == [str(part.relative_to(copied))]
