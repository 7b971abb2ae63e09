"""The verdict layer: who stays, and for everyone who goes the document it falls to, how similar they are, and its cluster.

This is the only stage of dedup that writes row for row; it also counts removals by source and stops a run that empties one.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.dedup.bands import curve
from corpusmill.dedup.clusters import KEPT, outcomes_in
from corpusmill.dedup.exact import among
from corpusmill.dedup.layout import Layout, Shared, lay_out
from corpusmill.dedup.records import considered
from corpusmill.pipeline.engine.stage import Inputs, Result, SetOperation, TaskIO, Unit
from corpusmill.pipeline.errors import BudgetError

SMALL_SOURCE = 1_000
"""Rows below which the loss of a source says nothing: small inputs may well be one page many times."""

SUMMARY_FILE = "summary.json"

VERDICT = pa.schema(
    [
        pa.field(
            "kept",
            pa.bool_(),
            metadata={"about": "whether the row stays; null where dedup did not consider it"},
        ),
        pa.field(
            "reason",
            pa.string(),
            metadata={"about": "dedup.exact: same normalised text; dedup.near: similar; null when kept"},
        ),
        pa.field(
            "kept_id",
            pa.binary(16),
            metadata={"about": "id of the kept document that a removed one is similar to"},
        ),
        pa.field(
            "score",
            pa.float64(),
            metadata={"about": "Jaccard similarity of their sets of shingles, at_least to 1"},
        ),
        pa.field(
            "cluster",
            pa.uint64(),
            metadata={
                "about": "least content hash (upper half) in the connected component of similar documents; null: no other is similar"
            },
        ),
        pa.field(
            "cluster_size",
            pa.uint32(),
            metadata={"about": "documents in the component, copies counted; 1 where alone"},
        ),
    ]
)


@dataclass(frozen=True)
class Verdict(SetOperation):
    """One row a document: kept, and if not why and by how much."""

    rate: ClassVar[float] = 1e6  # rows
    shared: Shared
    near: bool
    max_source_loss: float

    def units(self, inputs: Inputs) -> list[Unit]:
        return lay_out(inputs, self.shared)[1]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        layout = Layout.of(unit.fields)
        numbers, outcomes = outcomes_in(io, self.shared, layout, unit.index)
        counts: Counter[str] = Counter({"considered": 0, "kept": 0, "exact": 0, "near": 0})
        sources: dict[str, list[int]] = {}
        rows_written = 0
        for part in unit.parts:
            rows = considered(io, part, self.shared)
            here = among(numbers, rows.number)
            documents = io.documents(part, ["source"])["source"]
            table = verdict_of(rows.row, rows.number, outcomes.filter(pa.array(here)), len(documents))
            io.write_layer(part, table)
            counts.update(_counted(table))
            _by_source(sources, documents.take(pa.array(rows.row)), table["kept"].take(pa.array(rows.row)))
            rows_written += table.num_rows
        return io.result(rows=rows_written, counts=counts, extra={"sources": dict(sorted(sources.items()))})

    def check(self, units: Mapping[int, Unit], results: Mapping[int, Result]) -> list[Unit]:
        sources: dict[str, list[int]] = {}
        for unit in sorted(results):
            for name, (seen, lost) in results[unit].extra["sources"].items():
                _add(sources, name, seen, lost)
        for name, (seen, lost) in sorted(sources.items()):
            if seen >= SMALL_SOURCE and lost > self.max_source_loss * seen:
                raise BudgetError(
                    f"{self.shared.stage}: source {name!r} would lose {lost:,} of {seen:,} documents ({lost / seen:.1%}), more than "
                    f"max_source_loss {self.max_source_loss:.0%}: look at the clusters, then raise max_source_loss or use scope: source"
                )
        return []

    def seal(self, results: Mapping[int, Result], inputs: Inputs) -> dict[str, bytes]:
        summary = self._summary(results, inputs)
        if summary["considered"] >= SMALL_SOURCE and not summary["exact"] + summary["near"]:
            logging.getLogger("corpusmill").warning("%s: %s", self.shared.stage, summary["note"])
        return {SUMMARY_FILE: json.dumps(summary, indent=1, sort_keys=True).encode() + b"\n"}

    def _summary(self, results: Mapping[int, Result], inputs: Inputs) -> dict[str, Any]:
        """Totals of the whole dedup: a run that found or removed nothing says so and with which probabilities it looked."""
        total: Counter[str] = Counter()
        for result in results.values():
            total.update(result.counts)
        outcomes = inputs.results(self.shared.name("outcomes")).values()
        summary: dict[str, Any] = {name: total[name] for name in ("considered", "kept", "exact", "near")}
        if self.near:
            (clusters,) = inputs.results(self.shared.name("clusters")).values()
            summary |= clusters.extra
            summary["chance_of_a_candidate"] = curve(self.shared.bands, self.shared.rows)
        summary["largest_cluster"] = max((result.extra["largest"] for result in outcomes), default=0)
        if not total["exact"] + total["near"]:
            summary["note"] = (
                f"no duplicate among {total['considered']:,} documents: check ngram, at_least and what stands before dedup"
            )
        return summary


def verdict_of(
    row: np.ndarray[Any, np.dtype[np.int64]],
    number: np.ndarray[Any, np.dtype[np.uint64]],
    outcomes: pa.Table,
    rows: int,
) -> pa.Table:
    """The layer of one partition: `row` and `number` of considered rows, outcomes of those that are not alone."""
    at = np.full(rows, -1, np.int64)  # row -> its outcome
    at[row[np.searchsorted(number, outcomes["number"].to_numpy())]] = np.arange(len(outcomes))
    fate = outcomes.take(pa.array(at, mask=at < 0))
    seen = np.zeros(rows, np.bool_)
    seen[row] = True
    outcome = fate["outcome"].fill_null(KEPT).to_numpy()
    reasons = pa.array([None, "dedup.exact", "dedup.near"]).take(pa.array(outcome))
    size = np.asarray(fate["cluster_size"].fill_null(1).to_numpy(), np.uint32)
    columns = [
        pa.array(outcome == KEPT, mask=~seen),
        reasons,
        fate["kept_id"],
        fate["score"],
        fate["cluster"],
        pa.array(size, mask=~seen),
    ]
    return pa.table(columns, schema=VERDICT)


def _counted(table: pa.Table) -> dict[str, int]:
    reasons = pc.value_counts(table["reason"].drop_null())
    removed = {
        str(each["values"]).removeprefix("dedup."): int(each["counts"]) for each in reasons.to_pylist()
    }
    seen = table.num_rows - table["kept"].null_count
    return {"considered": seen, "kept": seen - sum(removed.values()), **removed}


def _by_source(sources: dict[str, list[int]], names: pa.ChunkedArray, kept: pa.ChunkedArray) -> None:
    """Add (considered, removed) of each source."""
    grouped = (
        pa.table({"source": names, "kept": kept.cast(pa.int64())})
        .group_by("source")
        .aggregate([("kept", "count"), ("kept", "sum")])
    )
    for name, seen, stays in zip(
        *(grouped[c].to_pylist() for c in ("source", "kept_count", "kept_sum")), strict=True
    ):
        _add(sources, str(name), seen, seen - stays)


def _add(sources: dict[str, list[int]], name: str, seen: int, lost: int) -> None:
    before = sources.get(name, [0, 0])
    sources[name] = [before[0] + seen, before[1] + lost]
