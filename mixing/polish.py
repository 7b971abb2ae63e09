"""From a good mixture to the best one near it: SLSQP within linear limits, slopes by differences in one call."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from corpusmill.mixing.constraints import Bounds, nearest

Floats = npt.NDArray[np.float64]

STEP = 1e-4  # of a difference: predictions are smooth over it or constant (trees), and then the start is kept
ITERATIONS = 40


def polished(cost: Callable[[Floats], Floats], start: Floats, bounds: Bounds, unit: float) -> Floats:
    """Never worse than `start`. `unit` is how large a difference of cost [k] is worth having, more or less."""
    from scipy.optimize import minimize

    count = len(start)
    directions = np.eye(count) - 1 / count  # the sum stays: prediction is asked about mixtures only

    def value(point: Floats) -> float:
        return float(cost(_mixture(point)[None])[0]) / unit

    def slopes(point: Floats) -> Floats:
        around = np.vstack([_mixture(point + STEP * each) for each in directions] + [_mixture(point)])
        found = cost(around)
        return np.asarray((found[:-1] - found[-1]) / STEP / unit)

    limits = [
        {"type": "eq", "fun": lambda point: point.sum() - 1, "jac": lambda _: np.ones(count)},
        {
            "type": "ineq",
            "fun": lambda point: bounds.values - bounds.rows @ point,
            "jac": lambda _: -bounds.rows,
        },
    ]
    found = minimize(
        value,
        start,
        jac=slopes,
        method="SLSQP",
        constraints=limits,
        options={"maxiter": ITERATIONS, "ftol": 1e-6},
    )
    end = np.asarray(found.x, np.float64)
    if not np.isfinite(end).all():
        return start
    end = nearest(bounds, end)
    return end if value(end) < value(start) else start


def _mixture(point: Floats) -> Floats:
    point = np.maximum(point, 0.0)
    return np.asarray(point / point.sum())
