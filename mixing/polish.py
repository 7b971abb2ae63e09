"""From a good mixture to the best one near it: SLSQP within linear limits, slopes by differences in one call; and to one without
what nothing speaks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from corpusmill.mixing.constraints import Bounds, nearest

Floats = npt.NDArray[np.float64]

STEP = 1e-4  # of a difference: predictions are smooth over it or constant (trees), and then the start is kept
ITERATIONS = 40

LEFT = 1e-4  # of a weight above its floor that is not worth taking away


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


def pruned(
    change: Callable[[Floats, Floats], tuple[Floats, Floats]], start: Floats, bounds: Bounds, most: float
) -> tuple[Floats, tuple[int, ...]]:
    """`start` with components at their floors, one after another, as long as what that is predicted to cost in loss, and the standard
    deviation of it, are `most` together; and which. `change(start, points)` gives both [k], infinite where a point is out of reach."""
    point, gone = start, list[int]()
    while True:
        tried = [
            (place, _without(point, place, gone, bounds)) for place in range(len(start)) if place not in gone
        ]
        tried = [each for each in tried if _gone(*each, point, gone, bounds)]
        if not tried:
            return point, tuple(gone)
        cost, unsure = change(start, np.array([less for _, less in tried]))
        least = int(np.argmin(cost + unsure))
        if cost[least] + unsure[least] > most:
            return point, tuple(gone)
        place, point = tried[least]
        gone.append(place)


def _without(point: Floats, place: int, gone: Sequence[int], bounds: Bounds) -> Floats:
    """The allowed mixture near `point` without a component, the others grown in proportion but for those that are gone."""
    fixed = [place, *gone]
    less = point.copy()
    less[place] = bounds.least[place]
    others = np.delete(np.arange(len(point)), fixed)
    if less[others].sum() > 0:
        less[others] *= (1 - less[fixed].sum()) / less[others].sum()
    return nearest(bounds, less)


def _gone(place: int, less: Floats, point: Floats, gone: Sequence[int], bounds: Bounds) -> bool:
    """Whether `less` has the component at its floor, which it was not, and others still where they were put: sums may have limits."""
    at_floor = less[place] <= bounds.least[place] + LEFT < point[place]
    return bool(at_floor and (less[gone] <= point[gone] + LEFT).all())


def held(bounds: Bounds, point: Floats, places: Sequence[int]) -> Bounds:
    """The same limits with some components kept at what they have."""
    most = list(bounds.most)
    for place in places:
        most[place] = float(point[place])
    return replace(bounds, most=tuple(most))


def _mixture(point: Floats) -> Floats:
    point = np.maximum(point, 0.0)
    return np.asarray(point / point.sum())
