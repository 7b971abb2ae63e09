"""Which mixtures are allowed: floors and ceilings of components and of sums of them. mixing/caps.py makes the usual ones.

    check(bounds)                        # ConstraintError names the limits that conflict
    draw(bounds, 2000, seed)             # allowed mixtures, all over the room there is
    nearest(bounds, weights)             # the allowed mixture that is closest
    settle(bounds, weights)              # whole parts in 10^9

Everything is linear, so HiGHS decides what is possible. A conflict is irreducible: without any one of the limits it names the
others can be met. `nearest` is exact: least distance programming by NNLS (Lawson and Hanson 1974, chapter 23).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.registry import suggestion
from corpusmill.shards.mixture import PPB

Floats = npt.NDArray[np.float64]

TOLERANCE = 1e-7
"""What a sum may be beyond its limit; a tenth of what weights are rounded to."""

UNIT = 1000
"""Parts in 10^9 that weights are rounded to: later digits of a fit differ from machine to machine."""

SHOWN = 8  # limits that a message spells out

CHAINS = 256  # walks side by side: one numpy call takes a step of all


class ConstraintError(RecipeError):
    """Limits that no mixture meets: `conflict` names them, and with any one less the others can be met."""

    def __init__(self, message: str, conflict: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.conflict = conflict


@dataclass(frozen=True)
class Group:
    """A limit on the sum of `members`' weights; of one member, a further floor or ceiling with a reason in its name."""

    name: str
    members: tuple[str, ...]
    least: float = 0.0
    most: float = 1.0


@dataclass(frozen=True)
class _Limit:
    """row · weights <= value."""

    name: str
    row: Floats
    value: float


@dataclass(frozen=True)
class Bounds:
    """Weights >= 0 that add up to 1, each from least[i] to most[i], sums of groups within theirs.

    `rows` and `values` are all of it as rows @ weights <= values, the weights' signs first.
    """

    components: tuple[str, ...]
    least: tuple[float, ...]
    most: tuple[float, ...]
    groups: tuple[Group, ...] = ()
    rows: Floats = field(init=False, repr=False, compare=False)
    values: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        count = len(self.components)
        if not count or len(set(self.components)) != count:
            raise ConstraintError("bounds: components need names, each its own")
        if not count == len(self.least) == len(self.most):
            raise ConstraintError("bounds: every component needs one least and one most")
        for group in self.groups:
            for member in group.members:
                if member not in self.components:
                    raise ConstraintError(
                        f"bounds: {group.name}: no component is called {member!r}; {suggestion(member, self.components)}"
                    )
        limits = self.limits()
        for limit in limits:
            if not np.isfinite(limit.value):
                raise ConstraintError(f"bounds: {limit.name}: a share from 0 to 1 is needed")
        object.__setattr__(self, "rows", np.vstack([-np.eye(count), *(limit.row for limit in limits)]))
        object.__setattr__(self, "values", np.array([0.0] * count + [limit.value for limit in limits]))

    def limits(self) -> tuple[_Limit, ...]:
        """Those that exclude something, with the names that a message gives them."""
        single = zip(self.components, self.least, self.most, strict=True)
        groups = [*(Group(name, (name,), least, most) for name, least, most in single), *self.groups]
        found = []
        for group in groups:
            row = np.array([float(name in group.members) for name in self.components])
            if not group.least <= 0:
                found.append(_Limit(f"{group.name}: at least {group.least:.6g}", -row, -group.least))
            if not group.most >= 1:
                found.append(_Limit(f"{group.name}: at most {group.most:.6g}", row, group.most))
        return tuple(found)


def simplex(components: Sequence[str]) -> Bounds:
    """No limits but those of every mixture."""
    return Bounds(tuple(components), (0.0,) * len(components), (1.0,) * len(components))


def excess(bounds: Bounds, points: Floats) -> Floats:
    """How far each of the points [k, m] is beyond the limit that it breaks most; 0 where it breaks none."""
    points = np.atleast_2d(points)
    beyond = (points @ bounds.rows.T - bounds.values).max(axis=1)
    return np.asarray(np.maximum(np.maximum(beyond, np.abs(points.sum(axis=1) - 1)), 0.0))


