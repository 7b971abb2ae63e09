"""Proposals in worlds whose best mixture is known: near it, inside every guard, and not at the corner that a bare fit likes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from mixing_trials import JUNK_FLOOR, Search, bare, mixed_search, uniform

from corpusmill.mixing.constraints import Bounds, Group, inside, nearest, simplex
from corpusmill.mixing.fit import Fits, fit_swarm
from corpusmill.mixing.guards import distances, kl
from corpusmill.mixing.propose import ALIKE, effects, propose
from corpusmill.mixing.swarm import Swarm, make_swarm
from corpusmill.pipeline.errors import RecipeError
from corpusmill.shards.mixture import PPB

QUICK = ("quadratic", "log", "inverse_power")


@lru_cache(maxsize=1)
def found() -> Search:
    return mixed_search(1, QUICK)


def bowl(weights: np.ndarray) -> np.ndarray:
    """Two targets with their best mixtures at (0.5, 0.3, 0.1, 0.1) and (0.1, 0.1, 0.3, 0.5), as cross entropies are."""
    best = np.array([[0.5, 0.3, 0.1, 0.1], [0.1, 0.1, 0.3, 0.5]])
    return -(best[None] * np.log(weights[:, None] + 0.01)).sum(axis=2)


@lru_cache(maxsize=1)
def of_bowl() -> tuple[Fits, Swarm]:
    generator = np.random.default_rng(3)
    weights = generator.dirichlet(np.ones(4), 24)
    losses = bowl(weights) + generator.normal(0, 0.005, (24, 2))
    swarm = make_swarm(("a", "b", "c", "d"), ("t", "u"), weights, losses)
    return fit_swarm(swarm, 1, ["quadratic", "log"]), swarm


def test_the_stack_comes_near_the_best_mixture_from_four_runs_a_component() -> None:
    """A quarter of uniform's regret at most."""
    search = found()
    stack = search.proposal.candidates[0]
    assert stack.name == "stack"
    assert search.regret(stack.weights()) < 0.25 * search.regret(uniform(7))


def test_duplicates_count_as_one_component() -> None:
    """Which of A and A2 has the weight is the same to the world, and nearly so to the fit."""
    search = found()
    names = list(search.world.components)
    a, a2 = names.index("A"), names.index("A2")
    weights = search.proposal.candidates[0].weights()
    swapped = weights.copy()
    swapped[[a, a2]] = weights[[a2, a]]
    pooled = weights.copy()
    pooled[[a, a2]] = weights[[a, a2]].mean()
    truth = search.world.truth(np.array([weights, swapped, pooled]))[:, 0]
    apart = search.regret(uniform(7))
    assert np.ptp(truth) < 0.05 * apart
    total, spread = search.fits.total(np.array([weights, swapped]))
    assert abs(total[0] - total[1]) < 2 * spread.max()
    assert weights[a] + weights[a2] == pytest.approx(search.best[a] + search.best[a2], abs=0.15)


def test_junk_goes_to_its_floor() -> None:
    search = found()
    junk = list(search.world.components).index("junk")
    assert search.best[junk] == pytest.approx(JUNK_FLOOR, abs=0.002)
    for candidate in search.proposal.candidates:
        assert JUNK_FLOOR - 1e-6 <= candidate.weights()[junk] <= JUNK_FLOOR + 0.03  # uniform has 0.14


def test_the_exponential_law_alone_is_kept_from_the_corner_that_it_likes() -> None:
    """One linear form has its least at a corner of what is allowed, wherever the truth has it. Unguarded that is several times
    worse than doing nothing; guarded it is no worse."""
    search = mixed_search(2, ("exponential",))
    nothing = search.regret(uniform(7))
    corner = bare(search, "exponential")
    assert corner.max() == 1.0
    assert search.regret(corner) > 3 * nothing
    for candidate in search.proposal.candidates:
        assert search.regret(candidate.weights()) <= 1.001 * nothing
        assert candidate.distance <= search.proposal.radius
        assert candidate.weights().max() < 0.5


def test_a_family_alone_does_not_leave_components_out() -> None:
    """In this world an exponential law explains something of mixtures it has not seen, and is sure that most components are
    worth nothing: with what it would leave out gone, regret was 13 times uniform's."""
    search = mixed_search(203, ("exponential",))
    assert search.fits.targets[0].shares == {"exponential": 1.0}
    assert search.regret(search.proposal.candidates[0].weights()) <= search.regret(uniform(7))


