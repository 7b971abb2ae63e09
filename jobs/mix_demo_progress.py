"""How far a demo's search is, where there is no terminal to draw bars on: a line now and then, with what is left to train."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from corpusmill.jobs.reporter import LineReporter
from corpusmill.pipeline.engine.attempts import Done
from corpusmill.pipeline.engine.manifest import Manifest
from corpusmill.pipeline.engine.stage import Stage

EVERY_S = 15.0

LONG = {"runs": "proxies of the design", "runs2": "of its second round", "trials": "proxies of the verdict"}


class ProxyLines(LineReporter):
    """Summaries of stages, and for those that train a line every EVERY_S seconds. What it says comes from the clock and enters no file."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._began = self._said = 0.0
        self._before = 0

    def stage_began(self, stage: Stage, units: int, done: int) -> None:
        super().stage_began(stage, units, done)
        self._began = self._said = time.monotonic()
        self._before = done

    def stage_ended(
        self, stage: Stage, manifest: Manifest, seconds: float, reused: bool, why: Sequence[str]
    ) -> None:
        """What stands from an earlier step has been told."""
        if not reused:
            super().stage_ended(stage, manifest, seconds, reused, why)

    def task_done(self, stage: Stage, done: Done) -> None:
        super().task_done(stage, done)
        what = LONG.get(stage.name.rpartition(".")[2])
        now = time.monotonic()
        if what and (now - self._said >= EVERY_S or self._done == self._units):
            self._said = now
            left = (now - self._began) / max(1, self._done - self._before) * (self._units - self._done)
            print(
                f"  {what}: {self._done} of {self._units}, {duration(left)} left", file=self._out, flush=True
            )


def duration(seconds: float) -> str:
    return f"about {seconds:.0f} s" if seconds < 90 else f"about {seconds / 60:.1f} minutes"
