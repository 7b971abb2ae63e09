"""Requests to object stores, counted from a run's layout. What one costs is the store's price list.

What is not counted: reads of OUT by later stages (ranges of Parquet files and slices of shuffles), and what is tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from corpusmill.jobs.cost.forecast import StageForecast
from corpusmill.pipeline.engine.stage import Unit

READ_BYTES = 8 << 20
"""A read of an input (docs/stores.md, "What a file is known by", whence the next two as well)."""

LISTED = 1000
"""Objects that one LIST names."""

LOOKS = 2
"""HEAD requests of a task that reads an input, and of the look at a file's beginning."""

PUTS_A_STAGE = 3
"""A manifest's table and head, and run.json (DESIGN of commits: docs/design.md)."""


@dataclass(frozen=True)
class Requests:
    """To the store of the inputs (0 where they are on a disk) and, should OUT lie on one, to that of OUT."""

    input_lists: int
    input_looks: int
    input_gets: int
    out_puts: int


def requests(units: Sequence[Unit], stages: Sequence[StageForecast]) -> Requests:
    """Of planning and extracting remote inputs; of a file a unit, a commit a task and the manifests written to OUT."""
    spans = [span for unit in units for span in unit.fields["spans"] if span.get("remote")]
    files = len({(span["source"], span["relative"]) for span in spans})
    reads = sum(max(1, -(-(span["end"] - span["start"]) // READ_BYTES)) for span in spans)
    return Requests(
        input_lists=-(-files // LISTED),
        input_looks=LOOKS * (len(spans) + files),
        input_gets=reads + files,
        out_puts=sum(stage.units + stage.tasks + PUTS_A_STAGE for stage in stages),
    )