def test_candidates_are_three_allowed_mixtures_unlike_one_another_and_near_some_run() -> None:
    limits = Bounds(
        ("a", "b", "c", "d"),
        (0.0, 0.2, 0.0, 0.0),
        (0.3, 1.0, 1.0, 1.0),
        (Group("c+d", ("c", "d"), most=0.4),),
    )
    fits, swarm = of_bowl()
    baseline = nearest(limits, uniform(4))
    proposal = propose(fits, swarm, limits, uniform(4), [1.0, 1.0], {"uniform": baseline})
    assert len(proposal.candidates) == 3
    points = np.array([each.weights() for each in proposal.candidates])
    assert inside(limits, points, 1e-6).all()
    assert all(sum(each.weights_ppb) == PPB for each in proposal.candidates)
    apart = np.linalg.norm(np.sqrt(points)[:, None] - np.sqrt(points)[None], axis=2) + np.eye(3)
    assert apart.min() > ALIKE
    roots = np.sqrt(swarm.weights)
    assert (distances(points, roots) <= proposal.radius + 1e-6).all()
    # Held below 0.4, what c and d may have together is used up for the second target.
    assert points[0, 2:].sum() == pytest.approx(0.4, abs=0.02)
    assert set(proposal.totals()) == {"uniform", *(each.name for each in proposal.candidates)}
    assert proposal.totals()["stack"] < proposal.totals()["uniform"]


def test_a_proposal_is_the_same_every_time() -> None:
    args = *of_bowl(), simplex(("a", "b", "c", "d")), uniform(4), [1.0, 1.0], {"uniform": uniform(4)}
    one, other = propose(*args, seed=5), propose(*args, seed=5)
    assert [each.weights_ppb for each in one.candidates] == [each.weights_ppb for each in other.candidates]


def test_importance_moves_the_optimum_and_a_ceiling_holds_it_back() -> None:
    """All for the first target gives up the second; unless that may get worse by so much only."""
    args = *of_bowl(), simplex(("a", "b", "c", "d")), uniform(4), [1.0, 0.0], {"uniform": uniform(4)}
    free = propose(*args).candidates[0]
    assert free.weights()[:2].sum() > 0.65
    before, after = bowl(np.array([uniform(4), free.weights()]))[:, 1]
    assert after > before + 0.25
    held = propose(*args, worsening=[None, 0.1]).candidates[0]
    assert bowl(held.weights()[None])[0, 1] < before + 0.15
    assert bowl(held.weights()[None])[0, 0] < bowl(uniform(4)[None])[0, 0] - 0.02


def test_a_fit_that_knows_nothing_stays_at_the_prior() -> None:
    generator = np.random.default_rng(8)
    swarm = make_swarm(("a", "b", "c"), ("t",), generator.dirichlet(np.ones(3), 16), np.ones((16, 1)))
    fits = fit_swarm(swarm, 1, ["log"])
    assert fits.targets[0].shares == {"mean": 1.0}  # all losses are equal: nothing beats their mean
    prior = np.array([0.6, 0.3, 0.1])
    proposal = propose(fits, swarm, simplex(("a", "b", "c")), prior, [1.0], {"prior": prior})
    assert proposal.candidates[0].weights() == pytest.approx(prior, abs=0.01)


def test_effects_add_up_to_the_change_of_a_loss() -> None:
    start, change = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.002, -0.001, -0.003, 0.002])
    rise = effects(bowl, start)
    assert change @ rise == pytest.approx(bowl((start + change)[None])[0] - bowl(start[None])[0], rel=0.1)


def test_divergence_from_the_prior_is_that_of_the_formula() -> None:
    points, prior = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]), np.array([0.2, 0.3, 0.5])
    expected = 0.5 * np.log(0.5 / 0.2) + 0.5 * np.log(0.5 / 0.3)
    assert kl(points, prior) == pytest.approx([expected, 0.0], abs=1e-12)


def test_targets_that_share_too_few_mixtures_are_named() -> None:
    generator = np.random.default_rng(9)
    weights = generator.dirichlet(np.ones(3), 12)
    losses = np.column_stack([weights[:, 0], weights[:, 1]])
    losses[:6, 0] = losses[6:, 1] = np.nan
    swarm = make_swarm(("a", "b", "c"), ("t", "u"), weights, losses)
    fits = fit_swarm(swarm, 1, ["quadratic"])
    with pytest.raises(RecipeError, match="0 mixtures were measured on all of t, u; a proposal needs 4"):
        propose(fits, swarm, simplex(("a", "b", "c")), uniform(3), [1.0, 1.0], {"uniform": uniform(3)})
    assert propose(
        fits, swarm, simplex(("a", "b", "c")), uniform(3), [1.0, 0.0], {"uniform": uniform(3)}
    ).candidates
