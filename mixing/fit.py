"""Fitting a swarm: every family on every target, judged out of fold, and stacked.

Splits keep runs of one mixture together. A family that predicts held-out mixtures no better than their mean gets no share of a target's
stack; the others share by the inverse of their squared error. Targets are put together after prediction, never before: a mean of losses
is a harder function than each of them (docs/mixing.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from corpusmill.mixing.families import Constant, Family, Model, chosen_families
from corpusmill.mixing.scores import Score, score
from corpusmill.mixing.swarm import Floats, Ints, Swarm, in_turn
from corpusmill.mixing.threads import one_thread
from corpusmill.pipeline.errors import RecipeError

FOLDS = 5
LEAST_MIXTURES = 4
"""Different mixtures below which nothing is fitted: with three there is nothing left to judge a fit by."""

STACK, MEAN = "stack", "mean"


@dataclass(frozen=True, eq=False)
class TargetFit:
    """What was fitted to one target: the families' models, how they did out of fold, and their shares of the stack."""

    target: str
    runs: int
    mixtures: int
    noise: float | None  # standard deviation of one run
    models: Mapping[str, Model]
    folds: tuple[Mapping[str, Model], ...]  # the same without a fold each
    scores: Mapping[str, Score]  # of families and of the stack
    shares: Mapping[str, float]  # of the stack; all of "mean" if no family beat it
    left_out: Mapping[str, str]  # family: why it was not fitted

    def predict(self, weights: Floats, models: Mapping[str, Model] | None = None) -> Floats:
        """Of the stack [k], or of the same shares of other models."""
        found = self.models if models is None else models
        return sum_of(share * found[name].predict(weights) for name, share in self.shares.items())

    def members(self, weights: Floats) -> Floats:
        """Of the stack without one fold each [folds, k]."""
        return np.array([self.predict(weights, models) for models in self.folds])

    def disagreement(self, weights: Floats) -> Floats:
        """Variance between the families of the stack [k]."""
        middle = self.predict(weights)
        return sum_of(
            share * (self.models[name].predict(weights) - middle) ** 2 for name, share in self.shares.items()
        )


@dataclass(frozen=True, eq=False)
class Fits:
    """The fits of all targets of a swarm."""

    components: tuple[str, ...]
    targets: tuple[TargetFit, ...]

    def predict(self, weights: Floats, family: str | None = None) -> Floats:
        """Losses [k, targets] of mixtures [k, components], by the stacks, or by one family where it was fitted (else the stack)."""
        weights = np.atleast_2d(np.asarray(weights, np.float64))
        with one_thread():
            columns = [
                fit.predict(weights)
                if family is None or family not in fit.models
                else fit.models[family].predict(weights)
                for fit in self.targets
            ]
        return np.column_stack(columns)

    def spread(self, weights: Floats) -> Floats:
        """Standard deviation [k, targets] of what `predict` says: of leaving folds out, and between families."""
        weights = np.atleast_2d(np.asarray(weights, np.float64))
        with one_thread():
            columns = [
                np.sqrt(jackknife(fit.members(weights)) + fit.disagreement(weights)) for fit in self.targets
            ]
        return np.column_stack(columns)

    def total(self, weights: Floats, importance: Sequence[float] | None = None) -> tuple[Floats, Floats]:
        """Weighted mean over targets [k] and its standard deviation [k]; errors of targets are taken as they go together."""
        weights = np.atleast_2d(np.asarray(weights, np.float64))
        parts = np.ones(len(self.targets)) if importance is None else np.asarray(importance, np.float64)
        parts = parts / parts.sum()
        folds = min(len(fit.folds) for fit in self.targets)
        with one_thread():
            members = sum_of(
                part * fit.members(weights)[:folds] for part, fit in zip(parts, self.targets, strict=True)
            )
            between = sum_of(
                part * np.sqrt(fit.disagreement(weights))
                for part, fit in zip(parts, self.targets, strict=True)
            )
        return self.predict(weights) @ parts, np.sqrt(jackknife(members) + between**2)

    def table(self) -> list[dict[str, object]]:
        """A row a target and family (the stack last), for people and JSON: shares of the stack and scores out of fold."""
        return [
            {
                "target": fit.target,
                "family": name,
                "share": fit.shares.get(name, 0.0) if name != STACK else 1.0,
                **vars(found),
                "noise": fit.noise,
                "mixtures": fit.mixtures,
            }
            for fit in self.targets
            for name, found in fit.scores.items()
        ]

    def left_out(self) -> dict[str, str]:
        """Families that some target did without: why."""
        return {name: reason for fit in self.targets for name, reason in fit.left_out.items()}


