"""The extract stage: inputs to the documents table, in partitions laid out from the files and `partition_bytes` alone.

A large file is cut into byte ranges; a record belongs to the range in which it starts. Each range commits where its first record
starts and where its successor's must start; ranges that do not meet (a WARC file inside a WARC file fools the search for a start)
are read again as one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import xxhash
from pydantic import Field

from corpusmill.pipeline.documents import DOCUMENTS
from corpusmill.pipeline.engine.stage import (
    WORKER_BYTES,
    Area,
    InputFile,
    Inputs,
    Result,
    SetOperation,
    TaskIO,
    Unit,
)
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.extract import crawl, jsonl, parquet
from corpusmill.pipeline.extract.formats import READABLE, Format, refusal, sniff
from corpusmill.pipeline.extract.guard import Guard, guard_of
from corpusmill.pipeline.extract.html import LIBRARIES, Extractor, Output
from corpusmill.pipeline.extract.jsonl import Keys
from corpusmill.pipeline.extract.limits import Limits
from corpusmill.pipeline.extract.page import Settings, patient
from corpusmill.pipeline.extract.rows import Draft, Tally, tables
from corpusmill.pipeline.extract.source import AnyFile, Source
from corpusmill.pipeline.extract.warc import ManyRecords
from corpusmill.pipeline.remote_file import RemoteFile
from corpusmill.pipeline.web_client import CONNECTIONS

DUMP_SPEED = 40
"""Text dumps are read about so many times faster a byte than crawls are extracted: their bytes weigh less in a task."""


@dataclass(frozen=True)
class Extract:
    """The recipe's `extract`: which extractor, what is accepted, bounds on a page, and the keys of JSON Lines and Parquet."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "serialize_by_alias": True}

    extractor: Annotated[Extractor, Field(alias="with")] = "trafilatura"
    output: Output = "text"
    statuses: tuple[int, ...] = Settings.statuses
    mimes: tuple[str, ...] = Settings.mimes
    limits: Limits = field(default_factory=Limits)
    cpu_s: float = Settings.cpu_s
    memory_mb: int = Settings.memory_mb
    text_key: str = Keys.text
    url_key: str = Keys.url
    id_key: str = Keys.id
    date_key: str = Keys.date

    def __post_init__(self) -> None:
        if self.extractor == "resiliparse" and self.output == "markdown":
            raise ValueError(
                "resiliparse gives no markdown: take `output: text`, or one of the trafilatura extractors"
            )
        if self.cpu_s <= 0 or self.memory_mb < 512:
            raise ValueError(
                "cpu_s must be above 0 and memory_mb at least 512 (the libraries alone take 300)"
            )

    def operation(self, seed: int, sample: float | None = None, limit: int | None = None) -> SetOperation:
        """The stage's operation; the engine hands it `seed` again with every unit."""
        if sample is not None and not 0 < sample <= 1:
            raise RecipeError(f"sample must be above 0 and at most 1, not {sample}")
        if limit is not None and limit < 1:
            raise RecipeError(f"limit must be at least 1, not {limit}")
        page = Settings(
            self.extractor, self.output, self.statuses, self.mimes, self.limits, self.cpu_s, self.memory_mb
        )
        keys = Keys(self.text_key, self.url_key, self.id_key, self.date_key)
        return ExtractDocuments(page, keys, sample, limit)


@dataclass(frozen=True)
class Span:
    """A range of an input file: bytes, or row numbers for Parquet. Its JSON form is what a unit carries."""

    path: str
    relative: str
    source: str
    kind: str
    compression: str | None
    split: bool
    start: int
    end: int
    remote: dict[str, Any] | None = None  # a RemoteFile; None: a file on this machine
    sample: float | None = None  # of its documents, beside the operation's own

    @property
    def address(self) -> AnyFile:
        return self.path if self.remote is None else RemoteFile.from_json(self.remote)

    @property
    def format(self) -> Format:
        return Format(self.kind, self.compression, self.split)


