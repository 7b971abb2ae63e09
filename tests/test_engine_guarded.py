"""Rows that end the process that works on them: each costs itself alone, with the same bytes however it was found."""

import json
from pathlib import Path

import misbehaviour
import pyarrow as pa
import pytest
from misbehaviour import fates, write_texts
from runs import hashes

from corpusmill.filters.measures import TextMeasures
from corpusmill.pipeline.engine.attempts import ATTEMPTS, DEATHS, Job, Queue
from corpusmill.pipeline.engine.child import KILLS
from corpusmill.pipeline.engine.files import Task
from corpusmill.pipeline.engine.guarded import RowGuard
from corpusmill.pipeline.engine.replay import read_list
from corpusmill.pipeline.engine.rowwork import layer_schema, work_of
from corpusmill.pipeline.engine.task import dump_operation, path_of
from corpusmill.pipeline.errors import RunError
from corpusmill.pipeline.run import Run

FATES = {
    "good": "kept",
    "segfault": "crash:SIGSEGV",
    "abort": "crash:SIGABRT",
    "spin": "cpu_limit",
    "spin_in_c": "cpu_limit",
    "eat": "memory",
    "raise": "exception:LookupError",
    "panic": "exception:BaseException",
    "crowded": "kept",
    "last": "kept",
}
"""First word of a text -> what becomes of it; `crowded` crashes only beside others."""


@pytest.fixture(autouse=True)
def misbehaving(monkeypatch: pytest.MonkeyPatch) -> None:
    misbehaviour.register(monkeypatch)


MEASURE, EDIT = [{"filter": ["misbehaving"]}], ["shout"]
SOME = ("good", "segfault", "spin_in_c", "crowded", "last")


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        pytest.param(MEASURE, SOME, id="some"),
        pytest.param(MEASURE, tuple(FATES), id="measure", marks=pytest.mark.slow),
        pytest.param(EDIT, tuple(FATES), id="edit", marks=pytest.mark.slow),
    ],
)
def test_a_row_that_ends_its_process_costs_itself_alone(
    stages: list[object], words: tuple[str, ...], tmp_path: Path
) -> None:
    texts = [f"{word} words" for word in words]
    run = misbehaviour.run(tmp_path / "out", write_texts(tmp_path / "in", texts), stages)
    assert fates(run) == {word: FATES[word] for word in words}
    (_, before), (_, counts) = run.ledger()
    failed = {name: n for name, n in counts.items() if name.startswith("failed.")}
    assert before["kept"] == counts["in"] == counts["kept"] + sum(failed.values()) == len(words)
    assert sum(failed.values()) == sum(FATES[word] != "kept" for word in words)


@pytest.mark.slow
def test_a_row_that_runs_out_of_memory_or_time_first_is_found_too(tmp_path: Path) -> None:
    texts = (["good one", "eat it all"], ["spin for ever", "last one"])
    run = misbehaviour.run(tmp_path / "out", write_texts(tmp_path / "in", *texts), workers=2)
    assert fates(run) == {"good": "kept", "eat": "memory", "spin": "cpu_limit", "last": "kept"}


@pytest.mark.slow
def test_bytes_are_the_same_for_any_grouping_and_number_of_workers(tmp_path: Path) -> None:
    inputs = write_texts(
        tmp_path / "in",
        ["good one", "segfault", "good two"],
        ["good three"] * 3,
        ["good", "abort"],
        ["good four"],
    )
    outs = [tmp_path / f"out{workers}" for workers in (1, 2)]
    for workers, out in enumerate(outs, 1):
        misbehaviour.run(out, inputs, workers=workers)
    assert hashes(outs[0]) == hashes(outs[1])


@pytest.mark.ray
@pytest.mark.slow
def test_bytes_are_the_same_on_ray(tmp_path: Path) -> None:
    inputs = write_texts(tmp_path / "in", ["good one", "segfault", "good two", "spin on", "eat it"])
    misbehaviour.run(tmp_path / "local", inputs)
    misbehaviour.run(tmp_path / "ray", inputs, workers=2, ray="local")
    assert hashes(tmp_path / "local") == hashes(tmp_path / "ray")


