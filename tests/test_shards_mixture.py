"""Quotas of a mixture: exact at borders, near everywhere, never falling."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.shards.mixture import BORDER, PPB, Mixture, Step


def parts(weights: Sequence[float]) -> tuple[int, ...]:
    """Weights as whole parts in 10^9; what rounding leaves goes to the heaviest."""
    whole = [int(weight / sum(weights) * PPB) for weight in weights]
    whole[whole.index(max(whole))] += PPB - sum(whole)
    return tuple(whole)


def running(mixture: Mixture, start: int, blocks: int) -> np.ndarray:
    """[samples + 1, components]: counts before each sample from `start` on."""
    component = np.concatenate([mixture.block(start + i * BORDER).component for i in range(blocks)])
    steps = np.zeros((len(component) + 1, len(mixture.steps[0].weights)), np.int64)
    steps[0] = mixture.counts(start)
    steps[np.arange(1, len(component) + 1), component] = 1
    return np.cumsum(steps, axis=0)


WEIGHTS = st.lists(st.floats(1e-6, 1), min_size=1, max_size=30) | st.lists(
    st.sampled_from([1.0, 1e-2, 1e-4, 1e-6, 0.5, 0.25]), min_size=1, max_size=30
)


@settings(deadline=None, max_examples=60)
@given(weights=WEIGHTS, block=st.integers(0, 10**9))
def test_counts_are_within_one_at_borders_three_at_any_prefix_and_five_in_any_window(
    weights: list[float], block: int
) -> None:
    weight = np.array(parts(weights))
    start = block * BORDER
    counts = running(Mixture([Step(0, tuple(weight.tolist()))]), start, blocks=3)
    samples = start + np.arange(len(counts))
    assert np.array_equal(counts.sum(axis=1), samples)
    # Errors in parts, exact: |count * 10^9 - samples * weight| stays below 2^63 only for the difference, so go by Python ints.
    ideal = np.array([[int(s) * int(w) for w in weight] for s in samples], dtype=object)
    error = (counts.astype(object) * PPB - ideal).astype(np.float64) / PPB
    common = weight * BORDER >= PPB
    assert (np.abs(error[::BORDER][:, common]) < 1).all()
    assert (np.abs(error[::BORDER]) < 2).all()
    assert (np.abs(error) <= 3).all()
    assert (error.max(axis=0) - error.min(axis=0) <= 5).all()


@settings(deadline=None, max_examples=30)
@given(weights=WEIGHTS, sample=st.integers(0, 10**12), more=st.integers(0, 3 * BORDER))
def test_counts_never_fall(weights: list[float], sample: int, more: int) -> None:
    mixture = Mixture([Step(0, parts(weights))])
    before, after = mixture.counts(sample), mixture.counts(sample + more)
    assert all(a <= b for a, b in zip(before, after, strict=True))
    assert sum(before) == sample and sum(after) == sample + more


def test_two_sources_at_half_each_alternate_from_the_first_sample_on() -> None:
    component = Mixture([Step(0, (PPB // 2, PPB // 2))]).block(0).component[:100]
    for start in range(90):
        assert 4 <= (component[start : start + 10] == 0).sum() <= 6


def test_a_component_without_weight_is_never_drawn() -> None:
    assert set(Mixture([Step(0, (0, PPB - 1, 1))]).block(0).component.tolist()) == {1}


def test_a_phase_may_start_anywhere_and_each_component_goes_on_with_its_next_row() -> None:
    mixture = Mixture([Step(0, (600_000_000, 400_000_000)), Step(5001, (100_000_000, 900_000_000))])
    assert mixture.block_start(5000) == BORDER and mixture.block_start(5001) == 5001
    seen = [0, 0]
    at = 0
    while at < 20_000:
        block = mixture.block(at)
        assert block.start == at and block.before == tuple(seen)
        seen = [count + int((block.component == i).sum()) for i, count in enumerate(seen)]
        at += len(block.component)
        assert mixture.counts(at) == tuple(seen)
    # 60 % of 5,001 and 10 % of the rest, each within one.
    assert abs(seen[0] - (0.6 * 5001 + 0.1 * (at - 5001))) < 2


def test_shares_stay_exact_beyond_64_bit_products() -> None:
    # 10^15 samples times 10^9 parts is 10^24: only arbitrary precision gets the last sample right.
    border = 10**15 // BORDER * BORDER
    counts = Mixture([Step(0, (333_333_333, 666_666_667))]).counts(border)
    assert counts[0] == pytest.approx(border * 333_333_333 // PPB, abs=1) and sum(counts) == border
