"""From what units of a sample used to what a whole run will: ratios, a fixed cost a unit, and intervals between sampled places."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

CONFIDENCE = 0.95
_Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)


@dataclass(frozen=True)
class Interval:
    """An expected value and the bounds that hold it in 95 of 100 samples, if places differ as much as those that were seen."""

    low: float
    expected: float
    high: float

    def times(self, factor: float) -> Interval:
        return Interval(self.low * factor, self.expected * factor, self.high * factor)


def total(parts: Iterable[Interval]) -> Interval:
    """The sum of independent estimates: distances to the bounds add as squares."""
    parts = list(parts)
    expected = sum(part.expected for part in parts)
    below = math.sqrt(sum((part.expected - part.low) ** 2 for part in parts))
    above = math.sqrt(sum((part.high - part.expected) ** 2 for part in parts))
    return Interval(max(0.0, expected - below), expected, expected + above)


def student(degrees: int) -> float:
    """The two-sided 95 % quantile of Student's t, by Hill's expansion from three degrees on (within 0.2 %)."""
    if degrees <= 0:
        return math.inf
    if degrees < 3:
        return (12.706, 4.303)[degrees - 1]
    z, n = _Z, degrees
    terms = (
        (z**3 + z) / (4 * n),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3),
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * n**4),
    )
    return z + sum(terms)


def ratio(pairs: Sequence[tuple[float, float]], most: float = math.inf) -> Interval:
    """Sum of y over sum of x of units (x, y), with the interval between units. Without x it is 0.

    The linearised variance of a ratio estimator (Cochran 1977, 6.4); one unit alone says nothing about others: from 0 to twice.
    """
    pairs = [(x, y) for x, y in pairs if x > 0]
    base = sum(x for x, _ in pairs)
    if not base:
        return Interval(0.0, 0.0, min(most, 0.0))
    value = sum(y for _, y in pairs) / base
    if len(pairs) == 1:
        return Interval(0.0, value, min(most, 2 * value))
    count = len(pairs)
    spread = sum((y - value * x) ** 2 for x, y in pairs) * count / (count - 1)
    half = student(count - 1) * math.sqrt(spread) / base
    return Interval(max(0.0, value - half), value, min(most, value + half))


def share(pairs: Sequence[tuple[float, float]]) -> Interval:
    """The share of documents (in, kept): no narrower than Wilson's interval of as many independent ones.

    Where all were kept, or none, units say nothing of how they differ: then a unit counts as one, since its pages may be of one kind.
    """
    found = ratio(pairs, most=1.0)
    n = sum(x for x, _ in pairs)
    if not n:
        return Interval(0.0, 0.0, 1.0)
    p = found.expected
    if p in (0.0, 1.0):
        n = sum(1 for x, _ in pairs if x)
    middle = (p + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
    # Exactly, both bounds hold p; in floating point the one at 0 or 1 may miss it by an ulp.
    return Interval(
        max(0.0, min(found.low, middle - half, p)), p, min(1.0, max(found.high, middle + half, p))
    )


def fixed_cost(pairs: Sequence[tuple[float, float]]) -> float:
    """What a unit costs beside its x: the intercept of a straight line through (x, y), from 0 to the least y."""
    if len(pairs) < 3:
        return 0.0
    count = len(pairs)
    mean_x, mean_y = sum(x for x, _ in pairs) / count, sum(y for _, y in pairs) / count
    spread = sum((x - mean_x) ** 2 for x, _ in pairs)
    if not spread:
        return 0.0
    slope = sum((x - mean_x) * (y - mean_y) for x, y in pairs) / spread
    return max(0.0, min(mean_y - slope * mean_x, min(y for _, y in pairs)))


def line_through(small: tuple[float, float, float], large: tuple[float, float, float]) -> tuple[float, float]:
    """(cost a unit, cost a unit of x) from two runs (units, x, y); neither is below 0."""
    (u1, x1, y1), (u2, x2, y2) = small, large
    determinant = u1 * x2 - u2 * x1
    if x2 > 0 and determinant > 1e-9 * u2 * x2:
        fixed, slope = (y1 * x2 - y2 * x1) / determinant, (u1 * y2 - u2 * y1) / determinant
        if fixed >= 0 and slope >= 0:
            return fixed, slope
        if slope < 0:
            return y2 / u2, 0.0
    return (0.0, y2 / x2) if x2 > 0 else (y2 / max(u2, 1), 0.0)
