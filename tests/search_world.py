"""A small corpus of four sources with words of their own, and recipes that search weights over it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from shard_runs import Document

WORDS = 60
SHARED = 30  # words that every source uses as well


def text(source: str, number: int, words: int = 400) -> str:
    """A document: every word depends on the one before it, in another way in each source."""
    letter = source[0]
    own = np.random.Generator(np.random.PCG64([ord(letter), 1]))
    steps = own.dirichlet(np.full(WORDS, 0.05), WORDS).cumsum(axis=1)
    generator = np.random.Generator(np.random.PCG64([ord(letter), 2, number]))
    at, found = number % WORDS, []
    for chance in generator.random(words):
        at = min(int((steps[at] < chance).sum()), WORDS - 1)
        found.append(f"w{at}" if at < SHARED else f"{letter}{at}")
    return " ".join(found)


def corpus(sizes: Mapping[str, int]) -> list[list[Document]]:
    """A partition a source."""
    return [
        [Document(text(source, number), source, number) for number in range(count)]
        for source, count in sizes.items()
    ]


def written(folder: Path, data: Sequence[Sequence[Document]]) -> None:
    """A file of JSON lines a source, as recipes read them."""
    for part in data:
        lines = [
            json.dumps({"text": each.text, "url": f"https://{each.source}.example/{each.number}"})
            for each in part
        ]
        with gzip.open(folder / f"{part[0].source}.jsonl.gz", "wt") as file:
            file.write("\n".join(lines))