@dataclass(frozen=True)
class ExtractDocuments(SetOperation):
    """Inputs -> documents. `sample`: share of documents by keyed hash of their id; `limit`: only so many documents, read in order."""

    version: ClassVar[int] = 1
    libraries: ClassVar[tuple[str, ...]] = LIBRARIES
    area: ClassVar[Area] = "text"
    rate: ClassVar[float] = 0.4e6  # compressed crawl, 20 kB a page at 50 ms

    page: Settings = field(default_factory=Settings)
    keys: Keys = field(default_factory=Keys)
    sample: float | None = None
    limit: int | None = None

    def worker_memory(self, unit: Unit) -> int:
        """The worker, its guard's child with libraries and a page of usual size, and twice the bytes of a range (its inflated text)."""
        return 2 * WORKER_BYTES + 2 * max(
            int(span["end"]) - int(span["start"]) for span in unit.fields["spans"]
        )

    def warm(self) -> None:
        """Start the guard's child once, so that a broken installation is known before the workers start."""
        guard = Guard(self.page)
        guard.start()
        guard.close()

    def units(self, inputs: Inputs) -> list[Unit]:
        """A unit a range; with `limit` one unit for all files that can be read, and one for each other, which it names."""
        spans = self._spans(inputs)
        groups = [[span] for span in spans]
        if self.limit is not None:
            together = [span for span in spans if span.kind in READABLE]
            groups = [together, *(group for group in groups if group[0].kind not in READABLE)]
        return [
            Unit(i, sum(map(_weight, group)), {"spans": [asdict(span) for span in group]})
            for i, group in enumerate(groups)
        ]

    def _spans(self, inputs: Inputs) -> list[Span]:
        """The ranges of all files; the beginnings of remote ones are looked at side by side."""

        def of(file: InputFile) -> list[Span]:
            return _spans(file, inputs.partition_bytes, self.keys, self.limit)

        if all(file.remote is None for file in inputs.files):
            found = [of(file) for file in inputs.files]
        else:
            with ThreadPoolExecutor(CONNECTIONS) as pool:
                found = list(pool.map(of, inputs.files))
        return list(itertools.chain.from_iterable(found))

    def run(self, unit: Unit, io: TaskIO) -> Result:
        total = Tally()
        pieces: list[pa.Table] = []
        extra: dict[str, Any] = {}
        for value in unit.fields["spans"]:
            span = Span(**value)
            left = None if self.limit is None else self.limit - total.counts["rows"]
            if left is not None and left <= 0:
                break
            found, tally = self._read(span, io, left)
            pieces += found
            total.add(tally)
            if len(unit.fields["spans"]) == 1:
                extra = {key: value[key] for key in ("relative", "source", "start", "end")}
                extra["file"] = extra.pop("relative")
                extra |= {"first": tally.first, "next": tally.next}
        if total.damage:
            extra["damage"] = total.damage
        io.write_documents(unit.index, pa.concat_tables([DOCUMENTS.empty_table(), *pieces]))
        return io.result(total.counts["rows"], total.counts, extra)

    def check(self, units: Mapping[int, Unit], results: Mapping[int, Result]) -> list[Unit]:
        """Files whose ranges do not meet, again: whole in the unit of the first range, nothing in those of the others."""
        files: dict[tuple[str, str], list[int]] = {}
        for unit in units.values():
            if len(unit.fields["spans"]) == 1 and self.limit is None:
                span = unit.fields["spans"][0]
                files.setdefault((span["source"], span["relative"]), []).append(unit.index)
        again: list[Unit] = []
        for indices in files.values():
            if len(indices) > 1 and not tiles([results[index].extra for index in indices]):
                again += _whole([units[index] for index in indices])
        return again

    def _read(self, span: Span, io: TaskIO, left: int | None) -> tuple[list[pa.Table], Tally]:
        """Tables and counts of a span; a file whose members hold many records each is read as one stream."""
        try:
            return self._collect(span, io, left)
        except ManyRecords:
            with Source.open(span.address) as source:
                whole = span.start == 0 and span.end == source.size
            if whole:
                return self._collect(replace(span, split=False), io, left)
            # A part of it has nowhere to begin; ranges that do not meet are read again as one.
            return [], Tally()

    def _collect(self, span: Span, io: TaskIO, left: int | None) -> tuple[list[pa.Table], Tally]:
        tally = Tally()
        if span.kind not in READABLE or span.kind == "empty":
            tally.counts["file_empty" if span.kind == "empty" else f"file_refused.{span.kind}"] += 1
            tally.first, tally.next = span.start, span.end
            return [], tally
        drafts = self._chosen(self._drafts(span, tally), span.sample, io.seed, left, tally)
        guard = guard_of(patient(self.page, io.patience))
        drafts = (
            (replace(draft, stopped=io.known.get(draft.id.hex())) for draft in drafts) if io.known else drafts
        )
        return list(tables(drafts, guard.run, span.relative, span.source, tally.counts)), tally

    def _drafts(self, span: Span, tally: Tally) -> Iterator[Draft]:
        if span.kind == "parquet":
            yield from parquet.drafts(
                span.address, span.start, span.end, span.source, span.relative, self.keys, tally
            )
            return
        place = (span.format, span.start, span.end, span.source, span.relative)
        with Source.open(span.address) as source:
            source.expect(span.start, span.end)
            if span.kind == "warc":
                yield from crawl.drafts(source, *place, self.page, tally)
            else:
                yield from jsonl.drafts(source, *place, self.keys, tally)

    def _chosen(
        self, drafts: Iterator[Draft], sample: float | None, seed: int, left: int | None, tally: Tally
    ) -> Iterator[Draft]:
        """The drafts of the sample (the smaller of the run's and the input's), up to the limit."""
        share = min((each for each in (self.sample, sample) if each is not None), default=None)
        for draft in drafts:
            if share is not None and xxhash.xxh3_64_intdigest(draft.id, seed) / 2**64 >= share:
                tally.counts["sampled_out"] += 1
                continue
            yield draft
            if left is not None:
                left -= 1
                if not left:
                    return


