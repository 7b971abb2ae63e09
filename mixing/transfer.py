"""A law whose components do each other's work: a token of j counts as B_kj tokens of k.

transfer    c - sum_k a_k log(w_k + sum_j B_kj w_j + e), a >= 0, 0 <= B <= 1

The losses of mixed text are of this form: two components that are the same share one term, one that is of no use is in none, and
nothing but what it displaces speaks against any. Each term falls and is convex, so that there is one valley. There are more
parameters than runs; an L1 penalty on a and B leaves at 0 what the runs do not ask for.

On RegMix's 13 sets and 17 domains it explained 0.91 and 0.96 of the variance between mixtures that 32 and 64 runs had not seen, the best of the
other families 0.80 and 0.90 (means over sets, two draws of runs). A fit took 0.02 CPU seconds from 28 runs of 7 components.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corpusmill.mixing.families import Model, Rows
from corpusmill.mixing.swarm import Floats

Mask = NDArray[np.bool_]

OFFSET = 0.0003
"""Of weights: below it lies next to nothing. A third of it and three times as much do nearly as well; 0.01 is far worse where many
components are small."""

PENALTY = 1e-3  # on each a and B; losses have mean 0 and standard deviation 1
START = 0.02  # of each B
NUDGE = 0.005  # of each a beyond what it is without B: at 0 its row of B would have no slope
ITERATIONS = 600


@dataclass(frozen=True, eq=False)
class Transfer:
    constant: float
    amounts: Floats  # [m] a
    worth: Floats  # [m, m] B, with ones in its diagonal

    def predict(self, weights: Floats) -> Floats:
        reached = np.maximum(weights, 0.0) @ self.worth.T
        found: Floats = self.constant - np.log(reached + OFFSET) @ self.amounts
        return found


def transfer(rows: Rows, seed: int) -> Model:
    from scipy.optimize import minimize

    count = rows.weights.shape[1]
    others = ~np.eye(count, dtype=bool)
    constant, amounts = _each_alone(rows)
    start = np.concatenate([[constant], amounts + NUDGE, np.full(int(others.sum()), START)])
    limits = [(None, None)] + [(0.0, None)] * count + [(0.0, 1.0)] * int(others.sum())
    found = minimize(
        _error(rows, others),
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=limits,
        options={"maxiter": ITERATIONS},
    )
    return Transfer(*_parts(found.x, others))


def _each_alone(rows: Rows) -> tuple[float, Floats]:
    """The best constant and amounts without transfer."""
    from scipy.optimize import nnls

    root = np.sqrt(rows.shares)
    one = np.ones((len(root), 1))
    design = np.hstack([one, -one, -np.log(rows.weights + OFFSET)]) * root[:, None]
    solution, _ = nnls(design, rows.losses * root, maxiter=100 * design.shape[1])
    return float(solution[0] - solution[1]), np.asarray(solution[2:])


def _error(rows: Rows, others: Mask) -> Callable[[Floats], tuple[float, Floats]]:
    """Mean squared error with its penalty, and their gradient, of [c, a, B off its diagonal]."""

    def value(parameters: Floats) -> tuple[float, Floats]:
        constant, amounts, worth = _parts(parameters, others)
        reached = rows.weights @ worth.T + OFFSET
        logs = np.log(reached)
        gaps = constant - logs @ amounts - rows.losses
        pull = 2 * rows.shares * gaps / len(gaps)
        of_worth = -(amounts * pull[:, None] / reached).T @ rows.weights
        error = float((rows.shares * gaps**2).mean() + PENALTY * parameters[1:].sum())
        of_amounts = PENALTY - logs.T @ pull
        return error, np.concatenate([pull.sum(keepdims=True), of_amounts, of_worth[others] + PENALTY])

    return value


def _parts(parameters: Floats, others: Mask) -> tuple[float, Floats, Floats]:
    count = len(others)
    worth = np.eye(count)
    worth[others] = parameters[1 + count :]
    return float(parameters[0]), parameters[1 : 1 + count], worth
