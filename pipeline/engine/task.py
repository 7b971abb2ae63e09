"""What any runner executes: `run_task`, a pure function from files to files. A task is a run of units of one stage."""

from __future__ import annotations

import functools
import importlib
import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

from corpusmill.pipeline.engine.files import Files, Task
from corpusmill.pipeline.engine.layers import run_edit, run_judge, run_measure
from corpusmill.pipeline.engine.manifest import write_commit
from corpusmill.pipeline.engine.metrics import Meter
from corpusmill.pipeline.engine.place import Where, place_of
from corpusmill.pipeline.engine.replay import NOTHING, Replay
from corpusmill.pipeline.engine.results import result_to_json
from corpusmill.pipeline.engine.stage import Edit, Measure, Operation, Result, SetOperation, Stage, Unit
from corpusmill.pipeline.errors import CorpusmillError, DamagedError, RunError
from corpusmill.pipeline.judge import Judge
from corpusmill.pipeline.ledger import Ledger, check_sum
from corpusmill.pipeline.remote import redacted


def path_of(operation: Operation) -> str:
    """Import path of an operation's class."""
    return f"{type(operation).__module__}:{type(operation).__qualname__}"


def load_class(path: str) -> type[Any]:
    """The class behind `module:Name`; only our own modules can be named."""
    module, _, name = path.partition(":")
    if not module.startswith("corpusmill."):
        raise RunError(f"operation {path} is not part of corpusmill")
    loaded: type[Any] = getattr(importlib.import_module(module), name)
    return loaded


def dump_operation(operation: Operation) -> dict[str, Any]:
    """An operation's fields as JSON values."""
    kind: Any = type(operation)
    dumped: dict[str, Any] = _adapter(kind).dump_python(operation, mode="json")
    return dumped


def load_operation(path: str, fields: Mapping[str, Any]) -> Operation:
    kind: Any = load_class(path)
    loaded: Operation = _adapter(kind).validate_python(fields)
    return loaded


@functools.cache
def _adapter(kind: Any) -> Any:
    """Made once a class: building one takes milliseconds, many times what it then takes to use it."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def task_to_json(task: Task) -> str:
    """The message to a worker (`dataclasses.asdict` would copy every value: a third of the driver's time on a small task)."""
    return json.dumps(vars(task))


def task_from_json(message: str) -> Task:
    """A task as a worker reads it; where a task has tuples JSON has lists."""
    value = json.loads(message)
    return Task(**{**value, "text": tuple(value["text"]), "units": tuple(value["units"])})


def run_task(task: Task) -> list[Result]:
    """Run all units of a task, then commit them with one record."""
    operation = load_operation(task.operation, task.fields)
    results = []
    for value in task.units:
        unit = Unit(value["index"], value["weight"], value["fields"], tuple(value["parts"]))
        results.append(run_unit(operation, unit, Files(task, unit)))
    write_commit(place_of(task.root) / task.folders[task.stage], results, task.again)
    return results


def run_unit(operation: Operation, unit: Unit, files: Files) -> Result:
    if isinstance(operation, SetOperation):
        return operation.run(unit, files)
    (part,) = unit.parts
    if isinstance(operation, Ledger):
        result = operation.join(files, part)
        if not check_sum(result):
            raise RunError(
                f"ledger of {operation.stage}, partition {part}: rows in are not kept + dropped + failed: {result.counts}"
            )
        return result
    if isinstance(operation, Measure):
        return run_measure(operation, part, files)
    if isinstance(operation, Edit):
        return run_edit(operation, part, files)
    if isinstance(operation, Judge):
        return run_judge(operation, part, files)
    raise RunError(f"{path_of(operation)} is no kind of operation that the engine knows")


def answer(message: str) -> str:
    """One line in, one line out: what the worker process does with a task."""
    meter = Meter()
    try:
        results = run_task(task_from_json(message))
    except Exception as error:
        return json.dumps({"error": describe(error), "usage": meter.usage()})
    return json.dumps({"results": [result_to_json(result) for result in results], "usage": meter.usage()})


def describe(error: Exception) -> dict[str, Any]:
    """What the driver raises, or counts as an attempt, as JSON values."""
    ours = type(error).__name__ if isinstance(error, CorpusmillError) else ""
    return {
        "type": type(error).__name__,
        "ours": ours,
        "message": redacted(str(error)),
        "memory": isinstance(error, MemoryError),
        "place": (error.stage, error.name) if isinstance(error, DamagedError) else (),
        # A full disk or a missing file says all in its message.
        "traceback": ""
        if isinstance(error, OSError)
        else redacted("".join(traceback.format_exception(error))),
    }


def task_of(
    stage: Stage,
    root: Where,
    folders: Mapping[str, str],
    seed: int,
    units: Sequence[Unit],
    again: int = 0,
    hashes: Mapping[str, dict[str, str]] | None = None,
    replay: Replay | None = None,
) -> Task:
    """The message for some units of a stage."""
    return Task(
        root=str(root),
        stage=stage.name,
        operation=path_of(stage.operation),
        fields=dump_operation(stage.operation),
        folders=dict(folders),
        seed=seed,
        text=stage.text,
        ledger=stage.ledger,
        columns=stage.columns,
        suffix=stage.suffix,
        units=_values(units),
        memory_bytes=max((stage.operation.worker_memory(unit) for unit in units), default=0),
        gpus=stage.operation.gpus,
        again=again,
        hashes=dict(hashes or {}),
        patience=replay.patience if replay else 1.0,
        known=replay.known_of(stage.name, (u.index for u in units)) if replay else {},
    )


def tasks_of(
    stage: Stage,
    root: Where,
    folders: Mapping[str, str],
    seed: int,
    groups: Sequence[Sequence[Unit]],
    again: int,
    hashes: HashesOf,
    replay: Replay = NOTHING,
) -> Tasks:
    """A task a group; each says what the largest unit of all takes, since a runner has workers of one size for a stage."""
    memory = max((stage.operation.worker_memory(unit) for group in groups for unit in group), default=0)
    return Tasks(
        replace(task_of(stage, root, folders, seed, (), again, replay=replay), memory_bytes=memory),
        groups,
        hashes,
        replay,
    )


HashesOf = Callable[[Sequence[Unit]], dict[str, dict[str, str]]]
"""Stage -> name -> xxh3 of the files that a task with these units reads whole."""


class Tasks(Sequence[Task]):
    """Tasks that share all but their units, each made when a runner takes it: all of them at once would be the most that a driver holds."""

    def __init__(
        self, common: Task, groups: Sequence[Sequence[Unit]], hashes: HashesOf, replay: Replay = NOTHING
    ) -> None:
        self._common, self._groups, self._hashes, self._replay = common, groups, hashes, replay

    def __len__(self) -> int:
        return len(self._groups)

    @overload
    def __getitem__(self, place: int) -> Task: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Task]: ...
    def __getitem__(self, place: int | slice) -> Task | Sequence[Task]:
        if isinstance(place, slice):
            return Tasks(self._common, self._groups[place], self._hashes, self._replay)
        group = self._groups[place]
        known = self._replay.known_of(self._common.stage, (unit.index for unit in group))
        return replace(self._common, units=_values(group), hashes=self._hashes(group), known=known)


def _values(units: Sequence[Unit]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"index": u.index, "weight": u.weight, "fields": u.fields, "parts": list(u.parts)} for u in units
    )
