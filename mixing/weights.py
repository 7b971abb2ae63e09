"""Weights without an experiment: the baselines that a searched mixture has to beat, and those given by hand.

All are exact fractions, rounded once: `in_ppb` gives whole parts in 10^9 that add up, the same on every platform.
Sizes are rows (samples of one sequence), the unit in which a stream reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal, localcontext
from fractions import Fraction

from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.registry import shown, suggestion
from corpusmill.shards.mixture import PPB

Weights = dict[str, Fraction]

SUM_TOLERANCE = Fraction(1, 10**6)
"""How far weights written by hand may be from 1 together: thirds are written with some digits."""


def in_ppb(weights: Mapping[str, Fraction]) -> dict[str, int]:
    """Shares of 10^9 by largest remainder, the first name on a tie; they add up exactly. Weights need not add up to 1."""
    total = sum(weights.values(), Fraction(0))
    exact = {name: weights[name] * PPB / total for name in sorted(weights)}
    parts = {name: math.floor(share) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (parts[name] - exact[name], name))
    for name in by_remainder[: PPB - sum(parts.values())]:
        parts[name] += 1
    return parts


def proportional(sizes: Mapping[str, int]) -> Weights:
    """Every row equally often."""
    return {name: Fraction(size) for name, size in sizes.items()}


def uniform(sizes: Mapping[str, int]) -> Weights:
    """Every component equally often."""
    return {name: Fraction(1) for name in sizes}


def unimax(most: Mapping[str, int], budget: int) -> Weights:
    """Equal parts of `budget` samples, none over `most`; what a small component leaves is shared out again
    (Chung et al. 2023, UniMax, algorithm 1, with `most` = its epochs times the component's size)."""
    left, weights = Fraction(budget), {}
    for place, name in enumerate(sorted(most, key=lambda name: (most[name], name))):
        weights[name] = min(Fraction(most[name]), left / (len(most) - place))
        left -= weights[name]
    return weights


def tempered(sizes: Mapping[str, int], temperature: float) -> Weights:
    """size^(1/temperature): 1 is proportional, large is uniform. Decimal logarithms: libraries of C differ in the last digit."""
    if not (math.isfinite(temperature) and temperature > 0):
        raise RecipeError(
            f"mix: temperature is {temperature}; it has to be above 0 (1 is proportional, large is uniform)"
        )
    largest = max(sizes.values())
    with localcontext() as context:
        context.prec = 40
        power = 1 / Decimal(repr(temperature))
        return {
            name: Fraction(((Decimal(size) / largest).ln() * power).exp()) for name, size in sizes.items()
        }


def manual(weights: Mapping[str, float], known: Mapping[str, int], where: str) -> Weights:
    """Weights by hand: decimal shares that add up to 1 (to a millionth). Components that are not named get none."""
    for name, weight in weights.items():
        if (wrong := wrong_name(name, known) or wrong_share(name, weight)) is not None:
            raise RecipeError(f"{where}: {wrong}")
    exact = {name: Fraction(repr(weight)) for name, weight in weights.items()}
    if (wrong := wrong_sum(exact)) is not None:
        raise RecipeError(f"{where}: {wrong}")
    return {name: exact.get(name, Fraction(0)) for name in known}


def wrong_name(name: object, known: Iterable[str]) -> str | None:
    """What is wrong with the name of a component; None: nothing."""
    known = list(known)
    if name in known:
        return None
    word = name if isinstance(name, str) else shown(name)
    return f"no component is called {shown(name)}; {suggestion(word, known)}"


def wrong_share(name: str, weight: object) -> str | None:
    """What is wrong with a share by itself. Those of a mixture that does not add up may be large: the sum says what was meant."""
    if isinstance(weight, int | float) and not isinstance(weight, bool) and 0 <= weight <= PPB:
        return None
    return f"the weight of {name} is {shown(weight)}; a share from 0 to 1 is needed"


def wrong_sum(exact: Weights) -> str | None:
    total = sum(exact.values(), Fraction(0))
    if abs(total - 1) <= SUM_TOLERANCE:
        return None
    return f"weights add up to {float(total):.9g}, not 1; {_scaled(exact)}"


def _scaled(weights: Weights) -> str:
    """The same proportions, adding up to 1: what was probably meant."""
    total = sum(weights.values(), Fraction(0))
    if not total:
        return "give at least one component a share"
    return "in the same proportions: " + ", ".join(
        f"{name}: {float(weight / total):.6g}" for name, weight in weights.items()
    )
