"""Mixtures worth a verification: the best of what fits predict, kept where the fits know something.

    least  total(w) + strength · KL(w | prior) + caution · variance(w) / unit      for allowed w that some run is near

A fit is an opinion about a neighbourhood of its runs. Outside it, and above all at corners of what is allowed, the lowest
prediction is the largest error. Three guards keep to the neighbourhood: KL to the prior, no stronger than pays among mixtures that
the fit had not seen (mixing/guards.py); the variance of the prediction, which hardly counts where the fit is sure and is a wall where it is not
(`unit` is the standard deviation of the runs' losses); and no mixture farther from all runs, in sqrt(w), than the loneliest run is
from its neighbour. What the fits want without any guard is told as a diagnostic.

Search: a pool of allowed mixtures (uniform, and between the best runs), then SLSQP from the best of them. It takes some seconds
with all families, most of it predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from corpusmill.mixing.constraints import Bounds, draw, inside, nearest, settle, simplex
from corpusmill.mixing.fit import Fits
from corpusmill.mixing.folds import MEAN, STACK
from corpusmill.mixing.guards import TELLS, Known, distances, kl, known, strength_of_kl
from corpusmill.mixing.polish import held, polished, pruned
from corpusmill.mixing.swarm import Swarm
from corpusmill.mixing.threads import one_thread
from corpusmill.shards.mixture import PPB

Floats = npt.NDArray[np.float64]

POOL = 2048  # mixtures drawn
BETWEEN = 1024  # mixtures between the best runs
PARENTS = 8  # runs between which they lie
STARTS = 4  # from which SLSQP goes on
APART = 0.1  # distance in sqrt(w) between them at least

CAUTION = 1.0  # a prediction that is uncertain by a whole unit is worth one unit less

TELLABLE = (
    0.5  # of the variance, explained out of fold, from which a component can be said to be worth nothing
)

ALIKE = 0.03
"""Distance in sqrt(w) below which two candidates are one: 24 more runs would not tell them apart."""

WALL = 30.0  # standard deviations of the losses that a whole unit beyond a wall costs


@dataclass(frozen=True)
class Candidate:
    """A mixture and what the stacks expect of it, whoever proposed it; `total` is the mean over targets by importance."""

    name: str
    how: str
    weights_ppb: tuple[int, ...]
    predicted: Mapping[str, float]  # target -> bits per byte
    total: float
    spread: float  # standard deviation of `total` as the fits see it
    kl: float  # from the prior, in nats
    distance: float  # in sqrt(w) to the nearest run

    def weights(self) -> Floats:
        return np.array(self.weights_ppb) / PPB


@dataclass(frozen=True)
class Proposal:
    candidates: tuple[Candidate, ...]
    baselines: tuple[Candidate, ...]  # predicted as well: a verdict compares
    unguarded: Candidate  # the lowest prediction without limits and guards: a diagnostic, never a candidate
    strength: float  # of KL, chosen
    regrets: Mapping[float, float]  # strength -> mean regret of choices among mixtures that were not seen
    radius: float  # of the trust region, in sqrt(w)

    def totals(self) -> dict[str, float]:
        """Predicted totals of candidates and baselines, as `verify` takes them."""
        return {each.name: each.total for each in (*self.baselines, *self.candidates)}


@dataclass(frozen=True, eq=False)
class _Task:
    """All that a search for the best mixture of one fit needs to know."""

    fits: Fits
    family: str | None
    bounds: Bounds
    importance: Floats
    prior: Floats
    strength: float
    caution: float
    runs: Known
    roots: Floats  # sqrt of the runs' weights
    pool: Floats  # allowed mixtures to begin with
    radius: float
    ceilings: Floats  # [targets] that predictions must not go above; infinite for most

    def cost(self, points: Floats) -> Floats:
        """What is to be least [k]."""
        total, spread = self.fits.total(points, list(self.importance))
        if self.family:
            total = self.fits.predict(points, self.family) @ self.importance
        found = total + self.caution * spread**2 / self.runs.unit + self.strength * kl(points, self.prior)
        return np.asarray(found + WALL * self.runs.unit * self.walls(points))

    def walls(self, points: Floats) -> Floats:
        """How far each of the points [k] is out of reach; 0 where it is not."""
        walls = np.maximum(distances(points, self.roots) - self.radius, 0.0)
        if np.isfinite(self.ceilings).any():
            walls += np.maximum(self.fits.predict(points) - self.ceilings, 0.0).sum(axis=1) / self.runs.unit
        return np.asarray(walls)


def propose(
    fits: Fits,
    swarm: Swarm,
    bounds: Bounds,
    prior: Floats,
    importance: Sequence[float],
    baselines: Mapping[str, Floats],
    worsening: Sequence[float | None] | None = None,
    count: int = 3,
    seed: int = 0,
) -> Proposal:
    """`count` candidates, unlike one another and the baselines; fewer where what is allowed has no room for more.

    `swarm` is what was fitted; `prior` and `baselines` are weights in the order of the bounds' components; `importance` of targets, in the fits' order;
    `worsening`: how much worse than the best baseline each may be predicted to get (None: any).
    """
    parts = np.asarray(importance, np.float64) / np.sum(importance)
    with one_thread():
        runs = known(fits, swarm, parts)
        task = _task(fits, runs, bounds, np.asarray(prior, np.float64), parts, seed)
        strength, regrets = strength_of_kl(task.runs, task.prior, seed)
        task = replace(task, strength=strength, ceilings=_ceilings(task, baselines, worsening))
        beside = tuple(_candidate(task, name, "baseline", weights) for name, weights in baselines.items())
        candidates: list[Candidate] = []
        for name, how, best in _views(task):
            if len(candidates) == count:
                break
            found = _candidate(task, name, how, best())
            # The first is asked for whatever it is; others only for what nobody has.
            if not candidates or all(_apart(found, other) > ALIKE for other in (*beside, *candidates)):
                candidates.append(found)
        anywhere = simplex(bounds.components)
        none = np.full(len(parts), np.inf)
        free = replace(
            task, bounds=anywhere, strength=0.0, caution=0.0, radius=np.inf, ceilings=none,
            pool=_pool(anywhere, runs, task.prior, seed),
        )  # fmt: skip
        unguarded = _candidate(free, "unguarded", "lowest prediction without limits or guards", _lowest(free))
    return Proposal(tuple(candidates), beside, unguarded, strength, regrets, task.radius)


def _task(fits: Fits, runs: Known, bounds: Bounds, prior: Floats, importance: Floats, seed: int) -> _Task:
    none = np.full(len(importance), np.inf)
    roots = np.sqrt(runs.weights)
    pool = _pool(bounds, runs, prior, seed)
    return _Task(
        fits, None, bounds, importance, prior, 0.0, CAUTION, runs, roots, pool, runs.radius(), none
    )  # fmt: skip


def _ceilings(
    task: _Task, baselines: Mapping[str, Floats], worsening: Sequence[float | None] | None
) -> Floats:
    """Per target, what the best baseline is predicted to reach, and what it may get worse by."""
    if worsening is None or not baselines:
        return task.ceilings
    predicted = task.fits.predict(np.array(list(baselines.values())))
    best: Floats = predicted[(predicted @ task.importance).argmin()]
    allowed: Floats = best + np.array([np.inf if each is None else each for each in worsening])
    return allowed


def _views(task: _Task) -> Iterator[tuple[str, str, Callable[[], Floats]]]:
    """What to try, in this order: three views that differ in what they trust, then what is left to have three that differ."""

    def of_family(name: str) -> tuple[str, str, Callable[[], Floats]]:
        return name, f"lowest prediction of the {name} family", lambda: _best(replace(task, family=name))

    trusted = _by_trust(task)
    careful = replace(task, strength=2 * task.strength, caution=2 * task.caution)
    bold = replace(task, strength=task.strength / 4, caution=0.0)
    yield "stack", "lowest prediction of the stack", lambda: _best(task)
    yield from map(of_family, trusted[:1])
    yield "careful", "stack, KL and caution doubled", lambda: _best(careful)
    yield from map(of_family, trusted[1:])
    yield "bold", "stack, a quarter of KL, no caution", lambda: _best(bold)
    runs = task.runs.weights[np.argsort(task.runs.losses, kind="stable")]
    for place, weights in enumerate(runs[inside(task.bounds, runs)], 1):
        yield f"run_{place}", "measured, among the best", partial(np.array, weights)


def _by_trust(task: _Task) -> list[str]:
    """Families by their share of the stacks."""
    shares: dict[str, float] = {}
    for part, fit in zip(task.importance, task.fits.targets, strict=True):
        for name, share in fit.shares.items():
            if name != MEAN:
                shares[name] = shares.get(name, 0.0) + float(part) * share
    return sorted(shares, key=lambda name: (-shares[name], name))


def _best(task: _Task) -> Floats:
    """The lowest cost, without what nothing speaks for: where losses are flat, it leaves a component that is of no use anywhere between
    its floor and what the runs had. Whatever view is taken, the stack is asked, for it knows best; then the others have their best again."""

    def change(start: Floats, points: Floats) -> tuple[Floats, Floats]:
        cost, unsure = task.fits.total(points, list(task.importance), start)
        return np.where(task.walls(points) > 0, np.inf, cost), unsure

    point = _lowest(task)
    if not _tellable(task):
        return point
    point, gone = pruned(change, point, task.bounds, TELLS * task.runs.unit)
    return polished(task.cost, point, held(task.bounds, point, gone), task.runs.unit) if gone else point


def _tellable(task: _Task) -> bool:
    """Whether "no difference" is something that the fits know: of every target that counts, two families or more (one alone is sure of
    whatever its form says) explain half the variance between mixtures that they had not seen."""
    counted = [fit for part, fit in zip(task.importance, task.fits.targets, strict=True) if part > 0]
    return all(len(fit.shares) > 1 and fit.scores[STACK].skill >= TELLABLE for fit in counted)


def _lowest(task: _Task) -> Floats:
    """The pool's best, and where SLSQP gets from the best of it."""
    pool = task.pool[np.argsort(task.cost(task.pool), kind="stable")]
    starts = pool[:1]
    for point in pool:  # unlike one another, or all would go the same way
        if len(starts) == STARTS:
            break
        if distances(point[None], np.sqrt(starts))[0] > APART:
            starts = np.vstack([starts, point])
    ends = np.array([polished(task.cost, start, task.bounds, task.runs.unit) for start in starts])
    both = np.vstack([starts[:1], ends[inside(task.bounds, ends)]])
    return np.asarray(both[task.cost(both).argmin()])


