"""What several commands share: kinds of arguments, and the check that the `pipeline` extra is there."""

from __future__ import annotations

import argparse
import importlib.util
from typing import TYPE_CHECKING

from corpusmill.pipeline.errors import RecipeError

if TYPE_CHECKING:
    from corpusmill.pipeline.engine.place import Place


MOST = (1 << 63) - 1
"""The largest number that an option takes: samples, documents and bytes are counted in 63 bits."""


def count(text: str) -> int:
    return _whole(text, 1, "above 0")


def count_or_zero(text: str) -> int:
    return _whole(text, 0, "from 0")


def _whole(text: str, least: int, which: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 100 or not least <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"{text[:100]!r} is no whole number {which} to {MOST}")
    return int(text)


def span(text: str) -> tuple[int, int]:
    """N:M as (N, M), what follows the last; N alone is N:N+1."""
    first, colon, last = text.partition(":")
    begin = count_or_zero(first)
    end = count_or_zero(last) if colon else begin + 1
    if end <= begin:
        raise argparse.ArgumentTypeError(f"{text!r} is empty: in N:M, M is behind the last")
    return begin, end


def numbers(text: str) -> dict[str, float]:
    """NAME=NUMBER,... as a mapping."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = part.strip().rpartition("=")
        if name in found:
            raise argparse.ArgumentTypeError(f"{name!r} is named twice")
        try:
            found[name] = float(value)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise argparse.ArgumentTypeError(f"{part!r} is not NAME=NUMBER")
    return found


def columns(text: str) -> list[str]:
    """Names between commas, each once."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError("at least one name is needed")
    return list(dict.fromkeys(names))


def need_pipeline() -> None:
    """One line that says what to install, instead of a traceback."""
    missing = [name for name in ("pydantic", "yaml", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        raise RecipeError(
            f"this command needs the pipeline extra ({', '.join(missing)} missing): pip install 'corpusmill[pipeline]'"
        )


def need_share(sample: float | None) -> None:
    """RecipeError for a --sample that is no share."""
    if sample is not None and not 0 < sample <= 1:
        raise RecipeError(f"--sample {sample}: a share above 0 and up to 1 is needed")


def reachable(path: str) -> Place:
    """A place to read: what is wrong with a bucket or its credentials is said at once."""
    from corpusmill.pipeline.engine.place import readable

    place = readable(path)
    place.check()
    return place
