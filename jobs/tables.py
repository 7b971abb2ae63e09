"""Rows as aligned columns for people, or as JSON lines with whole values; numbers, bytes and dates as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

CELL = 60
"""Characters of a value in a printed table."""


def table_lines(rows: Iterable[Mapping[str, Any]], as_json: bool) -> Iterator[str]:
    """Aligned columns, one line a row; or JSON lines with whole values."""
    values = [{key: plain(value) for key, value in row.items()} for row in rows]
    if as_json:
        yield from (json.dumps(row, ensure_ascii=False, default=plain) for row in values)
        return
    if not values:
        yield "no rows"
        return
    cells = [[_cell(row[key]) for key in row] for row in values]
    names = list(values[0])
    widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(names)]
    for line in [names, *cells]:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _cell(value: Any) -> str:
    text = " ".join(str("" if value is None else value).split())
    return "".join(ch if ch.isprintable() else "\N{REPLACEMENT CHARACTER}" for ch in text)[:CELL]


def plain(value: Any) -> Any:
    """A value for JSON and for people: bytes as hex, dates in ISO form."""
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, datetime) else value


def figure(value: Any) -> Any:
    """A number without the `.0` of a whole one, and in as many digits as tell it from a bound."""
    return f"{value:.12g}" if isinstance(value, float) else value
