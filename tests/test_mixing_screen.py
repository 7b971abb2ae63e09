"""The n-gram screen: counts, probabilities and losses against plain recounts."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.mixing.screen import STRENGTH, Screen, Tables, agreement, calibrated

VOCABULARY = 5
sequences = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=40)


def plain_bits(document: list[int], parts: list[list[int]], weights: list[float], learnt: float) -> float:
    """The definition, token by token, over dictionaries."""
    counts = [
        Counter(tuple(part[at : at + n]) for n in range(1, 5) for at in range(len(part) - n + 1))
        for part in parts
    ]

    def rate(gram: tuple[int, ...]) -> float:
        if not gram:
            return learnt
        return learnt * sum(
            weight * count[gram] / len(part)
            for weight, count, part in zip(weights, counts, parts, strict=True)
        )

    bits = 0.0
    for at in range(len(document)):
        probability = 1 / VOCABULARY
        for order in range(1, min(4, at + 1) + 1):
            gram = tuple(document[at - order + 1 : at + 1])
            probability = (rate(gram) + STRENGTH * probability) / (rate(gram[:-1]) + STRENGTH)
        bits -= log2(probability)
    return bits


@settings(max_examples=30, deadline=None)
@given(
    st.lists(sequences, min_size=1, max_size=4),
    st.lists(sequences, min_size=2, max_size=3),
    st.floats(0.0, 1.0),
    st.sampled_from((3.0, 100.0, 50_000.0)),
)
def test_losses_are_those_of_the_definition(
    documents: list[list[int]], parts: list[list[int]], share: float, learnt: float
) -> None:
    weights = [share, *([(1 - share) / (len(parts) - 1)] * (len(parts) - 1))]
    sizes = [3 * len(document) for document in documents]
    tables = Tables.of(
        {"one": [np.array(each) for each in documents], "two": [np.array(documents[0])]},
        {"one": sizes, "two": sizes[:1]},
        VOCABULARY,
    )
    screen = Screen.of(tables, [tables.count(np.array(part)) for part in parts])
    expected = [plain_bits(document, parts, weights, learnt) for document in documents]
    found = screen.document_bits(np.array([weights]), learnt)
    assert found["one"][0] == pytest.approx(expected, rel=1e-5)
    assert found["two"][0] == pytest.approx(expected[:1], rel=1e-5)
    losses = screen.losses(np.array([weights]), learnt)
    assert losses[0] == pytest.approx([sum(expected) / sum(sizes), expected[0] / sizes[0]], rel=1e-5)


def test_probabilities_of_all_next_tokens_add_up_to_one() -> None:
    """Documents that differ in their last token only; what comes before is the same and cancels."""
    generator = np.random.default_rng(1)
    part = generator.integers(0, VOCABULARY, 3000)
    sums = []
    for context in product(range(VOCABULARY), repeat=3):
        documents = [np.array([*context, token]) for token in range(VOCABULARY)]
        tables = Tables.of({"t": documents, "c": [np.array(context)]}, {"t": [1] * 5, "c": [1]}, VOCABULARY)
        bits = Screen.of(tables, [tables.count(part)]).document_bits(np.ones((1, 1)), 1000.0)
        sums.append(np.exp2(bits["c"][0, 0] - bits["t"][0]).sum())
    # The part's last tokens have none behind them: of each order one context of 25 to 3,000 counts one more than it leads on.
    assert np.max(sums) <= 1 + 1e-5
    assert np.median(sums) == pytest.approx(1.0, abs=1e-3)
    assert np.min(sums) > 0.9


def test_counts_of_parts_add_up_and_rows_do_not_meet() -> None:
    generator = np.random.default_rng(2)
    tokens = generator.integers(0, 50, 700_000).astype(np.uint16)
    tables = Tables.of({"t": [tokens[:2000]]}, {"t": [4000]}, 50)
    whole = tables.count(tokens)
    for order, counted in enumerate(whole.orders, 1):
        assert counted.sum() <= len(tokens) - order + 1
    singles = np.sort(np.bincount(tokens, minlength=50))
    assert np.sort(whole.orders[0]).tolist() == singles.tolist()  # all 50 tokens are in the target
    halves = tables.count(tokens[:300_001]) + tables.count(tokens[300_001:])
    assert halves.tokens == whole.tokens
    assert halves.orders[0].tolist() == whole.orders[0].tolist()
    # Of n-grams, those are lost that lie across the cut: n - 1.
    for order in range(2, 5):
        assert 0 <= (whole.orders[order - 1] - halves.orders[order - 1]).sum() <= order - 1
    rows = tokens.reshape(-1, 7000)
    apart = sum((tables.count(row) for row in rows[1:]), start=tables.count(rows[0]))
    together = tables.count(rows)
    for one, other in zip(apart.orders, together.orders, strict=True):
        assert one.tolist() == other.tolist()


def test_learning_from_a_targets_own_kind_lowers_its_loss_and_more_so_with_more_tokens() -> None:
    generator = np.random.default_rng(3)
    steps = generator.dirichlet(np.full(30, 0.05), (2, 30))

    def text(kind: int, length: int) -> np.ndarray:
        found = [0]
        for _ in range(length - 1):
            found.append(int(generator.choice(30, p=steps[kind, found[-1]])))
        return np.array(found)

    tables = Tables.of({"own": [text(0, 500)]}, {"own": [500]}, 30)
    screen = Screen.of(tables, [tables.count(text(0, 5000)), tables.count(text(1, 5000))])
    weights = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    few, many = (screen.losses(weights, learnt)[:, 0] for learnt in (100, 10_000))
    assert few[0] < few[1] < few[2]
    assert many[0] < many[1] < many[2]
    assert many[0] < few[0]


def test_calibration_takes_the_number_of_tokens_that_orders_trained_mixtures_best() -> None:
    generator = np.random.default_rng(4)
    parts = [generator.choice(40, 4000, p=p) for p in generator.dirichlet(np.full(40, 0.3), 3)]
    tables = Tables.of({"t": [np.concatenate([part[:300] for part in parts])]}, {"t": [900]}, 40)
    screen = Screen.of(tables, [tables.count(part) for part in parts])
    weights = generator.dirichlet(np.ones(3), 12)
    trained = screen.losses(weights, 300.0) * 2 + 1
    grid = [30.0, 300.0, 3000.0]
    scores = {learnt: agreement(screen.losses(weights, learnt), trained) for learnt in grid}
    assert scores[300.0] == pytest.approx(1.0)
    assert calibrated(screen, weights, trained, grid) == min(
        learnt for learnt in grid if scores[learnt] == max(scores.values())
    )
    trained[3:] = np.nan
    assert np.isfinite(agreement(screen.losses(weights, 300.0), trained))
