"""Weights: whole parts of 10^9 that always add up; UniMax is water-filling; mistakes by hand are named."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.mixing.weights import in_ppb, manual, proportional, tempered, uniform, unimax
from corpusmill.pipeline.errors import RecipeError

PPB = 10**9
SIZES = st.dictionaries(st.text(min_size=1, max_size=5), st.integers(1, 10**13), min_size=1, max_size=30)


@given(SIZES, st.floats(0.1, 50))
def test_every_kind_adds_up_exactly_and_rounds_by_less_than_one_part(
    sizes: dict[str, int], temperature: float
) -> None:
    most = {name: 4 * size for name, size in sizes.items()}
    for weights in (
        proportional(sizes),
        uniform(sizes),
        unimax(most, sum(sizes.values())),
        tempered(sizes, temperature),
    ):
        parts, total = in_ppb(weights), sum(weights.values())
        assert sum(parts.values()) == PPB
        assert all(abs(parts[name] - weights[name] * PPB / total) < 1 for name in sizes)
        assert min(parts.values()) >= 0


@given(SIZES)
def test_the_order_of_names_does_not_matter(sizes: dict[str, int]) -> None:
    backwards = dict(reversed(sizes.items()))
    for kind in (proportional, uniform):
        assert in_ppb(kind(sizes)) == in_ppb(kind(backwards))
    assert in_ppb(unimax(sizes, 100)) == in_ppb(unimax(backwards, 100))


def test_thirds_differ_by_one_part_and_the_first_name_gets_it() -> None:
    assert in_ppb(uniform({"c": 1, "a": 1, "b": 1})) == {"a": 333_333_334, "b": 333_333_333, "c": 333_333_333}


def water_level(most: list[int], budget: int) -> Fraction:
    """The level at which vessels of these heights hold the budget, found from the heights in turn."""
    for level in sorted(most):
        if sum(min(level, height) for height in most) >= budget:
            below = [height for height in most if height < level]
            return Fraction(budget - sum(below), len(most) - len(below))
    return Fraction(max(most))


@given(SIZES, st.integers(1, 10**14))
def test_unimax_is_water_filling(most: dict[str, int], budget: int) -> None:
    level = water_level(list(most.values()), budget)
    found = unimax(most, budget)
    assert found == {name: min(Fraction(height), level) for name, height in most.items()}
    assert sum(found.values()) == min(budget, sum(most.values()))


def test_unimax_gives_what_small_components_leave_to_the_others() -> None:
    # 900 for three is 300 each; b has 40 at most and a 200: c gets 900 - 40 - 200.
    assert unimax({"a": 200, "b": 40, "c": 10_000}, 900) == {"a": 200, "b": 40, "c": 660}


@given(SIZES)
def test_temperature_one_is_proportional(sizes: dict[str, int]) -> None:
    exact, found = in_ppb(proportional(sizes)), in_ppb(tempered(sizes, 1.0))
    assert all(abs(exact[name] - found[name]) <= 1 for name in sizes)


def test_temperature_two_takes_square_roots() -> None:
    found = in_ppb(tempered({"a": 10**6, "b": 9 * 10**6, "c": 16 * 10**6}, 2.0))
    assert found == in_ppb({"a": Fraction(1), "b": Fraction(3), "c": Fraction(4)})


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
def test_a_temperature_that_is_none_is_refused(temperature: float) -> None:
    with pytest.raises(RecipeError, match="temperature"):
        tempered({"a": 1}, temperature)


def test_weights_by_hand_are_taken_as_they_are_written() -> None:
    known = {"web": 1, "books": 1, "code": 1}
    assert in_ppb(manual({"web": 0.7, "books": 0.3}, known, "mix")) == {
        "books": 300_000_000,
        "code": 0,
        "web": 700_000_000,
    }
    assert (
        sum(in_ppb(manual({"web": 0.333333, "books": 0.333333, "code": 0.333333}, known, "mix")).values())
        == PPB
    )


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"wep": 1.0}, "did you mean 'web'"),
        (
            {"web": 0.5, "books": 0.4},
            r"add up to 0\.9, not 1; in the same proportions: web: 0\.555556, books: 0\.444444",
        ),
        ({"web": 1.5, "books": -0.5}, r"weight of books is -0\.5"),
        ({"web": math.nan}, "weight of web is nan"),
        ({"web": math.inf}, "weight of web is inf"),
        ({"web": 0.0}, "at least one component"),
        ({}, "at least one component"),
    ],
)
def test_mistakes_in_weights_by_hand_are_named(weights: dict[str, float], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        manual(weights, {"web": 1, "books": 1}, "mix: weights")
