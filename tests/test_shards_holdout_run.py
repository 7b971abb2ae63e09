"""Holdout behind a real dedup: documents of one cluster of duplicates stay on one side, and nothing is lost between the sides."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
from runs import RECIPE, corpusmill, inputs, write_recipe

from corpusmill.pipeline.run import Run
from corpusmill.shards.holdout import held_out


def test_a_cluster_of_duplicates_stays_on_one_side(undisturbed: Path, crawl: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(undisturbed, out)
    assert "sequence_length: " in RECIPE
    other = write_recipe(
        tmp_path, RECIPE.replace("sequence_length: ", "holdout: 0.2\n      sequence_length: ")
    )
    corpusmill("run", other, "--out", out, *inputs(crawl), "--update")
    run = Run(out)
    state = run.state.stage("shard.write")
    scatter = run.state.stage("shard.scatter")
    assert state is not None and scatter is not None and "dedup.verdict" in scatter.reads
    sides = {
        held: {
            row["id"]
            for file in (out / state.folder).rglob("docs-*.parquet")
            if ("holdout" in file.parts) == held
            for row in pq.read_table(file, columns=["id"], partitioning=None).to_pylist()
        }
        for held in (True, False)
    }
    cluster = {row["id"]: row["cluster"] for row in run.table(["id", "cluster"]).to_pylist()}
    wanted = {name for name in cluster if held_out(name, cluster[name], run.state.seed, 0.2)}
    assert any(number is not None for number in cluster.values())
    assert sides[True] == wanted & (sides[True] | sides[False]) and sides[True]
    assert not sides[True] & sides[False]
    before = Run(undisturbed).manifest("shard.write").counts["documents"]
    assert len(sides[True]) + len(sides[False]) == before
    assert " 0 findings" in corpusmill("verify", out).stdout
    assert corpusmill("locate", out / "shards" / "holdout.json", "--at", "0").stdout
