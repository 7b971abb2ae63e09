"""Budgets that end a run before it has spent days on a mistake: rows that fail (here), and rows that one reason drops (drops.py).

Both are judged while the tasks of a stage come in, from EARLY_ROWS on, and when all are in; what was done before the run was taken up
counts too. The driver judges from results alone; files are read for the message only. No byte of a run that finishes depends on them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from corpusmill.pipeline.engine.drops import EARLY_ROWS, EXAMPLES, Drops, rows_can_be_dropped
from corpusmill.pipeline.engine.failures import PREFIX, failed_rows, failures_of
from corpusmill.pipeline.engine.files import Files
from corpusmill.pipeline.engine.manifest import Manifest
from corpusmill.pipeline.engine.stage import Edit, Measure, Result, Stage
from corpusmill.pipeline.errors import BudgetError
from corpusmill.pipeline.judge import Judge
from corpusmill.pipeline.recipe import Recipe

LEAST_ROWS = 1_000
"""Rows below which failed ones warn: of 50 pages one that fails is no rate."""


@dataclass
class Errors:
    """What a stage was given and what failed of it (reason -> rows), added up unit by unit."""

    stage: str
    limit: float
    rows: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    parts: list[int] = field(default_factory=list)  # some with failed rows, for examples

    def add(self, result: Result, entered: int) -> None:
        self.rows += entered
        failed = failures_of(result)
        self.failed.update(failed)
        if failed and len(self.parts) < EXAMPLES:
            self.parts.append(result.unit)

    def over(self, least: int = 1) -> bool:
        return self.rows >= least and self.failed.total() > self.limit * self.rows

    def message(self, files: Files, stops: bool = True) -> str:
        """Share, worst reason, some of the rows, and the next step, which a run that goes on does not need."""
        worst = max(self.failed, key=lambda reason: (self.failed[reason], reason))
        head = (
            f"{self.stage}: {self.failed.total():,} of {self.rows:,} rows failed ({self.failed.total() / self.rows:.2%}), more than "
            f"max_error_rate ({self.limit:.2%}); most by {worst} ({self.failed[worst]:,})"
        )
        rows = itertools.islice(failed_rows(files, self.stage, sorted(self.parts)), EXAMPLES)
        examples = [f"  {row.file} at {row.offset:,}: {row.reason} {row.url or ''}".rstrip() for row in rows]
        step = (
            "mend the cause, or raise max_error_rate of this stage in the recipe: the same command then goes on from here "
            "(`corpusmill show OUT --failed` lists the failed rows of finished stages)"
            if stops
            else f"the run goes on: of fewer than {LEAST_ROWS:,} rows this share says little; `corpusmill show OUT --failed` lists them"
        )
        return "\n".join([head, *examples, step])


def rows_can_fail(stage: Stage) -> bool:
    """Whether a stage marks rows as failed: extract, measures and edits do."""
    return stage.name == "documents" or isinstance(stage.operation, (Measure, Edit))


def rows_given(stage: Stage, result: Result, before: Mapping[int, Result]) -> int:
    """Rows that a unit worked on: all for extract, those with text (for some edits: those kept so far) for a layer.

    `before` are the results of the layer that says so: the stage's ledger, else the documents.
    """
    counts = result.counts if stage.name == "documents" else before[result.unit].counts
    return counts.get("rows" if stage.name == "documents" else "kept", 0)


@dataclass
class Gauge:
    """The budgets of a stage in work: counts what comes in, and stops the run once enough rows say so."""

    stage: Stage
    errors: Errors
    drops: Drops | None
    before: Mapping[int, Result]  # of the layer that says which rows the stage is given
    reader: Callable[[Stage], Files]

    def add(self, results: Iterable[Result]) -> None:
        """BudgetError when a budget is exceeded with these."""
        for result in results:
            if rows_can_fail(self.stage):
                self.errors.add(result, rows_given(self.stage, result, self.before))
            if self.drops is not None:
                self.drops.add(result)
        if self.errors.over(EARLY_ROWS):
            raise BudgetError(self.errors.message(self.reader(self.stage)))
        if self.drops is not None and self.drops.first is not None:
            raise BudgetError(self.drops.first.message(self.reader(self.stage), self.stage, self.drops.limit))


@dataclass(frozen=True)
class Watch:
    """The budgets of a run. `manifests` fills as stages end; `reader` reads what a stage made and what it read, for messages."""

    recipe: Recipe
    manifests: Mapping[str, Manifest]
    reader: Callable[[Stage], Files]
    warn: Callable[[str], None]

    def gauge(self, stage: Stage, units: Iterable[int], done: Mapping[int, Result]) -> Gauge:
        """For a stage of these units, of which some are done; they count too, so a run that stopped stops again."""
        before = self.manifests.get(stage.ledger or "documents")  # not there yet while extract runs
        given = before.results if before and rows_can_fail(stage) else {}
        gauge = Gauge(stage, self._errors(stage), self._drops(stage, units), given, self.reader)
        if rows_can_fail(stage) or gauge.drops is not None:
            gauge.add(done[unit] for unit in done)
        return gauge

    def judge(self, stage: Stage) -> None:
        """A stage that is done; BudgetError when a budget is exceeded, a warning where the rows are too few to say."""
        manifest = self.manifests[stage.name]
        if rows_can_fail(stage) and any(name.startswith(PREFIX) for name in manifest.counts):
            errors = self._errors(stage)
            before = self.manifests[stage.ledger or "documents"].results
            for result in manifest.results.values():
                errors.add(result, rows_given(stage, result, before))
            if errors.over():
                stops = errors.rows >= LEAST_ROWS
                self._stop_or_warn(errors.message(self.reader(stage), stops), stops)
        drops = self._drops(stage, manifest.results)
        if drops is not None and drops.may_exceed(manifest.counts):
            for result in manifest.results.values():
                drops.add(result)
            if (drop := drops.first or drops.at_end()) is not None:
                message = drop.message(self.reader(stage), stage, drops.limit)
                self._stop_or_warn(message, drop.judged >= EARLY_ROWS)

    def _errors(self, stage: Stage) -> Errors:
        return Errors(stage.name, self.recipe.error_rate(stage.name))

    def _drops(self, stage: Stage, units: Iterable[int]) -> Drops | None:
        if not rows_can_be_dropped(stage):
            return None
        reasons = stage.operation.reasons() if isinstance(stage.operation, Judge) else ()
        return Drops(sorted(units), self.recipe.max_drop, reasons)

    def _stop_or_warn(self, message: str, stop: bool) -> None:
        if stop:
            raise BudgetError(message)
        self.warn(message)
