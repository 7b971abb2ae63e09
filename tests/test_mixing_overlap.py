"""Leaks between targets and components: planted copies, against a search by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.mixing.overlap import Overlap, Windows, refuse
from corpusmill.pipeline.errors import RecipeError

few = st.lists(st.integers(0, 2), max_size=30)


def by_hand(documents: list[list[int]], rows: list[list[int]], window: int) -> tuple[int, int, int, int]:
    """(documents, those hit by half, tokens, tokens hit), by comparing lists."""
    there = {tuple(row[at : at + window]) for row in rows for at in range(len(row) - window + 1)}
    long = [document for document in documents if len(document) >= window]
    hit = [
        {
            place
            for at in range(len(document) - window + 1)
            if tuple(document[at : at + window]) in there
            for place in range(at, at + window)
        }
        for document in long
    ]
    halves = sum(len(places) >= len(document) / 2 for places, document in zip(hit, long, strict=True))
    return len(long), halves, sum(map(len, long)), sum(map(len, hit))


@settings(max_examples=50)
@given(st.lists(few, min_size=1, max_size=4), few, few, st.integers(1, 7))
def test_counts_are_those_of_a_search_by_hand(
    documents: list[list[int]], first: list[int], second: list[int], window: int
) -> None:
    windows = Windows.of({"target": [np.array(each, np.uint16) for each in documents]}, window)
    seen = windows.seen(np.array(first, np.uint16)) | windows.seen(np.array(second, np.uint16))
    (found,) = windows.overlaps("web", seen)
    numbers = (found.documents, found.hit_documents, found.tokens, found.hit_tokens)
    assert numbers == by_hand(documents, [first, second], window)
    assert found.short == len(documents) - found.documents


def test_a_copy_is_found_wherever_it_lies_in_rows_of_a_shard() -> None:
    generator = np.random.default_rng(3)
    leaked, other = generator.integers(0, 50_000, (2, 300))
    stream = generator.integers(0, 50_000, 1_000_000)
    stream[700_000:700_300] = leaked
    windows = Windows.of({"leaked": [leaked], "other": [other]})
    for rows in (stream, stream.reshape(1000, 1000).astype(np.uint16)):
        leak, clean = windows.overlaps("web", windows.seen(rows))
        assert (leak.token_share, leak.document_share) == (1.0, 1.0)
        assert (clean.hit_tokens, clean.hit_documents, clean.tokens) == (0, 0, 300)


def test_a_long_row_is_searched_across_its_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corpusmill.mixing.overlap.CHUNK", 16)
    tokens = np.arange(100)
    windows = Windows.of({"target": [tokens[at : at + 10] for at in range(91)]}, 10)
    (found,) = windows.overlaps("web", windows.seen(tokens))
    assert found.hit_documents == found.documents == 91


def test_what_is_over_the_limit_is_refused_by_both_names() -> None:
    over = Overlap("exam", "forum", 10, 3, 1000, 310, 0)
    under = Overlap("novel", "web", 10, 0, 1000, 100, 0)
    refuse([under], limit=0.1)
    with pytest.raises(
        RecipeError, match=r"target exam and component forum share 31\.0% .*3 of 10 doc"
    ) as error:
        refuse([under, over], limit=0.1)
    assert "novel" not in str(error.value)


def test_a_target_of_short_documents_only_says_so() -> None:
    windows = Windows.of({"short": [np.arange(5)]}, 10)
    (found,) = windows.overlaps("web", windows.seen(np.arange(100)))
    assert (found.documents, found.short, found.token_share, found.document_share) == (0, 1, 0.0, 0.0)
