"""Block lists for addresses: hosts, whole URLs, and words in them. No list ships with corpusmill; the recipe gives them.

An address costs 7 us. A row without a URL is on no list.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, NamedTuple

import pyarrow as pa

from corpusmill.filters.rule import FilterRule, bound, check_counts
from corpusmill.pipeline.engine.stage import Measure
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.rules import Cut

NOT_WORD = re.compile(r"[^a-z0-9]+")
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://")
HOST_END = re.compile(r"[/?#\\]")
FROM_FILE = "@"


class Lists(NamedTuple):
    """What UrlMeasures looks up, in lower case but for whole URLs."""

    domains: frozenset[str]
    urls: frozenset[str]
    hard_words: frozenset[str]
    soft_words: frozenset[str]
    parts: re.Pattern[str] | None


def host(url: str) -> str:
    """The host of an address in lower case and ASCII, without user, port and final dot; "" if it has none."""
    rest = url.strip().lower()
    scheme = SCHEME.match(rest)
    rest = rest[scheme.end() :] if scheme else rest.removeprefix("//")
    rest = HOST_END.split(rest, maxsplit=1)[0].rpartition("@")[2]
    if rest.startswith("["):
        return rest.partition("]")[0].removeprefix("[")
    return ascii_name(rest.partition(":")[0]).rstrip(".")


def ascii_name(name: str) -> str:
    """A host name as the domain name system spells it (`xn--...`); as it stands where that has no spelling for it."""
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode()
    except UnicodeError:
        return name


def on_domains(name: str, domains: frozenset[str]) -> bool:
    """Whether the host or a domain above it is listed: `example.com` covers `a.b.example.com`."""
    while name:
        if name in domains:
            return True
        name = name.partition(".")[2]
    return False


@dataclass(frozen=True)
class UrlMeasures(Measure):
    """`url_listed`, and how many different listed words and parts of words an address has. An entry `@FILE` is a file, an entry a line."""

    version: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = ("url",)

    domains: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    hard_words: tuple[str, ...] = ()
    soft_words: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()

    def models(self) -> dict[str, str]:
        entries = (*self.domains, *self.urls, *self.hard_words, *self.soft_words, *self.parts)
        files = sorted({entry for entry in entries if entry.startswith(FROM_FILE)})
        return {name: hashlib.sha256(_read(name)).hexdigest() for name in files}

    def schema(self) -> pa.Schema:
        abouts = {
            "url_listed": "1 if the host, a domain above it or the whole URL is on a list, else 0",
            "url_hard_words": "different words of the hard list among the words of the URL",
            "url_soft_words": "different words of the soft list among the words of the URL",
            "url_parts": "different listed strings in the URL's letters and digits, overlaps left out",
        }
        return pa.schema(
            [pa.field(name, pa.int64(), metadata={"about": about}) for name, about in abouts.items()]
        )

    def measure(self, rows: pa.Table) -> pa.Table:
        lists = self.lists()
        # A loop over rows: set look-ups of a varying number of parts of a string; no Arrow function does them.
        found = [_look_up(url, lists) if url else (0, 0, 0, 0) for url in rows["url"].to_pylist()]
        columns = list(zip(*found, strict=True)) or [()] * 4
        return pa.Table.from_arrays(
            [pa.array(column, pa.int64()) for column in columns], schema=self.schema()
        )

    def warm(self) -> None:
        self.lists()

    def lists(self) -> Lists:
        parts = sorted(filter(None, (NOT_WORD.sub("", entry) for entry in _entries(self.parts))))
        return Lists(
            frozenset(_domain(entry) for entry in _entries(self.domains)),
            frozenset(_entries(self.urls, lower=False)),
            frozenset(_entries(self.hard_words)),
            frozenset(_entries(self.soft_words)),
            # Longest first: of two strings that begin alike the longer one is found.
            re.compile("|".join(sorted(parts, key=len, reverse=True))) if parts else None,
        )


def _domain(entry: str) -> str:
    return ascii_name(entry.removeprefix("*.").strip("."))


def _look_up(url: str, lists: Lists) -> tuple[int, int, int, int]:
    lower = url.lower()
    words = set(NOT_WORD.split(lower))
    parts = set(lists.parts.findall(NOT_WORD.sub("", lower))) if lists.parts else ()
    listed = on_domains(host(url), lists.domains) or url in lists.urls
    return int(listed), len(words & lists.hard_words), len(words & lists.soft_words), len(parts)


@lru_cache(maxsize=64)
def _entries(given: tuple[str, ...], lower: bool = True) -> tuple[str, ...]:
    """The entries of a list, those of its files among them, without blank lines and `#` comments."""
    found = []
    for entry in given:
        lines = (
            _read(entry).decode("utf-8-sig", "replace").splitlines()
            if entry.startswith(FROM_FILE)
            else [entry]
        )
        found += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return tuple(entry.lower() for entry in found) if lower else tuple(found)


def _read(entry: str) -> bytes:
    try:
        return Path(entry.removeprefix(FROM_FILE)).read_bytes()
    except OSError as error:
        raise RecipeError(
            f"url: the list {entry.removeprefix(FROM_FILE)} cannot be read: {error.strerror}"
        ) from None


@dataclass(frozen=True)
class Url(FilterRule):
    """Drops addresses on a list, with a hard word, with more than one soft word, or with a listed string anywhere (FineWeb's rule).

    Each list holds entries or `@FILE`, a file with an entry a line. A domain covers the hosts below it. Words are matched whole, in lower
    case: "sex" is not in "essex". `parts` are matched inside words and across their borders, and hit innocent ones too.
    """

    domains: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    hard_words: tuple[str, ...] = ()
    soft_words: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    max_hard_words: int | None = 0
    max_soft_words: int | None = 1

    def __post_init__(self) -> None:
        check_counts(self, "max_hard_words", "max_soft_words")
        for entry in (*self.hard_words, *self.soft_words):
            if not entry.startswith(FROM_FILE) and NOT_WORD.search(entry.lower()):
                raise RecipeError(
                    f"url: {entry!r} is no single word of a to z and 0 to 9: such an entry never matches; use parts"
                )
        for entry in self.parts:
            if not entry.startswith(FROM_FILE) and not NOT_WORD.sub("", entry.lower()):
                raise RecipeError(f"url: {entry!r} has none of a to z and 0 to 9: such a part never matches")
        for entry in self.domains:
            if not entry.startswith(FROM_FILE) and "/" in entry:
                raise RecipeError(
                    f"url: {entry!r} is no domain: give the host alone, or list the whole address in urls"
                )

    def measures(self) -> tuple[Measure, ...]:
        return (UrlMeasures(self.domains, self.urls, self.hard_words, self.soft_words, self.parts),)

    def cuts(self) -> tuple[Cut, ...]:
        return (
            Cut("url_listed", at_most=0),
            *bound("url_hard_words", at_most=self.max_hard_words),
            *bound("url_soft_words", at_most=self.max_soft_words),
            Cut("url_parts", at_most=0),
        )
