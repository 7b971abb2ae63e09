"""Candidates are datasketch's candidates, and are found as often as theory says."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from datasketch import MinHash, MinHashLSH
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.dedup.bands import band_keys, optimum, probability
from corpusmill.dedup.pairs import pairs_in_runs
from corpusmill.dedup.reference import buckets_of


def planted(count: int, hashes: int, seed: int) -> np.ndarray:
    """Signatures of which many share some minima."""
    generator = np.random.default_rng(seed)
    base = generator.integers(0, 1 << 32, (count // 4, hashes), dtype=np.uint32)
    signatures = base[generator.integers(0, len(base), count)]
    noise = generator.random((count, hashes)) < generator.random((count, 1)) * 0.4
    return np.where(
        noise, generator.integers(0, 1 << 32, (count, hashes), dtype=np.uint32), signatures
    ).astype(np.uint32)


def all_pairs(signatures: np.ndarray, bands: int, rows: int) -> set[tuple[int, int]]:
    """Candidates by our keys, with as many leaders as it takes."""
    count = len(signatures)
    keys = band_keys(signatures, bands, rows).reshape(-1)
    numbers = np.repeat(np.arange(count, dtype=np.uint64), bands)
    found = pairs_in_runs(keys, numbers, [numbers], leaders=count, long_run=count)
    return set(zip(found.first.tolist(), found.second.tolist(), strict=True))


@pytest.mark.parametrize(("bands", "rows"), [(14, 8), (18, 6), (1, 112), (112, 1)])
def test_candidates_are_those_of_datasketch(bands: int, rows: int) -> None:
    signatures = planted(400 if rows > 1 else 60, 112, seed=bands)
    index = MinHashLSH(num_perm=112, params=(bands, rows)) if bands > 1 else None
    sketches = [MinHash(hashvalues=row, scheme="affine32") for row in signatures]
    if index is None:  # datasketch refuses one band; one band of everything is equality
        expected = {
            (a, b)
            for a, b in combinations(range(len(signatures)), 2)
            if (signatures[a] == signatures[b]).all()
        }
    else:
        for position, sketch in enumerate(sketches):
            index.insert(position, sketch)
        expected = {
            tuple(sorted((position, other)))
            for position, sketch in enumerate(sketches)
            for other in index.query(sketch)
            if other != position
        }
    assert all_pairs(signatures, bands, rows) == expected


def test_buckets_of_the_reference_engine_hold_every_document_once_a_band() -> None:
    signatures = planted(100, 32, seed=3)
    _, member = buckets_of(signatures, np.zeros(100, np.uint64), 4, 8)
    assert np.bincount(member).tolist() == [4] * 100


def test_probability_is_that_of_the_published_curve() -> None:
    """FineWeb's 14 bands of 8: one band at 0.5 is 1/256."""
    assert probability(0.5, 1, 8) == pytest.approx(1 / 256)
    assert probability(0.5, 14, 8) == pytest.approx(1 - (255 / 256) ** 14)
    assert [round(probability(s, 14, 8), 2) for s in (0.7, 0.75, 0.8, 0.85)] == [0.56, 0.77, 0.92, 0.99]
    assert probability(1.0, 3, 9) == 1.0 and probability(0.0, 3, 9) == 0.0


def test_auto_is_the_optimum_of_datasketch() -> None:
    index = MinHashLSH(threshold=0.7, num_perm=112)
    assert optimum(0.7, 112) == (index.b, index.r)


def test_keys_depend_on_the_whole_tuple_its_order_and_the_band() -> None:
    signatures = np.array([[1, 2, 3, 4, 1, 2, 3, 4], [2, 1, 4, 3, 0, 3, 4, 3]], np.uint32)
    keys = band_keys(signatures, 2, 4)
    assert len(set(keys.reshape(-1).tolist())) == 4  # all four bands sum to 10


@given(st.lists(st.integers(0, 6), max_size=60), st.integers(2, 5), st.integers(2, 20))
def test_a_run_is_compared_with_its_leaders_and_no_pair_comes_twice(
    keys: list[int], leaders: int, long_run: int
) -> None:
    key = np.array(keys, np.uint64)
    number = np.arange(len(keys), dtype=np.uint64) * np.uint64(3)
    rank = np.array([(7 * i) % 61 for i in range(len(keys))], np.uint64)  # 61 is prime: no ties
    found = pairs_in_runs(key, number, [rank], leaders, long_run)
    expected = set()
    for value in set(keys):
        run = sorted(np.flatnonzero(key == value).tolist(), key=lambda i: rank[i])
        most = leaders if len(run) <= long_run else 2
        expected |= {(3 * a, 3 * b) for i, a in enumerate(run[:most]) for b in run[i + 1 :]}
    pairs = list(zip(found.first.tolist(), found.second.tolist(), strict=True))
    assert len(pairs) == len(set(pairs)) and set(pairs) == expected
    assert found.longest == max((keys.count(v) for v in set(keys) if keys.count(v) > 1), default=0)


@settings(max_examples=5, deadline=None)
@given(st.sampled_from([0.6, 0.7, 0.8, 0.9]))
def test_recall_of_bands_is_that_of_theory(similarity: float) -> None:
    """4,000 pairs of independent minima that agree with this probability: within 4 standard deviations (0.03)."""
    generator = np.random.default_rng(11)
    left = generator.integers(0, 1 << 32, (4000, 112), dtype=np.uint32)
    other = generator.integers(0, 1 << 32, (4000, 112), dtype=np.uint32)
    right = np.where(generator.random((4000, 112)) < similarity, left, other).astype(np.uint32)
    met = (band_keys(left, 14, 8) == band_keys(right, 14, 8)).any(axis=1)
    assert abs(met.mean() - probability(similarity, 14, 8)) < 0.032