def inside(bounds: Bounds, points: Floats, slack: float = TOLERANCE) -> npt.NDArray[np.bool_]:
    """Which of the points [k, m] are allowed."""
    return np.asarray(excess(bounds, points) <= slack)


def check(bounds: Bounds) -> None:
    """ConstraintError if no mixture is allowed: it names limits that conflict, none of them needlessly."""
    _loose(bounds)


@lru_cache(maxsize=16)
def _loose(bounds: Bounds) -> Floats:
    """`values` with what rounding in the limits themselves asks for; ConstraintError if that is not all that is missing."""
    limits, count = list(bounds.limits()), len(bounds.components)
    short, prices = _shortfall(limits, count)
    if short <= TOLERANCE / 2:
        return np.asarray(bounds.values + short + TOLERANCE / 10)
    # Those with a price conflict already, rounding aside; then each goes that the conflict does without.
    priced = [limit for limit, price in zip(limits, prices, strict=True) if abs(price) > 1e-9]
    conflict = priced if _shortfall(priced, count)[0] > TOLERANCE / 2 else limits
    for limit in list(conflict):
        without = [other for other in conflict if other is not limit]
        if _shortfall(without, count)[0] > TOLERANCE / 2:
            conflict = without
    names = tuple(limit.name for limit in conflict)
    more = f"; and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    together = "these limits together" if len(names) > 1 else "this limit"
    raise ConstraintError(f"no mixture meets {together}: {'; '.join(names[:SHOWN])}{more}; loosen one", names)


def _shortfall(limits: Sequence[_Limit], count: int) -> tuple[float, Floats]:
    """By how much all limits would have to be loosened for a mixture of `count` components; and what each adds to it."""
    if not limits:
        return 0.0, np.zeros(0)
    rows = np.array([[*limit.row, -1.0] for limit in limits])
    values = np.array([limit.value for limit in limits])
    found = _solve(np.array([0.0] * count + [1.0]), rows, values, np.array([1.0] * count + [0.0]))
    return float(found.x[-1]), np.asarray(found.ineqlin.marginals, np.float64)


def _solve(cost: Floats, rows: Floats, values: Floats, sum_row: Floats) -> Any:
    """cost · x least, for x >= 0 with rows @ x <= values and sum_row · x = 1."""
    from scipy.optimize import linprog

    exact = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = linprog(cost, rows, values, sum_row[None], [1.0], bounds=(0, None), method="highs", options=exact)
    assert found.status == 0, found.message  # all programmes here have a solution
    return found


@dataclass(frozen=True)
class _Region:
    """What is allowed, from inside: a mixture in its middle, how far each weight ranges, sums that cannot vary."""

    centre: Floats
    width: Floats
    fixed: Floats  # rows whose product with any allowed mixture is the same; the first is the sum


@lru_cache(maxsize=16)
def _region(bounds: Bounds) -> _Region:
    """Where each weight and each limit is at its least and most (2 m + limits linear programmes), then a point that keeps
    the same part of all those ranges from every end."""
    loose, count = _loose(bounds), len(bounds.components)
    ends = np.vstack([np.eye(count), bounds.rows])
    corners = np.array([_solve(end, bounds.rows, loose, np.ones(count)).x for end in ends])
    least, most = corners.min(axis=0), corners.max(axis=0)
    room = loose - (corners @ bounds.rows.T).min(axis=0)  # of limits; none: no mixture is off this limit
    still = room < 10 * TOLERANCE
    kept = np.vstack([bounds.rows, np.eye(count)]), np.concatenate([loose, most])
    part = np.concatenate([np.where(still, 0.0, room), most - least])
    found = _solve(
        np.array([0.0] * count + [-1.0]),
        np.column_stack([kept[0], part]),
        kept[1],
        np.array([1.0] * count + [0.0]),
    )
    fixed = np.array([np.ones(count), *bounds.rows[still]])
    return _Region(np.asarray(found.x[:-1]), most - least, fixed)


def centre(bounds: Bounds) -> Floats:
    """An allowed mixture that keeps away from the limits where it can."""
    return np.array(_region(bounds).centre)


