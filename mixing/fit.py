"""Fitting a swarm: every family on every target, judged out of fold, and stacked.

Splits keep runs of one mixture together. A family that predicts held-out mixtures no better than their mean gets no share of a target's
stack; the others share by the inverse of their squared error. Targets are put together after prediction, never before: a mean of losses
is a harder function than each of them (docs/mixing-method.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from corpusmill.mixing.families import Family, Model, chosen_families
from corpusmill.mixing.folds import (
    MEAN,
    STACK,
    Runs,
    fitted,
    out_of_fold,
    split,
    stack_shares,
    stacked,
    sum_of,
)
from corpusmill.mixing.scores import Score, score, spearman
from corpusmill.mixing.swarm import Floats, Ints, Swarm, in_turn
from corpusmill.mixing.threads import one_thread
from corpusmill.pipeline.errors import RecipeError

LEAST_MIXTURES = 4
"""Different mixtures below which nothing is fitted: with three there is nothing left to judge a fit by."""


@dataclass(frozen=True, eq=False)
class TargetFit:
    """What was fitted to one target: the families' models, how they did out of fold, and their shares of the stack."""

    target: str
    rows: Ints  # of the swarm that measured it
    fold: Ints  # of each of these rows
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

    def total(
        self, weights: Floats, importance: Sequence[float] | None = None, start: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Weighted mean over targets [k] and its standard deviation [k], in which errors of targets may cancel as the fits say.
        With `start` [m]: of the change from that mixture, in which what is wrong with both cancels."""
        weights = np.atleast_2d(np.asarray(weights, np.float64))
        points = weights if start is None else np.vstack([start, weights])

        def since(values: Floats) -> Floats:
            return values if start is None else values[..., 1:] - values[..., :1]

        parts = np.ones(len(self.targets)) if importance is None else np.asarray(importance, np.float64)
        weighed = list(zip(parts / parts.sum(), self.targets, strict=True))
        with one_thread():
            stacks = [since(fit.predict(points)) for fit in self.targets]
            mean = sum_of(part * stack for (part, _), stack in zip(weighed, stacks, strict=True))
            members = (part * since(fit.members(points)) for part, fit in weighed)
            if all(np.array_equal(fit.rows, self.targets[0].rows) for fit in self.targets):
                left_out = jackknife(sum_of(members))
            else:  # folds of different runs: their errors are taken to go together
                left_out = sum_of(np.sqrt(jackknife(each)) for each in members) ** 2
            alone = (
                [since(fit.models[name].predict(points)) if name in fit.shares else stack
                 for (_, fit), stack in zip(weighed, stacks, strict=True)]
                for name in self._families()
            )  # fmt: skip
            return mean, np.sqrt(left_out + self._between(weighed, alone, mean))

    def _families(self) -> list[str]:
        return sorted({name for fit in self.targets for name in fit.shares})

    def _between(
        self, weighed: list[tuple[float, TargetFit]], alone: Iterable[list[Floats]], mean: Floats
    ) -> Floats:
        """Variance between totals that take one family wherever a stack has it, by its share in all."""
        found = np.zeros(len(mean))
        for name, values in zip(self._families(), alone, strict=True):
            share = sum(part * fit.shares.get(name, 0.0) for part, fit in weighed)
            total = sum_of(part * value for (part, _), value in zip(weighed, values, strict=True))
            found += share * (total - mean) ** 2
        return found

    def table(self) -> list[dict[str, Any]]:
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


def fit_swarm(swarm: Swarm, seed: int, families: Iterable[str] | None = None, control: bool = True) -> Fits:
    """RecipeError if a target was measured for fewer than four different mixtures. Without the control it takes half the time."""
    chosen = chosen_families(families)
    with one_thread():
        found = tuple(_fit_target(swarm, place, chosen, seed, control) for place in range(len(swarm.targets)))
    return Fits(swarm.components, found)


def _fit_target(
    swarm: Swarm, place: int, families: tuple[Family, ...], seed: int, control: bool
) -> TargetFit:
    rows, runs = _runs(swarm, place)
    if runs.mixtures < LEAST_MIXTURES:
        raise RecipeError(
            f"target {swarm.targets[place]}: {runs.mixtures} different mixtures were measured, a fit needs {LEAST_MIXTURES}"
            " (a design makes six a component, 24 at least)"
        )
    fold = split(runs.mixtures, seed)
    smallest = runs.mixtures - int(np.bincount(fold).max())
    reasons = {family.name: family.refusal(smallest) for family in families}
    usable = [family for family in families if not reasons[family.name]]
    actual = runs.means()
    models, predicted = out_of_fold(runs, fold, usable, seed)
    predicted[STACK] = stacked(predicted, actual, fold)
    controls = _controls(runs, fold, usable, seed) if control else {}
    return TargetFit(
        target=swarm.targets[place],
        rows=rows,
        fold=fold[runs.groups],
        mixtures=runs.mixtures,
        noise=None if runs.noise is None else float(swarm.noise[place]),
        models=fitted(runs, usable, seed),
        folds=tuple(models),
        scores={
            name: score(predicted[name], actual, predicted[MEAN], controls.get(name))
            for name in (*(family.name for family in usable), STACK)
        },
        shares=stack_shares(predicted, actual),
        left_out={name: reason for name, reason in reasons.items() if reason},
    )


def _runs(swarm: Swarm, place: int) -> tuple[Ints, Runs]:
    """Rows that measured a target, and what they say of it."""
    there = np.flatnonzero(np.isfinite(swarm.losses[:, place]))
    noise = swarm.run_noise(place)
    return there, Runs(
        swarm.weights[there],
        swarm.losses[there, place],
        in_turn(swarm.groups[there]),
        None if noise is None else noise[there],
    )


def _controls(runs: Runs, fold: Ints, families: list[Family], seed: int) -> dict[str, float]:
    """Rank correlations of the same fits where each mixture got the losses of another."""
    order = np.random.Generator(np.random.PCG64([seed, runs.mixtures, 1])).permutation(runs.mixtures)
    first = np.unique(runs.groups, return_index=True)[1]
    shuffled = replace(runs, weights=runs.weights[first][order][runs.groups])
    _, predicted = out_of_fold(shuffled, fold, families, seed)
    actual = shuffled.means()
    predicted[STACK] = stacked(predicted, actual, fold)
    return {name: spearman(values, actual) for name, values in predicted.items()}


def jackknife(members: Floats) -> Floats:
    """Variance [k] of an estimate from those that leave out one of the groups each [groups, k]."""
    found: Floats = (len(members) - 1) * members.var(axis=0)
    return found
