"""The attempt budget that all runners share: who may try again, in what pieces, and when the run stops.

A crash, a memory kill or an exception is an attempt, of which a task has three; then it is halved until one unit is left, and that unit's
third failure stops the run with its name. After the second death of its worker a task is guarded: measures and edits then find the row
that is at fault (guarded.py), and it alone fails. The loss of a node is nobody's fault and is counted apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any

from corpusmill.pipeline import errors
from corpusmill.pipeline.engine.files import Task
from corpusmill.pipeline.engine.metrics import Lost
from corpusmill.pipeline.engine.results import result_from_json
from corpusmill.pipeline.engine.stage import Result
from corpusmill.pipeline.errors import RunError

ATTEMPTS = 3
"""Tries of a task that dies or raises before it is halved (several units) or the run stops (one unit)."""

DEATHS = 2
"""Deaths of a task's worker before it is guarded."""

NODE_LOSSES = 50
"""Times that a task may lose its node: preemption is normal, a task that takes every node down with it is not."""


@dataclass(frozen=True)
class Job:
    """A task on its way: which attempt this is, how many nodes it has lost, and how many workers."""

    task: Task
    attempt: int = 1
    nodes_lost: int = 0
    deaths: int = 0


@dataclass(frozen=True)
class Done:
    """A finished task: results a unit and what it used (seconds, CPU seconds, peak memory), for the metrics only."""

    task: Task
    results: list[Result]
    usage: dict[str, float]
    attempt: int


def done_of(job: Job, answer: dict[str, Any]) -> Done:
    """What a worker's answer to a job says."""
    results = [result_from_json(value) for value in answer["results"]]
    return Done(job.task, results, answer["usage"], job.attempt)


class Waiting:
    """Jobs in order: those that were put back, then those to come, each made when it is taken."""

    def __init__(self) -> None:
        self._back: deque[Job] = deque()
        self._to_come: Iterator[Job] = iter(())

    def __bool__(self) -> bool:
        if not self._back:
            self._back.extend(islice(self._to_come, 1))
        return bool(self._back)

    def extend(self, jobs: Iterable[Job]) -> None:
        self._to_come = chain(self._to_come, jobs)

    def appendleft(self, job: Job) -> None:
        self._back.appendleft(job)

    def popleft(self) -> Job:
        if not self:
            raise IndexError("no job waits")
        return self._back.popleft()

    def clear(self) -> None:
        self._back.clear()
        self._to_come = iter(())


@dataclass
class Queue:
    """Jobs that wait, in order; what failed goes first again."""

    waiting: Waiting = field(default_factory=Waiting)
    lost: list[Lost] = field(default_factory=list)  # attempts that came to nothing; the driver takes them

    def failed(
        self,
        job: Job,
        why: str,
        trace: str = "",
        seconds: float = 0.0,
        cpu_seconds: float | None = None,
        died: bool = True,
    ) -> None:
        """Another attempt; after the last, halves; a single unit that cannot be done raises RunError.

        `seconds`: how long it took; `cpu_seconds` is None when nobody could say, since its worker died. `died`: it did, or ran out
        of memory.
        """
        self._note(job, why, seconds, cpu_seconds)
        units, deaths = job.task.units, job.deaths + died
        task = replace(job.task, guarded=job.task.guarded or deaths >= DEATHS)
        if job.attempt < ATTEMPTS or task != job.task:
            self.waiting.appendleft(replace(job, task=task, attempt=job.attempt + 1, deaths=deaths))
        elif len(units) > 1:
            middle = len(units) // 2
            for half in (units[middle:], units[:middle]):
                self.waiting.appendleft(Job(replace(task, units=half)))
        else:
            raise RunError(
                f"{_place(task)}: {why}, in {job.attempt} attempts\n{trace.rstrip()}".rstrip()
                + f"\n{_step(task)}"
            )

    def node_lost(self, job: Job, why: str, seconds: float = 0.0) -> None:
        """The same attempt again, elsewhere."""
        self._note(job, why, seconds, None)
        if job.nodes_lost >= NODE_LOSSES:
            raise RunError(
                f"stage {job.task.stage}: {why}, and its task has lost {NODE_LOSSES} nodes before: look at the nodes' memory"
            )
        self.waiting.appendleft(replace(job, nodes_lost=job.nodes_lost + 1))

    def answered(self, job: Job, answer: dict[str, Any]) -> bool:
        """Whether the task was done; an error of ours is raised under its own class, any other costs an attempt."""
        if "error" not in answer:
            return True
        error = answer["error"]
        if error["ours"] and hasattr(errors, error["ours"]):
            raise getattr(errors, error["ours"])(error["message"], *error["place"])
        used = answer.get("usage", {"seconds": 0.0, "cpu_seconds": 0.0})
        why = f"{error['type']}: {error['message']}"
        died = bool(error.get("memory"))
        self.failed(job, why, error["traceback"], used["seconds"], used["cpu_seconds"], died)
        return False

    def _note(self, job: Job, why: str, seconds: float, cpu_seconds: float | None) -> None:
        units = tuple(unit["index"] for unit in job.task.units)
        cpu = seconds if cpu_seconds is None else cpu_seconds
        self.lost.append(Lost(job.task.stage, units, why, round(seconds, 6), round(cpu, 6)))

    def take_lost(self) -> list[Lost]:
        """What failed since the last call."""
        lost, self.lost = self.lost, []
        return lost


def _place(task: Task) -> str:
    """Stage, unit and partitions, or ranges of files, of a task that is down to one unit."""
    (unit,) = task.units
    place = f"stage {task.stage}, unit {unit['index']}"
    spans, parts = unit["fields"].get("spans", ()), unit["parts"]
    if spans:
        first = spans[0]
        more = f" and {len(spans) - 1:,} more" if len(spans) > 1 else ""
        return f"{place} ({first['relative']} of {first['source']}, {first['start']:,} to {first['end']:,}{more})"
    if len(parts) < 2:
        return place
    return f"{place} (partitions {parts[0]} to {parts[-1]})"


def _step(task: Task) -> str:
    """What to do about a unit that cannot be done."""
    (unit,) = task.units
    step = "What is done stands: mend the cause, then the same command goes on from here."
    if unit["fields"].get("spans"):
        return f"{step} A file that cannot be read may be left out of the inputs (--update accepts that)."
    if unit["parts"] == [unit["index"]] and not unit["fields"]:  # a layer of one partition, row by row
        return step
    return (
        f"{step} This stage looks at documents together, so it leaves out none that may be at fault: one that is known to be "
        "can be failed at an earlier stage (--replay LIST, docs/failures.md)."
    )
