"""A swarm: what proxy runs said, as the numbers that regressors are fitted to.

A row is a run. Runs of one mixture with several seeds are a group: they stay together in every split, and their scatter is the only
estimate of noise there is. Nothing here costs more than a few passes over an array of runs x targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SAME_DIGITS = 9
"""Weights that agree to so many decimals are one mixture: the parts in 10^9 that a run is asked for."""

POOLED_RUNS = 4
"""Degrees of freedom that the scatter of all repeated mixtures counts for, beside those of one mixture's own repeats.

Noise differs from mixture to mixture, but three seeds of one say little: alone they are off by half one time in four."""


@dataclass(frozen=True, eq=False)
class Swarm:
    """Weights and losses of runs, in the order of `components` and `targets`."""

    components: tuple[str, ...]
    targets: tuple[str, ...]
    weights: Floats  # [runs, components], each row adds up to 1
    losses: Floats  # [runs, targets], lower is better; nan where a run did not measure a target
    groups: Ints  # [runs], equal for runs of one mixture
    noise: Floats  # [targets], standard deviation of one run; nan where no mixture was repeated
    unit: str = "bits_per_byte"  # or "loss": as imported, of a tokenizer that is not known

    def __post_init__(self) -> None:
        runs = len(self.weights)
        wanted = {
            "weights": (runs, len(self.components)),
            "losses": (runs, len(self.targets)),
            "groups": (runs,),
            "noise": (len(self.targets),),
        }
        for name, shape in wanted.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} has shape {getattr(self, name).shape}, not {shape}")

    def take(self, rows: Sequence[int] | Ints) -> Swarm:
        """Some of the runs; the noise is estimated anew from those."""
        rows = np.asarray(rows, np.int64)
        return make_swarm(
            self.components,
            self.targets,
            self.weights[rows],
            self.losses[rows],
            groups=self.groups[rows],
            unit=self.unit,
        )

    def run_noise(self, target: int) -> Floats | None:
        """Standard deviation of every run on a target, or None where no mixture was repeated.

        Of a repeated mixture its own scatter, drawn towards that of all; of any other that of all.
        """
        pooled = self.noise[target]
        if not np.isfinite(pooled) or pooled == 0:
            return None
        squares, free = _scatter(self.losses[:, target], self.groups)
        own = (POOLED_RUNS * pooled**2 + squares) / (POOLED_RUNS + free)
        found: Floats = np.sqrt(own[self.groups])
        return found


def make_swarm(
    components: Sequence[str],
    targets: Sequence[str],
    weights: Floats,
    losses: Floats,
    groups: Ints | None = None,
    unit: str = "bits_per_byte",
) -> Swarm:
    """With groups found from equal weights unless they are given, and noise from the scatter inside groups."""
    weights, losses = np.asarray(weights, np.float64), np.asarray(losses, np.float64)
    named = same_mixtures(weights) if groups is None else in_turn(groups)
    return Swarm(tuple(components), tuple(targets), weights, losses, named, pooled_noise(losses, named), unit)


def same_mixtures(weights: Floats) -> Ints:
    """The group of each row: rows of equal weights share one; numbered by first appearance."""
    _, inverse = np.unique(np.round(weights, SAME_DIGITS), axis=0, return_inverse=True)
    return in_turn(inverse.reshape(-1))


def in_turn(groups: Ints) -> Ints:
    """Groups renumbered 0, 1, ... by first appearance."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse.reshape(-1)].astype(np.int64)


def pooled_noise(losses: Floats, groups: Ints) -> Floats:
    """Standard deviation inside groups, a target at a time; nan where no group has two runs that measured it."""
    found = np.full(losses.shape[1], np.nan)
    for target in range(losses.shape[1]):
        squares, free = _scatter(losses[:, target], groups)
        if free.sum() > 0:
            found[target] = np.sqrt(squares.sum() / free.sum())
    return found


def _scatter(losses: Floats, groups: Ints) -> tuple[Floats, Floats]:
    """Sum of squared distances from the mean, and degrees of freedom, of each group."""
    there = np.isfinite(losses)
    size = int(groups.max(initial=-1)) + 1
    group, values = groups[there], losses[there]
    counts = np.bincount(group, minlength=size)
    means = np.bincount(group, values, size) / np.maximum(counts, 1)
    squares = np.bincount(group, np.square(values - means[group]), size).astype(np.float64)
    return squares, np.maximum(counts - 1.0, 0.0)
