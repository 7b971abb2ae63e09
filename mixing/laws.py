"""Two laws with a form: the additive inverse power of each weight, and the exponential of a linear form of them.

inverse_power   c + sum_i a_i (w_i + e)^-g with a >= 0: more of a component never hurts but for what it displaces. Non-negative least
                squares leave most a_i at 0, so it is steady with fewer runs than components. g and e by cross-validation over a grid.
exponential     c + exp(t . w) (the data mixing law of Ye et al. 2024), by a smooth Huber loss and L-BFGS from several starts. It is
                monotone in one linear form: its best mixture is always a corner of what is allowed. Never use it without a guard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from corpusmill.mixing.families import Model, Rows
from corpusmill.mixing.swarm import Floats

POWERS = (0.05, 0.2, 0.5, 1.0)
OFFSETS = (0.001, 0.003, 0.01, 0.03, 0.1)
FOLDS = 5
HUBER = 0.3  # in standard deviations of the losses
RIDGE = 1e-5
LARGEST = 50.0  # exponent: beyond it lie overflows, and no loss
FLOORS = (0.05, 0.5, 3.0)  # starts of c: so many standard deviations below the lowest loss


@dataclass(frozen=True, eq=False)
class InversePower:
    constant: float
    amounts: Floats
    power: float
    offset: float

    def predict(self, weights: Floats) -> Floats:
        found: Floats = self.constant + _powers(weights, self.power, self.offset) @ self.amounts
        return found


def inverse_power(rows: Rows, seed: int) -> Model:
    fold = _folds(len(rows.losses), seed)
    errors = {
        (power, offset): sum(
            _error(_fit_powers(rows, fold != k, power, offset), rows, fold == k)
            for k in range(fold.max() + 1)
        )
        for power in POWERS
        for offset in OFFSETS
    }
    power, offset = min(errors, key=lambda choice: (errors[choice], choice))
    return _fit_powers(rows, np.ones(len(rows.losses), bool), power, offset)


def _fit_powers(rows: Rows, use: Any, power: float, offset: float) -> InversePower:
    from scipy.optimize import nnls

    features = _powers(rows.weights[use], power, offset)
    scale = features.std(axis=0).max() or 1.0  # powers differ by orders of magnitude
    root = np.sqrt(rows.shares[use])
    one = np.ones((len(features), 1))
    design = np.hstack([one, -one, features / scale]) * root[:, None]
    solution, _ = nnls(design, rows.losses[use] * root, maxiter=100 * design.shape[1])
    return InversePower(float(solution[0] - solution[1]), solution[2:] / scale, power, offset)


def _powers(weights: Floats, power: float, offset: float) -> Floats:
    found: Floats = (np.maximum(weights, 0.0) + offset) ** -power
    return found


def _folds(count: int, seed: int) -> Any:
    """The fold of each row."""
    generator = np.random.Generator(np.random.PCG64([seed, count]))
    return generator.permutation(np.arange(count) % min(FOLDS, count))


def _error(model: Model, rows: Rows, use: Any) -> float:
    gaps = model.predict(rows.weights[use]) - rows.losses[use]
    return float((rows.shares[use] * gaps**2).sum())


@dataclass(frozen=True, eq=False)
class Exponential:
    constant: float
    slopes: Floats

    def predict(self, weights: Floats) -> Floats:
        found: Floats = self.constant + np.exp(np.minimum(weights @ self.slopes, LARGEST))
        return found


def exponential(rows: Rows, seed: int) -> Model:
    """Starts differ in c alone: with c given, the logarithm of the law is linear, and least squares give the rest."""
    from scipy.optimize import minimize

    lowest = float(rows.losses.min())
    best: Any = None
    for floor in FLOORS:
        constant = lowest - floor
        logs = np.log(np.maximum(rows.losses - constant, 1e-3))
        slopes = _ridge(rows.weights, logs, 1e-3)
        found = minimize(
            _exponential_loss,
            np.concatenate([[constant], slopes]),
            args=(rows,),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 500},
        )
        if best is None or found.fun < best.fun:
            best = found
    return Exponential(float(best.x[0]), best.x[1:].copy())


def _ridge(features: Floats, values: Floats, strength: float) -> Floats:
    """Around equal slopes: weights add up to 1, so that a constant is a slope that all share."""
    middle = values.mean()
    gram = features.T @ features + strength * len(values) * np.eye(features.shape[1])
    found: Floats = middle + np.linalg.solve(gram, features.T @ (values - middle))
    return found


def _exponential_loss(parameters: Floats, rows: Rows) -> tuple[float, Floats]:
    """Pseudo-Huber loss with a small ridge on how slopes differ; and its gradient."""
    slopes = parameters[1:]
    powers = np.exp(np.minimum(rows.weights @ slopes, LARGEST))
    gaps = parameters[0] + powers - rows.losses
    root = np.sqrt(1 + (gaps / HUBER) ** 2)
    away = slopes - slopes.mean()
    value = float((rows.shares * HUBER**2 * (root - 1)).mean() + RIDGE * away @ away)
    pull = rows.shares * gaps / root / len(gaps)
    gradient = np.concatenate([[pull.sum()], rows.weights.T @ (pull * powers) + 2 * RIDGE * away])
    return value, gradient
