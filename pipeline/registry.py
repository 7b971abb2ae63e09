"""The names that a recipe may use, and the classes behind them.

Strings, not imports: `pipeline` knows no other room, and a command pays only for what its recipe names.
"""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Iterable
from typing import Any

from corpusmill.pipeline.engine.task import load_class
from corpusmill.pipeline.errors import RecipeError

STAGES = {
    "extract": "corpusmill.pipeline.extract.operation:Extract",
    "filter": "corpusmill.filters.stage:Filter",
    "dedup": "corpusmill.dedup.stage:Dedup",
    "redact": "corpusmill.filters.redact:Redact",
    "topics": "corpusmill.filters.topics_stage:Topics",
    "shard": "corpusmill.shards.stage:Shard",
    "mix": "corpusmill.mixing.stage:Mix",
    "ablate": "corpusmill.mixing.ablation:Ablate",
}
"""Recipe key -> class of its fields."""

RULES = {
    "language": "corpusmill.filters.language:Language",
    "url": "corpusmill.filters.url:Url",
    "gopher_repetition": "corpusmill.filters.gopher:GopherRepetition",
    "gopher_quality": "corpusmill.filters.gopher:GopherQuality",
    "c4": "corpusmill.filters.c4:C4",
    "fineweb_quality": "corpusmill.filters.fineweb:FineWebQuality",
}
"""Name of a rule inside `filter` -> class."""


SHOWN = 80
"""Characters of a value that an error shows."""


def shown(value: Any) -> str:
    """A value as an error shows it: not without end."""
    try:
        text = repr(value)
    except ValueError:  # Python writes out no number of more than 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def suggestion(word: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?` when something known is near, else the list of what is known."""
    choices = sorted(known)
    near = difflib.get_close_matches(word, choices, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(choices)}"


def lookup(name: str, table: dict[str, str], what: str, where: str) -> type[Any]:
    """The class behind a name; RecipeError with a suggestion when there is none."""
    if name not in table:
        raise RecipeError(f"{where}: no {what} is called {name!r}; {suggestion(name, table)}")
    return load_class(table[name])


def name_of(value: Any, table: dict[str, str]) -> str:
    """The name that a recipe gives what `value` is of."""
    path = f"{type(value).__module__}:{type(value).__qualname__}"
    return next(name for name, known in table.items() if known == path)


def forbid_unknown(kind: type[Any]) -> type[Any]:
    """Make pydantic refuse unknown keys of a dataclass and of all dataclasses in its fields (it accepts them in silence otherwise)."""
    if not dataclasses.is_dataclass(kind) or "__pydantic_config__" in vars(kind):
        return kind
    setattr(kind, "__pydantic_config__", {"extra": "forbid"})  # noqa: B010
    for hint in typing.get_type_hints(kind).values():
        for inner in (hint, *typing.get_args(hint)):
            if isinstance(inner, type):
                forbid_unknown(inner)
    return kind


def build(kind: type[Any], fields: Any, where: str) -> Any:
    """A validated instance; every mistake becomes one line of a RecipeError that names its place."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(forbid_unknown(kind)).validate_python({} if fields is None else fields)
    except ValidationError as error:
        lines = []
        for item in error.errors():
            place = ".".join(str(part) for part in item["loc"])
            message = item["msg"].removeprefix("Value error, ")  # pydantic's, before words of our own
            if item["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
                message = f"unknown key; {suggestion(str(item['loc'][-1]), _keys_at(kind, item['loc'][:-1]))}"
            lines.append(f"{where}: {place}: {message}" if place else f"{where}: {message}")
        raise RecipeError("\n".join(lines)) from None


def _keys_at(kind: type[Any], place: tuple[int | str, ...]) -> list[str]:
    """The keys that may stand at a place inside the fields of a dataclass."""
    for name in place:
        hint = typing.get_type_hints(kind).get(str(name))
        inner = [
            each
            for each in (hint, *typing.get_args(hint))
            if isinstance(each, type) and dataclasses.is_dataclass(each)
        ]
        kind = inner[0] if inner else kind
    return [key_of(kind, field.name) for field in dataclasses.fields(kind)]


def key_of(kind: type[Any], field: str) -> str:
    """The recipe's key for a field: its own name, or the alias where that is no Python name (`with`)."""
    hint = typing.get_type_hints(kind, include_extras=True)[field]
    aliases = [item.alias for item in getattr(hint, "__metadata__", ()) if getattr(item, "alias", None)]
    return str(aliases[0]) if aliases else field
