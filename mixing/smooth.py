"""Smooth families: ridge on two sets of features, and a Gaussian process.

quadratic   1, sqrt(w_i) and all products of two: an optimum inside the simplex, interactions between components.
log         log(w_i + e) and w_i: steep where a component is missing.
gp          radial kernel on sqrt(w), with a trend that is linear in sqrt(w) as a part of the kernel, and noise of its own beside the
            one that was measured; hyperparameters by marginal likelihood from several starts.

In sqrt(w) the distance of two mixtures is (up to a factor) their Hellinger distance: 0 to 1 percent is as far as 20 to 30.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from corpusmill.mixing.families import Model, Rows
from corpusmill.mixing.swarm import Floats

LOG_OFFSET = 0.005
STRENGTHS = tuple(np.logspace(-6, 3, 28))
RESTARTS = 2


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
    return _ridge(rows, _products)


def log_linear(rows: Rows, seed: int) -> Model:
    return _ridge(rows, _logs)


def _products(weights: Floats) -> Floats:
    roots = np.sqrt(np.maximum(weights, 0.0))
    first, second = np.triu_indices(roots.shape[1])
    return np.hstack([roots, roots[:, first] * roots[:, second]])


def _logs(weights: Floats) -> Floats:
    return np.hstack([np.log(np.maximum(weights, 0.0) + LOG_OFFSET), weights])


def _ridge(rows: Rows, features: Callable[[Floats], Floats]) -> Model:
    """Strength by leave-one-out error over a grid, all features on one scale."""
    from sklearn.linear_model import RidgeCV

    columns = features(rows.weights)
    middle, scale = columns.mean(axis=0), columns.std(axis=0)
    scale[scale < 1e-9] = np.inf  # a constant column says nothing
    fitted = RidgeCV(alphas=STRENGTHS).fit((columns - middle) / scale, rows.losses, rows.shares)
    slopes = fitted.coef_ / scale
    return Linear(features, slopes, float(fitted.intercept_ - middle @ slopes))


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """Its mean: a kernel from each point that was seen."""

    points: Floats  # square roots of weights
    pulls: Floats
    height: float
    length: float
    trend: float

    def predict(self, weights: Floats) -> Floats:
        roots = np.sqrt(np.maximum(weights, 0.0))
        products = roots @ self.points.T
        squares = (roots**2).sum(axis=1)[:, None] + (self.points**2).sum(axis=1) - 2 * products
        kernel = (
            self.height * np.exp(np.maximum(squares, 0.0) / (-2 * self.length**2)) + self.trend * products
        )
        found: Floats = kernel @ self.pulls
        return found


def gaussian_process(rows: Rows, seed: int) -> Model:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel

    kernel = (
        ConstantKernel(1.0, (1e-2, 1e3)) * RBF(1.0, (0.05, 20.0))
        + ConstantKernel(0.3, (1e-4, 1e2)) * DotProduct(0.0, "fixed")
        + WhiteKernel(0.05, (1e-6, 2.0))
    )
    points = np.sqrt(np.maximum(rows.weights, 0.0))
    process = GaussianProcessRegressor(
        kernel,
        alpha=rows.variance + 1e-8,
        n_restarts_optimizer=RESTARTS,
        random_state=seed % 2**32,
    )
    with warnings.catch_warnings():  # a hyperparameter at its bound is an answer: no noise, or no trend
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(points, rows.losses)
    fitted = process.kernel_.get_params()
    return GaussianProcess(
        points,
        process.alpha_.copy(),
        float(fitted["k1__k1__k1__constant_value"]),
        float(fitted["k1__k1__k2__length_scale"]),
        float(fitted["k1__k2__k1__constant_value"]),
    )
