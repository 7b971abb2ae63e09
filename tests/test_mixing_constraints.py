"""Limits of mixtures: what is allowed can be drawn, reached and rounded; what conflicts is named, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from corpusmill.mixing.caps import Caps, bounds_of
from corpusmill.mixing.constraints import (
    TOLERANCE,
    Bounds,
    ConstraintError,
    Group,
    centre,
    check,
    draw,
    excess,
    inside,
    nearest,
    settle,
    simplex,
)
from corpusmill.mixing.study import Component
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.kinds import Synthetic
from corpusmill.shards.mixture import PPB

shares = st.integers(0, 20).map(lambda part: part / 20)


@st.composite
def bounds(draw_from: st.DrawFn) -> Bounds:
    """Small ones, loose and tight: floors and ceilings in twentieths, so that sums of exactly 1 come up."""
    count = draw_from(st.integers(1, 6))
    names = tuple("abcdef"[:count])
    least = tuple(draw_from(shares) * draw_from(st.sampled_from((0, 0, 0.5, 1))) for _ in names)
    most = tuple(1 - draw_from(shares) * draw_from(st.sampled_from((0, 0, 0.5, 1))) for _ in names)
    groups = draw_from(
        st.lists(
            st.builds(
                lambda members, a, b: Group("+".join(sorted(members)), tuple(sorted(members)), a, b),
                st.sets(st.sampled_from(names), min_size=1),
                shares.map(lambda part: part / 2),
                shares.map(lambda part: 0.4 + part),
            ),
            max_size=3,
        )
    )
    return Bounds(names, least, most, tuple(groups))


def possible(bounds: Bounds, names: set[str] | None = None) -> bool:
    """By a programme of the test's own: is there a mixture within these limits (all, or those named)?"""
    limits = [limit for limit in bounds.limits() if names is None or limit.name in names]
    count = len(bounds.components)
    found = linprog(
        np.zeros(count),
        A_ub=np.array([limit.row for limit in limits]).reshape(-1, count),
        b_ub=np.array([limit.value for limit in limits]),
        A_eq=np.ones((1, count)),
        b_eq=[1.0],
        bounds=(0, 1),
    )
    assert found.status in (0, 2)
    return bool(found.status == 0)


@settings(max_examples=60, deadline=None)
@given(bounds())
def test_limits_are_met_or_the_conflict_is_named_and_needs_each_of_its_limits(bounds: Bounds) -> None:
    try:
        check(bounds)
    except ConstraintError as error:
        assert not possible(bounds)
        conflict = set(error.conflict)
        assert conflict <= {limit.name for limit in bounds.limits()}
        assert not possible(bounds, conflict)
        for name in conflict:
            assert possible(bounds, conflict - {name})
        assert all(name in str(error) for name in error.conflict[:8])
    else:
        assert possible(bounds)
        assert inside(bounds, centre(bounds))[0]


@settings(max_examples=25, deadline=None)
@given(bounds().filter(possible), st.integers(0, 2**32), st.data())
def test_mixtures_drawn_moved_inside_and_rounded_are_allowed(
    bounds: Bounds, seed: int, data: st.DataObject
) -> None:
    count = len(bounds.components)
    drawn = draw(bounds, 20, seed)
    assert drawn.shape == (20, count)
    assert inside(bounds, drawn).all()
    wanted = np.array(data.draw(st.lists(shares, min_size=count, max_size=count)))
    moved = nearest(bounds, wanted)
    assert inside(bounds, moved)[0]
    # No allowed mixture is nearer: those drawn, and points between them and the one found.
    others = np.vstack([drawn, (drawn + moved) / 2, 0.99 * moved + 0.01 * drawn])
    assert np.linalg.norm(moved - wanted) <= np.linalg.norm(others - wanted, axis=1).min() + 1e-6
    parts = settle(bounds, moved)
    assert sum(parts) == PPB
    assert min(parts) >= 0
    # Where limits leave no room the steps of a millionth may miss each member's share by one.
    assert excess(bounds, np.array(parts) / PPB)[0] <= TOLERANCE + count * 1e-6


def test_a_draw_is_uniform_over_the_simplex() -> None:
    """A weight of m uniform ones has mean 1/m and variance (m - 1) / (m² (m + 1)) (Dirichlet with all parameters 1)."""
    count = 8
    drawn = draw(simplex([f"c{place}" for place in range(count)]), 4000, 3)
    assert drawn.mean(axis=0) == pytest.approx(np.full(count, 1 / count), abs=0.01)
    sd = np.sqrt((count - 1) / (count**2 * (count + 1)))
    assert drawn.std(axis=0) == pytest.approx(np.full(count, sd), rel=0.1)


