"""Rows that had failed, in a run that goes on: which units are done again for them, and what is said of those that are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from corpusmill.pipeline.engine.budgets import rows_can_fail
from corpusmill.pipeline.engine.failures import failed_rows
from corpusmill.pipeline.engine.files import Files
from corpusmill.pipeline.engine.manifest import Manifest
from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.engine.replay import Replay, Rows
from corpusmill.pipeline.engine.stage import Result, Stage


@dataclass
class Tries:
    """What `replay` asks for, stage by stage. `reader` reads what a stage made, `warn` tells a person."""

    replay: Replay
    reader: Callable[[Stage], Files]
    warn: Callable[[str], None]
    # Of stages redone in place; their results with them, since the tables are overwritten.
    replaced: dict[str, tuple[Manifest, Mapping[int, Result]]] = field(default_factory=dict)
    any: bool = False  # whether rows were tried again

    def units(self, stage: Stage, results: Mapping[int, Result]) -> list[int]:
        """Units that stand and are to be done again."""
        units = self.replay.to_redo(stage.name, results, self._failed(stage))
        self.any |= bool(units)
        return units

    def redo(self, stage: Stage, manifest: Manifest) -> bool:
        """Whether rows of a stage that stands are to be tried again, or to be failed."""
        if not self.replay.active or not self.units(stage, manifest.results):
            return False
        self.replaced[stage.name] = (manifest, manifest.results)
        return True

    def need_all(self, stage: Stage, manifest: Manifest) -> None:
        """RecipeError when a finished stage lacks rows of the list; a warning for rows that failed here alone."""
        if not self.replay.known:
            return
        results = manifest.results
        self.replay.need_all(stage.name, results, self._failed(stage))
        unlisted = self.replay.unlisted(results, stage.name) if rows_can_fail(stage) else {}
        for reason, rows in sorted(unlisted.items()):
            self.warn(
                f"stage {stage.name}: {rows:,} rows failed here by {reason} that {self.replay.name} does not name: "
                "where they did not, bytes differ (--retry-failed tries them again)"
            )

    def end(self, out: Place) -> None:
        """Say so when there was nothing to try again."""
        if self.replay.retry and not self.any:
            self.warn(
                f"no row of {out} had been stopped by CPU time, memory or a crash: none was tried again"
            )

    def _failed(self, stage: Stage) -> Rows:
        return lambda part: failed_rows(self.reader(stage), stage.name, [part])
