"""HTML that a search's report is made of: text from data escaped, tables with heads and captions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def t(value: object) -> str:
    """Text from data."""
    return escape(str(value), quote=True)


def section(title: str, body: str) -> str:
    """A heading of ours and HTML below it."""
    return f"<section><h2>{title}</h2>{body}</section>"


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], figures: int = 1) -> str:
    """Cells are HTML already. The first cell names its row; columns from `figures` on hold figures."""
    head = "".join(
        f'<th scope="col"{" class=figure" if place >= figures else ""}>{each}</th>'
        for place, each in enumerate(heads)
    )
    body = []
    for row in rows:
        cells = "".join(
            each
            if each.startswith("<td")
            else f"<td{' class=figure' if place >= figures else ''}>{each}</td>"
            for place, each in enumerate(row[1:], 1)
        )
        body.append(f'<tr><th scope="row">{row[0]}</th>{cells}</tr>')
    return (
        f'<div class="wide"><table><caption>{caption}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )
