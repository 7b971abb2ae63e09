"""Families of regressors: a loss as a function of the weights, all fitted to the same runs because none is best everywhere.

On 17 domains and 13 validation sets most of them are the best somewhere (docs/mixing-method.md has the table). A fit took 0.003 to 0.04 CPU
seconds from 34 runs of 17 components, 0.005 to 0.34 from 512; a proxy run takes minutes to hours. So fit them all, and let held-out
runs decide.

Every family gets the same preparation: runs of one mixture become their mean, losses are centred and scaled, rows weigh by the inverse
of their variance, and what cannot be fitted (equal losses) is a constant. Results are those of a seed on one kind of machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

import numpy as np

from corpusmill.mixing.swarm import Floats, same_mixtures
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.registry import suggestion


class Model(Protocol):
    def predict(self, weights: Floats) -> Floats:
        """Losses [k] of mixtures [k, components]."""
        ...


@dataclass(frozen=True, eq=False)
class Rows:
    """What a family fits: different mixtures, losses with mean 0 and standard deviation 1."""

    weights: Floats  # [n, components]
    losses: Floats  # [n]
    variance: Floats  # [n] of noise, in units of the scaled loss; 0 where it is not known
    shares: Floats  # [n] how much a row counts, 1 on average


@dataclass(frozen=True)
class Scaled:
    """A model of scaled losses, in the units that came in."""

    model: Model
    mean: float
    scale: float

    def predict(self, weights: Floats) -> Floats:
        return self.mean + self.scale * self.model.predict(np.asarray(weights, np.float64))


@dataclass(frozen=True)
class Constant:
    """The same loss everywhere."""

    value: float

    def predict(self, weights: Floats) -> Floats:
        return np.full(len(weights), self.value)


@dataclass(frozen=True)
class Family:
    name: str
    formula: str  # for people
    solve: Callable[[Rows, int], Model]  # rows, seed
    least: int  # different mixtures without which it says nothing
    package: str | None = None  # an optional one that it needs

    def refusal(self, mixtures: int) -> str | None:
        """Why it cannot be fitted, or None."""
        if self.package is not None and find_spec(self.package) is None:
            return f"{self.package} is not installed (pip install 'corpusmill[mix]')"
        if mixtures < self.least:
            return f"{mixtures} different mixtures, it needs {self.least}"
        return None

    def fit(
        self, weights: Floats, losses: Floats, noise: float | Floats | None = None, seed: int = 0
    ) -> Model:
        """A model of runs [n, components] and their losses [n]; `noise` is the standard deviation of a run, or of each."""
        rows, mean, scale = prepared(weights, losses, noise)
        if reason := self.refusal(len(rows.losses)):
            raise RecipeError(f"{self.name}: {reason}")
        if scale == 0:
            return Constant(mean)
        return Scaled(self.solve(rows, seed), mean, scale)


def prepared(weights: Floats, losses: Floats, noise: float | Floats | None) -> tuple[Rows, float, float]:
    """Rows with the mean and the scale that were taken off their losses; a scale of 0: all losses are equal."""
    weights, losses = np.asarray(weights, np.float64), np.asarray(losses, np.float64)
    if not (np.isfinite(weights).all() and np.isfinite(losses).all()):
        raise ValueError("weights and losses have to be finite: leave out runs that did not measure")
    groups = same_mixtures(weights)
    counts = np.bincount(groups)
    means = np.bincount(groups, losses) / counts
    spread = np.broadcast_to(np.nan_to_num(0.0 if noise is None else noise), losses.shape)
    variance = np.bincount(groups, spread**2) / counts**2
    first = np.unique(groups, return_index=True)[1]
    mean, scale = float(np.average(means, weights=counts)), float(means.std())
    if scale <= 1e-12 * max(1.0, abs(mean)):
        scale = 0.0
    unit = scale or 1.0
    return (
        Rows(weights[first], (means - mean) / unit, variance / unit**2, _shares(variance, spread)),
        mean,
        scale,
    )


def _shares(variance: Floats, spread: Floats) -> Floats:
    """Inverse variance, a model's lack of fit taken to be what one run scatters: five repeats count 5/3 of a run, not five runs."""
    if not variance.any():
        return np.ones(len(variance))
    inverse = 1 / (np.median(spread) ** 2 + variance)
    found: Floats = inverse / inverse.mean()
    return found


def _family(name: str, formula: str, where: str, least: int, package: str | None = None) -> Family:
    """With the function `where` (module:name) imported when it is first called: scipy and scikit-learn are slow to load."""

    def solve(rows: Rows, seed: int) -> Model:
        from importlib import import_module

        module, _, function = where.partition(":")
        model: Model = getattr(import_module(f"corpusmill.mixing.{module}"), function)(rows, seed)
        return model

    return Family(name, formula, solve, least, package)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        _family("inverse_power", "c + sum a_i (w_i + e)^-g, a >= 0", "laws:inverse_power", 3),
        _family("transfer", "c - sum a_k log(w_k + sum B_kj w_j + e), a and B >= 0", "transfer:transfer", 3),
        _family("exponential", "c + exp(t . w), Huber", "laws:exponential", 6),
        _family("quadratic", "quadratic in sqrt(w), ridge", "smooth:quadratic", 3),
        _family("log", "linear in log(w + e) and w, ridge", "smooth:log_linear", 3),
        _family("gp", "Gaussian process on sqrt(w)", "smooth:gaussian_process", 3),
        _family("lightgbm", "boosted trees on w", "trees:boosted", 16, "lightgbm"),
    )
}


def chosen_families(names: Iterable[str] | None = None) -> tuple[Family, ...]:
    """Those that are named, or all; RecipeError with a suggestion for a name that is none."""
    if names is None:
        return tuple(FAMILIES.values())
    found = []
    for name in names:
        if name not in FAMILIES:
            raise RecipeError(f"families: no family is called {name!r}; {suggestion(name, FAMILIES)}")
        found.append(FAMILIES[name])
    return tuple(found)
