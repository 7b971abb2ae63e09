"""Results in small, tasks made when they are taken: the same values as the whole ones, and no more of them than are in use."""

import gc
import json
import weakref
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.engine.attempts import Job, Waiting
from corpusmill.pipeline.engine.files import Task
from corpusmill.pipeline.engine.manifest import read_manifest, write_manifest
from corpusmill.pipeline.engine.results import CHUNK, Packed, Stored
from corpusmill.pipeline.engine.stage import FileRecord, Result, Unit
from corpusmill.pipeline.engine.task import Tasks, task_from_json, task_to_json
from corpusmill.pipeline.errors import RunError

NUMBERS = st.integers(0, 2**62)
FILES = st.lists(st.builds(FileRecord, st.text(), NUMBERS, NUMBERS, st.text()), max_size=3).map(tuple)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
COUNTS = st.dictionaries(st.text(), st.integers(0, 2**40), max_size=3)


def results_of(units: set[int]) -> st.SearchStrategy[dict[int, Result]]:
    return st.fixed_dictionaries(
        {
            unit: st.builds(
                Result, st.just(unit), FILES, NUMBERS, COUNTS, st.dictionaries(st.text(), VALUES, max_size=2)
            )
            for unit in units
        }
    )


@given(st.sets(NUMBERS, max_size=5).flatmap(results_of))
def test_packed_and_stored_results_read_as_the_whole_ones(results: dict[int, Result]) -> None:
    packed = Packed(results)
    stored = Stored(packed.table())
    assert packed == results
    assert stored == results
    assert list(stored) == sorted(results)
    assert {unit: stored.files(unit) for unit in stored} == {
        unit: result.files for unit, result in results.items()
    }


def test_units_that_a_table_lacks_are_missing_keys() -> None:
    stored = Stored(Packed({unit: Result(unit) for unit in (1, 3)}).table())
    for unit in (0, 2, 4):
        assert unit not in stored and stored.files(unit) == ()
        with pytest.raises(KeyError):
            stored[unit]


def test_a_table_of_many_results_is_one_chunk_in_the_order_of_units() -> None:
    units = range(2 * CHUNK + 1)
    table = Packed({unit: Result(unit, rows=unit) for unit in reversed(units)}).table()
    assert table["unit"].num_chunks == 1
    assert table["unit"].to_pylist() == table["rows"].to_pylist() == list(units)


def use_others(folder: Path) -> None:
    """The results of some other stages: the last three that were used stay in memory."""
    for name in "abc":
        assert write_manifest(folder / name, name, "f", {}, {1: Result(1)}, {}).results


def test_a_manifest_forgets_results_that_nobody_holds_and_reads_them_again(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, "s", "f", {}, {7: Result(7, rows=5)}, {})
    held = manifest.results
    assert manifest.results is held
    gone = weakref.ref(held)
    del held
    gc.collect()
    assert manifest.results is gone()
    use_others(tmp_path)
    gc.collect()
    assert gone() is None
    assert manifest.results == {7: Result(7, rows=5)}


def test_a_manifest_that_another_table_took_the_place_of_is_refused(tmp_path: Path) -> None:
    write_manifest(tmp_path, "s", "f", {}, {7: Result(7)}, {})
    manifest = read_manifest(tmp_path)
    write_manifest(tmp_path, "s", "f", {}, {7: Result(7, rows=1)}, {})
    assert manifest is not None
    assert manifest.results == {7: Result(7)}  # as its head says
    use_others(tmp_path)
    with pytest.raises(RunError, match="changed while it was in use"):
        _ = manifest.results


def test_tasks_are_made_one_at_a_time_when_they_are_taken() -> None:
    made = []

    def hashes(units: object) -> dict[str, dict[str, str]]:
        made.append(units)
        return {"documents": {"part": "00"}}

    units = [Unit(number, 1, {"from": number}, (number,)) for number in range(4)]
    tasks = Tasks(task(), [units[:1], units[1:3], units[3:]], hashes)
    waiting = Waiting()
    waiting.extend(Job(each) for each in tasks)
    assert len(tasks) == 3 and made == []
    first = waiting.popleft()
    assert made == [units[:1]]
    waiting.appendleft(first)
    assert waiting.popleft() is first
    assert [unit["index"] for unit in waiting.popleft().task.units] == [1, 2]
    waiting.clear()
    assert not waiting and len(made) == 2


def test_a_task_comes_back_from_its_message() -> None:
    sent = Tasks(task(), [[Unit(5, 9, {"a": [1]}, (5,))]], lambda units: {"documents": {"part": "00"}})[0]
    assert task_from_json(task_to_json(sent)) == sent
    assert json.loads(task_to_json(sent))["units"] == [
        {"index": 5, "weight": 9, "fields": {"a": [1]}, "parts": [5]}
    ]


def task() -> Task:
    return Task(
        "out", "s", "corpusmill.x:Y", {"f": 1}, {"s": "layers/s"}, 3, text=("edit",), ledger="ledger.s"
    )
