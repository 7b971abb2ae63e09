"""Crawls and recipes for comparisons of recipes: pages of one language, junk of numbers, near copies, an address that tells them."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from search_world import text

ALL = "stages: [extract: {}]\n"

DROPS = "stages:\n  - extract: {{}}\n  - filter: [url: {{parts: [{0}]}}]\n"
"""A recipe that drops pages by a word of their addresses."""


@dataclass(frozen=True)
class Page:
    kind: str
    number: int
    text: str

    @property
    def url(self) -> str:
        return f"https://{self.kind}.example/{self.number}"


def pages(kind: str, count: int, words: int = 120, source: str = "web") -> list[Page]:
    """Of the language of `source`."""
    return [Page(kind, number, text(source, number + len(kind) * 10_000, words)) for number in range(count)]


def junk(count: int) -> list[Page]:
    draw = random.Random(3)
    return [
        Page("junk", number, " ".join(str(draw.randrange(100_000)) for _ in range(120)))
        for number in range(count)
    ]


def copies(of: Sequence[Page], kind: str) -> list[Page]:
    """Near copies: some words more at the end."""
    return [Page(kind, page.number, f"{page.text} w1 w2 w3") for page in of]


def write_crawl(folder: Path, crawl: Sequence[Page]) -> Path:
    path = folder / "web.jsonl.gz"
    order = random.Random(1).sample(crawl, len(crawl))
    with gzip.open(path, "wt") as file:
        file.write("\n".join(json.dumps({"url": page.url, "text": page.text}) for page in order))
    return path


def write_recipe(folder: Path, name: str, content: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(content, encoding="utf-8")
    return path
