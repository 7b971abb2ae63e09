"""A small run with holdout, and what proxies read of it."""

from __future__ import annotations

import random
from pathlib import Path

from shard_runs import Document, Run, documents

from corpusmill.mixing.held import read_held
from corpusmill.mixing.proxy import View
from corpusmill.mixing.stage import Mix
from corpusmill.shards.stage import Shard, TokenizerSource

SMALL = Shard(
    TokenizerSource(train="bpe", vocab=300),
    sequence_length=32,
    block_bytes=1 << 10,
    shard_bytes=1 << 14,
    holdout=0.1,
)

WORDS = "the mill grinds corn while rain runs over old roofs and grey doves sit on warm stones".split()


def corpus() -> list[Document]:
    """`even`: words in a fixed order from a drawn one on; `mixed`: the same words in any order; `digits`: numbers."""
    draw = random.Random(5)
    even = [
        " ".join(WORDS[(at + i) % len(WORDS)] for i in range(40)) for at in draw.choices(range(17), k=150)
    ]
    mixed = [" ".join(draw.choice(WORDS) for _ in range(40)) for _ in range(150)]
    digits = [" ".join(str(draw.randrange(10_000)) for _ in range(40)) for _ in range(150)]
    named = {"even": even, "mixed": mixed, "digits": digits}
    return [each for name, texts in named.items() for each in documents(texts, name)]


def small_run(out: Path) -> Run:
    return Run(out, [corpus()], SMALL, Mix())


def view_of(run: Run, targets: tuple[str, ...] = ("digits", "even")) -> View:
    folder = run.folder("shard.write")
    held = tuple(read_held(name, folder / "holdout" / name) for name in targets)
    return View.of(
        folder.parent, {name: f"{folder.name}/{name}" for name in ("digits", "even", "mixed")}, held
    )
