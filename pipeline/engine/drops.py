"""`max_drop`: a reason that takes nearly every document is a mistake more often than a judgement, and stops the run.

Judged while a stage that drops comes in: extract by its reasons, a verdict by its cuts. Partitions are added up in their order, however
their tasks finish, and from EARLY_ROWS documents on the sum is looked at with each of them. So whether a run stops, and what it says,
follows from its inputs and recipe; only how much more was under way does not. Counts are held for partitions that wait for an earlier one.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.engine.files import Files
from corpusmill.pipeline.engine.stage import Result, Stage
from corpusmill.pipeline.judge import Judge
from corpusmill.pipeline.rules import BOUNDS

EARLY_ROWS = 10_000
"""Rows from which a budget is judged before a stage is done, and documents from which `max_drop` stops a run."""

EXAMPLES = 5
QUANTILES = (0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0)

HIT, DROPPED = "hit.", "dropped."
"""How counts name what a reason drops: in a verdict (each cut by itself, whatever the others say) and in extract."""


def rows_can_be_dropped(stage: Stage) -> bool:
    """Extract and verdicts over measures; dedup has a budget of its own a source (dedup/verdict.py)."""
    return stage.name == "documents" or isinstance(stage.operation, Judge)


@dataclass(frozen=True)
class Drop:
    """The reason that dropped most of the documents that were judged; `parts` are the last partitions that were added."""

    reason: str
    dropped: int
    judged: int
    parts: tuple[int, ...]

    def message(self, files: Files, stage: Stage, limit: float) -> str:
        """What was dropped, and beside it what the measure says of such rows, or some of them."""
        operation = stage.operation
        head = f"{stage.name}: {self.reason} drops {self.dropped:,} of {self.judged:,} documents, more than max_drop ({limit:.1%})"
        if isinstance(operation, Judge):
            about = [f"  {_wanted(operation, self.reason, files, self.parts)}"]
            step = "check the threshold, or raise max_drop in the recipe (1 switches the check off)"
        else:
            about = [f"  {line}" for line in _examples(files, self.reason, self.parts)]
            step = "check the inputs and the fields of extract, or raise max_drop in the recipe (1 switches the check off)"
        return "\n".join([head, *about, step])


@dataclass
class Drops:
    """Adds up the partitions of `order`; `first` is where the share of one reason first exceeded `limit`."""

    order: Sequence[int]
    limit: float
    reasons: Sequence[str] = ()  # the first of those that drop as many is named
    judged: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    first: Drop | None = None
    _added: int = 0
    _waiting: dict[int, Mapping[str, int]] = field(default_factory=dict)
    _last: deque[tuple[int, int]] = field(default_factory=deque)  # (partition, judged rows)
    _held: int = 0  # rows of `_last`: EARLY_ROWS or so

    def add(self, result: Result) -> None:
        self._waiting[result.unit] = result.counts
        while self._added < len(self.order) and (part := self.order[self._added]) in self._waiting:
            self._take(part, self._waiting.pop(part))
            self._added += 1

    def at_end(self) -> Drop | None:
        """The same over everything, however little it is."""
        return self._excess()

    def may_exceed(self, totals: Mapping[str, int]) -> bool:
        """Whether the counts of a whole stage leave it possible: adding up partitions needs all its results."""
        return self.limit < 1 and max(_by_reason(totals).values(), default=0) > min(
            self.limit * judged_in(totals), self.limit * EARLY_ROWS
        )

    def _take(self, part: int, counts: Mapping[str, int]) -> None:
        rows = judged_in(counts)
        self.judged += rows
        self.dropped.update(_by_reason(counts))
        if rows:
            self._last.append((part, rows))
            self._held += rows
        while self._last and self._held - self._last[0][1] >= EARLY_ROWS:
            self._held -= self._last.popleft()[1]
        if self.first is None and self.judged >= EARLY_ROWS:
            self.first = self._excess()

    def _excess(self) -> Drop | None:
        known = [reason for reason in self.reasons if reason in self.dropped] or sorted(self.dropped)
        worst = max(known, key=lambda reason: self.dropped[reason], default=None)
        if worst is None or self.dropped[worst] <= self.limit * self.judged:
            return None
        return Drop(worst, self.dropped[worst], self.judged, tuple(part for part, _ in self._last))


def judged_in(counts: Mapping[str, int]) -> int:
    """Documents that a verdict judged or extract made."""
    return counts.get("judged", counts.get("rows", 0))


def _by_reason(counts: Mapping[str, int]) -> dict[str, int]:
    prefix = HIT if "judged" in counts else DROPPED
    return {name.removeprefix(prefix): n for name, n in counts.items() if name.startswith(prefix)}


def _wanted(operation: Judge, reason: str, files: Files, parts: Sequence[int]) -> str:
    """The bounds of a cut and what its measure is."""
    cut = next(cut for rule, cut in operation.cuts if cut.reason(rule) == reason)
    bounds = {name: bound for name in BOUNDS if (bound := getattr(cut, name)) is not None}
    wanted = ", ".join(f"{name} {_word(bound)}" for name, bound in bounds.items())
    return f"wanted {cut.measure} {wanted}; {spread(files, cut.measure, parts)}"


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


def _examples(files: Files, reason: str, parts: Iterable[int]) -> list[str]:
    """Where some of the documents lie that extract dropped for a reason."""

    def rows() -> Iterator[str]:
        for part in parts:
            table = files.documents(part, ["reason", "url", "origin"])
            for row in table.filter(pc.equal(table["reason"], reason)).slice(0, EXAMPLES).to_pylist():
                place = row["origin"] or {"file": "", "offset": 0}
                yield f"{place['file']} at {place['offset']:,}: {row['url'] or ''}".rstrip()

    return list(itertools.islice(rows(), EXAMPLES))


def _word(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