@pytest.mark.parametrize(
    ("kills", "fate"),
    [
        pytest.param(DEATHS + 2, "kept", id="few"),
        pytest.param(DEATHS + 1 + KILLS, "crash:SIGKILL", id="always", marks=pytest.mark.slow),
    ],
)
def test_kills_from_outside_fail_no_row_unless_they_never_end(kills: int, fate: str, tmp_path: Path) -> None:
    """Two workers die and the child over the whole piece; then the row is alone."""
    left = tmp_path / "left"
    left.write_text("x" * kills)
    run = misbehaviour.run(
        tmp_path / "out", write_texts(tmp_path / "in", ["good one", f"killed {left}", "last"])
    )
    assert fates(run) == {"good": "kept", "killed": fate, "last": "kept"}
    assert left.read_text() == ""


def test_a_child_gives_the_bytes_of_a_worker() -> None:
    operation = TextMeasures(short_lines=(20, 30))
    texts = [
        "Some words stand here, and a line.\nAnother one - and 1 more.",
        "",
        "\u00fcber allem",
        "a " * 3000,
    ]
    rows = pa.table({"text": pa.array(texts, pa.large_string())})
    task = Task("", "m", path_of(operation), dump_operation(operation), {}, 0, suffix="@c4", guarded=True)
    expected = work_of(operation, layer_schema(operation, "@c4"))(rows)
    with RowGuard(operation, task) as guard:
        assert guard.run(rows).equals(expected, check_metadata=True)
        guard.start().kill()
        assert guard.run(rows).equals(expected, check_metadata=True)


def task_of_units(count: int) -> Task:
    units = tuple({"index": i, "weight": 1, "fields": {}, "parts": [2 * i, 2 * i + 1]} for i in range(count))
    return Task("", "shard.scatter", "", {}, {}, 0, units=units)


def test_a_task_is_guarded_after_two_deaths_and_not_for_what_it_raises() -> None:
    raised, died = Queue(), Queue()
    for queue, dead in ((raised, False), (died, True)):
        queue.waiting.extend([Job(task_of_units(4))])
        for _ in range(DEATHS):
            queue.failed(queue.waiting.popleft(), "it failed", died=dead)
    again = raised.waiting.popleft()
    assert not again.task.guarded and again.attempt == ATTEMPTS
    guarded = died.waiting.popleft()
    assert guarded.task.guarded
    died.failed(guarded, "it died again")
    halves = [died.waiting.popleft(), died.waiting.popleft()]
    assert [len(job.task.units) for job in halves] == [2, 2] and not died.waiting
    assert all(job.task.guarded for job in halves)


def test_a_document_that_crashes_a_set_stage_stops_the_run_and_can_be_failed_before_it(
    tmp_path: Path,
) -> None:
    """A stage that looks at documents together cannot leave one out without changing what it says of others."""
    inputs = write_texts(tmp_path / "in", ["good one", "segfault"], ["last"])
    stages = [{"filter": [{"url": {"parts": ["nowhere"]}}]}, "gather"]
    with pytest.raises(RunError) as stopped:
        misbehaviour.run(tmp_path / "out", inputs, stages)
    said = str(stopped.value)
    assert "stage gather, unit 0 (partitions 0 to 1): its worker died (SIGSEGV), in 3 attempts" in said
    assert "leaves out none" in said and "--replay LIST" in said and "the same command goes on" in said
    culprit = next(
        row["id"].hex()
        for row in Run(tmp_path / "out").table(["id", "text"], kept=False).to_pylist()
        if row["text"] == "segfault"
    )
    line = {"stage": "filter.url", "part": 0, "id": culprit, "reason": "crash:SIGSEGV"}
    (tmp_path / "list").write_text(json.dumps(line) + "\n")
    run = misbehaviour.run(tmp_path / "out", inputs, stages, replay=read_list(tmp_path / "list"))
    assert fates(run) == {"good": "kept", "segfault": "crash:SIGSEGV", "last": "kept"}
    assert run.manifest("gather").rows == 2


def test_a_unit_that_keeps_crashing_stops_the_run_with_stage_unit_and_partitions() -> None:
    queue = Queue()
    queue.waiting.extend([Job(task_of_units(2))])
    with pytest.raises(RunError, match=r"stage shard.scatter, unit 0 \(partitions 0 to 1\): its worker died"):
        while queue.waiting:
            queue.failed(queue.waiting.popleft(), "its worker died (SIGSEGV)")