def _pool(bounds: Bounds, runs: Known, prior: Floats, seed: int) -> Floats:
    """Allowed mixtures: all over, the runs themselves, and between the best of them; the prior moved inside."""
    generator = np.random.Generator(np.random.PCG64([seed, POOL]))
    weights = runs.weights[np.argsort(runs.losses, kind="stable")]
    weights = weights[inside(bounds, weights)]
    inner = np.vstack([nearest(bounds, prior)[None], weights[:PARENTS]])
    between = generator.dirichlet(np.full(len(inner), 0.5), BETWEEN) @ inner
    return np.vstack([draw(bounds, POOL, seed), inner, weights, between])


def _candidate(task: _Task, name: str, how: str, weights: Floats) -> Candidate:
    ppb = (
        settle(task.bounds, weights)
        if inside(task.bounds, weights)[0]
        else settle(simplex(task.bounds.components), weights)
    )
    point = np.array([ppb]) / PPB
    predicted = task.fits.predict(point)[0]
    return Candidate(
        name,
        how,
        ppb,
        {fit.target: float(value) for fit, value in zip(task.fits.targets, predicted, strict=True)},
        float(predicted @ task.importance),
        float(task.fits.total(point, list(task.importance))[1][0]),
        float(kl(point, task.prior)[0]),
        float(distances(point, task.roots)[0]),
    )


def _apart(one: Candidate, other: Candidate) -> float:
    return float(np.linalg.norm(np.sqrt(one.weights()) - np.sqrt(other.weights())))


def effects(predict: Callable[[Floats], Floats], weights: Floats) -> Floats:
    """How much each target's loss rises per unit of each component's weight [components, targets], all others giving way in
    proportion. Times a change of weights it adds up, to first order, to the change of the loss."""
    step = 0.01
    grown = (1 - step) * weights + step * np.eye(len(weights))
    at = predict(np.vstack([weights, grown]))
    return np.asarray((at[1:] - at[0]) / step)
