"""Which places of the inputs an estimate's sample reads: spread over all files by a keyed start, never the first pages.

Files of one source and format are a stratum. Its files stand end to end, and places are taken at golden-ratio steps from a start
that hash(seed, stratum) gives: evenly spread however many are taken, and a larger sample holds a smaller one's places.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import xxhash

from corpusmill.pipeline.engine.stage import Unit
from corpusmill.pipeline.extract import parquet
from corpusmill.pipeline.extract.formats import READABLE
from corpusmill.pipeline.extract.operation import Span
from corpusmill.pipeline.extract.places import Batch, Place

GOLDEN = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: multiples of it are as evenly spread as a sequence can be that goes on."""

TRIES_A_PLACE = 20
"""Steps a place before a stratum counts as exhausted: on a small one most steps meet what is taken already."""

MOST_WHOLE_BYTES = 512 << 20
"""Of files without another entrance than their start, so many bytes together are read (and two files at least)."""

GROUPS = (1, 3)
"""Places in a unit, in turns: fixed costs of a partition can be told from those of its documents only where sizes differ."""


@dataclass(frozen=True)
class Stratum:
    """Spans of one source and format, in order. `extent` is their bytes (rows of Parquet); `weight` their cost in bytes of a crawl."""

    source: str
    kind: str
    compression: str | None
    split: bool
    spans: tuple[Span, ...]
    weight: int
    seed: int
    text_key: str
    sample: float | None = None  # share of the documents that the recipe takes

    @property
    def extent(self) -> int:
        return sum(span.end - span.start for span in self.spans)

    @property
    def whole(self) -> bool:
        """Whether a file can only be read from its start."""
        return not self.split and self.kind != "parquet"

    def name(self) -> str:
        return "/".join(filter(None, (self.source, self.kind, self.compression)))


def strata_of(units: Sequence[Unit], seed: int, text_key: str) -> list[Stratum]:
    """The strata of a run's units of extract, those that cannot be read left out."""
    found: dict[tuple[str, str, str, bool, float], list[tuple[Span, int]]] = {}
    for unit in units:
        for value in unit.fields["spans"]:
            span = Span(**value)
            if span.kind in READABLE and span.kind != "empty" and span.end > span.start:
                share = 1.0 if span.sample is None else span.sample
                key = (span.source, span.kind, span.compression or "", span.split, share)
                found.setdefault(key, []).append((span, unit.weight))
    return [
        Stratum(
            source,
            kind,
            compression or None,
            split,
            tuple(span for span, _ in members),
            sum(weight for _, weight in members),
            xxhash.xxh3_64_intdigest(f"{source}/{kind}/{compression}/{split}".encode(), seed),
            text_key,
            share if share < 1 else None,
        )
        for (source, kind, compression, split, share), members in sorted(found.items())
    ]


def choose(stratum: Stratum, count: int, extent: int, documents: float, density: float) -> list[Place]:
    """Up to `count` places of `extent` bytes; where a place is a row group or a file, a share of about `documents` of it.

    `density` is documents a byte (a row of Parquet is a document).
    """
    ends = list(itertools.accumulate(span.end - span.start for span in stratum.spans))
    taken: dict[tuple[int, int], Place] = {}
    whole_bytes = 0
    for step in range(count * TRIES_A_PLACE):
        position = ((stratum.seed + step * GOLDEN) % 2**64 * ends[-1]) >> 64
        index = bisect.bisect_right(ends, position)
        span = stratum.spans[index]
        offset = position - (ends[index - 1] if index else 0)
        if stratum.whole:
            key, place = (index, 0), _share(span, documents, density)
        elif stratum.kind == "parquet":
            start, end = _row_group(span, offset, stratum.text_key)
            key, place = (index, start), _rows(span, start, end, documents)
        else:
            cell = offset // extent
            start = span.start + cell * extent
            key, place = (index, cell), Place(replace(span, start=start, end=min(span.end, start + extent)))
        if key in taken:
            continue
        if stratum.whole:
            whole_bytes += span.end - span.start
            if whole_bytes > MOST_WHOLE_BYTES and len(taken) >= 2:
                break
        taken[key] = place
        if len(taken) == count:
            break
    return list(taken.values())


def _share(span: Span, documents: float, density: float) -> Place:
    expected = (span.end - span.start) * density
    return Place(span, min(1.0, documents / expected) if expected > 0 else 1.0)


def _row_group(span: Span, offset: int, text_key: str) -> tuple[int, int]:
    """(first row, end row) of the row group that holds row `offset` of the span."""
    starts = parquet.groups(span.address, text_key).starts
    at = bisect.bisect_right(starts, span.start + offset) - 1
    return starts[at], starts[at + 1]


def _rows(span: Span, start: int, end: int, documents: float) -> Place:
    return Place(replace(span, start=start, end=end), min(1.0, documents / max(1, end - start)))


def grouped(number: int, places: Sequence[Place]) -> list[Batch]:
    """Places in units of unequal sizes, as GROUPS says."""
    batches: list[Batch] = []
    rest = list(places)
    for size in itertools.cycle(GROUPS):
        if not rest:
            return batches
        batches.append(Batch(number, tuple(rest[:size])))
        rest = rest[size:]
    return batches
