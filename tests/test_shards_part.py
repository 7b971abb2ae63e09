"""Components that a plan reads in part: their first rows and no others, each once an epoch, in the order of the format's page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_samples import Sample, documents, small_shards, write_component
from test_shards_format import read_all, streamed

from corpusmill.pipeline.errors import BudgetError, ShardError
from corpusmill.shards.append import first_difference
from corpusmill.shards.layout import Manifest
from corpusmill.shards.order import ComponentOrder
from corpusmill.shards.plan import PPB, Phase, Plan, compile_plan
from corpusmill.shards.plan_file import read_plan
from corpusmill.shards.reader import Shards
from corpusmill.shards.where import where


@pytest.fixture
def two(tmp_path: Path) -> list[tuple[str, Manifest]]:
    return [
        write_component(tmp_path, Sample("big", [documents(1, 40), documents(3, 20)])),
        write_component(tmp_path, Sample("tiny", [documents(2, 3)])),
    ]


EVEN = [Phase(0, {"big": PPB // 2, "tiny": PPB // 2})]


def in_part(two: list[tuple[str, Manifest]], rows: int, **options: Any) -> Plan:
    return compile_plan(two, EVEN, seed=1, window=3, first_rows={"big": rows}, samples=900, **options)


@pytest.mark.parametrize("rows", [1, 4, 6, 41])  # of blocks of 4: one row, a whole block, a cut one, many
def test_rows_come_in_the_order_of_the_page(
    tmp_path: Path, two: list[tuple[str, Manifest]], rows: int
) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(in_part(two, rows).encode())
    assert [row["tokens"] for row in read_all(path, 400)] == streamed(path, 400)


@settings(deadline=None)
@given(blocks=st.lists(st.integers(1, 9), min_size=1, max_size=30), window=st.integers(1, 40), data=st.data())
def test_each_epoch_reads_each_of_the_first_rows_once(
    blocks: list[int], window: int, data: st.DataObject
) -> None:
    rows = data.draw(st.integers(1, sum(blocks)))
    kept = [min(size, max(0, rows - sum(blocks[:i]))) for i, size in enumerate(blocks)]
    order = ComponentOrder("a", 5, window, np.array([size for size in kept if size]))
    epoch, row = order.take(0, 3 * rows)
    assert epoch.tolist() == np.repeat(np.arange(3), rows).tolist()
    for at in range(3):
        assert sorted(row[at * rows : (at + 1) * rows].tolist()) == list(range(rows))


def test_all_rows_as_a_part_give_the_samples_of_no_part(
    tmp_path: Path, two: list[tuple[str, Manifest]]
) -> None:
    whole = compile_plan(two, EVEN, seed=1, window=3, samples=900)
    found = [
        Shards(tmp_path, plan=plan).order.samples(0, 900).row
        for plan in (whole, in_part(two, two[0][1].rows))
    ]
    assert found[0].tolist() == found[1].tolist()


def test_plans_without_parts_keep_their_bytes_and_plans_with_parts_are_read_back(
    tmp_path: Path, two: list[tuple[str, Manifest]]
) -> None:
    assert "first_rows" not in json.dumps(compile_plan(two, EVEN, seed=1).content())
    plan = in_part(two, 7)
    (tmp_path / "plan.json").write_bytes(plan.encode())
    assert read_plan(tmp_path / "plan.json") == plan and plan.components[0].epoch_rows == 7


def test_epochs_count_rows_of_the_part(two: list[tuple[str, Manifest]]) -> None:
    assert in_part(two, 5).epochs(900)["big"] == 450 / 5
    with pytest.raises(BudgetError, match=r"big 90\.00 epochs of 4"):
        in_part(two, 5, max_epochs={"big": 4})


@pytest.mark.parametrize("rows", [0, -1, 10_000])
def test_parts_that_cannot_be_are_named(two: list[tuple[str, Manifest]], rows: int) -> None:
    with pytest.raises(ShardError, match="first_rows of big"):
        in_part(two, rows)
    with pytest.raises(ShardError, match="first_rows names bgi"):
        compile_plan(two, EVEN, seed=1, first_rows={"bgi": 1})


def test_a_document_beyond_the_part_never_comes_and_others_do(
    tmp_path: Path, two: list[tuple[str, Manifest]]
) -> None:
    plan = in_part(two, 9)
    (tmp_path / "plan.json").write_bytes(plan.encode())
    shards = Shards(tmp_path)
    manifest = two[0][1]
    (last,) = where(shards, url=f"https://big.example/{manifest.documents - 1}")
    (first,) = where(shards, url="https://big.example/1")
    assert min(span.row for span in last.document.spans) >= 9 and last.times == ()
    inside = {span.row for span in first.document.spans}
    assert max(inside) < 9 and {time.row for time in first.times} == inside


def test_another_part_is_another_plan_from_the_first_sample_of_the_component_on(tmp_path: Path) -> None:
    plan = small_shards(tmp_path)
    smaller = replace(plan, components=(replace(plan.components[0], first_rows=3), *plan.components[1:]))
    difference = first_difference(plan, smaller)
    assert difference is not None and "read to row 3" in difference.what
    assert difference.sample == plan.mixture().sample_of(0, 0)
    assert smaller.id != plan.id
