"""The arithmetic of estimates, against tables and worked examples."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.jobs.cost.fit import Interval, fixed_cost, line_through, ratio, share, student, total


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042)]
)
def test_quantiles_are_those_of_the_printed_table_of_students_t(degrees: int, quantile: float) -> None:
    assert student(degrees) == pytest.approx(quantile, rel=0.002)


def test_a_ratio_is_that_of_the_sums_with_the_spread_between_units() -> None:
    """x 1, 2, 3 and y 1, 2, 6: 9/6; residuals -0.5, -1, 1.5; spread 3.5 * 3/2; half width 4.303 * sqrt(5.25) / 6."""
    found = ratio([(1, 1), (2, 2), (3, 6)])
    half = 4.303 * math.sqrt(5.25) / 6
    assert found.expected == pytest.approx(1.5)
    assert found.high == pytest.approx(1.5 + half) and found.low == pytest.approx(max(0.0, 1.5 - half))


def test_units_without_x_say_nothing_and_one_unit_alone_little() -> None:
    assert ratio([]) == ratio([(0, 5)]) == Interval(0, 0, 0)
    assert ratio([(2, 6), (0, 1)]) == Interval(0, 3, 6)


def test_a_share_that_was_never_seen_is_not_ruled_out() -> None:
    """Wilson's bound for 0 of n at 95 %: z^2 / (n + z^2), here of 4 units, whatever their documents."""
    found = share([(50, 0), (50, 0), (0, 0), (20, 0), (20, 0)])
    assert found.low == found.expected == 0.0
    assert found.high == pytest.approx(3.8415 / 7.8415, rel=1e-3)


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 1)), max_size=12))
def test_a_share_lies_within_its_bounds_and_they_within_0_and_1(units: list[tuple[int, float]]) -> None:
    found = share([(n, math.floor(n * part)) for n, part in units])
    assert 0 <= found.low <= found.expected <= found.high <= 1


@given(st.floats(0, 10), st.floats(0.001, 10), st.lists(st.integers(1, 1000), min_size=3, unique=True))
def test_units_on_a_straight_line_give_its_intercept(fixed: float, slope: float, sizes: list[int]) -> None:
    pairs = [(float(x), fixed + slope * x) for x in sizes]
    assert fixed_cost(pairs) == pytest.approx(fixed, abs=1e-6 * (1 + slope * max(sizes)))


@given(st.floats(0, 10), st.floats(0.01, 10))
def test_two_runs_tell_the_cost_of_a_unit_from_that_of_a_document(fixed: float, slope: float) -> None:
    small, large = (2.0, 3.0, 2 * fixed + 3 * slope), (4.0, 50.0, 4 * fixed + 50 * slope)
    assert line_through(small, large) == pytest.approx((fixed, slope), abs=1e-9)


def test_a_cost_below_nothing_is_not_extrapolated() -> None:
    assert line_through((1, 10, 1.0), (1, 20, 0.5)) == (0.5, 0.0)
    assert line_through((1, 10, 0.1), (1, 20, 1.0)) == (0.0, 0.05)
    assert line_through((1, 0, 0.0), (1, 0, 0.0)) == (0.0, 0.0)


def test_independent_parts_add_their_distances_as_squares() -> None:
    assert total([Interval(7, 10, 13), Interval(6, 10, 14)]) == Interval(15, 20, 25)
