"""WARC bytes made by hand, an input list, and the extract stage run in memory."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from runs import COLLECTIONS

from corpusmill.pipeline.engine.layout import Inputs
from corpusmill.pipeline.engine.stage import InputFile, Result
from corpusmill.pipeline.extract.operation import Extract
from corpusmill.pipeline.registry import build

SAMPLES = COLLECTIONS / "warc"

needs_samples = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason="the collection of WARC files is not beside the checkout"
)


def sample_files(pattern: str = "*") -> list[str]:
    return [str(path) for path in sorted(SAMPLES.glob(pattern))]


SENTENCES = (
    "The ferry leaves the small harbour at seven in the morning and returns before the evening storm arrives. ",
    "Nobody in the village remembers who planted the long row of lime trees along the northern road. ",
    "A careful reader will notice that the second edition corrects a number of errors in the tables. ",
    "The museum keeps a collection of clocks, most of them built by hand in the valley a century ago. ",
)


def article(number: int, paragraphs: int = 3) -> str:
    """An English page whose main text is its own."""
    text = "".join(
        f"<p>Report {number}, part {part}. {SENTENCES[(number + part) % 4]}{SENTENCES[(number + part + 1) % 4]}</p>"
        for part in range(paragraphs)
    )
    return f"<html><head><title>Report {number}</title></head><body><article><h1>Report {number}</h1>{text}</article></body></html>"


def http(
    body: bytes, headers: Sequence[str] = ("Content-Type: text/html; charset=utf-8",), status: str = "200 OK"
) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers]).encode("latin-1") + b"\r\n\r\n" + body


def record(
    block: bytes,
    kind: str = "response",
    number: int = 0,
    content_type: str = "application/http; msgtype=response",
    length: int | str | None = None,
    extra: Sequence[str] = (),
) -> bytes:
    head = [
        "WARC/1.0",
        f"WARC-Type: {kind}",
        f"WARC-Record-ID: <urn:uuid:{number:032d}>",
        f"WARC-Target-URI: https://example.org/{kind}/{number}",
        "WARC-Date: 2026-03-01T12:00:00Z",
        *extra,
        f"Content-Type: {content_type}",
        f"Content-Length: {len(block) if length is None else length}",
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + block + b"\r\n\r\n"


def pages(count: int, start: int = 0) -> list[bytes]:
    """Response records with an article each."""
    return [record(http(article(number).encode()), number=number) for number in range(start, start + count)]


def members(records: Sequence[bytes]) -> list[bytes]:
    return [gzip.compress(each, 6, mtime=0) for each in records]


def laid_out(files: Sequence[InputFile], partition_bytes: int) -> Inputs:
    """What `units` sees of the inputs."""
    return Inputs(files, partition_bytes, Path(), {}, {})


@dataclass
class Memory:
    """A TaskIO that keeps the partitions it is given."""

    seed: int = 17
    patience: float = 1.0
    known: Mapping[str, str] = field(default_factory=dict)
    partitions: dict[int, pa.Table] = field(default_factory=dict)

    def write_documents(self, part: int, table: pa.Table) -> None:
        self.partitions[part] = table

    def result(
        self, rows: int = 0, counts: Mapping[str, int] | None = None, extra: Mapping[str, Any] | None = None
    ) -> Result:
        return Result(-1, (), rows, dict(counts or {}), dict(extra or {}))


@dataclass
class Extracted:
    """All partitions in order as one table, summed counts, and all damage."""

    table: pa.Table
    counts: Counter[str]
    damage: list[dict[str, Any]]
    partitions: int
    redone: int

    def column(self, name: str) -> list[Any]:
        return self.table[name].to_pylist()


def inputs(paths: Sequence[str | Path], named: bool = False) -> list[InputFile]:
    return [
        InputFile(str(path), Path(path).name, "web", Path(path).stat().st_size, "", named) for path in paths
    ]


def extract(
    paths: Sequence[str | Path],
    partition_bytes: int = 1 << 30,
    sample: float | None = None,
    limit: int | None = None,
    seed: int = 17,
    **recipe: Any,
) -> Extracted:
    """Run the stage as the engine does: units, their check, the units that it wants again."""
    operation = build(Extract, {"with": "trafilatura-fast", **recipe}, "extract").operation(
        seed, sample, limit
    )
    units = operation.units(laid_out(inputs(paths), partition_bytes))
    io = Memory(seed)
    results = {unit.index: operation.run(unit, io) for unit in units}
    laid = {unit.index: unit for unit in units}
    again = operation.check(laid, results)
    results.update({unit.index: operation.run(unit, io) for unit in again})
    assert operation.check(laid, results) == []
    counts: Counter[str] = Counter()
    damage: list[dict[str, Any]] = []
    for index in sorted(results):
        counts.update(results[index].counts)
        damage += results[index].extra.get("damage", [])
    table = pa.concat_tables([io.partitions[index] for index in sorted(io.partitions)])
    return Extracted(table, counts, damage, len(units), len(again))
