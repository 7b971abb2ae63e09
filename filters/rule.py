"""What all rules of this room share: `when`, bounds that can be off, and checks of thresholds."""

from __future__ import annotations

from dataclasses import dataclass, field

from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.rules import Cut, Rule


@dataclass(frozen=True)
class FilterRule(Rule):
    """A rule that `when` can limit to rows whose string column has one of the values: {language: [en, de]}."""

    when: dict[str, tuple[str, ...]] = field(default_factory=dict, kw_only=True)


def bound(measure: str, at_least: float | None = None, at_most: float | None = None) -> tuple[Cut, ...]:
    """A cut for each bound that is set; None is off."""
    lower = (Cut(measure, at_least=at_least),) if at_least is not None else ()
    upper = (Cut(measure, at_most=at_most),) if at_most is not None else ()
    return lower + upper


def check_shares(rule: Rule, *names: str) -> None:
    """RecipeError unless each of the fields is None or from 0 to 1."""
    for name in names:
        value = getattr(rule, name)
        if value is not None and not 0 <= value <= 1:
            raise RecipeError(
                f"{type(rule).__name__}.{name}: {value} is no share from 0 to 1; null turns the cut off"
            )


def check_counts(rule: Rule, *names: str) -> None:
    """RecipeError unless each of the fields is None or at least 0."""
    for name in names:
        value = getattr(rule, name)
        if value is not None and not value >= 0:
            raise RecipeError(f"{type(rule).__name__}.{name}: {value} is below 0; null turns the cut off")
