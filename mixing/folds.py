"""Held-out predictions: mixtures in folds, every family on all but one, and the shares of a stack from what that says.

What is predicted is a mixture: its runs go to one fold together, and count as their mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from corpusmill.mixing.families import Constant, Family, Model
from corpusmill.mixing.swarm import Floats, Ints

FOLDS = 5
STACK, MEAN = "stack", "mean"  # names beside those of families


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs that measured one target."""

    weights: Floats  # [n, components]
    losses: Floats  # [n]
    groups: Ints  # [n] the mixture of each, numbered from 0
    noise: Floats | None  # [n] standard deviation of each run

    @property
    def mixtures(self) -> int:
        return int(self.groups.max(initial=-1)) + 1

    def means(self) -> Floats:
        """Loss of each mixture."""
        found: Floats = np.bincount(self.groups, self.losses) / np.bincount(self.groups)
        return found


def split(mixtures: int, seed: int) -> Ints:
    """The fold of each mixture, dealt out in an order drawn from the seed. Fewer than ten are left out one by one."""
    folds = FOLDS if mixtures >= 2 * FOLDS else mixtures
    order = np.random.Generator(np.random.PCG64([seed, mixtures])).permutation(mixtures)
    found = np.empty(mixtures, np.int64)
    found[order] = np.arange(mixtures) % folds
    return found


def fitted(runs: Runs, families: Sequence[Family], seed: int, use: Ints | None = None) -> dict[str, Model]:
    """A model of each family, and the mean; of all runs or of those in `use`."""
    rows = np.arange(len(runs.losses)) if use is None else use
    noise = None if runs.noise is None else runs.noise[rows]
    models: dict[str, Model] = {
        family.name: family.fit(runs.weights[rows], runs.losses[rows], noise, seed) for family in families
    }
    return models | {MEAN: Constant(float(runs.losses[rows].mean()))}


def out_of_fold(
    runs: Runs, fold: Ints, families: Sequence[Family], seed: int
) -> tuple[list[dict[str, Model]], dict[str, Floats]]:
    """The models without each fold, and what each family says of mixtures [mixtures] that it has not seen."""
    first = np.unique(runs.groups, return_index=True)[1]
    models = []
    predicted = {name: np.empty(runs.mixtures) for name in (*(family.name for family in families), MEAN)}
    for number in range(int(fold.max()) + 1):
        held = fold == number
        models.append(fitted(runs, families, seed, np.flatnonzero(~held[runs.groups])))
        for name, values in predicted.items():
            values[held] = models[-1][name].predict(runs.weights[first[held]])
    return models, predicted


def stack_shares(predicted: Mapping[str, Floats], actual: Floats) -> dict[str, float]:
    """Inverse mean squared error, of families that beat the mean; all to the mean if none does."""
    errors = {name: float(np.mean((values - actual) ** 2)) for name, values in predicted.items()}
    errors.pop(STACK, None)
    limit = errors.pop(MEAN)
    # A family that is exact to nine digits takes all: below that lie rounding and division by zero.
    inverse = {name: 1 / max(error, 1e-9 * limit) for name, error in errors.items() if error < limit}
    if not inverse:
        return {MEAN: 1.0}
    return {name: part / sum(inverse.values()) for name, part in inverse.items()}


def stacked(predicted: Mapping[str, Floats], actual: Floats, fold: Ints) -> Floats:
    """What the stack says of mixtures it has not seen: its shares for a fold are those of the other folds."""
    found = np.empty(len(actual))
    for number in range(int(fold.max()) + 1):
        held = fold == number
        shares = stack_shares({name: values[~held] for name, values in predicted.items()}, actual[~held])
        found[held] = sum_of(part * predicted[name][held] for name, part in shares.items())
    return found


def sum_of(parts: Iterable[Floats]) -> Floats:
    """Of at least one array."""
    first, *rest = parts
    for part in rest:
        first = first + part
    return first
