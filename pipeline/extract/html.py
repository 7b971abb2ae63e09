"""HTML to text: the extractors that a recipe can choose.

On 1,692 hand-made pages (F1 news / web, time of trafilatura = 1): trafilatura .93/.84, trafilatura-fast .93/.82 in 0.7 of the
time, trafilatura-precision .93/.78, resiliparse .85/.78 in 0.08. All are pure functions of the page: trafilatura's
`deduplicate`, which remembers earlier pages, is off, as are comments and metadata (htmldate doubles the time).
"""

from __future__ import annotations

import html as entities
import importlib
import re
from collections.abc import Callable
from typing import Literal

Output = Literal["text", "markdown"]
Extractor = Literal["trafilatura", "trafilatura-fast", "trafilatura-precision", "resiliparse"]
LIBRARIES = ("trafilatura", "lxml", "lxml_html_clean", "justext", "resiliparse")
TITLE = re.compile(r"<title\b[^>]*>(.{0,2000}?)</title", re.IGNORECASE | re.DOTALL)
OG_TITLE = re.compile(
    r"<meta[^>]{0,200}?property=[\"']og:title[\"'][^>]{0,200}?content=[\"']([^\"']{1,1000})", re.IGNORECASE
)
TITLE_CHARS = 300
ASIDE = re.compile(r"<(/?)aside\b", re.IGNORECASE)
ASIDE_BLOCK = re.compile(r"<aside\b(.*?)(?:</aside\b|\Z)", re.IGNORECASE | re.DOTALL)
PARAGRAPH = re.compile(r"<p\b[^<>]*>(.*?)(?:</p\b|(?=<p\b)|\Z)", re.IGNORECASE | re.DOTALL)
LINK = re.compile(r"<a\b.*?(?:</a\b|\Z)", re.IGNORECASE | re.DOTALL)
TAG = re.compile(r"<[^<>]*>?")
CONTROL = re.compile(
    r"&#(?:0*+(?:[1-8]|1[124-9]|2\d|3[01]|6553[45])(?!\d)|x0*+(?:[1-8bcef]|1[\da-f]|fff[ef])(?![\da-f]));?",
    re.IGNORECASE | re.ASCII,
)
ASIDE_LEAST = 200  # characters in paragraphs; less is no article
NOTICE = re.compile(r"cookie|consent|privacy", re.IGNORECASE)
NOTICE_MOST = 2000  # characters; longer texts are about cookies, and no notice


def extractor(name: str, output: str) -> Callable[[str], str | None]:
    """The function behind a recipe's name. `package.module:function` names one outside of the recipe's choice (tests use it)."""
    if ":" in name:
        module, _, function = name.partition(":")
        found: Callable[[str], str | None] = getattr(importlib.import_module(module), function)
        return found
    return without_controls(
        _resiliparse() if name == "resiliparse" else beyond_asides(_trafilatura(name, output))
    )


def without_controls(extract: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """`extract` of a page in which references to control characters are spaces: for one `&#1;` trafilatura gives up the page."""

    def text(page: str) -> str | None:
        return extract(CONTROL.sub(" ", page))

    return text


def beyond_asides(extract: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """`extract`, tried once more where it gives nothing, or a cookie notice, and the page has its article in an `aside`.

    trafilatura cuts asides away unread, and what is left of such a page is the notice. No page of 304 gold ones is read twice.
    """

    def text(page: str) -> str | None:
        found = extract(page)
        if found and (len(found) > NOTICE_MOST or NOTICE.search(found) is None):
            return found
        if _paragraph_characters(page) <= max(ASIDE_LEAST, len(found or "")):
            return found
        return extract(ASIDE.sub(r"<\1article", page)) or found

    return text


def _paragraph_characters(page: str) -> int:
    """Characters of paragraphs inside asides, without those of links: an upper bound on what an article there could have."""
    blocks = ASIDE_BLOCK.findall(page)
    paragraphs = [paragraph for block in blocks for paragraph in PARAGRAPH.findall(block)]
    return sum(len(TAG.sub("", LINK.sub("", paragraph)).strip()) for paragraph in paragraphs)


def _trafilatura(name: str, output: str) -> Callable[[str], str | None]:
    from trafilatura import extract
    from trafilatura.settings import Extractor as Options

    options = Options(
        output_format="txt" if output == "text" else output,
        fast=name == "trafilatura-fast",
        precision=name == "trafilatura-precision",
        comments=False,
        dedup=False,
        with_metadata=False,
    )

    def text(page: str) -> str | None:
        found: str | None = extract(page, options=options)
        return found

    return text


def _resiliparse() -> Callable[[str], str | None]:
    from resiliparse.extract.html2text import extract_plain_text

    def text(page: str) -> str | None:
        found: str = extract_plain_text(page, main_content=True, alt_texts=False)
        return found

    return text


def title(page: str) -> str | None:
    """The page's title, from the first 64k characters; None when it has none."""
    head = page[: 1 << 16]
    found = TITLE.search(head) or OG_TITLE.search(head)
    text = " ".join(entities.unescape(found[1]).split())[:TITLE_CHARS] if found else ""
    return text or None
