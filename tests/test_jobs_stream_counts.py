"""What a stream read is counted from its rows: right where the order is right, and said where it is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from search_world import corpus
from shard_runs import Run

from corpusmill.jobs.stream_counts import Counted, count_stream, counted
from corpusmill.mixing.stage import Mix
from corpusmill.pipeline.errors import RunError
from corpusmill.shards.mixture import BORDER, PPB
from corpusmill.shards.plan import Phase
from corpusmill.shards.plan_file import read_plan
from corpusmill.shards.stage import Shard, TokenizerSource

WEIGHTS = {"web": 0.5, "books": 0.3, "code": 0.2}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    shard = Shard(TokenizerSource(train="bpe", vocab=300), sequence_length=16, block_bytes=1 << 10)
    documents = corpus({"web": 60, "books": 40, "code": 30})
    return Run(tmp_path_factory.mktemp("counts"), documents, shard, Mix(weights=WEIGHTS, epochs=2.0))


def test_rows_of_a_whole_stream_are_as_many_of_each_component_as_its_weights_say(run: Run) -> None:
    found, count = count_stream(run.out, 8, (64, 1000, 10**9))
    assert count > BORDER, "a border lies inside"
    assert sum(each.rows[-1] for each in found) == count
    for each in found:
        assert each.weight_ppb == round(WEIGHTS[each.component] * PPB)
        assert each.samples == (64, 1000, count)
        for end, rows in zip(each.samples, each.rows, strict=True):
            assert abs(rows - end * WEIGHTS[each.component]) <= 3
        assert not each.broken()


def test_a_stream_that_reads_one_component_after_the_other_breaks_every_bound(run: Run) -> None:
    """100 of web, then 100 of books, at equal weights: 50 rows off at the 100th sample."""
    plan = replace(
        read_plan(run.out / "shards/plan.json"), phases=(Phase(0, {"web": PPB // 2, "books": PPB // 2}),)
    )
    places = {component.name: place for place, component in enumerate(plan.components)}
    read = np.repeat([places["web"], places["books"]], 100)
    web = counted(plan, places["web"], read, (100, 10**9))
    assert web.rows == (100, 100)
    assert (web.worst_border, web.worst_prefix, web.worst_window) == (0.0, 50.0, 50.0)
    assert [line.partition(":")[0] for line in web.broken()] == ["web", "web"]


def test_a_rare_component_may_be_two_off_at_a_border() -> None:
    common = Counted("web", PPB // 2, (), (), 1.5, 2.0, 2.0)
    assert "at a border" in common.broken()[0]
    assert not replace(common, weight_ppb=PPB // BORDER - 1).broken()


def test_a_plan_of_several_phases_is_refused(run: Run, tmp_path: Path) -> None:
    plan = read_plan(run.out / "shards/plan.json")
    two = replace(plan, phases=(*plan.phases, Phase(100, {"web": PPB})))
    (tmp_path / "shards").mkdir()
    for part in (run.out / "shards").iterdir():
        if part.is_dir():
            (tmp_path / "shards" / part.name).symlink_to(part)
    (tmp_path / "shards/plan.json").write_bytes(two.encode())
    with pytest.raises(RunError, match="one phase"):
        count_stream(tmp_path, 8, (64,))
