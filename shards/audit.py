"""The audit of tokens: what text looked like to the tokenizer, a row a document, and the limits that keep documents out of shards.

Text that reads harmlessly can be a poison as tokens: a thousand times the same id, a table whose row repeats for pages, a page of ids
that hardly ever occurred when the vocabulary was made. Each of these is measured on a document's own tokens, boundaries left out,
so that a second pass is not needed. 64 periods are tried: 46 ns a token of ids drawn by Zipf's law, 185 where all ids are the same (one
core, documents of 500 tokens), 230 of pages and sources, most of which repeat something. A document of 10 million takes 2 to 4 s.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.pipeline.errors import RecipeError
from corpusmill.shards.pack import doc_starts
from corpusmill.shards.words import pieces, speller

PERIODS = 64
"""Longest period that is looked for, in tokens."""

AT_ONCE = 4 << 20
"""Documents are looked at together that begin within so many tokens: where all are the same, a token takes 32 bytes meanwhile."""

RARE_PART = 0.1
"""Vocabularies list what they learned last, from the fewest examples, at their end: this part of the ids counts as rare."""

AUDIT = pa.schema(
    [
        pa.field("longest_run", pa.uint32(), nullable=False),  # tokens in a row that are all the same
        # Tokens in a row that repeat `period` twice or more; 0: none.
        pa.field("periodic_run", pa.uint32(), nullable=False),
        pa.field("period", pa.uint8(), nullable=False),  # the shortest that gives this run; 0: none
        pa.field("tokens_per_byte", pa.float32(), nullable=False),  # of UTF-8
        # Ids that are no whole characters, or U+FFFD, or unknown.
        pa.field("fragment_share", pa.float32(), nullable=False),
        pa.field("rare_share", pa.float32(), nullable=False),  # ids in the last tenth of the vocabulary
    ]
)
"""Columns of every docs sidecar, behind those of DOCS."""

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Audit:
    """The most that a document's tokens may show; null: any. A document over a limit is kept out of the shards, and listed."""

    longest_run: int | None = 1_000
    periodic_run: int | None = 4_000
    tokens_per_byte: float | None = None
    fragment_share: float | None = None
    rare_share: float | None = None

    def check(self, name: str) -> None:
        """RecipeError for a limit that nothing could pass."""
        for each in fields(self):
            limit = getattr(self, each.name)
            if limit is not None and not limit > 0:
                raise RecipeError(
                    f"{name}.{each.name} is {limit}; it has to be above 0, or null for no limit"
                )

    def reasons(self, table: pa.Table) -> pa.Array:
        """For each row of AUDIT columns the first limit that it is over, in the order of the fields; null where it is over none."""
        names = [each.name for each in fields(self) if getattr(self, each.name) is not None]
        over = [table[name].to_numpy() > np.float32(getattr(self, name)) for name in names]
        none = np.ones(table.num_rows, np.bool_)
        first = np.argmax(np.stack([*over, none]), axis=0)
        return pa.array([*names, None], pa.string()).take(pa.array(first))


