"""Smooth families: ridge on two sets of features, and a Gaussian process.

quadratic   sqrt(w_i) and all products of two: an optimum inside the simplex, interactions between components.
log         log(w_i + e) and w_i: steep where a component is missing.
gp          a kernel on sqrt(w) and, for each component, one on its own square root: what a loss owes to single components can be steep
            while what it owes to all together is flat. With the usual one alone (and a linear trend), 128 runs of RegMix's explained
            0.88 of the variance of runs held out, with both 0.92.

In sqrt(w) the distance of two mixtures is (up to a factor) their Hellinger distance: from 0 to 1 percent is as far as from 20 to 30.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from corpusmill.mixing.families import Model, Rows
from corpusmill.mixing.swarm import Floats

LOG_OFFSET = 0.001
STRENGTHS = tuple(np.logspace(-6, 3, 28))
PRODUCTS = (0.1, 0.3, 1.0)  # scale of products beside square roots; the ridge bears harder on what is small

LENGTHS_FROM = 200
"""Mixtures, drawn by the seed, from which a Gaussian process takes its lengths and heights: a step costs the cube of their number."""

JITTER = 1e-8
LOWEST = np.log([1e-3, 0.1, 1e-3, 0.03, 1e-4])  # height and length of all, height and length of each, noise
HIGHEST = np.log([1e3, 20.0, 1e3, 3.0, 1.0])
START = np.log([1.0, 1.0, 1.0, 0.3, 0.05])


@dataclass(frozen=True, eq=False)
class Linear:
    """A linear form of features."""

    features: Callable[[Floats], Floats]
    slopes: Floats
    constant: float

    def predict(self, weights: Floats) -> Floats:
        found: Floats = self.features(weights) @ self.slopes + self.constant
        return found


def quadratic(rows: Rows, seed: int) -> Model:
    return _ridge(rows, [_products(scale) for scale in PRODUCTS])


def log_linear(rows: Rows, seed: int) -> Model:
    return _ridge(rows, [_logs])


def _products(scale: float) -> Callable[[Floats], Floats]:
    def features(weights: Floats) -> Floats:
        roots = np.sqrt(np.maximum(weights, 0.0))
        first, second = np.triu_indices(roots.shape[1])
        both = np.where(first == second, scale, scale * np.sqrt(2))  # a product stands for ij and ji
        found: Floats = np.hstack([roots, both * roots[:, first] * roots[:, second]])
        return found

    return features


def _logs(weights: Floats) -> Floats:
    found: Floats = np.hstack([np.log(np.maximum(weights, 0.0) + LOG_OFFSET), weights])
    return found


def _ridge(rows: Rows, choices: list[Callable[[Floats], Floats]]) -> Model:
    """Features and strength by leave-one-out error. Columns keep their scale: made equal, rare products weigh as much as weights."""
    from sklearn.linear_model import RidgeCV

    best, found = -np.inf, None
    for features in choices:
        columns = features(rows.weights)
        middle = columns.mean(axis=0)
        fitted = RidgeCV(alphas=STRENGTHS).fit(columns - middle, rows.losses, rows.shares)
        if found is None or fitted.best_score_ > best:
            best = fitted.best_score_
            found = Linear(features, fitted.coef_, float(fitted.intercept_ - middle @ fitted.coef_))
    assert found is not None
    return found


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """Its mean: a kernel from each point that was seen."""

    points: Floats  # square roots of weights
    pulls: Floats
    heights: tuple[float, float]  # of all components together, of each
    lengths: tuple[float, float]

    def predict(self, weights: Floats) -> Floats:
        found: Floats = self.kernel(np.sqrt(np.maximum(weights, 0.0))) @ self.pulls
        return found

    def kernel(self, roots: Floats) -> Floats:
        """[k, points], a component at a time: all at once would take k x points x components numbers."""
        together, own = np.zeros((2, len(roots), len(self.points)))
        for column, seen in zip(roots.T, self.points.T, strict=True):
            squares = (column[:, None] - seen) ** 2
            together += squares
            own += np.exp(squares / (-2 * self.lengths[1] ** 2))
        found: Floats = self.heights[0] * np.exp(together / (-2 * self.lengths[0] ** 2))
        found += self.heights[1] / roots.shape[1] * own
        return found


def gaussian_process(rows: Rows, seed: int) -> Model:
    """Hyperparameters by marginal likelihood; scikit-learn's process has no kernel of single columns, and took twice the time."""
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize

    points = np.sqrt(np.maximum(rows.weights, 0.0))
    chosen = np.random.Generator(np.random.PCG64([seed, len(points)])).permutation(len(points))
    chosen = np.sort(chosen[:LENGTHS_FROM])
    found = minimize(
        _likelihood(points[chosen], rows.losses[chosen], rows.variance[chosen] + JITTER),
        START,
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(LOWEST, HIGHEST, strict=True)),
        options={"maxiter": 100},
    )
    height, length, own_height, own_length, noise = (float(value) for value in np.exp(found.x))
    empty = GaussianProcess(points, np.empty(0), (height, own_height), (length, own_length))
    covariance = empty.kernel(points) + np.diag(rows.variance + noise + JITTER)
    pulls = cho_solve(cho_factor(covariance, lower=True), rows.losses)
    return GaussianProcess(points, pulls, empty.heights, empty.lengths)


def _likelihood(points: Floats, losses: Floats, variance: Floats) -> Callable[[Floats], tuple[float, Floats]]:
    """Negative log marginal likelihood and its gradient, as a function of the logarithms of the hyperparameters."""
    from scipy.linalg import cho_factor, cho_solve

    each = (points.T[:, :, None] - points.T[:, None, :]) ** 2  # [components, n, n]
    every = each.sum(axis=0)

    def value(logs: Floats) -> tuple[float, Floats]:
        height, length, own_height, own_length, noise = np.exp(logs)
        together = height * np.exp(every / (-2 * length**2))
        own = np.exp(each / (-2 * own_length**2))
        single = own_height * own.mean(axis=0)
        factor = cho_factor(together + single + np.diag(variance + noise), lower=True)
        pulls = cho_solve(factor, losses)
        apart: Any = cho_solve(factor, np.eye(len(losses))) - np.outer(pulls, pulls)
        slopes = [
            (apart * together).sum(),
            (apart * together * every).sum() / length**2,
            (apart * single).sum(),
            own_height * (apart * (own * each).mean(axis=0)).sum() / own_length**2,
            noise * np.trace(apart),
        ]
        likelihood = 0.5 * losses @ pulls + np.log(np.diag(factor[0])).sum()
        return float(likelihood), 0.5 * np.array(slopes)

    return value
