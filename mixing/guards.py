"""What keeps a proposal where fits know something: nearness to runs, and to a prior with a strength that pays.

A fit is an opinion about the neighbourhood of its runs. Outside it, and above all at corners of what is allowed, the lowest
prediction is the largest error: in n-gram worlds (benchmarks/mixing.py) the exponential law alone picks single components,
with 17 to 19 times the regret of uniform weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from corpusmill.mixing.fit import LEAST_MIXTURES, Fits, TargetFit
from corpusmill.mixing.folds import sum_of
from corpusmill.mixing.swarm import Ints, Swarm, in_turn
from corpusmill.pipeline.errors import RecipeError

Floats = npt.NDArray[np.float64]

STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Strengths of KL that are tried, in standard deviations of the mixtures' losses per nat. Never none: where fits know nothing,
the prior is what is left."""

SUBSETS = 200  # of half the mixtures each: a choice is made in every one, and its regret counted

TELLS = 0.05  # standard deviations of the losses by which two strengths' regrets have to differ to count

FLOOR = 1e-6  # weight that a component has in the prior at least, so that KL stays finite


@dataclass(frozen=True, eq=False)
class Known:
    """The mixtures that every target measured, and their mean losses over targets by importance."""

    weights: Floats  # [n, components]
    losses: Floats  # [n] as measured
    unseen: Floats  # [n] as stacks said that had not seen them

    @property
    def unit(self) -> float:
        """Standard deviation of the losses: what a difference is measured in."""
        return float(self.losses.std()) or 1.0

    def radius(self) -> float:
        """How far, in sqrt(w), the loneliest mixture is from its neighbour: nobody has looked farther from all of them."""
        roots = np.sqrt(self.weights)
        apart = np.linalg.norm(roots[:, None] - roots[None], axis=2)
        np.fill_diagonal(apart, np.inf)
        return float(apart.min(axis=1).max())


def known(fits: Fits, swarm: Swarm, importance: Floats) -> Known:
    """Of the swarm that was fitted; runs of one mixture count as their mean."""
    counted = [
        (part, place, fit)
        for place, (part, fit) in enumerate(zip(importance, fits.targets, strict=True))
        if part > 0
    ]
    rows = reduce(np.intersect1d, [fit.rows for _, _, fit in counted])
    groups = in_turn(swarm.groups[rows])
    first = rows[np.unique(groups, return_index=True)[1]]
    if len(first) < LEAST_MIXTURES:
        raise RecipeError(
            f"{len(first)} mixtures were measured on all of {', '.join(fit.target for _, _, fit in counted)};"
            f" a proposal needs {LEAST_MIXTURES}: run the missing ones, or give targets without them no weight"
        )
    losses = sum_of(part * swarm.losses[rows, place] for part, place, _ in counted)
    unseen = sum_of(part * _unseen(fit, swarm, rows) for part, _, fit in counted)
    each = np.bincount(groups)
    return Known(swarm.weights[first], np.bincount(groups, losses) / each, np.bincount(groups, unseen) / each)


def _unseen(fit: TargetFit, swarm: Swarm, rows: Ints) -> Floats:
    """What the stack says of runs by models that were fitted without them."""
    fold = fit.fold[np.searchsorted(fit.rows, rows)]
    found = np.empty(len(rows))
    for number, models in enumerate(fit.folds):
        if (fold == number).any():
            found[fold == number] = fit.predict(swarm.weights[rows[fold == number]], models)
    return found


def strength_of_kl(mixtures: Known, prior: Floats, seed: int) -> tuple[float, dict[float, float]]:
    """The least strength whose choices among mixtures not seen are as good as those of the best, and the mean regret of each.

    A choice: of half the mixtures, the one that the stack and KL together like most; its regret: what the best of them has less.
    As good: no worse by more than a twentieth of the losses' standard deviation, which is what such a comparison can tell.
    """
    losses, away = mixtures.losses, kl(mixtures.weights, prior)
    generator = np.random.Generator(np.random.PCG64([seed, len(losses)]))
    subsets = generator.random((SUBSETS, len(losses))).argsort(axis=1)[:, : max(2, len(losses) // 2)]
    regrets = {}
    for part in STRENGTHS:
        strength = part * mixtures.unit
        chosen = subsets[np.arange(SUBSETS), (mixtures.unseen + strength * away)[subsets].argmin(axis=1)]
        regrets[strength] = float((losses[chosen] - losses[subsets].min(axis=1)).mean())
    enough = min(regrets.values()) + TELLS * mixtures.unit
    return min(strength for strength, regret in regrets.items() if regret <= enough), regrets


def kl(points: Floats, prior: Floats) -> Floats:
    """Kullback-Leibler divergence [k] of mixtures from the prior, in nats."""
    floor = np.maximum(prior, FLOOR)
    ratio = np.maximum(points, 1e-300) / (floor / floor.sum())
    return np.asarray((points * np.log(ratio)).sum(axis=1))


def distances(points: Floats, roots: Floats) -> Floats:
    """From each mixture [k] to the nearest of those whose square roots are given, in sqrt(w)."""
    square = 2 - 2 * np.sqrt(np.maximum(points, 0.0)) @ roots.T  # both have length 1
    return np.asarray(np.sqrt(np.maximum(square, 0.0)).min(axis=1))