def audit(
    ids: npt.NDArray[Any], lengths: Integers, text_bytes: Integers, fragments: Flags, rare: Flags
) -> pa.Table:
    """AUDIT columns of documents whose ids lie end to end; the flags are by id."""
    starts = doc_starts(lengths)
    cuts = [0, *(np.flatnonzero(np.diff(starts[:-1] // AT_ONCE)) + 1).tolist(), len(lengths)]
    parts = [
        _audited(ids[starts[low] : starts[high]], lengths[low:high], text_bytes[low:high], fragments, rare)
        for low, high in pairwise(cuts)
    ]
    return pa.concat_tables(parts).combine_chunks()


def _audited(
    ids: npt.NDArray[Any], lengths: Integers, text_bytes: Integers, fragments: Flags, rare: Flags
) -> pa.Table:
    longest, periodic, period = runs(ids, lengths)
    columns = (
        longest,
        periodic,
        period,
        lengths / np.maximum(text_bytes, 1),
        _share(fragments[ids], lengths),
        _share(rare[ids], lengths),
    )
    arrays = [
        pa.array(values.astype(kind.to_pandas_dtype()))
        for values, kind in zip(columns, AUDIT.types, strict=True)
    ]
    return pa.table(arrays, schema=AUDIT)


def runs(ids: npt.NDArray[Any], lengths: Integers) -> tuple[Integers, Integers, Integers]:
    """(longest run of one id, longest run of a period up to PERIODS, that period) of each document."""
    starts = doc_starts(lengths)
    longest = np.minimum(lengths, 1)
    periodic, period = np.zeros_like(longest), np.zeros_like(longest)
    for gap in range(1, PERIODS + 1):
        document, span = _repeats(ids, starts, gap) if gap == 1 else _few_repeats(ids, starts, gap)
        found = np.zeros_like(longest)
        np.maximum.at(found, document, span)
        if gap == 1:
            longest = np.maximum(longest, found)
        better = found > periodic
        periodic[better], period[better] = found[better], gap
    return longest, periodic, period


def _few_repeats(ids: npt.NDArray[Any], starts: Integers, gap: int) -> tuple[Integers, Integers]:
    """As `_repeats`, which looks only at documents where one place in `gap` and one half a period from it are repeated.

    A stretch of two periods has `gap` such places in a row, so one of them is a multiple of `gap`, and another lies half a period
    before or behind it: most documents of ordinary text are passed over at a fraction of the cost.
    """
    last = len(ids) - gap - 1
    if last < 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    hits = gap * np.flatnonzero(ids[gap::gap] == ids[:-gap:gap])
    around = [hits + gap // 2, hits - gap // 2]
    near = [(place >= 0) & (place <= last) for place in around]
    clipped = [np.clip(place, 0, last) for place in around]
    repeated = [
        inside & (ids[place + gap] == ids[place]) for inside, place in zip(near, clipped, strict=True)
    ]
    documents = np.unique(np.searchsorted(starts, hits[repeated[0] | repeated[1]], side="right") - 1)
    lengths = (starts[1:] - starts[:-1])[documents]
    if lengths.sum() == len(ids):
        return _repeats(ids, starts, gap)
    bounds = doc_starts(lengths)
    places = np.arange(bounds[-1]) + np.repeat(starts[documents] - bounds[:-1], lengths)
    document, span = _repeats(ids[places], bounds, gap)
    return documents[document], span


def _repeats(ids: npt.NDArray[Any], starts: Integers, gap: int) -> tuple[Integers, Integers]:
    """(document, tokens) of stretches in which each token is that of `gap` tokens before, at least two periods long."""
    if len(ids) <= gap:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    same = np.zeros(len(ids) - gap + 2, np.bool_)
    np.equal(ids[gap:], ids[:-gap], out=same[1:-1])
    edges = np.flatnonzero(same[1:] != same[:-1])  # few: all that follows is about them
    begin, count = edges[::2], edges[1::2] - edges[::2]
    begin, count = begin[count >= gap], count[count >= gap]
    # A stretch may run over the ends of documents: cut it there.
    first = np.searchsorted(starts, begin, side="right") - 1
    last = np.searchsorted(starts, begin + count - 1, side="right") - 1
    piece = np.repeat(np.arange(len(begin)), last - first + 1)
    document = first[piece] + np.arange(len(piece)) - doc_starts(last - first + 1)[piece]
    low = np.maximum(begin[piece], starts[document])
    repeated = np.minimum((begin + count)[piece], starts[document + 1] - gap) - low
    long = repeated >= gap
    return document[long], repeated[long] + gap


def _share(flags: Flags, lengths: Integers) -> npt.NDArray[np.float64]:
    share = np.zeros(len(lengths))
    full = lengths > 0
    share[full] = np.add.reduceat(flags, doc_starts(lengths)[:-1][full], dtype=np.int64) / lengths[full]
    return share


@lru_cache(maxsize=1)
def id_flags(content: bytes, vocab_size: int) -> tuple[Flags, Flags]:
    """(fragments, rare) by id, from a tokenizer.json."""
    spelt = spellings(content)
    fragments, rare = np.zeros(vocab_size, np.bool_), np.zeros(vocab_size, np.bool_)
    for number, spelling in spelt.items():
        fragments[number] = spelling is None or "\N{REPLACEMENT CHARACTER}" in spelling
        rare[number] = number >= (1 - RARE_PART) * len(spelt)
    return fragments, rare


def spellings(content: bytes) -> dict[int, str | None]:
    """Id -> the text that it stands for; None where it is a part of a character, or the unknown. Added tokens are left out."""
    settings = json.loads(content)
    model = settings["model"]
    spell, named = speller(settings), pieces(model)
    unknown = named.get(model["unk_id"]) if model.get("unk_id") is not None else model.get("unk_token")
    added = {token["id"] for token in settings.get("added_tokens", [])}
    return {
        number: None if piece == unknown else _decoded(spell(piece))
        for number, piece in named.items()
        if number not in added or piece == unknown
    }


def _decoded(spelling: bytes) -> str | None:
    try:
        return spelling.decode()
    except UnicodeDecodeError:
        return None
