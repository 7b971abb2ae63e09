"""Budgets that end a run before it has spent days on a mistake: rows that fail, and rows that one cut drops.

`max_error_rate` of a stage is judged while its tasks come in, from EARLY_ROWS on, and when all are in. `max_drop` is judged over the
first partitions that hold EARLY_ROWS rows with text, and over all. The driver does both from results alone; files are read for the
message only. When a run stops may depend on the order in which tasks finish; the bytes of one that finishes never do.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.engine.failures import failed_rows, failures_of
from corpusmill.pipeline.engine.files import Files
from corpusmill.pipeline.engine.manifest import Manifest
from corpusmill.pipeline.engine.stage import Edit, Measure, Result, Stage
from corpusmill.pipeline.errors import BudgetError
from corpusmill.pipeline.judge import Judge
from corpusmill.pipeline.recipe import Recipe

EARLY_ROWS = 10_000
"""Rows from which a budget is judged before a stage is done, and documents from which `max_drop` stops a run."""

LEAST_ROWS = 1_000
"""Rows below which failed ones warn: of 50 pages one that fails is no rate."""

EXAMPLES = 5
QUANTILES = (0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0)


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


@dataclass(frozen=True)
class Drop:
    """The cut that drops most, over some partitions."""

    bit: int
    reason: str
    dropped: int
    judged: int
    parts: tuple[int, ...]


def worst_drop(operation: Judge, results: Mapping[int, Result], parts: Sequence[int]) -> Drop | None:
    """None when nothing was judged or nothing dropped."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(results[part].counts)
    reasons = operation.reasons()
    hits = {bit: total[f"hit.{reason}"] for bit, reason in enumerate(reasons)}
    worst = max(hits, key=lambda bit: hits[bit], default=None)
    if worst is None or not hits[worst]:
        return None
    return Drop(worst, reasons[worst], hits[worst], total["judged"], tuple(parts))


def first_parts(results: Mapping[int, Result], rows: int = EARLY_ROWS) -> list[int]:
    """The first partitions, in order, that together hold so many judged rows; all of them when there are fewer."""
    seen, parts = 0, []
    for part in sorted(results):
        if seen >= rows:
            break
        parts.append(part)
        seen += results[part].counts.get("judged", 0)
    return parts


def excessive_drop(operation: Judge, results: Mapping[int, Result], max_drop: float) -> Drop | None:
    """The cut that drops more than `max_drop`, of the first EARLY_ROWS judged rows or else of all."""
    for parts in (first_parts(results), sorted(results)):
        drop = worst_drop(operation, results, parts)
        if drop is not None and drop.dropped > max_drop * drop.judged:
            return drop
    return None


def drop_message(files: Files, stage: str, operation: Judge, drop: Drop, max_drop: float) -> str:
    """What the cut drops, beside what its measure says of the same rows."""
    _, cut = operation.cuts[drop.bit]
    bounds = {
        name: bound
        for name in ("at_least", "at_most", "one_of", "none_of")
        if (bound := getattr(cut, name)) is not None
    }
    wanted = ", ".join(f"{name} {_word(bound)}" for name, bound in bounds.items())
    return (
        f"{stage}: {drop.reason} drops {drop.dropped:,} of {drop.judged:,} documents, more than max_drop ({max_drop:.1%})\n"
        f"  wanted {cut.measure} {wanted}; {spread(files, cut.measure, drop.parts)}\n"
        "check the threshold, or raise max_drop in the recipe (1 switches the check off)"
    )


def spread(files: Files, measure: str, parts: Sequence[int]) -> str:
    """Quantiles of a number, or the most frequent values of a text, over the rows with text of some partitions."""
    pieces = [table[measure] for part in parts for _, table in files.rows(part, [measure])]
    values = pa.chunked_array([chunk for piece in pieces for chunk in piece.chunks])
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        counted = sorted(
            values.value_counts().to_pylist(), key=lambda item: (-item["counts"], str(item["values"]))
        )
        listed = ", ".join(f"{_word(item['values'])} {item['counts']:,}" for item in counted[:EXAMPLES])
        return f"most have {listed}"
    numbers = pc.cast(values, pa.float64()).drop_null().to_numpy()
    if not len(numbers):
        return "no row has a value"
    found = np.nanquantile(numbers, QUANTILES)
    return "quantiles " + ", ".join(
        f"{q:.0%} {_word(x)}" for q, x in zip(QUANTILES, found.tolist(), strict=True)
    )


@dataclass(frozen=True)
class Watch:
    """The budgets of a run. `manifests` fills as stages end; `reader` reads what a stage made and what it read, for messages."""

    recipe: Recipe
    manifests: Mapping[str, Manifest]
    reader: Callable[[Stage], Files]
    warn: Callable[[str], None]

    def errors(self, stage: Stage) -> Errors:
        return Errors(stage.name, self.recipe.error_rate(stage.name))

    def add(self, stage: Stage, results: Iterable[Result], errors: Errors) -> None:
        """Count what a stage was given and what failed of it."""
        if rows_can_fail(stage):
            before = self.manifests.get(stage.ledger or "documents")  # not there yet while extract runs
            given = before.results if before else {}
            for result in results:
                errors.add(result, rows_given(stage, result, given))

    def early(self, stage: Stage, errors: Errors) -> None:
        """While tasks come in: BudgetError once enough rows say so."""
        if errors.over(EARLY_ROWS):
            raise BudgetError(errors.message(self.reader(stage)))

    def judge(self, stage: Stage) -> None:
        """A stage that is done; BudgetError when a budget is exceeded, a warning where the rows are too few to say."""
        results, errors = self.manifests[stage.name].results, self.errors(stage)
        self.add(stage, results.values(), errors)
        if errors.over():
            stops = errors.rows >= LEAST_ROWS
            self._stop_or_warn(errors.message(self.reader(stage), stops), stops)
        if isinstance(stage.operation, Judge):
            drop = excessive_drop(stage.operation, results, self.recipe.max_drop)
            if drop is not None:
                files, limit = self.reader(stage), self.recipe.max_drop
                message = drop_message(files, stage.name, stage.operation, drop, limit)
                self._stop_or_warn(message, drop.judged >= EARLY_ROWS)

    def _stop_or_warn(self, message: str, stop: bool) -> None:
        if stop:
            raise BudgetError(message)
        self.warn(message)


def _word(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
