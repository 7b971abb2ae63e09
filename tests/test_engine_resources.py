"""What workers need, and how many fit: by memory on one machine, by every resource on the nodes of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import corpusmill, write_recipe
from test_engine_local import judge_tasks, make_documents

from corpusmill.pipeline.engine.local import LocalRunner
from corpusmill.pipeline.engine.ray_cluster import EQUAL
from corpusmill.pipeline.engine.ray_nodes import Growth, Nodes, need_room
from corpusmill.pipeline.engine.resources import (
    Needs,
    fits,
    local_workers,
    machine_memory_bytes,
    needs_of,
    parse_overrides,
)
from corpusmill.pipeline.engine.stage import WORKER_BYTES, Operation
from corpusmill.pipeline.errors import RecipeError, RunError
from corpusmill.pipeline.registry import STAGES, load_class

GIB = 2**30
STAGES_OF_A_RUN = ["documents", "filter.measures", "filter.measures@c4", "dedup.pairs"]


def test_an_override_says_what_a_worker_needs_of_the_stage_or_of_all_that_it_is_made_of() -> None:
    texts = ["dedup=memory:4GiB,gpus:0.5", "extract=cpus:2,disk:1", "filter.measures=memory:100 MB"]
    found = parse_overrides(texts, STAGES_OF_A_RUN)
    assert found == {
        "dedup": {"memory": 4 * GIB, "gpus": 0.5},
        "documents": {"cpus": 2, "disk": 1},
        "filter.measures": {"memory": 10**8},
    }


@pytest.mark.parametrize(
    "text",
    [
        "dedupe=memory:4GiB",
        "dedup",
        "dedup=memory",
        "dedup=memory:many",
        "dedup=memory:4parsecs",
        "dedup=cpus:0",
        "dedup=gpus:1GiB",
        "dedup=memory:-1",
    ],
)
def test_an_override_that_cannot_be_meant_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(RecipeError, match=f"--resources {text}"):
        parse_overrides([text], STAGES_OF_A_RUN)


@pytest.mark.parametrize("what", ["gpus:1", "cpus:2", "fast_disk:1", "memory:1GiB,gpus:0.5"])
def test_what_only_a_cluster_counts_is_refused_without_one_before_any_work(what: str, tmp_path: Path) -> None:
    write_recipe(tmp_path)
    ran = corpusmill(
        *("run", tmp_path / "recipe.yaml", "--out", tmp_path / "out", "--input", tmp_path / "none"),
        *("--resources", f"extract={what}"),
        expect=2,
    )
    names = ", ".join(pair.partition(":")[0] for pair in what.split(",") if not pair.startswith("memory"))
    assert ran.stderr.startswith(
        f"corpusmill: --resources extract: {names} can be asked of a Ray cluster only"
    )
    assert ran.stderr.count("\n") == 1 and not (tmp_path / "out").exists()


def test_a_node_has_room_for_as_many_workers_as_its_scarcest_resource() -> None:
    node = {"CPU": 8.0, "memory": 10.0 * GIB, "GPU": 1.0}
    assert fits(node, Needs()) == 8
    assert fits(node, Needs(memory_bytes=3 * GIB)) == 3
    assert fits(node, Needs(gpus=0.1)) == 8 and fits(node, Needs(gpus=0.3)) == 3
    assert fits(node, Needs(custom={"disk": 1})) == 0
    # Two halves of a worker on two nodes are no worker.
    nodes = Nodes({"a": {"CPU": 1.0, "memory": 5.0 * GIB}, "b": {"CPU": 9.0, "memory": 1.0 * GIB}}, {})
    assert nodes.slots(Needs(memory_bytes=2 * GIB)) == 1


def test_a_demand_is_refused_only_where_no_node_past_or_to_come_can_meet_it() -> None:
    small, need = {"CPU": 4.0, "memory": 8.0 * GIB}, Needs(memory_bytes=16 * GIB)
    with pytest.raises(RunError, match=r"stage mix: a worker needs 1 CPU, 16.00 GiB memory, .* with 4 CPU"):
        need_room("mix", need, [small], Growth(False))
    with pytest.raises(RunError, match="no node of the cluster has that"):
        need_room("mix", need, [small], Growth(True, [small]))
    need_room("mix", need, [small, {"CPU": 1.0, "memory": 20.0 * GIB}], Growth(False))  # one was there
    need_room("mix", need, [], Growth(True, [small, {"CPU": 1.0, "memory": 16.0 * GIB}]))
    need_room("mix", need, [], Growth(True, None))  # an autoscaler that does not say what it can add


def test_a_machine_with_little_memory_runs_fewer_workers_says_so_and_does_all_the_work(
    tmp_path: Path,
) -> None:
    make_documents(tmp_path, 6)
    said: list[str] = []
    with LocalRunner(3, memory_bytes=2 * GIB, say=said.append) as runner:
        most = 0
        done = []
        for each in runner.run(judge_tasks(tmp_path, 6)):
            done.append(each)
            most = max(most, len(runner.pids()))
        assert not said and most <= 3
        runner._memory_bytes = int(1.5 * WORKER_BYTES)
        for each in runner.run(judge_tasks(tmp_path, 6)):
            done.append(each)
            assert len(runner.pids()) == 1
    assert said == [
        "verdict: 1 of 3 workers at once, each may take 0.50 GiB memory of this machine's 0.75 GiB memory"
    ]
    assert sorted(result.unit for each in done for result in each.results) == sorted([*range(6)] * 2)


def test_one_worker_runs_however_little_memory_there_is_and_a_machine_has_some() -> None:
    assert local_workers(8, Needs(memory_bytes=100 * GIB), GIB) == 1
    assert local_workers(8, Needs(memory_bytes=GIB), 10 * GIB) == 8
    assert local_workers(8, Needs(memory_bytes=2 * GIB), 10 * GIB) == 4
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        total = int(meminfo.read_text().split()[1]) * 1024
        assert 0 < machine_memory_bytes() <= total


def test_a_task_says_what_its_operation_declares_and_an_override_replaces_that_alone(tmp_path: Path) -> None:
    (task,) = judge_tasks(tmp_path, 1)
    assert needs_of(task, {}) == Needs(memory_bytes=WORKER_BYTES)
    assert needs_of(task, {"verdict": {"gpus": 1}}) == Needs(memory_bytes=WORKER_BYTES, gpus=1)


def test_what_an_operation_names_as_making_its_bytes_is_compared_on_every_node() -> None:
    for path in STAGES.values():
        load_class(path)  # imports the room

    def below(kind: type[Operation]) -> set[type[Operation]]:
        return {kind}.union(*(below(each) for each in kind.__subclasses__()))

    ours = {kind for kind in below(Operation) if kind.__module__.startswith("corpusmill.")}
    named = {name for kind in ours for name in kind.libraries} - {"torch"}
    assert len(named) > 5 and named <= set(EQUAL)
