"""Packing: every document comes back from the rows, exactly once, whatever the lengths, T and block size."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.shards.layout import schema
from corpusmill.shards.pack import doc_starts, empty_stream, pack_rows, pieces, place, row_count

EOS = 9


def packed(documents: list[list[int]], length: int, step: int, first_doc: int = 0) -> list[dict[str, Any]]:
    documents = [[*document, EOS] for document in documents]
    lengths = np.array([len(document) for document in documents], dtype=np.int64)
    starts = doc_starts(lengths)
    stream = empty_stream(int(starts[-1]), length, EOS, np.dtype(np.uint16))
    place(
        stream,
        np.array([token for document in documents for token in document], dtype=np.uint16),
        lengths,
        starts[:-1],
    )
    kind, rows = schema(length, "uint16"), row_count(int(starts[-1]), length)
    batches = [
        pack_rows(stream, starts, first_doc, at, min(at + step, rows), kind) for at in range(0, rows, step)
    ]
    return list(pa.Table.from_batches(batches, schema=kind).to_pylist())


def unpacked(rows: list[dict[str, Any]]) -> dict[int, dict[int, int]]:
    """Document -> offset -> token, read token by token; a token that two rows give must be the same in both."""
    found: dict[int, dict[int, int]] = {}
    for row in rows:
        begin = 0
        for end, document, offset in zip(row["doc_ends"], row["doc_ids"], row["doc_offsets"], strict=True):
            for place_in_row in range(begin, end):
                token = row["tokens"][place_in_row]
                assert (
                    found.setdefault(document, {}).setdefault(offset + place_in_row - begin, token) == token
                )
            assert end > begin
            begin = end
        assert row["tokens"][begin:] == [EOS] * (len(row["tokens"]) - begin)
    return found


@given(
    documents=st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=40), min_size=1, max_size=20),
    length=st.integers(1, 12),
    step=st.integers(1, 5),
    first_doc=st.sampled_from([0, 7, 2**31 - 1, 2**40]),
)
def test_every_document_comes_back_once_with_its_end(
    documents: list[list[int]], length: int, step: int, first_doc: int
) -> None:
    rows = packed(documents, length, step, first_doc)
    found = unpacked(rows)
    whole = {first_doc + i: dict(enumerate([*document, EOS])) for i, document in enumerate(documents)}
    assert found == whole
    # One token of overlap a row; all but the shard's first token are targets once.
    real = sum(row["doc_ends"][-1] for row in rows)
    assert real - len(rows) == sum(len(document) + 1 for document in documents) - 1


@given(
    documents=st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=40), min_size=1, max_size=20),
    length=st.integers(1, 12),
)
def test_a_row_ends_with_the_token_that_the_next_begins_with(documents: list[list[int]], length: int) -> None:
    rows = packed(documents, length, 3)
    for row, following in pairwise(rows):
        assert row["tokens"][-1] == following["tokens"][0]
        assert row["doc_ends"][-1] == length + 1, "only the last row is padded"


@pytest.mark.parametrize(("tokens", "rows"), [(0, 0), (1, 1), (2, 1), (5, 1), (6, 2), (9, 2), (10, 3)])
def test_rows_of_four_and_one_token(tokens: int, rows: int) -> None:
    assert row_count(tokens, 4) == rows


def test_a_document_of_over_two_billion_tokens_keeps_its_offsets() -> None:
    length, first = (
        2048,
        2_000_000,
    )  # rows in the middle of one document of 2^33 tokens; no stream is needed for its pieces
    ends, ids, offsets = pieces(np.array([0, 2**33]), 2**32 + 5, first, first + 2, length)
    assert ends.to_pylist() == [[length + 1], [length + 1]]
    assert ids.to_pylist() == [[2**32 + 5], [2**32 + 5]]
    assert offsets.to_pylist() == [[first * length], [(first + 1) * length]]
    assert first * length > 2**31
