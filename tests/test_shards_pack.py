"""Packing: every document comes back from the rows, and each token is a target as often as its packing says."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.shards.layout import Packing, schema
from corpusmill.shards.pack import Rows, doc_starts, lay_rows, pack_rows
from corpusmill.shards.pieces import DERIVED, Pieces

EOS = 9
Documents = list[list[int]]
PACKINGS: tuple[Packing, ...] = get_args(Packing)

documents_of_any_length = st.lists(
    st.lists(st.integers(0, 8), min_size=1, max_size=40), min_size=1, max_size=20
)
lengths_of_rows = st.integers(1, 12)


def packed(
    packing: Packing, documents: Documents, length: int, step: int = 3, first_doc: int = 0
) -> list[dict[str, Any]]:
    lengths = np.array([len(document) for document in documents], dtype=np.int64)
    rows = lay_rows(packing, lengths, length)
    stream = np.array([token for document in documents for token in document], dtype=np.uint16)
    kind = schema(length, "uint16")
    batches = [
        pack_rows(stream, doc_starts(lengths), rows, first_doc, at, min(at + step, len(rows)), kind, EOS)
        for at in range(0, len(rows), step)
    ]
    return list(pa.Table.from_batches(batches, schema=kind).to_pylist())


def reference(packing: Packing, documents: Documents, length: int) -> list[list[tuple[int, int]]]:
    """Rows as lists of (document, place in it), by plain loops over tokens; best_fit by trying all rows for each document."""
    if packing == "concat":
        stream = [(d, i) for d, document in enumerate(documents) for i in range(len(document))]
        return [stream[at : at + length + 1] for at in range(0, max(1, len(stream) - 1), length)]
    cut, whole = [], []
    for d, document in enumerate(documents):
        tokens = [(d, i) for i in range(len(document))]
        (whole if len(tokens) <= length + 1 else cut).append(tokens)
    rows = [doc[at : at + length + 1] for doc in cut for at in range(0, len(doc) - 1, length)]
    if packing == "pad":
        return sorted(rows + whole)
    for tokens in sorted(whole, key=len, reverse=True):
        fitting = [row for row in rows if len(row) + len(tokens) <= length + 1]
        if fitting:
            max(fitting, key=len).extend(tokens)
        else:
            rows.append(tokens)
    return rows


def laid(row: dict[str, Any]) -> list[tuple[int, int]]:
    """(document, place in it) of each real token of a stored row."""
    begins = [0, *row["doc_ends"]]
    return [
        (document, offset + i)
        for begin, end, document, offset in zip(
            begins, row["doc_ends"], row["doc_ids"], row["doc_offsets"], strict=False
        )
        for i in range(end - begin)
    ]


@pytest.mark.parametrize("packing", PACKINGS)
@given(
    documents=documents_of_any_length,
    length=lengths_of_rows,
    step=st.integers(1, 5),
    first_doc=st.sampled_from([0, 7, 2**31 - 1, 2**40]),
)
def test_rows_hold_the_tokens_that_they_name_and_padding_behind(
    packing: Packing, documents: Documents, length: int, step: int, first_doc: int
) -> None:
    for row in packed(packing, documents, length, step, first_doc):
        named = laid(row)
        assert all(a < b for a, b in pairwise([0, *row["doc_ends"]]))
        assert row["tokens"][: len(named)] == [documents[d - first_doc][i] for d, i in named]
        assert row["tokens"][len(named) :] == [EOS] * (length + 1 - len(named))


@pytest.mark.parametrize("packing", ["concat", "pad"])
@given(documents=documents_of_any_length, length=lengths_of_rows)
def test_rows_are_those_of_a_plain_packer(packing: Packing, documents: Documents, length: int) -> None:
    assert [laid(row) for row in packed(packing, documents, length)] == reference(packing, documents, length)


@given(documents=documents_of_any_length, length=lengths_of_rows)
def test_best_fit_cuts_no_document_that_fits_and_fills_rows_as_a_plain_packer_does(
    documents: Documents, length: int
) -> None:
    rows = [laid(row) for row in packed("best_fit", documents, length)]
    whole = {d for d, document in enumerate(documents) if len(document) <= length + 1}
    for d in whole:
        assert [row for row in rows if any(e == d for e, _ in row)].__len__() == 1
    # Which of two rows with equal room is taken is a matter of taste; how full rows get is not.
    assert Counter(map(len, rows)) == Counter(map(len, reference("best_fit", documents, length)))


@pytest.mark.parametrize("packing", PACKINGS)
@given(documents=documents_of_any_length, length=lengths_of_rows)
def test_each_token_is_a_target_once_unless_it_begins_a_row(
    packing: Packing, documents: Documents, length: int
) -> None:
    rows = [laid(row) for row in packed(packing, documents, length)]
    pieces = pieces_of(packed(packing, documents, length), length)
    mask = DERIVED["loss_mask"](pieces)
    targets = Counter(
        row[i + 1] if i + 1 < len(row) else None
        for r, row in enumerate(rows)
        for i in range(length)
        if mask[r, i]
    )
    every = Counter((d, i) for d, document in enumerate(documents) for i in range(len(document)))
    # What begins a row and is no overlap: the shard's first token, or the first of a row's first document.
    never = Counter(row[0] for row in rows if packing != "concat" and row[0][1] == 0)
    if packing == "concat":
        never = Counter([(0, 0)])
    assert targets == every - never


@pytest.mark.parametrize("packing", PACKINGS)
@given(documents=documents_of_any_length, length=lengths_of_rows)
def test_positions_and_bounds_restart_with_each_piece_and_with_the_padding(
    packing: Packing, documents: Documents, length: int
) -> None:
    stored = packed(packing, documents, length)
    pieces = pieces_of(stored, length)
    positions, bounds = [], [0]
    for r, row in enumerate(stored):
        inputs = [d for d, _ in laid(row)][:length]
        inputs += [None] * (length - len(inputs))  # type: ignore[list-item]
        for i, document in enumerate(inputs):
            new = i == 0 or document != inputs[i - 1]
            positions.append(0 if new else positions[-1] + 1)
            if new and r + i:
                bounds.append(r * length + i)
    assert DERIVED["position_ids"](pieces).reshape(-1).tolist() == positions
    assert DERIVED["cu_seqlens"](pieces).tolist() == [*bounds, len(stored) * length]


def pieces_of(rows: list[dict[str, Any]], length: int) -> Pieces:
    """As a reader of shards makes them, without `corpusmill.shards.reader`."""
    row = [r for r, each in enumerate(rows) for _ in each["doc_ends"]]
    end = [end for each in rows for end in each["doc_ends"]]
    return Pieces(len(rows), length, np.array(row), np.array(end))


@pytest.mark.parametrize("packing", PACKINGS)
@given(documents=documents_of_any_length, length=lengths_of_rows)
def test_where_documents_begin_and_how_many_are_split(
    packing: Packing, documents: Documents, length: int
) -> None:
    lengths = np.array([len(document) for document in documents], dtype=np.int64)
    rows = lay_rows(packing, lengths, length)
    stored = [laid(row) for row in packed(packing, documents, length)]
    begins = [next(r for r, row in enumerate(stored) if (d, 0) in row) for d in range(len(documents))]
    assert rows.begins(len(documents)).tolist() == begins
    whole = {
        d
        for row in stored
        for d, document in enumerate(documents)
        if {(d, i) for i in range(len(document))} <= set(row)
    }
    assert rows.split(lengths) == len(documents) - len(whole)
    if packing != "concat":
        assert rows.split(lengths) == sum(len(document) > length + 1 for document in documents)


@given(documents=documents_of_any_length, length=lengths_of_rows)
def test_with_concat_only_the_last_row_is_padded(documents: Documents, length: int) -> None:
    rows = packed("concat", documents, length)
    for row, following in pairwise(rows):
        assert row["tokens"][-1] == following["tokens"][0]
        assert row["doc_ends"][-1] == length + 1


@pytest.mark.parametrize(("tokens", "rows"), [(1, 1), (2, 1), (5, 1), (6, 2), (9, 2), (10, 3)])
@pytest.mark.parametrize("packing", PACKINGS)
def test_rows_of_four_and_one_token(packing: Packing, tokens: int, rows: int) -> None:
    assert len(lay_rows(packing, np.array([tokens]), 4)) == rows


def test_rows_of_best_fit_come_in_the_order_of_documents_and_not_by_their_lengths() -> None:
    draw = np.random.default_rng(3)
    lengths = draw.integers(1, 100, 5_000)
    rows = lay_rows("best_fit", lengths, 127)
    counts = np.diff(rows.first)
    early, late = counts[: len(rows) // 2], counts[len(rows) // 2 :]
    # Rows hold about 2.5 documents; sorted by length the halves would hold 1 or 2 and 3 or more.
    assert abs(early.mean() - late.mean()) < 0.2
    assert len(lengths) == counts.sum()
    fill = rows.length.sum() / (len(rows) * 128)
    assert fill > 0.98, "rows of documents far shorter than T are nearly full"


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_document_of_over_two_billion_tokens_keeps_its_offsets(packing: Packing) -> None:
    length = 1 << 20
    rows: Rows = lay_rows(packing, np.array([2**33]), length)
    assert len(rows) == 2**13 and rows.length.sum() == 2**33 + 2**13 - 1
    assert rows.offset.tolist() == [i * length for i in range(2**13)]
