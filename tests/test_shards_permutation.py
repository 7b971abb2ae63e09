"""Keyed permutations: every place once, and back, whatever the size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.shards.permutation import derive, permute, permute_each, unpermute

AROUND_POWERS_OF_TWO = [2**k + d for k in (12, 15, 16, 18) for d in (-1, 0, 1)]


def test_every_size_up_to_2000_is_permuted_and_back() -> None:
    for n in range(1, 2001):
        places = np.arange(n)
        there = permute(places, n, key=n)
        assert np.array_equal(np.sort(there), places), n
        assert np.array_equal(unpermute(there, n, key=n), places), n


@pytest.mark.parametrize("n", AROUND_POWERS_OF_TWO)
def test_sizes_around_powers_of_two_lose_no_place(n: int) -> None:
    there = permute(np.arange(n), n, key=7)
    assert np.array_equal(np.sort(there), np.arange(n))


@settings(deadline=None)
@given(n=st.integers(1, 2**61), key=st.integers(0, 2**64 - 1), data=st.data())
def test_any_size_beyond_32_bits_too_stays_inside_and_comes_back(
    n: int, key: int, data: st.DataObject
) -> None:
    places = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20, unique=True)))
    there = permute(places, n, key)
    assert there.min() >= 0 and there.max() < n
    assert len(set(there.tolist())) == len(places)
    assert np.array_equal(unpermute(there, n, key), places)


def test_many_permutations_at_once_are_the_single_ones() -> None:
    sizes = [(n, derive("each", n)) for n in (1, 2, 7, 100, 4097, 12)]
    counts = np.array([1, 2, 0, 60, 4097, 5])
    places = np.concatenate([np.arange(count) for count in counts])
    single = [permute(np.arange(count), n, key) for (n, key), count in zip(sizes, counts, strict=True)]
    assert np.array_equal(permute_each(places, sizes, counts), np.concatenate(single))


def test_keys_give_orders_of_their_own() -> None:
    orders = [
        permute(np.arange(1000), 1000, derive("order", seed, epoch)) for seed in (1, 2) for epoch in (0, 1)
    ]
    # Two random orders of 1,000 agree in one place on average, and in more than 10 with a chance of about 1e-8.
    for i, a in enumerate(orders):
        for b in orders[:i]:
            assert (a == b).sum() <= 10


def test_batches_are_as_mixed_as_random_draws() -> None:
    """Chi-square over its degrees of freedom, 1.0 for random draws: by region of the corpus and by the low bits of the place."""
    n, batch = 2**18, 512
    there = permute(np.arange(n), n, key=3).reshape(-1, batch)
    for kinds in (there * 64 // n, there % 64):
        counts = np.stack([np.bincount(row, minlength=64) for row in kinds])
        expected = batch / 64
        ratio = ((counts - expected) ** 2 / expected).sum() / (63 * len(counts))
        # 512 batches of 63 degrees: the ratio's standard deviation is sqrt(2 / 32256) = 0.008.
        assert abs(ratio - 1) < 0.05
