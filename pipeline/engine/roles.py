"""What the driver asks of others: a runner that executes tasks, and a reporter that is told what happens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from corpusmill.pipeline.engine.attempts import Done, Queue
from corpusmill.pipeline.engine.files import Task
from corpusmill.pipeline.engine.local import Stop
from corpusmill.pipeline.engine.manifest import Manifest
from corpusmill.pipeline.engine.stage import Stage


class Runner(Protocol):
    """Anything that executes tasks; the local runner is one."""

    workers: int
    queue: Queue

    def run(self, tasks: Sequence[Task], stop: Stop | None = None) -> Iterator[Done]: ...


class Reporter(Protocol):
    """Told what happens, for progress and summaries; all its figures are for people, none enters a file."""

    def stage_began(self, stage: Stage, units: int, done: int) -> None: ...

    def task_done(self, stage: Stage, done: Done) -> None: ...

    def stage_ended(
        self, stage: Stage, manifest: Manifest, seconds: float, reused: bool, why: Sequence[str]
    ) -> None: ...

    def warn(self, message: str) -> None: ...
