"""Rows that an exception or a backstop stopped: where they stand, read from the layers that hold any.

The manifests say which partitions have some; only those are opened, so a list of a few rows of a large run costs a few files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from corpusmill.pipeline.engine.files import Files
from corpusmill.pipeline.engine.stage import Result

PREFIX = "failed."
"""How the counts of a result name failed rows: `failed.<reason>`."""


@dataclass(frozen=True)
class Failure:
    """One failed row. `stage` is the layer that holds it; `file` and `offset` are those of the document's origin."""

    stage: str
    reason: str
    url: str | None
    file: str
    offset: int
    source: str
    part: int
    id: str  # in hex


def failures_of(result: Result) -> dict[str, int]:
    """Reason -> failed rows of a unit."""
    return {name.removeprefix(PREFIX): n for name, n in result.counts.items() if name.startswith(PREFIX)}


def failed_rows(files: Files, stage: str, parts: Iterable[int]) -> Iterator[Failure]:
    """The failed rows of some partitions of a layer, in order; `documents` stands for extract's."""
    for part in parts:
        layer = (
            files.documents(part, ["failed"])
            if stage == "documents"
            else files.layer(stage, part, ["failed"])
        )
        reasons = layer["failed"]
        rows = np.flatnonzero(pc.is_valid(reasons).to_numpy())
        known = files.documents(part, ["id", "url", "source", "origin"]).take(rows).to_pylist()
        for reason, row in zip(reasons.take(rows).to_pylist(), known, strict=True):
            origin = row["origin"] or {"file": "", "offset": 0}
            yield Failure(
                stage,
                reason,
                row["url"],
                origin["file"],
                origin["offset"],
                row["source"],
                part,
                row["id"].hex(),
            )