def fit_swarm(swarm: Swarm, seed: int, families: Iterable[str] | None = None) -> Fits:
    """RecipeError if a target was measured for fewer than four different mixtures."""
    chosen = chosen_families(families)
    with one_thread():
        found = tuple(_fit_target(swarm, place, chosen, seed) for place in range(len(swarm.targets)))
    return Fits(swarm.components, found)


def _fit_target(swarm: Swarm, place: int, families: tuple[Family, ...], seed: int) -> TargetFit:
    there = np.flatnonzero(np.isfinite(swarm.losses[:, place]))
    groups, losses = in_turn(swarm.groups[there]), swarm.losses[there, place]
    weights, noise = swarm.weights[there], swarm.run_noise(place)
    noise = None if noise is None else noise[there]
    mixtures = int(groups.max(initial=-1)) + 1
    if mixtures < LEAST_MIXTURES:
        raise RecipeError(
            f"target {swarm.targets[place]}: {mixtures} different mixtures were measured, a fit needs {LEAST_MIXTURES}"
            " (a design makes four a component)"
        )
    fold = split(groups, seed)
    smallest = min(len(np.unique(groups[fold != k])) for k in range(int(fold.max()) + 1))
    reasons = {family.name: family.refusal(smallest) for family in families}
    left_out = {name: reason for name, reason in reasons.items() if reason}
    usable = [family for family in families if family.name not in left_out]

    def fitted(use: Ints) -> dict[str, Model]:
        sd = None if noise is None else noise[use]
        models: dict[str, Model] = {
            family.name: family.fit(weights[use], losses[use], sd, seed) for family in usable
        }
        return models | {MEAN: Constant(float(losses[use].mean()))}

    folds = tuple(fitted(np.flatnonzero(fold != k)) for k in range(int(fold.max()) + 1))
    held_out = {
        name: _held_out({k: models[name] for k, models in enumerate(folds)}, weights, fold)
        for name in folds[0]
    }
    # Runs of a mixture count together as one: what is predicted is the mixture.
    actual = means(losses, groups)
    predicted = {name: means(values, groups) for name, values in held_out.items()}
    fold_of = np.zeros(mixtures, np.int64)
    fold_of[groups] = fold
    scores = {family.name: score(predicted[family.name], actual, predicted[MEAN]) for family in usable}
    stacked = np.empty(mixtures)
    for k in range(
        len(folds)
    ):  # shares for a fold from the others, so that the stack, too, is judged on what it has not seen
        parts = stack_shares(predicted, actual, fold_of != k)
        stacked[fold_of == k] = sum_of(part * predicted[name][fold_of == k] for name, part in parts.items())
    scores[STACK] = score(stacked, actual, predicted[MEAN])
    return TargetFit(
        target=swarm.targets[place],
        runs=len(there),
        mixtures=mixtures,
        noise=float(swarm.noise[place]) if noise is not None else None,
        models=fitted(np.arange(len(there))),
        folds=folds,
        scores=scores,
        shares=stack_shares(predicted, actual, np.ones(mixtures, bool)),
        left_out=left_out,
    )


def split(groups: Ints, seed: int) -> Ints:
    """The fold of each run: groups dealt out in an order drawn from the seed. Fewer than ten groups are left out one by one."""
    count = int(groups.max()) + 1
    folds = FOLDS if count >= 2 * FOLDS else count
    order = np.random.Generator(np.random.PCG64([seed, count])).permutation(count)
    place = np.empty(count, np.int64)
    place[order] = np.arange(count) % folds
    return place[groups]


def stack_shares(predicted: Mapping[str, Floats], actual: Floats, use: Ints) -> dict[str, float]:
    """Inverse mean squared error of families that beat the mean; all to the mean if none does."""
    errors = {name: float(np.mean((values[use] - actual[use]) ** 2)) for name, values in predicted.items()}
    limit = errors.pop(MEAN)
    if limit == 0:  # all losses are equal
        return {MEAN: 1.0}
    inverse = {name: 1 / max(error, 1e-9 * limit) for name, error in errors.items() if error < limit}
    if not inverse:
        return {MEAN: 1.0}
    return {name: part / sum(inverse.values()) for name, part in inverse.items()}


def _held_out(models: Mapping[int, Model], weights: Floats, fold: Ints) -> Floats:
    found = np.empty(len(weights))
    for k, model in models.items():
        found[fold == k] = model.predict(weights[fold == k])
    return found


def means(values: Floats, groups: Ints) -> Floats:
    found: Floats = np.bincount(groups, values) / np.bincount(groups)
    return found


def jackknife(members: Floats) -> Floats:
    """Variance [k] of an estimate from those that leave out one of the groups each [groups, k]."""
    folds = len(members)
    found: Floats = (folds - 1) * members.var(axis=0)
    return found


def sum_of(parts: Iterable[Floats]) -> Floats:
    """Of at least one array."""
    first, *rest = parts
    for part in rest:
        first = first + part
    return first
