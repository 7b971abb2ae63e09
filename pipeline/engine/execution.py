"""The units of a stage as tasks of a runner: what each is told, what it answers, and what it used."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corpusmill.pipeline.engine.attempts import Done
from corpusmill.pipeline.engine.budgets import Gauge
from corpusmill.pipeline.engine.files import Files
from corpusmill.pipeline.engine.layout import Hashes, group_units, rate_of
from corpusmill.pipeline.engine.local import Stop
from corpusmill.pipeline.engine.manifest import Manifest
from corpusmill.pipeline.engine.metrics import note, note_lost
from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.engine.replay import Replay
from corpusmill.pipeline.engine.results import Packed
from corpusmill.pipeline.engine.roles import Reporter, Runner
from corpusmill.pipeline.engine.stage import Stage, Unit
from corpusmill.pipeline.engine.task import task_of, tasks_of


@dataclass(frozen=True)
class Execution:
    """Of one run; `manifests` and `folders` fill as its stages end."""

    out: Place
    seed: int
    runner: Runner
    reporter: Reporter
    stop: Stop | None
    replay: Replay
    manifests: Mapping[str, Manifest]
    folders: Mapping[str, str]

    def run(self, stage: Stage, units: Sequence[Unit], again: int, gauge: Gauge) -> Packed:
        """The results of all units; `again` counts the rounds of `SetOperation.check`. BudgetError when `gauge` says so."""
        needed = self._folders_for(stage)
        # What stands of the stage itself is about to be made again, and none of its tasks reads it.
        read = {
            name: self.manifests[name] for name in needed if name in self.manifests and name != stage.name
        }
        groups = group_units(units, rate_of(stage), self.runner.workers)
        tasks = tasks_of(stage, self.out, needed, self.seed, groups, again, Hashes(read).of, self.replay)
        results = Packed()
        try:
            for done in self.runner.run(tasks, self.stop):
                results.update({result.unit: result for result in done.results})
                self._measure(stage, done)
                self.reporter.task_done(stage, done)
                gauge.add(done.results)
        finally:
            note_lost(self.out, self.runner.queue.take_lost())
            self.out.flush()
        return results

    def reader(self, stage: Stage) -> Files:
        """Reads what a stage made and what it read, for messages."""
        return Files(task_of(stage, self.out, self._folders_for(stage), self.seed, []), Unit(0, 0))

    def _measure(self, stage: Stage, done: Done) -> None:
        """Seconds, memory and attempts, apart from the data: they differ from run to run."""
        line = {
            "units": [result.unit for result in done.results],
            "attempt": done.attempt,
            "host": os.uname().nodename,
            "folder": self.folders[stage.name],
            **done.usage,
        }
        note(self.out, f"{stage.name}.jsonl", [line])

    def _folders_for(self, stage: Stage) -> dict[str, str]:
        return {name: self.folders[name] for name in (stage.name, "documents", *stage.reads)}
