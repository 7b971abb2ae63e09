"""The `filter` stage of a recipe: rules in order become layers of measures, edits and one verdict.

Rules that read the same text share what they measure: there is one pass over it. A rule that edits (C4) ends a section: what follows
reads the edited text, and its measures carry the name of the edit (`words@c4`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from corpusmill.filters.c4 import C4Measures
from corpusmill.filters.language import LanguageMeasure
from corpusmill.filters.measures import TextMeasures
from corpusmill.filters.url import UrlMeasures
from corpusmill.pipeline.documents import DOCUMENTS
from corpusmill.pipeline.engine.stage import Edit, Measure
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.registry import RULES, name_of
from corpusmill.pipeline.rules import Cut, Rule

LAYERS: dict[type[Measure], str] = {
    TextMeasures: "measures",
    LanguageMeasure: "language",
    UrlMeasures: "url",
    C4Measures: "c4_measures",
}
"""Operation -> last part of the name of its layer; others take the name of their class in small letters."""


def layer_name(operation: Measure) -> str:
    return LAYERS.get(type(operation), type(operation).__name__.lower())


def shared(operations: Iterable[Measure]) -> list[Measure]:
    """Each operation once; those over words become one with the columns of all."""
    found: dict[type[Measure], Measure] = {}
    for operation in operations:
        other = found.setdefault(type(operation), operation)
        if isinstance(operation, TextMeasures) and isinstance(other, TextMeasures):
            found[type(operation)] = other.joined(operation)
        elif other != operation:
            raise RecipeError(
                f"filter: two rules want {layer_name(operation)} of the same text with different fields; put one of them in a "
                "filter stage with another name, or after a rule that edits the text"
            )
    return list(found.values())


def sections(rules: Iterable[Rule]) -> list[list[Rule]]:
    """The rules cut behind each one that edits the text."""
    parts: list[list[Rule]] = [[]]
    for rule in rules:
        parts[-1].append(rule)
        if rule.edit() is not None:
            parts.append([])
    return [part for part in parts if part]


def placed(cut: Cut, rule: Rule, names: dict[str, str]) -> Cut:
    """The cut on the names that its measures have at its place, limited by the rule's `when`."""
    only = renamed({**cut.only, **getattr(rule, "when", {})}, names)
    return replace(cut, measure=names.get(cut.measure, cut.measure), only=only)


def placed_edit(edit: Edit, names: dict[str, str]) -> Edit:
    """The edit with the columns of its `when`, if it has one, under their names at its place."""
    when = getattr(edit, "when", {})
    return replace(edit, when=renamed(when, names)) if when else edit  # type: ignore[call-arg]


def renamed(limits: dict[str, tuple[str, ...]], names: dict[str, str]) -> dict[str, tuple[str, ...]]:
    return {names.get(column, column): values for column, values in limits.items()}


def check_when(chain: Any, where: str, when: dict[str, tuple[str, ...]], names: dict[str, str]) -> None:
    """RecipeError unless `when` lists values of columns of text; a column that nothing makes is for the chain to name."""
    for column, values in when.items():
        if not values:
            raise RecipeError(
                f"{where}: when.{column} lists no value, so the rule is for no row: take one of them out"
            )
        kind = _type_of(chain, names.get(column, column))
        if kind not in (None, pa.string(), pa.large_string()):
            raise RecipeError(
                f"{where}: when.{column}: {column} holds {kind}; `when` takes columns of text, like source or language"
            )


def _type_of(chain: Any, column: str) -> pa.DataType | None:
    if column in DOCUMENTS.names:
        return DOCUMENTS.field(column).type
    for stage in chain.stages:
        if stage.name == chain.columns.get(column):
            return stage.operation.schema().field(column.removesuffix(stage.suffix)).type
    return None


@dataclass(frozen=True)
class Filter:
    """Keeps the pages that no rule drops. Every rule is judged on every page; the first that a page fails is its reason."""

    rules: tuple[Rule, ...] = ()

    def extend(self, chain: Any, name: str) -> None:
        """Under the stage's name: one layer a kind of measure and text, and `NAME.verdict`."""
        cuts: list[tuple[str, Cut]] = []
        names: dict[str, str] = {}
        for section in sections(self.rules):
            suffix = f"@{chain.text[0].rpartition('.')[2]}" if chain.text else ""
            for operation in shared(each for rule in section for each in rule.measures()):
                names |= _measured(chain, name, operation, suffix if "text" in operation.needs else "")
            for rule in section:
                key = name_of(rule, RULES)
                check_when(chain, f"{name}.{key}", getattr(rule, "when", {}), names)
                cuts += [(key, placed(cut, rule, names)) for cut in rule.cuts()]
            edit = section[-1].edit()
            if edit is not None:
                chain.edit(f"{name}.{section[-1].edited}", placed_edit(edit, names))
        if not cuts:
            raise RecipeError(f"{name}: every cut of its rules is off: set a threshold or take the stage out")
        chain.judge(f"{name}.verdict", cuts)
        chain.verdict(f"{name}.verdict")


def _measured(chain: Any, name: str, operation: Measure, suffix: str) -> dict[str, str]:
    """Column -> its name at this text. An equal layer that an earlier stage made of the same text is used again."""
    columns = {column: column + suffix for column in operation.schema().names}
    stands = {stage.name: stage for stage in chain.stages}
    holders = {chain.columns.get(column) for column in columns.values()}
    holder = stands.get(next(iter(holders)) or "") if len(holders) == 1 else None
    text = chain.text if "text" in operation.needs else ()
    if holder is None or holder.operation != operation or holder.text != text:
        chain.measure(f"{name}.{layer_name(operation)}{suffix}", operation, suffix)
    return columns
