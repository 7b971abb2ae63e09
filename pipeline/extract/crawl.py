"""WARC records as drafts: every response, resource and conversion record is a row, all others are counted by type."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import BinaryIO, cast

from corpusmill.pipeline.documents import document_id
from corpusmill.pipeline.extract.formats import Format
from corpusmill.pipeline.extract.http import media_type
from corpusmill.pipeline.extract.page import Outcome, Page, Settings
from corpusmill.pipeline.extract.rows import Draft, Tally, moment
from corpusmill.pipeline.extract.source import CHUNK, Source, damage_errors, decompressed
from corpusmill.pipeline.extract.warc import Damage, RangeReader, Record, framing_of

ROWS = frozenset({"response", "resource", "conversion"})
HEADERS_ROOM = 1 << 18  # bytes of a stored block beyond the page itself
SPOOL_BYTES = 64 << 20  # inflated bytes kept in memory; more goes to a temporary file
MOST_INFLATED = 1100
"""Inflated bytes for a stored byte that a one-stream file may have: deflate cannot give more than 1,032."""


def drafts(
    source: Source,
    format: Format,
    start: int,
    end: int,
    source_name: str,
    relative: str,
    settings: Settings,
    tally: Tally,
) -> Iterator[Draft]:
    """Drafts of the records that start in [start, end); of the whole file when it cannot be split."""
    if not format.split:
        yield from _stream(source, format, source_name, relative, settings, tally)
        return
    reader = RangeReader(
        framing_of(source, format.compression), start, end, settings.limits.max_bytes + HEADERS_ROOM
    )
    yield from _read(reader, source_name, relative, settings, tally)


def _stream(
    source: Source, format: Format, source_name: str, relative: str, settings: Settings, tally: Tally
) -> Iterator[Draft]:
    """One compressed stream holds many records: inflate it to a file of its own, and read that; offsets are in it."""
    with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as spool:
        _inflate(source, format, cast(BinaryIO, spool), relative, tally)
        inflated = Source(cast(BinaryIO, spool), source.name)
        reader = RangeReader(
            framing_of(inflated, None), 0, inflated.size, settings.limits.max_bytes + HEADERS_ROOM
        )
        for draft in _read(reader, source_name, relative, settings, tally):
            draft.meta["offset_in"] = "inflated"
            yield draft
    tally.first, tally.next = 0, source.size


def _inflate(source: Source, format: Format, spool: BinaryIO, relative: str, tally: Tally) -> None:
    stream = decompressed(source, format.compression)
    total = 0
    try:
        while data := stream.read(CHUNK):
            total += len(data)
            spool.write(data)
            if total > MOST_INFLATED * source.size + SPOOL_BYTES:
                tally.damaged(relative, Damage(total, total, "bomb"))
                return
    except damage_errors() as error:
        tally.damaged(relative, Damage(total, total, f"stream: {error}"))


def _read(
    reader: RangeReader, source_name: str, relative: str, settings: Settings, tally: Tally
) -> Iterator[Draft]:
    for item in reader:
        if isinstance(item, Damage):
            tally.damaged(relative, item)
            continue
        tally.counts[f"record.{item.type}"] += 1
        if item.type in ROWS:
            yield _draft(item, document_id(source_name, relative, item.offset), settings)
    tally.first, tally.next = reader.first, reader.next


def _draft(record: Record, id: bytes, settings: Settings) -> Draft:
    headers = record.headers
    meta = {
        key: headers[name]
        for key, name in (("digest", "warc-payload-digest"), ("truncated", "warc-truncated"))
        if headers.get(name)
    }
    if record.type != "response":
        meta["record"] = record.type
    draft = Draft(
        id=id,
        offset=record.offset,
        length=record.length,
        outcome=Outcome(reason="too_large"),
        url=headers.get("warc-target-uri", "").strip("<> ") or None,
        date=moment(headers.get("warc-date")),
        record_id=headers.get("warc-record-id") or None,
        meta=dict(meta),
    )
    if record.block_bytes > settings.limits.max_bytes + HEADERS_ROOM:
        return draft
    mime = headers.get("content-type", "")
    ready = _plain(record, mime, settings)
    if ready is not None:
        draft.outcome = ready
    else:
        draft.page = Page(record.type, mime, record.block)
    return draft


def _plain(record: Record, mime: str, settings: Settings) -> Outcome | None:
    """The text of a WET record, valid UTF-8 as the format wants it: nothing in it can hurt, and a pipe to the child would cost more."""
    if (
        record.type != "conversion"
        or media_type(mime)[0] != "text/plain"
        or len(record.block) > settings.limits.max_bytes
    ):
        return None
    try:
        text = record.block.decode()
    except UnicodeDecodeError:
        return None
    if not text or text.isspace():
        return Outcome(reason="no_text", meta={"mime": "text/plain"})
    return Outcome(
        text=text.removeprefix("\ufeff"),
        meta={"mime": "text/plain", "charset": "utf-8", "charset_by": "utf-8"},
    )
