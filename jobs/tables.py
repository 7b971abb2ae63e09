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
    names = list(dict.fromkeys(key for row in values for key in row))
    lines = [[_cell(name) for name in names], *([_cell(row.get(name)) for name in names] for row in values)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(names))]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def beside(name: str, own: Iterable[str]) -> str:
    """A user's name as a column beside our `own`: one that is called alike must not take its place."""
    return f"({name})" if name in own else name


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


def interval(value: float, low: float | None, high: float | None) -> str:
    """A difference with the ends of its interval, where both are known."""
    ends = "" if low is None or high is None else f" ({low:+.4f} to {high:+.4f})"
    return f"{value:+.4f}{ends}"
