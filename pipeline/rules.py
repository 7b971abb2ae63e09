"""Rules are lists of cuts; a cut is a stored measure with a bound.

Measures are costly and kept; cuts are cheap, can move, can be drawn, and each failing one is a reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from corpusmill.pipeline.engine.stage import Edit, Measure

BOUNDS = ("at_least", "at_most", "one_of", "none_of")
"""The fields of a cut that may be its bound."""


@dataclass(frozen=True)
class Cut:
    """One bound on one measure; a row passes when the value is within all that is set (bounds are inclusive).

    `one_of` / `none_of` are for string measures. `only` limits the cut to rows whose string column has one of the values: {"language": ["en"]}.
    """

    measure: str
    at_least: float | None = None
    at_most: float | None = None
    one_of: tuple[str, ...] | None = None
    none_of: tuple[str, ...] | None = None
    only: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def reason(self, rule: str) -> str:
        """`rule.measure.at_least|at_most|one_of|none_of`."""
        for bound in BOUNDS:
            if getattr(self, bound) is not None:
                return f"{rule}.{self.measure}.{bound}"
        raise ValueError(f"cut on {self.measure} has no bound")


@dataclass(frozen=True)
class Rule:
    """A named entry of a `filter` stage: which measures it needs and the cuts on them. A frozen dataclass with the recipe's fields.

    `edit` is for rules that also change the text (C4): what follows in the same filter then reads the edited text.
    """

    edited: ClassVar[str] = ""  # name of the edit, used as the suffix of later measures: "c4"

    def measures(self) -> tuple[Measure, ...]:
        """Operations that compute the measures of `cuts`; equal operations of several rules run once."""
        raise NotImplementedError

    def cuts(self) -> tuple[Cut, ...]:
        raise NotImplementedError

    def edit(self) -> Edit | None:
        return None