def test_a_draw_reaches_every_part_of_a_narrow_region() -> None:
    """Two weights share 0.001, and all of their range is seen."""
    bounds = Bounds(
        ("a", "b", "c"), (0.0, 0.0, 0.0), (1.0, 1.0, 0.0006), (Group("b+c", ("b", "c"), most=0.001),)
    )
    drawn = draw(bounds, 1000, 5)
    assert inside(bounds, drawn).all()
    assert drawn[:, 2].min() < 0.0001
    assert drawn[:, 2].max() > 0.0005
    assert drawn[:, 1].max() > 0.0008


def test_the_same_seed_draws_the_same_mixtures() -> None:
    bounds = simplex(("a", "b", "c"))
    assert (draw(bounds, 50, 1) == draw(bounds, 50, 1)).all()
    assert (draw(bounds, 50, 1) != draw(bounds, 50, 2)).any()


def test_rounding_keeps_off_the_limits_and_gives_nothing_to_what_has_nothing() -> None:
    bounds = Bounds(("a", "b", "c"), (0.0, 0.0, 0.0), (1.0, 1 / 3, 1.0))
    parts = settle(bounds, np.array([2 / 3, 1 / 3, 0.0]))
    assert parts[1] <= PPB / 3
    assert parts[1] >= PPB / 3 - 3000
    assert parts[2] == 0
    assert all(part % 1000 == 0 for part in parts)


def part(
    name: str, tokens: int, synthetic: Synthetic = "none", generation: int = 0, protected: bool = False
) -> Component:
    return Component(
        name, "", tokens, 4 * tokens, tokens, synthetic=synthetic, generation=generation, protected=protected
    )


def test_a_budget_limits_epochs_and_kinds_of_synthetic_text_share_their_caps() -> None:
    bounds = bounds_of(
        [
            part("web", 1_000_000),
            part("books", 10_000),
            part("rewritten", 500_000, synthetic="rephrased", generation=1),
            part("stories", 500_000, synthetic="generated", generation=1),
            part("tales", 500_000, synthetic="generated", generation=2),
            part("laws", 100_000, protected=True),
        ],
        budget_tokens=1_000_000,
    )
    drawn = draw(bounds, 300, 1)
    web, books, rewritten, stories, tales, laws = drawn.T
    slack = 2 * TOLERANCE
    assert books.max() <= 0.04 + slack  # 4 x 10,000 of 1,000,000
    assert rewritten.max() <= 0.30 + slack
    assert (stories + tales).max() <= 0.15 + slack
    assert tales.max() <= 0.05 + slack
    assert laws.min() >= 0.5 * 100_000 / 2_610_000 - slack
    assert laws.max() <= 0.4 + slack
    assert web.max() > 0.5


def test_components_too_small_for_the_budget_are_a_conflict_of_their_epochs() -> None:
    parts = [part("web", 1000), part("books", 500)]
    with pytest.raises(
        ConstraintError, match=r"web, 4 epochs of 1,000 tokens in a budget of 10,000: at most 0.4"
    ) as found:
        check(bounds_of(parts, budget_tokens=10_000))
    assert len(found.value.conflict) == 2
    check(bounds_of(parts, budget_tokens=6000))  # exactly 4 epochs of both


def test_nothing_but_synthetic_text_is_a_conflict_of_the_caps() -> None:
    parts = [part("a", 1000, synthetic="rephrased"), part("b", 1000, synthetic="generated")]
    with pytest.raises(
        ConstraintError, match=r"rephrased text \(a\): at most 0.3; generated text \(b\): at most 0.15"
    ):
        check(bounds_of(parts, None))
    check(bounds_of(parts, None, Caps(rephrased=0.9, generated=0.1)))


def test_what_is_wrong_with_the_limits_themselves_is_said() -> None:
    with pytest.raises(RecipeError, match="no component is called 'boks'; did you mean 'books'"):
        Bounds(("web", "books"), (0, 0), (1, 1), (Group("small", ("boks",), most=0.1),))
    with pytest.raises(RecipeError, match="web: at most nan: a share"):
        Bounds(("web", "books"), (0, 0), (float("nan"), 1))
    assert RecipeError.exit_code == 2
