"""Extract from chosen places of the inputs only: what an estimate's sample runs on. Each place is read by a range, never its file.

A place is a byte range (of Parquet: a row group); where a file has no other entrance than its start, the place is the whole file
and a share of its documents, by keyed hash. A unit is some places of one stratum (files of one source and format).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar

import pyarrow as pa

from corpusmill.pipeline.documents import DOCUMENTS
from corpusmill.pipeline.engine.stage import Area, Inputs, Result, SetOperation, TaskIO, Unit
from corpusmill.pipeline.extract.html import LIBRARIES
from corpusmill.pipeline.extract.jsonl import Keys
from corpusmill.pipeline.extract.operation import Extract, ExtractDocuments, Span
from corpusmill.pipeline.extract.page import Settings
from corpusmill.pipeline.extract.rows import Tally


@dataclass(frozen=True)
class Place:
    """A span of an input file, and the share of its documents to take (above 0, up to 1)."""

    span: Span
    share: float = 1.0


@dataclass(frozen=True)
class Batch:
    """The places of one unit; `stratum` is the number of theirs."""

    stratum: int
    places: tuple[Place, ...]


@dataclass(frozen=True)
class ExtractPlaces(SetOperation):
    """Places -> documents. `extra` of a result: `stratum`, `extent` (bytes or rows of the records read), `seen` (documents that a run would take there)."""

    libraries: ClassVar[tuple[str, ...]] = LIBRARIES
    area: ClassVar[Area] = "text"
    rate: ClassVar[float] = ExtractDocuments.rate
    probes: ClassVar[bool] = True

    page: Settings
    keys: Keys
    batches: tuple[Batch, ...]

    def warm(self) -> None:
        ExtractDocuments(self.page, self.keys).warm()

    def units(self, inputs: Inputs) -> list[Unit]:
        return [
            Unit(
                index,
                sum(max(1, place.span.end - place.span.start) for place in batch.places),
                {"stratum": batch.stratum, "places": [asdict(place) for place in batch.places]},
            )
            for index, batch in enumerate(self.batches)
        ]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        total, extent, seen = Tally(), 0, 0.0
        pieces: list[pa.Table] = []
        for value in unit.fields["places"]:
            span = Span(**value["span"])
            of_input = 1.0 if span.sample is None else span.sample
            share = value["share"] * of_input
            reader = ExtractDocuments(self.page, self.keys, sample=share if share < 1 else None)
            found, tally = reader._read(replace(span, sample=None), io, None)
            pieces += found
            total.add(tally)
            extent += _covered(tally)
            seen += of_input * (tally.counts["rows"] + tally.counts["sampled_out"])
        io.write_documents(unit.index, pa.concat_tables([DOCUMENTS.empty_table(), *pieces]))
        extra = {"stratum": unit.fields["stratum"], "extent": extent, "seen": seen}
        return io.result(total.counts["rows"], total.counts, extra)


def _covered(tally: Tally) -> int:
    """From the start of the first record to the end of the last: a range's own borders lie inside records."""
    if tally.first is None or tally.next is None:
        return 0
    return tally.next - tally.first


@dataclass(frozen=True)
class ExtractSample(Extract):
    """A recipe's extract on places."""

    batches: tuple[Batch, ...] = ()

    def operation(self, seed: int, sample: float | None = None, limit: int | None = None) -> SetOperation:
        whole = super().operation(seed)
        assert isinstance(whole, ExtractDocuments)
        return ExtractPlaces(whole.page, whole.keys, self.batches)


def sampled(extract: Extract, batches: tuple[Batch, ...]) -> ExtractSample:
    """`extract` with the same fields, on places."""
    own: dict[str, Any] = {each.name: getattr(extract, each.name) for each in fields(extract)}
    return ExtractSample(**own, batches=batches)
