"""The docs sidecar of a shard: where each document came from. Read whole and by its hash: a wrong address is worse than none.

A document's number leads to its row without a search. An id, an address or a place in a crawl is searched for in all sidecars of a
plan: they hold no index, since trainers never ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.pipeline.engine.store import hash_bytes
from corpusmill.pipeline.errors import ShardError
from corpusmill.shards.layout import DOCS
from corpusmill.shards.reader import ComponentReader, Shards


@dataclass(frozen=True)
class Origin:
    """Where a document came from: bytes of `file`, which is below the input's fixed prefix. None is what the input did not tell."""

    id: str
    url: str | None
    source: str | None
    file: str | None
    offset: int | None
    length: int | None

    def origin(self) -> dict[str, Any]:
        """These fields, for another value that has them."""
        return {field.name: getattr(self, field.name) for field in fields(Origin)}


def origin_of(document: dict[str, Any]) -> Origin:
    """Of a document's columns."""
    named = {name: document[name] for name in ("url", "source", "file", "offset", "length")}
    return Origin(document["id"].hex(), **named)


class Sidecar:
    """Documents of one shard. They stand in the order of their index, so a document's place needs no search."""

    def __init__(self, reader: ComponentReader, shard: int) -> None:
        entry = reader.manifest.shards[shard]
        self.path = reader.folder / entry.docs_file
        self.first = sum(other.documents for other in reader.manifest.shards[:shard])
        self.first_row = sum(other.rows for other in reader.manifest.shards[:shard])
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise ShardError(
                f"{self.path} cannot be read ({error.strerror or error}); restore it or shard again"
            ) from error
        if hash_bytes(data) != entry.docs_xxh3:
            raise ShardError(
                f"{self.path} is damaged: its hash is not the manifest's; restore it or shard again"
            )
        self.file = pq.ParquetFile(pa.BufferReader(data))
        groups = [self.file.metadata.row_group(i).num_rows for i in range(self.file.num_row_groups)]
        self.starts = np.concatenate([[0], np.cumsum(groups, dtype=np.int64)])
        self.group = lru_cache(maxsize=4)(self.file.read_row_group)

    def document(self, number: int) -> dict[str, Any]:
        """All columns of a document, by their names; `first_row` counts through the component."""
        place = number - self.first
        group = int(np.searchsorted(self.starts, place, side="right")) - 1
        if not 0 <= place < int(self.starts[-1]):
            raise ShardError(f"{self.path} has no document {number}; restore it or shard again")
        row: dict[str, Any] = self.group(group).slice(place - int(self.starts[group]), 1).to_pylist()[0]
        if row["doc"] != number:
            raise ShardError(
                f"{self.path} does not hold document {number} where it should; restore it or shard again"
            )
        return row | {"first_row": self.first_row + row["first_row"]}

    def numbers(self, wanted: Wanted) -> list[int]:
        """Documents that `wanted` means."""
        table = self.file.read(columns=list(wanted.columns))
        return [self.first + int(place) for place in np.flatnonzero(wanted.matches(table))]


@dataclass(frozen=True)
class Wanted:
    """A document by exactly one of its id (32 hex digits), its address, or its place in a crawl (file and a byte of its record)."""

    id: str | None = None
    url: str | None = None
    warc: tuple[str, int] | None = None

    def __post_init__(self) -> None:
        if sum(value is not None for value in (self.id, self.url, self.warc)) != 1:
            raise ShardError(
                "a document is named by its id, its url, or its file and offset: give one of them"
            )
        for text in (self.id, self.url, self.warc and self.warc[0]):
            if text is not None and not (isinstance(text, str) and is_text(text)):
                raise ShardError(f"{text!r} names no document: text in UTF-8 is needed")
        if self.warc is not None and not (type(self.warc[1]) is int and 0 <= self.warc[1] < 1 << 63):
            raise ShardError(
                f"{self.warc[1]!r} is no byte of {self.warc[0]}: a whole number from 0 is needed"
            )
        if "" in (self.id, self.url) or (self.warc is not None and not self.warc[0]):
            raise ShardError("a document's id, url or file is empty; an empty variable of the shell?")
        if self.id is not None and (len(self.id) != 32 or set(self.id) - set("0123456789abcdef")):
            raise ShardError(
                f"{self.id!r} is no document id: 32 hex digits are needed, as locate prints them"
            )

    def __str__(self) -> str:
        return self.id or self.url or "{}:{}".format(*(self.warc or ("", 0)))

    @property
    def columns(self) -> tuple[str, ...]:
        if self.warc is not None:
            return ("file", "offset", "length")
        return ("id",) if self.id is not None else ("url",)

    def matches(self, table: pa.Table) -> Any:
        """Which rows are meant. A file may be named by the end of its path; the offset may lie anywhere in the record."""
        import pyarrow.compute as pc  # brings pydoc along, which a stream has no use for

        if self.warc is None:
            value = bytes.fromhex(self.id) if self.id is not None else self.url
            found = pc.equal(table.column(0), pa.scalar(value, table.schema.field(0).type))
        else:
            name, offset = self.warc
            begins = pc.less_equal(table["offset"], offset)
            ends = pc.greater(pc.add(table["offset"], pc.max_element_wise(table["length"], 1)), offset)
            same = pc.or_(pc.equal(table["file"], name), pc.ends_with(table["file"], "/" + name))
            found = pc.and_(same, pc.and_(begins, ends))
        return pc.fill_null(found, False).to_numpy(zero_copy_only=False)


def is_text(value: str) -> bool:
    """Whether it can be written: bytes of a command line that are no UTF-8 arrive as half characters."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def find(shards: Shards, wanted: Wanted) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """(component, shard, document's columns) of all documents that are meant."""
    for component, reader in enumerate(shards.components):
        for shard in range(len(reader.manifest.shards)):
            sidecar = Sidecar(reader, shard)
            for number in sidecar.numbers(wanted):
                yield component, shard, sidecar.document(number)


def scores(document: dict[str, Any]) -> dict[str, Any]:
    """What a sidecar holds beyond where a document came from: language, measures, what sharding noted."""
    return {name: value for name, value in document.items() if name not in DOCS.names}
