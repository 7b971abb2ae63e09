"""From a document to every sample of a plan that holds a piece of it: the inverse of locate.

The document is found in the sidecars, which are read whole, its rows in its shard, and then each of its times by the inverse of the
order, which costs the same wherever it comes: 0.1 to 1.5 ms with 3 components of 2 million blocks, around sample 10^12 as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from corpusmill.pipeline.errors import CursorError, ShardError
from corpusmill.shards.cursor import need_samples, whole
from corpusmill.shards.opened import BlockView
from corpusmill.shards.reader import ComponentReader, Shards
from corpusmill.shards.sidecar import Origin, Wanted, find, origin_of

MOST_TIMES = 1 << 22
"""Times that one document may come: each is held in memory, and takes 0.1 ms and more."""


@dataclass(frozen=True)
class Span:
    """Tokens `start` .. `end` - 1 of a component's row are tokens `token` .. of the document."""

    row: int
    start: int
    end: int
    token: int


@dataclass(frozen=True)
class Time:
    """The document's tokens `token` .. are tokens `start` .. `end` - 1 of sample `sample`; `epoch` is the component's."""

    sample: int
    epoch: int
    row: int
    start: int
    end: int
    token: int


@dataclass(frozen=True)
class Document(Origin):
    """A document in the shards: where it came from, and where its tokens lie. JSON values all through."""

    component: str
    document: int
    tokens: int
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Appearances:
    """All `times` that a document has in samples below `until`, in order."""

    document: Document
    until: int
    times: tuple[Time, ...]

    def steps(self, batch_size: int) -> list[int]:
        """Steps of a trainer that has always taken `batch_size` samples a step."""
        return sorted({time.sample // batch_size for time in self.times})


def where(
    path: str | Path | Shards,
    *,
    id: str | None = None,
    url: str | None = None,
    warc: tuple[str, int] | None = None,
    until: int | None = None,
) -> list[Appearances]:
    """All documents that are meant, with every sample below `until` (None: the plan's end) that holds a piece of them.

    `warc` is a file of the crawl and a byte in the document's record. Raises ShardError when nothing is meant, CursorError when
    there is no end to look to.
    """
    shards = path if isinstance(path, Shards) else Shards(path)
    end = shards.plan.samples
    stop = end if until is None else whole("until", until)
    if stop is None:
        raise CursorError("the plan has no end: say up to which sample to look (--until N)")
    need_samples(shards.plan, 0, stop + (stop == 0))  # below 0 there are none, in any plan
    return [
        _times(shards, component, document, stop)
        for component, document in documents(shards, Wanted(id, url, warc))
    ]


def documents(shards: Shards, wanted: Wanted) -> list[tuple[int, Document]]:
    """(component, document) of all that are meant; raises ShardError when there is none."""
    found = []
    for component, shard, columns in find(shards, wanted):
        reader = shards.components[component]
        number, tokens = columns["doc"], columns["tokens"]
        document = Document(
            **origin_of(columns).origin(),
            component=reader.component.name,
            document=number,
            tokens=tokens,
            spans=spans_of(reader, shard, number, columns["first_row"], tokens),
        )
        found.append((component, document))
    if not found:
        raise ShardError(
            f"no document {wanted} in the shards of {shards.path}: it was dropped, is empty, or came from another run "
            "(`corpusmill show OUT --document` tells)"
        )
    return found


def spans_of(
    reader: ComponentReader, shard: int, number: int, first_row: int, tokens: int
) -> tuple[Span, ...]:
    """Where a document's tokens lie, by row: in its shard, mostly in the block of `first_row`, where it begins.

    Blocks are read until all tokens are seen and a row comes without it: a row that begins with the document's last token
    holds a piece of it, too.
    """
    blocks = np.flatnonzero(reader.blocks["shard"] == shard)
    begin = int(reader.block_of(np.array([first_row]))[0]) - int(blocks[0])
    spans: list[Span] = []
    # Packing may put the rest of a long document before its beginning.
    for block in np.roll(blocks, -begin).tolist():
        view = reader.view(block)
        spans += _spans_in(view, number)
        if _covered(spans) == tokens and spans[-1].row < view.first_row + len(view.tokens) - 1:
            break
    if _covered(spans) != tokens:
        raise ShardError(
            f"{reader.folder}: {_covered(spans)} of {tokens} tokens of document {number} were found; "
            "`corpusmill verify` lists what is damaged"
        )
    return tuple(sorted(spans, key=lambda span: (span.row, span.start)))


def _spans_in(view: BlockView, number: int) -> list[Span]:
    offsets, owners = view.lists("doc_ids")
    ends, places = view.lists("doc_ends")[1], view.lists("doc_offsets")[1]
    found = np.flatnonzero(owners == number)
    rows = np.searchsorted(offsets, found, side="right") - 1
    return [
        Span(
            view.first_row + row,
            int(ends[at - 1]) if at > offsets[row] else 0,
            int(ends[at]),
            int(places[at]),
        )
        for at, row in zip(found.tolist(), rows.tolist(), strict=True)
    ]


def _covered(spans: Sequence[Span]) -> int:
    """How many of the document's tokens lie in `spans`, each counted once."""
    covered = seen = 0
    for token, end in sorted((span.token, span.token + span.end - span.start) for span in spans):
        covered += max(0, end - max(token, seen))
        seen = max(seen, end)
    return covered


def _times(shards: Shards, component: int, document: Document, stop: int) -> Appearances:
    by_row: dict[int, list[Span]] = {}
    for span in document.spans:
        by_row.setdefault(span.row, []).append(span)
    epochs = -(-shards.plan.mixture().counts(stop)[component] // shards.plan.components[component].epoch_rows)
    if epochs * len(document.spans) > MOST_TIMES:
        raise CursorError(
            f"document {document.id} comes some {epochs * len(document.spans)} times below sample {stop}; look to a lower one (--until N), "
            f"for {MOST_TIMES} times at most"
        )
    times = [
        Time(sample, epoch, row, span.start, span.end, span.token)
        for sample, epoch, row in shards.order.when(component, np.array(list(by_row)), 0, stop)
        for span in by_row[row]
    ]
    return Appearances(document, stop, tuple(times))
