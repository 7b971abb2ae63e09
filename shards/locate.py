"""From a sample of a plan back to the web: its row, the documents in it, and where their bytes lie in the crawl.

Reads the manifests, one block a sample and the docs sidecars of its shards, whole and by their hash: a wrong address is worse than none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from corpusmill.shards.cursor import AT_ONCE, need_samples, whole
from corpusmill.shards.reader import ComponentReader, Shards
from corpusmill.shards.sidecar import Origin, Sidecar, origin_of, scores


@dataclass(frozen=True)
class Piece(Origin):
    """Tokens `start` .. `end` - 1 of the row are tokens `token` .. of a document.

    `scores` is what else the sidecar holds: language, measures, what sharding noted.
    """

    start: int
    end: int
    token: int
    document: int
    scores: dict[str, Any]


@dataclass(frozen=True)
class Located:
    """One sample, JSON values all through. `row` counts through the component, `block` through its blocks; `shard` is the file below the plan's folder."""

    sample: int
    component: str
    epoch: int
    shard: str
    block: int
    row: int
    pieces: tuple[Piece, ...]


def locate(path: str | Path | Shards, at: int, until: int | None = None) -> list[Located]:
    """Samples `at` .. `until` - 1 (one when `until` is None) of the plan at `path`; raises CursorError beyond its end."""
    shards = path if isinstance(path, Shards) else Shards(path)
    at = whole("at", at)
    stop = at + 1 if until is None else whole("until", until)
    need_samples(shards.plan, at, stop, AT_ONCE)
    samples = shards.order.samples(at, stop)
    sidecars = lru_cache(maxsize=8)(Sidecar)
    found = []
    for i in range(stop - at):
        reader = shards.components[int(samples.component[i])]
        row = int(samples.row[i])
        block = int(reader.block_of(np.array([row]))[0])
        number = int(reader.blocks["shard"][block])
        found.append(
            Located(
                at + i,
                reader.component.name,
                int(samples.epoch[i]),
                f"{reader.component.folder}/{reader.manifest.shards[number].file}",
                block,
                row,
                _pieces(reader, sidecars(reader, number), block, row),
            )
        )
    return found


def _pieces(reader: ComponentReader, sidecar: Sidecar, block: int, row: int) -> tuple[Piece, ...]:
    view = reader.view(block)
    inside = row - view.first_row
    ends, documents, tokens = (
        _list(view.lists(name), inside) for name in ("doc_ends", "doc_ids", "doc_offsets")
    )
    pieces = []
    for start, end, number, token in zip([0, *ends], ends, documents, tokens, strict=False):
        document = sidecar.document(number)
        pieces.append(
            Piece(
                **origin_of(document).origin(),
                start=start,
                end=end,
                token=token,
                document=number,
                scores=scores(document),
            )
        )
    return tuple(pieces)


def _list(column: tuple[Any, Any], row: int) -> list[int]:
    offsets, values = column
    values_of_row: list[int] = values[offsets[row] : offsets[row + 1]].tolist()
    return values_of_row
