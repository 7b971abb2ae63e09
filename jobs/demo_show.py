"""How the demos talk: titles, tables, lines as they are, and commands to copy."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

NAME = "corpusmill"


def console_of() -> Console:
    """Coloured on a terminal, plain and 120 wide elsewhere."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=120, no_color=True)


def title(console: Console, text: str) -> None:
    console.print()
    console.print(text, style="bold")


def table(console: Console, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """The first column is text, the others figures, unless they are text."""
    from rich import box
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for at, heading in enumerate(headings):
        figures = bool(rows) and isinstance(rows[0][at], int)
        drawn.add_column(heading, justify="right" if figures else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*map(_cell, row))
    console.print(drawn)


def _cell(value: object) -> str:
    """Figures with separators, nothing for 0: what stands out in a table is what happened."""
    return (f"{value:,}" if value else "") if isinstance(value, int) else plain(str(value))


def plain(text: str) -> str:
    """Text from data: no markup of the console's."""
    from rich.markup import escape

    return escape(text)


def lines(console: Console, *text: str) -> None:
    for line in text:
        console.print(plain(line), soft_wrap=True)


def next_steps(console: Console, steps: Mapping[str, str]) -> None:
    """Commands to copy, with what each is for above it."""
    for about, command in steps.items():
        lines(console, f"# {about}", f"{called()} {command}")


def called() -> str:
    """How the program can be called again from the same shell: by its path when it is not on PATH."""
    if shutil.which(NAME) is not None:
        return NAME
    own = Path(sys.argv[0])
    if own.name != NAME:  # a module was called: the program stands beside its Python
        own = Path(os.path.relpath(Path(sys.executable).with_name(NAME)))
    return quote(str(own)) if own.is_file() else NAME
