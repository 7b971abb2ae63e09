"""What a file is, told by its bytes and never by its name."""

from __future__ import annotations

import io
from dataclasses import dataclass

from corpusmill.pipeline.errors import InputError
from corpusmill.pipeline.extract.framing import (
    HEADER_LIMIT,
    SCAN,
    Damaged,
    Framing,
    is_record,
    is_skippable,
)
from corpusmill.pipeline.extract.source import GZIP, ZSTD, AnyFile, Source
from corpusmill.pipeline.extract.warc import (
    Damage,
    ManyRecords,
    RangeReader,
    Record,
    content_length,
    framing_of,
    parse_headers,
)

LZ4 = b"\x04\x22\x4d\x18"
READABLE = ("warc", "jsonl", "parquet", "empty")
ADVICE = {
    "arc": "an ARC file; convert it to WARC first (warcio recompress does it)",
    "lz4": "LZ4 compressed; compress it with gzip or zstd, a member or frame for each record",
    "wat": "a WAT file: it holds metadata and no text; take the WARC or WET file of the same name",
    "json": "one JSON array; write it as JSON Lines, an object a line",
    "unknown": "neither WARC, JSON Lines nor Parquet, as far as its first bytes tell; fetch it again if it should be",
}


@dataclass(frozen=True)
class Format:
    """`kind` is one of READABLE or a key of ADVICE (refused); `split` is False where no place but the start can be read from."""

    kind: str
    compression: str | None = None
    split: bool = True


def sniff(address: AnyFile) -> Format:
    """The format of a file; the first records are read where the magic bytes alone do not say. InputError when it cannot be opened."""
    with Source.open(address) as source:
        return sniff_source(source)


def refusal(path: AnyFile, kind: str) -> InputError:
    """The error for a file that was named exactly and cannot be used."""
    return InputError(f"{path} is {ADVICE[kind]}, or leave it out of the recipe's inputs")


def sniff_source(source: Source) -> Format:
    head = source.read_at(0, 8)
    if source.size == 0:
        return Format("empty")
    if head.startswith(b"PAR1"):
        return Format("parquet")
    if head.startswith(LZ4):
        return Format("lz4")
    if head.startswith(GZIP):
        return _compressed(source, "gzip")
    if head.startswith(ZSTD) or is_skippable(head):
        return _compressed(source, "zstd")
    found = _by_content(source.read_at(0, 4096))
    if found == "unknown":
        return _damaged_warc(source, "gzip", "zstd", None) or Format(found)
    return Format("wat" if found == "warc" and _is_wat(source, None) else found)


def _by_content(head: bytes) -> str:
    """The kind by the first uncompressed bytes."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n\0")
    if is_record(start):
        return "warc"
    if start.startswith(b"filedesc://"):
        return "arc"
    return "jsonl" if start.startswith(b"{") else "json" if start.startswith(b"[") else "unknown"


def _compressed(source: Source, compression: str) -> Format:
    framing = framing_of(source, compression)
    head = framing.head(0, 4096)
    found = _by_content(head)
    if found == "unknown":
        return _damaged_warc(source, compression) or Format(found, compression, split=False)
    if found != "warc":
        return Format(found, compression, split=False)
    if _holds_more(framing):
        return Format("warc", compression, split=False)
    return Format("wat" if _is_wat(source, compression) else "warc", compression)


def _damaged_warc(source: Source, *compressions: str | None) -> Format | None:
    """The format of a WARC file whose beginning is damaged: a record starts in its first SCAN bytes."""
    beginning = Source(io.BytesIO(source.read_at(0, SCAN)), source.name)
    for compression in compressions:
        if framing_of(beginning, compression).scan(0) < beginning.size:
            return Format("warc", compression)
    return None


def _holds_more(framing: Framing) -> bool:
    """Whether the first member holds a second record."""
    try:
        data = framing.head(0, HEADER_LIMIT).lstrip(b"\r\n")
        headers, begin = parse_headers(data)
        end = begin + content_length(headers)
    except Damaged:
        return False
    return end < SCAN and is_record(framing.head(0, end + 1024).lstrip(b"\r\n")[end:])


def _is_wat(source: Source, compression: str | None) -> bool:
    """Whether the first record that is no warcinfo is JSON metadata, as Common Crawl writes WAT files."""
    try:
        for item in RangeReader(framing_of(source, compression), 0, source.size, 0):
            if isinstance(item, Damage) or (isinstance(item, Record) and item.type == "warcinfo"):
                continue
            return item.type == "metadata" and "json" in item.headers.get("content-type", "")
    except ManyRecords:
        pass
    return False
