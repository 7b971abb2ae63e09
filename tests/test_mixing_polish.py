"""What nothing speaks for goes to its floor, and nothing else: not what may be worth something, not what sums hold in place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from corpusmill.mixing.constraints import Bounds, Group, inside, simplex
from corpusmill.mixing.polish import held, polished, pruned
from corpusmill.mixing.swarm import Floats

START = np.array([0.4, 0.3, 0.2, 0.1])
NAMES = ("a", "b", "c", "d")


def worth(values: list[float], unsure: list[float]) -> Callable[[Floats, Floats], tuple[Floats, Floats]]:
    """What a component loses is worth so much a unit, known up to so much; what others gain is worth nothing."""

    def change(start: Floats, points: Floats) -> tuple[Floats, Floats]:
        less = np.maximum(start - points, 0)
        return less @ np.array(values), less @ np.array(unsure)

    return change


def test_what_is_worth_nothing_goes_and_the_others_grow_in_proportion() -> None:
    point, gone = pruned(worth([1, 1, 0, 1], [0, 0, 0, 0]), START, simplex(NAMES), 0.0)
    assert gone == (2,)
    assert point == pytest.approx(np.array([0.4, 0.3, 0.0, 0.1]) / 0.8)


def test_what_may_be_worth_something_stays_however_little_is_known() -> None:
    """Not known to be worth anything is no reason to go: at worst that costs 0.2 * 1."""
    for values in ([1.0, 1.0, 0.0, 1.0], [1.0, 1.0, -0.5, 1.0]):
        change = worth(values, [0.1, 0.1, 1.0, 0.1])
        assert pruned(change, START, simplex(NAMES), 0.05)[1] == ()


def test_all_that_goes_costs_no_more_than_is_allowed_for_all_together() -> None:
    """Without d it costs 0.01, without c 0.02, without both 0.03."""

    def change(start: Floats, points: Floats) -> tuple[Floats, Floats]:
        gone = points < 1e-9
        return gone @ np.array([1.0, 1.0, 0.02, 0.01]), np.zeros(len(points))

    bounds = simplex(NAMES)
    assert pruned(change, START, bounds, 0.015)[1] == (3,)
    assert pruned(change, START, bounds, 0.035)[1] == (3, 2)


def test_a_floor_is_kept_and_a_sum_that_holds_a_component_keeps_it_where_it_is() -> None:
    useless = worth([1, 1, 0, 1], [0, 0, 0, 0])
    floor = Bounds(NAMES, (0.0, 0.0, 0.05, 0.0), (1.0,) * 4)
    point, gone = pruned(useless, START, floor, 0.0)
    assert gone == (2,)
    assert point[2] == pytest.approx(0.05)
    together = Bounds(NAMES, (0.0,) * 4, (0.4, 0.3, 1.0, 0.1), ())  # the others are at their ceilings
    assert pruned(useless, START, together, 0.0)[1] == ()
    group = Bounds(NAMES, (0.0,) * 4, (1.0,) * 4, (Group("c+d", ("c", "d"), least=0.3),))
    point, gone = pruned(useless, START, group, 0.0)
    assert inside(group, point)[0]
    assert point[2:].sum() >= 0.3 - 1e-6


def test_what_is_held_does_not_come_back() -> None:
    """Without limits the least is at c = 1."""
    limits = held(simplex(NAMES), np.array([0.5, 0.375, 0.0, 0.125]), [2])
    end = polished(
        lambda points: -points[:, 2] - 0.1 * points[:, 3], np.array([0.5, 0.375, 0.0, 0.125]), limits, 1.0
    )
    assert end == pytest.approx([0, 0, 0, 1], abs=1e-6)
