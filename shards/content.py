"""A shard whose bytes are those of its manifest: does what they say agree?

Blocks against their table, pieces of documents against the sidecar, tokens against the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.shards.layout import DOCS, Manifest, block_table, schema


@dataclass(frozen=True)
class _Pieces:
    """All pieces of one shard, row by row: row, first token and length in the row, document, first token in the document."""

    row: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    document: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]


def content(
    data: Path,
    sidecar: Path,
    manifest: Manifest,
    number: int,
    first: tuple[int, int],
    blocks: pa.Table | None,
) -> Iterator[tuple[str, str]]:
    """(file, what is wrong) of shard `number`; `first` are its first row and document in the component."""
    shard = manifest.shards[number]
    found = block_table(data, number, first[0])
    if blocks is not None and not blocks.filter(pa.array(np.asarray(blocks["shard"]) == number)).equals(
        found
    ):
        yield shard.file, "its blocks are not those of blocks.arrow"
    # Absolute: pyarrow takes a relative `run-10:30/x` for an address.
    docs = pq.read_table(sidecar.absolute())
    if docs.schema.names[: len(DOCS)] != DOCS.names or docs.num_rows != shard.documents:
        yield shard.docs_file, "its columns or its number of documents are not the manifest's"
        return
    if (np.asarray(docs["doc"]).astype(np.int64) != first[1] + np.arange(shard.documents)).any():
        yield shard.docs_file, f"its documents are not numbered from {first[1]} on"
        return
    with pa.memory_map(str(data)) as source:
        reader = pa.ipc.open_file(source)
        if not reader.schema.equals(schema(manifest.sequence_length, manifest.dtype)):
            yield shard.file, "has other columns than the format"
            return
        batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        if sum(batch.num_rows for batch in batches) != shard.rows:
            yield shard.file, f"has not the {shard.rows} rows of its manifest"
            return
        tokens = np.asarray(docs["tokens"]).astype(np.int64)
        firsts = np.asarray(docs["first_row"]).astype(np.int64)
        rows = [np.asarray(b.column(0).values).reshape(b.num_rows, -1) for b in batches]
        pieces = _pieces(batches, first[1])
        yield from ((shard.file, what) for what in _rows(manifest, rows, pieces))
        yield from ((shard.file, what) for what in _sidecar(rows, pieces, tokens, firsts))


def _rows(manifest: Manifest, rows: Sequence[npt.NDArray[Any]], pieces: _Pieces) -> Iterator[str]:
    """Ids within the vocabulary, padding that is end-of-text, and with `concat` no padding but the last row's."""
    real = np.bincount(pieces.row, weights=pieces.length).astype(np.int64)
    if manifest.packing == "concat" and (real[:-1] != manifest.sequence_length + 1).any():
        yield "has padding before its last row"
    at = 0
    for block in rows:
        if int(block.max(initial=0)) >= manifest.vocab_size:
            yield f"holds id {int(block.max())}, the vocabulary ends at {manifest.vocab_size - 1}"
        padding = np.arange(block.shape[1]) >= real[at : at + len(block), None]
        if (block[padding] != manifest.eos).any():
            yield "its padding is not end-of-text"
        at += len(block)


def _sidecar(
    rows: Sequence[npt.NDArray[Any]],
    pieces: _Pieces,
    tokens: npt.NDArray[np.int64],
    first_rows: npt.NDArray[np.int64],
) -> Iterator[str]:
    """Every document of the sidecar from its first token to its last: each piece begins with the last token of the one before."""
    document = pieces.document
    if document.min() < 0 or document.max() >= len(tokens):
        yield "names documents that its sidecar does not have"
        return
    order = np.lexsort((pieces.row, pieces.offset, document))
    document, offset, end = document[order], pieces.offset[order], (pieces.offset + pieces.length)[order]
    begins = np.flatnonzero(np.diff(document, prepend=-1))
    ends = np.append(begins[1:], len(document)) - 1
    if len(begins) != len(tokens):
        yield "has no piece of some documents of its sidecar"
        return
    goes_on = np.setdiff1d(np.arange(len(document)), begins)
    if offset[begins].any() or (end[ends] != tokens).any() or (offset[goes_on] != end[goes_on - 1] - 1).any():
        yield "its pieces are not those of its sidecar's documents"
        return
    if _unlike(rows, pieces, order[goes_on - 1], order[goes_on]):
        yield "documents do not go on in another row with the token that they left off with"
    if (pieces.row[order[begins]] != first_rows).any():
        yield "its documents do not begin in the rows that its sidecar gives"


def _unlike(
    rows: Sequence[npt.NDArray[Any]],
    pieces: _Pieces,
    before: npt.NDArray[np.int64],
    after: npt.NDArray[np.int64],
) -> bool:
    """Whether the last token of any piece of `before` differs from the first of its successor."""
    row, start, length = (np.asarray(each) for each in (pieces.row, pieces.start, pieces.length))
    found = np.empty((2, len(before)), dtype=np.int64)
    at = 0
    places = (
        (found[0], row[before], (start + length)[before] - 1),
        (found[1], row[after], start[after]),
    )
    for block in rows:
        for values, in_row, place in places:
            here = np.flatnonzero((in_row >= at) & (in_row < at + len(block)))
            values[here] = block[in_row[here] - at, place[here]]
        at += len(block)
    return bool((found[0] != found[1]).any())


def _pieces(batches: Sequence[pa.RecordBatch], first_document: int) -> _Pieces:
    """Documents are counted from `first_document`, the shard's first."""
    columns: list[tuple[npt.NDArray[np.int64], ...]] = []
    at = 0
    for batch in batches:
        offsets = np.asarray(batch.column(1).offsets).astype(np.int64)
        end, document, offset = (np.asarray(batch.column(i).values).astype(np.int64) for i in (1, 2, 3))
        start = np.concatenate([[0], end[:-1]])
        start[offsets[:-1]] = 0
        row = at + np.repeat(np.arange(batch.num_rows), np.diff(offsets))
        columns.append((row, start, end - start, document - first_document, offset))
        at += batch.num_rows
    return _Pieces(*(np.concatenate(values) for values in zip(*columns, strict=True)))
