"""Bounds on a page that are functions of its bytes alone, so that they fall the same way at any load.

The largest of 3,309 real pages had 5.3 MB, 21,600 tags and a depth of 48; the bounds stand well above. Past them time is
quadratic (nested elements) or text is lost in silence (libxml2 drops what is deeper than 256 or longer than 10 MB).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

NAME = re.compile(r"<(/?[a-zA-Z][a-zA-Z0-9:-]*)")
NAME_AND_SLASH = re.compile(r"<(/?[a-zA-Z][a-zA-Z0-9:-]*+)[^<>]*+(?:(?<=(/))|(?<!/))>")
RAW = re.compile(r"<(?:!--|([sS][cC][rR][iI][pP][tT]|[sS][tT][yY][lL][eE])\b)")
RAW_END = {
    "script": re.compile(r"</[sS][cC][rR][iI][pP][tT]"),
    "style": re.compile(r"</[sS][tT][yY][lL][eE]"),
    "": re.compile(r"-->"),
}
# Elements that hold nothing, or that the next one closes: written without end tags they do not nest.
FLAT = frozenset(
    "area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr "
    "p li dt dd tr td th thead tbody tfoot colgroup caption option optgroup rp rt html head body".split()
)


@dataclass(frozen=True)
class Limits:
    """What a page may have, in the order in which it is judged; past a bound it is dropped with the name of the bound as reason."""

    max_bytes: int = 16_000_000  # too_large: of the stored record and of the decoded page
    max_inflated_bytes: int = 64_000_000  # bomb: of a body while its content encodings are undone
    max_tags: int = 100_000  # too_many_tags: `<` in the page; keeps the slowest extractor near 5 s
    max_depth: int = 256  # too_deep: elements that are open at once
    max_run: int = 10_000_000  # long_run: characters between two `<`


def over(html: str, limits: Limits) -> str | None:
    """The reason why a page is out of bounds; None when it is within."""
    tags = html.count("<")
    if tags > limits.max_tags:
        return "too_many_tags"
    if tags > limits.max_depth and depth(html, limits.max_depth) > limits.max_depth:
        return "too_deep"
    if len(html) > limits.max_run and max(map(len, html.split("<"))) > limits.max_run:
        return "long_run"
    return None


def depth(html: str, stop: int) -> int:
    """How many elements are open at once, counted up to `stop` + 1; an end tag closes all that is open inside it.

    1 ms for a page of 290 kB with 2,600 tags. Whether a tag ends in `/>`, which HTML ignores and libxml2 does not, is looked at
    only when the page would be too deep without.
    """
    markup = without_raw(html)
    deepest = _deepest(((name, "") for name in NAME.findall(markup)), stop)
    return deepest if deepest <= stop else _deepest(NAME_AND_SLASH.findall(markup), stop)


def without_raw(html: str) -> str:
    """The page without the insides of comments, scripts and styles."""
    parts: list[str] = []
    position = 0
    while start := RAW.search(html, position):
        parts.append(html[position : start.start()])
        end = RAW_END[(start[1] or "").lower()].search(html, start.end())
        if end is None:
            return "".join(parts)
        position = end.start()
    parts.append(html[position:])
    return "".join(parts)


def _deepest(tags: Iterable[tuple[str, str]], stop: int) -> int:
    """The largest number of open elements; `tags` are names, with `/` before an end tag's, and `/` for an empty one."""
    open_tags: list[str] = []
    counts: dict[str, int] = {}
    deepest = 0
    for tag, empty in tags:
        name = tag.lower()
        if name[0] != "/":
            if empty or name in FLAT:
                continue
            open_tags.append(name)
            counts[name] = counts.get(name, 0) + 1
            if len(open_tags) > deepest:
                deepest = len(open_tags)
                if deepest > stop:
                    return deepest
        elif counts.get(name[1:]):
            while True:
                closed = open_tags.pop()
                counts[closed] -= 1
                if closed == name[1:]:
                    break
    return deepest
