"""Components: what gets a weight, how each is called and in which folder it lies.

A component is the set of documents with the same values of the recipe's `components.by` columns. Names come from data, so
folders never do: a slug has only [a-z0-9._-] and a hash whenever that lost something.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import xxhash

from corpusmill.pipeline.errors import RecipeError
from corpusmill.shards.layout import TOKENIZER_FILE

Key = tuple[str, ...]
"""Values of the `by` columns, in their order."""

HELD = "\0held"
"""Behind the values of a key, which is one longer for it: its documents are held out of training."""

HOLDOUT = "holdout"
"""Folder of all that is held out, and what the names of its components begin with."""

SMALL_BLOCKS = 8
"""Below this many blocks a component of a split source is merged: a window of the stream holds more."""

REST = "rest"

SLUG_LENGTH = 60

MOST_BANDS = 100

SYNTHETIC = "synthetic"
"""The column of a document's kind (pipeline/kinds.py), in one word."""

_HASHED = re.compile(r"-[0-9a-f]{8}$")


@dataclass(frozen=True)
class Band:
    """Documents by a stored measure `band`: cut `at` these values (one that is reached belongs above), or into `parts` with as much text each."""

    band: str
    at: tuple[float, ...] | None = None
    parts: int | None = None

    def __post_init__(self) -> None:
        if (self.at is None) == (self.parts is None):
            raise RecipeError(
                f"band {self.band}: give the values to cut at (at: [0.2, 0.8]) or how many parts of equal size (parts: 4)"
            )
        if self.at is not None and (
            not self.at
            or any(not math.isfinite(value) for value in self.at)
            or any(low >= high for low, high in zip(self.at, self.at[1:], strict=False))
        ):
            raise RecipeError(f"band {self.band}: at is {list(self.at)}; it needs numbers that rise")
        if not 2 <= self.count <= MOST_BANDS:
            raise RecipeError(f"band {self.band}: {self.count} bands; from 2 to {MOST_BANDS} are possible")

    @property
    def count(self) -> int:
        return self.parts if self.at is None else len(self.at) + 1  # type: ignore[return-value]

    @property
    def column(self) -> str:
        return f"band.{self.band}"

    def names(self) -> list[str]:
        """Of the lowest band first."""
        return [f"{self.band}-{number + 1}of{self.count}" for number in range(self.count)]


@dataclass(frozen=True)
class Components:
    """`by`: document columns, measures, bands of a measure, or `synthetic`; documents that agree in all of them form one component.

    Where some input is synthetic or protected and `source` is not listed, `synthetic` is added: kinds of text never share a component.
    """

    by: tuple[str | Band, ...] = ("source",)

    @property
    def bands(self) -> tuple[Band, ...]:
        return tuple(each for each in self.by if isinstance(each, Band))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose values tell components, those of bands under their own names."""
        return tuple(each.column if isinstance(each, Band) else each for each in self.by)


def component_names(keys: Collection[Key]) -> dict[Key, str]:
    """Values joined by dots; where two keys would share a name, each carries a hash of its values."""
    plain = {key: ".".join(key) for key in sorted(keys)}
    shared = Counter(plain.values())
    return {
        key: name if shared[name] == 1 else f"{name}-{_short_hash(chr(0).join(key))}"
        for key, name in plain.items()
    }


def merge_small(tokens: Mapping[Key, int], by: tuple[str, ...], least_tokens: int) -> dict[Key, Key]:
    """Key -> key of the component it goes to: small ones of a source (and kind) that `by` splits meet in (source, "rest").

    A source alone (`by: [source]`) is never renamed, nor is a small component that has no other to meet.
    """
    if tuple(by) == ("source",):
        return {key: key for key in tokens}
    small: dict[Key, list[Key]] = {}
    for key in sorted(tokens):
        if 0 < tokens[key] < least_tokens:
            small.setdefault(rest_of(key, by), []).append(key)
    rest = {key: to for to, keys in small.items() if len(keys) > 1 for key in keys}
    return {key: rest.get(key, key) for key in tokens}


def rest_of(key: Key, by: tuple[str, ...]) -> Key:
    """Where a component goes that is too small: what is left of it when only source and kind of its text tell it."""
    told = dict(zip(by, key, strict=True))
    return (*(told[name] for name in ("source", SYNTHETIC) if name in told), REST)


def slugs(names: Collection[str]) -> dict[str, str]:
    """Name -> folder, one each, safe on every file system; the same whatever other names there are, collisions aside."""
    found: dict[str, str] = {}
    for name in sorted(names):
        slug, width = slug_of(name), 8
        while slug in found.values():
            width += 8
            slug = f"{slug_of(name)[: SLUG_LENGTH - width]}-{_short_hash(name, width)}"
        found[name] = slug
    return found


def slug_of(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9._-]+", "-", plain).strip("._-")[:SLUG_LENGTH]
    if slug and slug == name and slug not in (TOKENIZER_FILE, HOLDOUT) and not _HASHED.search(slug):
        return slug
    return f"{slug[: SLUG_LENGTH - 9] or 'component'}-{_short_hash(name)}"


def _short_hash(text: str, width: int = 8) -> str:
    return str(xxhash.xxh3_128_hexdigest(text.encode()))[:width]
