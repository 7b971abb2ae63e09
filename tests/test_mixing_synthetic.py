"""Distance of synthetic text: zero for text of the same kind, rising over generations that learn from each other."""

from __future__ import annotations

from itertools import islice
from pydoc_data.topics import topics

import numpy as np
import numpy.typing as npt
import pytest

from corpusmill.mixing.synthetic import _area, distance
from corpusmill.pipeline.errors import InputError

Ids = npt.NDArray[np.int64]

GENERATIONS = 5


@pytest.fixture(scope="module")
def prose() -> list[Ids]:
    """Python's own help in documents of 256 words, as numbers of words."""
    numbers: dict[str, int] = {}
    words = [word for _, text in sorted(topics.items()) for word in text.split()]
    ids = np.array([numbers.setdefault(word, len(numbers)) for word in islice(words, 256 * 240)])
    return list(ids.reshape(240, 256))


def imitations(documents: list[Ids], seed: int, temperature: float = 0.9) -> list[Ids]:
    """As many documents of a model that knows which word followed which, and prefers, as samplers do, what it saw more often."""
    generator = np.random.default_rng(seed)
    after: dict[int, list[int]] = {}
    for document in documents:
        for word, following in zip(document[:-1].tolist(), document[1:].tolist(), strict=True):
            after.setdefault(word, []).append(following)
    steps = {}
    for word, following in after.items():
        kinds, counts = np.unique(following, return_counts=True)
        chance = counts ** (1 / temperature)
        steps[word] = kinds, np.cumsum(chance / chance.sum())
    first = [int(document[0]) for document in documents]
    found = []
    for _ in documents:
        at = first[int(generator.integers(len(first)))]
        words = [at]
        for chance in generator.random(255):
            kinds, upper = steps.get(at, (np.array(first), np.linspace(0, 1, len(first) + 1)[1:]))
            at = int(kinds[min(int(np.searchsorted(upper, chance)), len(kinds) - 1)])
            words.append(at)
        found.append(np.array(words))
    return found


def test_distance_rises_as_generations_learn_from_each_other(prose: list[Ids]) -> None:
    natural, learnt_from = prose[::2], prose[1::2]
    found = [distance(natural, learnt_from, seed=1)]
    for generation in range(1, GENERATIONS):
        learnt_from = imitations(learnt_from, seed=generation)
        found.append(distance(natural, learnt_from, seed=1))
    said = [round(each.auc, 3) for each in found]
    assert said == sorted(said) and said[0] < 0.6 and said[-1] > 0.9, said
    pairs = [each.synthetic.distinct[1] for each in found]
    assert pairs[1:] == sorted(pairs[1:], reverse=True), pairs
    repeated = [each.synthetic.self_repetition for each in found]
    assert repeated[1:] == sorted(repeated[1:]), repeated


def test_text_of_the_same_kind_is_at_no_distance() -> None:
    generator = np.random.default_rng(5)
    chance = 1 / np.arange(1, 2001)
    same = [generator.choice(2000, 400, p=chance / chance.sum()) for _ in range(400)]
    found = distance(same[:200], same[200:], seed=2)
    # 600 pieces a side; the standard deviation of an area of nothing is sqrt(1 / (6 n)) for n pieces of each kind, over all folds.
    bound = 4 * np.sqrt(1 / (6 * found.pieces))
    assert abs(found.auc - 0.5) < bound
    assert abs(found.natural_auc - 0.5) < 2 * bound
    assert found.natural.distinct == pytest.approx(found.synthetic.distinct, rel=0.05)


def test_figures_of_variety_are_those_of_a_count_by_hand() -> None:
    one = np.tile(np.arange(2), 64)  # 128 tokens: 2 kinds of words, of pairs, ...
    other = np.arange(100, 228)  # 128 kinds
    found = distance([one] * 10, [other + 1000 * k for k in range(10)], seed=0)
    assert found.natural.distinct == (2 / 1280, 2 / 1270, 2 / 1260, 2 / 1250)
    assert found.natural.self_repetition == 1.0  # every document has what the others have
    assert found.synthetic.distinct[0] == 1.0
    assert found.synthetic.self_repetition == 0.0
    assert found.auc == 1.0


def test_area_counts_pairs_in_order_and_ties_by_half() -> None:
    assert _area(np.array([0.1, 0.4, 0.4, 0.8]), np.array([0, 0, 1, 1])) == 3.5 / 4


def test_same_documents_give_same_figures_whatever_ran_before() -> None:
    generator = np.random.default_rng(8)
    documents = [generator.integers(0, 300, 200) for _ in range(60)]
    first = distance(documents[:30], documents[30:], seed=4)
    np.random.random(100)  # noqa: NPY002  (global state that must not matter)
    assert distance(documents[:30], documents[30:], seed=4) == first


def test_too_few_documents_are_named() -> None:
    long = [np.arange(200)] * 20
    with pytest.raises(InputError, match="synthetic text has 3 documents of 128"):
        distance(long, long[:3] + [np.arange(9)] * 50, seed=0)
