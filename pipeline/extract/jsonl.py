"""JSON Lines as drafts: text, URL, id and date by their keys, all other fields into `meta`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from corpusmill.pipeline.documents import document_id
from corpusmill.pipeline.extract.formats import Format
from corpusmill.pipeline.extract.page import Outcome, whole
from corpusmill.pipeline.extract.rows import Draft, Tally, moment
from corpusmill.pipeline.extract.source import Source, damage_errors, decompressed
from corpusmill.pipeline.extract.warc import Damage

LINE_LIMIT = 256_000_000
"""Bytes of a line; a longer one is dropped as `too_large` and never held whole."""

DEPTH_LIMIT = 256
"""Objects and arrays inside one another; a deeper row is `unparsable`. Python's own bound is another one in each version."""


@dataclass(frozen=True)
class Keys:
    """Where a dump keeps what documents have; a dot leads into an object (`metadata.url`)."""

    text: str = "text"
    url: str = "url"
    id: str = "id"
    date: str = "date"


def drafts(
    source: Source,
    format: Format,
    start: int,
    end: int,
    source_name: str,
    relative: str,
    keys: Keys,
    tally: Tally,
) -> Iterator[Draft]:
    """A row for each line that starts in [start, end); blank lines are counted. Offsets are in the inflated stream.

    An uncompressed file can be cut anywhere; a compressed one is read whole.
    """
    stream = source.stream if format.split else decompressed(source, format.compression)
    position = _first_line(source, start) if format.split else 0
    if format.split:
        stream.seek(position)
        end = min(end, source.size)
    tally.first = position if not format.split or position < end else None
    while not format.split or position < end:
        try:
            line, length = _line(stream)
        except damage_errors() as error:
            tally.damaged(relative, Damage(position, position, f"stream: {error}"))
            break
        if not length:
            break
        if line.strip(b" \t\r\n\0"):
            id = document_id(source_name, relative, position)
            yield _draft(line, length, id, position, keys, tally)
        else:
            tally.counts["blank_line"] += 1
        position += length
    if tally.first is not None:
        tally.next = position if format.split else source.size


def _first_line(source: Source, start: int) -> int:
    """The first line that starts at or after `start`."""
    if start == 0:
        return 0
    source.stream.seek(start - 1)
    position = start - 1
    while piece := source.stream.readline(1 << 20):
        position += len(piece)
        if piece.endswith(b"\n"):
            break
    return position


def _line(stream: BinaryIO) -> tuple[bytes, int]:
    """(line, its length); of a line past LINE_LIMIT only the first bytes are kept."""
    line = stream.readline(LINE_LIMIT)
    length = len(line)
    if length == LINE_LIMIT and not line.endswith(b"\n"):
        while piece := stream.readline(1 << 20):
            length += len(piece)
            if piece.endswith(b"\n"):
                break
    return line, length


def _draft(line: bytes, length: int, id: bytes, position: int, keys: Keys, tally: Tally) -> Draft:
    draft = Draft(id=id, offset=position, length=length, outcome=Outcome(reason="too_large"))
    if length > LINE_LIMIT:
        return draft
    try:
        text = line.decode("utf-8-sig" if position == 0 else "utf-8")
    except UnicodeDecodeError:
        text = line.decode("utf-8", "replace")
        tally.counts["invalid_utf8"] += 1
        draft.meta["replaced"] = text.count("\ufffd")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        draft.outcome = Outcome(failed="unparsable")
        return draft
    if not isinstance(value, dict) or too_deep(value):
        draft.outcome = Outcome(failed="unparsable")
        return draft
    fill(draft, value, keys)
    return draft


def fill(draft: Draft, value: dict[str, Any], keys: Keys) -> None:
    """Text, URL, id and date of a row's fields; the fields that are left go to `meta`."""
    text = take(value, keys.text)
    url = take(value, keys.url)
    name = take(value, keys.id)
    date = take(value, keys.date)
    draft.date = moment(date)
    draft.url = whole(url) if isinstance(url, str) and url else None
    draft.record_id = None if name is None or isinstance(name, (dict, list)) else whole(str(name))
    draft.meta.update(value)
    # What cannot be read as the column it was named for stays where it can be seen.
    seen = ((keys.url, url, draft.url), (keys.id, name, draft.record_id), (keys.date, date, draft.date))
    draft.meta.update((key, given) for key, given, read in seen if read is None and given not in (None, ""))
    if not isinstance(text, str) or not text or text.isspace():
        draft.outcome = Outcome(reason="no_text")
    else:
        draft.outcome = Outcome(text=whole(text))


def too_deep(value: Any) -> bool:
    """Whether `value` has more than DEPTH_LIMIT levels."""
    level = [value]
    for _ in range(DEPTH_LIMIT):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [each for values in inner for each in values if isinstance(each, (dict, list))]
    return bool(level)


def take(value: dict[str, Any], path: str) -> Any:
    """Remove and return what stands under `path`; a key with dots in it goes before the way into an object."""
    if path in value:
        return value.pop(path)
    head, dot, rest = path.partition(".")
    inner = value.get(head)
    return take(inner, rest) if dot and isinstance(inner, dict) else None