def _spans(file: InputFile, partition_bytes: int, keys: Keys, limit: int | None) -> list[Span]:
    """The ranges of a file; a file that cannot be used is an error when it was named, else a range with nothing in it."""
    form = sniff(file.address)
    if form.kind not in READABLE and file.named:
        raise refusal(file.address, form.kind)
    span = Span(
        file.path,
        file.relative,
        file.source,
        form.kind,
        form.compression,
        form.split,
        0,
        file.size_bytes,
        file.remote.to_json() if file.remote else None,
        file.sample,
    )
    if form.kind == "parquet":
        most = partition_bytes if limit is None else 2**62
        runs = parquet.spans(parquet.groups(file.address, keys.text), most)
        return [replace(span, start=start, end=end) for start, end, _ in runs]
    if form.kind not in READABLE or not form.split or limit is not None:
        return [span]
    count = max(1, -(-file.size_bytes // partition_bytes))
    borders = [file.size_bytes * i // count for i in range(count + 1)]
    return [replace(span, start=a, end=b) for a, b in itertools.pairwise(borders)]


def _weight(span: Span) -> int:
    """Bytes to read, in those of a crawl (rows of Parquet are taken for 4 kB)."""
    if span.kind == "parquet":
        return max(1, (span.end - span.start) * 4096 // DUMP_SPEED)
    return max(1, (span.end - span.start) // (DUMP_SPEED if span.kind == "jsonl" else 1))


def tiles(ranges: list[dict[str, Any]]) -> bool:
    """Whether the ranges of a file, in order, meet from its start to its end; ranges in which nothing starts do not count."""
    position, end = 0, max(each["end"] for each in ranges)
    for each in ranges:
        if each["first"] is not None:
            if each["first"] != position:
                return False
            position = each["next"]
    return bool(position == end)


def _whole(units: list[Unit]) -> list[Unit]:
    """The first unit with its whole file, the others with none of it."""
    (span,) = units[0].fields["spans"]
    end = units[-1].fields["spans"][0]["end"]
    first = replace(
        units[0],
        fields={"spans": [{**span, "start": 0, "end": end}]},
        weight=sum(unit.weight for unit in units),
    )
    rest = [
        replace(unit, fields={"spans": [{**span, "start": end, "end": end}]}, weight=1) for unit in units[1:]
    ]
    return [first, *rest]
