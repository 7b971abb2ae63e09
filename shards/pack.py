"""Packing: which piece of which document lies where in rows of T + 1 tokens.

    concat     documents end to end, cut with stride T: a row's last token is the first of the next, so that every token but the
               shard's first is a target exactly once
    best_fit   a document of up to T + 1 tokens lies whole in one row; longer ones are cut as above, their rests begin rows
    pad        one document a row, longer ones cut as above

    documents  d0 d0 d0 . d1 . d2 d2 d2 d2 .          T = 4
    concat     d0 d0 d0 . d1 | d1 . d2 d2 d2 | d2 d2 . - -
    best_fit   d0 d0 d0 . - | d1 . - - - | d2 d2 d2 d2 .
    pad        the same here

The rest of a row is padding with the end-of-text id; doc_ends says where it begins. Laying and packing rows take 2 ns a token with any
packing, of which best_fit's search is 1 us a document (documents of 500 tokens, T = 2048, one core).
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.shards.layout import Packing, rows_per_block, schema

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Pieces in the order of rows: row i holds pieces `first[i]` .. `first[i + 1]` - 1, one behind the other.

    Piece k is tokens `offset[k]` .. `offset[k] + length[k]` - 1 of the shard's document `document[k]`.
    """

    first: Integers
    document: Integers
    offset: Integers
    length: Integers

    def __len__(self) -> int:
        return len(self.first) - 1

    def begins(self, documents: int) -> Integers:
        """The row in which each of the shard's documents begins."""
        row = np.repeat(np.arange(len(self)), np.diff(self.first))
        # The first of two wins: one may be the overlap of two rows.
        start = np.flatnonzero(self.offset == 0)[::-1]
        found = np.empty(documents, dtype=np.int64)
        found[self.document[start]] = row[start]
        return found

    def split(self, lengths: Integers) -> int:
        """How many documents lie whole in no row."""
        whole = np.unique(self.document[self.length == lengths[self.document]])
        return len(lengths) - len(whole)


def lay_rows(packing: Packing, lengths: Integers, sequence_length: int) -> Rows:
    """Rows for documents of `lengths` tokens, boundaries included, none of them empty."""
    if packing == "concat":
        return _concat(lengths, sequence_length)
    document, offset, length = _cut(lengths, sequence_length)
    if packing == "pad":
        return Rows(np.arange(len(document) + 1), document, offset, length)
    return _best_fit(document, offset, length, lengths, sequence_length + 1)