def draw(bounds: Bounds, count: int, seed: int) -> Floats:
    """`count` allowed mixtures [count, m], uniform over what is allowed: a walk that goes anywhere on a random line
    through where it stands (hit and run, Smith 1984), in directions as long as each weight's range."""
    region = _region(bounds)
    generator = np.random.Generator(np.random.PCG64([seed, 0x64726177]))
    free = region.width > 10 * TOLERANCE
    if free.sum() < 2:  # the sum leaves one weight no room of its own
        return np.tile(region.centre, (count, 1))
    chains = min(count, CHAINS)
    stride, warm = 2 * len(free), 20 * len(free)
    at = np.tile(region.centre, (chains, 1))
    found: list[Floats] = []
    for step in range(warm + stride * -(-count // chains)):
        at = _hit_and_run(bounds, region, at, np.where(free, region.width, 0.0), generator)
        if step >= warm and (step - warm) % stride == 0:
            found.append(at)
    return np.concatenate(found)[:count]


def _hit_and_run(bounds: Bounds, region: _Region, at: Floats, width: Floats, generator: Any) -> Floats:
    way = generator.standard_normal(at.shape) * width
    # Made orthogonal to what is fixed in units of `width`: a small component keeps small steps.
    scaled = region.fixed * width**2
    way -= np.linalg.lstsq(scaled @ region.fixed.T, region.fixed @ way.T, rcond=1e-9)[0].T @ scaled
    speed = way @ bounds.rows.T
    room = np.maximum(bounds.values - at @ bounds.rows.T, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        time = room / speed
    still = np.abs(speed) < 1e-14
    ahead = np.where(still | (speed < 0), np.inf, time).min(axis=1)
    back = np.where(still | (speed > 0), -np.inf, time).max(axis=1)
    go = back + (ahead - back) * generator.random(len(at))
    moved = np.maximum(at + np.where(np.isfinite(go), go, 0.0)[:, None] * way, 0.0)
    return np.asarray(moved / moved.sum(axis=1, keepdims=True))


def nearest(bounds: Bounds, weights: Floats) -> Floats:
    """The allowed mixture with the least squared distance to `weights` [m], which need not be a mixture."""
    return _project(bounds.rows, _loose(bounds), np.asarray(weights, np.float64))


def _project(rows: Floats, values: Floats, weights: Floats) -> Floats:
    from scipy.optimize import nnls

    count = len(weights)
    flat: Floats = weights + (1 - weights.sum()) / count  # the nearest that adds up to 1
    along = np.linalg.qr(np.column_stack([np.ones(count), np.eye(count)[:, 1:]]))[0][:, 1:]
    # Least |x| with G x >= h, where a mixture is flat + along @ x.
    lhs, rhs = -rows @ along, rows @ flat - values
    if (rhs <= 0).all():
        return flat
    problem, goal = np.vstack([lhs.T, rhs]), np.zeros(count)
    goal[-1] = 1.0
    left = problem @ nnls(problem, goal, maxiter=100 * len(rows))[0] - goal
    point = np.maximum(flat + along @ (-left[:-1] / left[-1]), 0.0)
    return np.asarray(point / point.sum())


def settle(bounds: Bounds, weights: Floats) -> tuple[int, ...]:
    """Parts in 10^9 that add up, in steps of 1,000: kept a step a member inside limits that leave room for it."""
    loose = _loose(bounds)
    spare = np.abs(bounds.rows).sum(axis=1) * UNIT / PPB
    spare[: len(bounds.components)] = 0.0
    room = loose - bounds.rows @ _region(bounds).centre
    tight = np.where(room > 2 * spare, loose - spare, loose)
    point = np.asarray(weights, np.float64)
    if ((point @ bounds.rows.T) > tight).any():
        some = point > UNIT / PPB / 2
        moved = np.zeros(len(point))
        moved[some] = _project(bounds.rows[:, some], tight, point[some])
        # What has no weight stays without, unless the others alone cannot do it.
        point = moved if inside(bounds, moved)[0] else _project(bounds.rows, tight, point)
    exact = point / point.sum() * (PPB // UNIT)
    parts = np.floor(exact + 1e-6).astype(np.int64)
    order = np.lexsort((np.arange(len(parts)), parts - exact))
    parts[order[: PPB // UNIT - int(parts.sum())]] += 1
    return tuple(int(part) * UNIT for part in parts)