def doc_starts(lengths: Integers) -> Integers:
    """Where each document starts when all lie end to end, and where the last one ends."""
    starts = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def _concat(lengths: Integers, sequence_length: int) -> Rows:
    starts = doc_starts(lengths)
    total = int(starts[-1])
    begin = np.arange(max(1, -(-(total - 1) // sequence_length)), dtype=np.int64) * sequence_length
    end = np.minimum(begin + sequence_length + 1, total)
    first_piece = np.searchsorted(starts, begin, side="right") - 1
    count = np.searchsorted(starts, end, side="left") - first_piece
    first = doc_starts(count)
    row = np.repeat(np.arange(len(count)), count)
    document = first_piece[row] + np.arange(first[-1]) - first[row]
    inside = np.maximum(begin[row] - starts[document], 0)
    return Rows(
        first, document, inside, np.minimum(starts[document + 1], end[row]) - starts[document] - inside
    )


def _cut(lengths: Integers, sequence_length: int) -> tuple[Integers, Integers, Integers]:
    """(document, offset, length) of pieces of up to T + 1 tokens with stride T, document by document."""
    count = np.maximum(1, -(-(lengths - 1) // sequence_length))
    document = np.repeat(np.arange(len(lengths)), count)
    offset = (np.arange(len(document)) - doc_starts(count)[document]) * sequence_length
    return document, offset, np.minimum(sequence_length + 1, lengths[document] - offset)


def _best_fit(
    document: Integers, offset: Integers, length: Integers, lengths: Integers, capacity: int
) -> Rows:
    """Pieces of cut documents begin rows of their own; whole documents, longest first, go where they leave the least room.

    A rest that stood behind another document would have its first token, a target of the row before, as a target once more.
    Rows come in the order of the documents that began them: their keys are random, so no block holds rows of one kind.
    """
    whole = np.flatnonzero(length == lengths[document])
    cut = np.flatnonzero(length < lengths[document])
    order = whole[np.argsort(-length[whole], kind="stable")]
    row = np.empty(len(document), dtype=np.int64)
    row[cut] = np.arange(len(cut))
    row[order] = _fit(length[order].tolist(), length[cut].tolist(), capacity)
    opener = np.full(int(row.max()) + 1, -1, dtype=np.int64)
    for_opening = np.concatenate([cut, order])[::-1]
    opener[row[for_opening]] = for_opening  # the first that came to a row
    place = np.empty(len(opener), dtype=np.int64)
    place[np.argsort(opener)] = np.arange(len(opener))  # pieces are numbered by document, then by offset
    row = place[row]
    sequence = np.lexsort((np.arange(len(row)), offset == 0, row))  # a rest first, then as the documents come
    first = doc_starts(np.bincount(row))
    return Rows(first, document[sequence], offset[sequence], length[sequence])


def _fit(sizes: list[int], used: list[int], capacity: int) -> list[int]:
    """The row of each of `sizes`; rows 0 .. len(used) - 1 have so much in them already, further ones are begun when nothing fits."""
    rooms: dict[int, list[int]] = {}
    some = 0  # bit r is set where a row has room for exactly r tokens: the least that fits is one shift away
    rows = len(used)
    for number, size in enumerate(used):
        rooms.setdefault(capacity - size, []).append(number)
        some |= 1 << (capacity - size)
    found = []
    # A loop over documents, 1 us each: what fits where depends on all that came before.
    for size in sizes:
        room, number = capacity, rows
        if fitting := some >> size:
            room = size + (fitting & -fitting).bit_length() - 1
            number = rooms[room].pop()
            if not rooms[room]:
                some ^= 1 << room
        else:
            rows += 1
        if rest := room - size:
            rooms.setdefault(rest, []).append(number)
            some |= 1 << rest
        found.append(number)
    return found


def place(stream: Array, values: Array, lengths: Integers, targets: Integers) -> None:
    """Copy documents that lie end to end in `values` to where each starts in `stream`."""
    first = 0
    # A loop over documents: a slice costs 0.3 us a document, an index array of 8 bytes a token 40 ns a token.
    for length, target in zip(lengths.tolist(), targets.tolist(), strict=True):
        stream[target : target + length] = values[first : first + length]
        first += length


def pack_rows(
    stream: Array,
    starts: Integers,
    rows: Rows,
    doc_base: int,
    first: int,
    last: int,
    kind: pa.Schema,
    eos: int,
) -> pa.RecordBatch:
    """Rows `first` to `last` - 1 of a shard as a record batch; documents lie in `stream` from `starts` on.

    `doc_base` is the component-wide number of the shard's first document.
    """
    row_type = kind.field("tokens").type
    low, high = int(rows.first[first]), int(rows.first[last])
    bounds = rows.first[first : last + 1] - low
    document, offset, length = (each[low:high] for each in (rows.document, rows.offset, rows.length))
    ends = np.cumsum(length)
    row = np.repeat(np.arange(last - first), np.diff(bounds))
    ends -= doc_starts(length)[bounds[:-1]][row]
    tokens = np.full((last - first) * row_type.list_size, eos, dtype=stream.dtype)
    place_pieces = (row * row_type.list_size + ends - length, starts[document] + offset, length)
    for target, source, size in zip(*(each.tolist() for each in place_pieces), strict=True):  # as in `place`
        tokens[target : target + size] = stream[source : source + size]

    def lists(values: Array, width: Any) -> pa.Array:
        return pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), pa.array(values.astype(width)))

    columns = [
        pa.FixedSizeListArray.from_arrays(pa.array(tokens), type=row_type),
        lists(ends, np.uint32),
        lists(document.astype(np.uint64) + np.uint64(doc_base), np.uint64),
        lists(offset, np.uint64),
    ]
    return pa.record_batch(columns, schema=kind)


def pack_shard(
    stream: Array,
    starts: Integers,
    rows: Rows,
    doc_base: int,
    sequence_length: int,
    block_bytes: int,
    eos: int,
) -> bytes:
    """All rows of a shard as the bytes of its file, in blocks of about `block_bytes`; else as `pack_rows`."""
    kind = schema(sequence_length, stream.dtype.name)
    step = rows_per_block(sequence_length, stream.dtype.name, block_bytes)
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, kind) as writer:
        for first in range(0, len(rows), step):
            last = min(first + step, len(rows))
            writer.write_batch(pack_rows(stream, starts, rows, doc_base, first, last, kind, eos))
    return sink.getvalue()
