"""The reference of recipe keys, made from the dataclasses themselves: `python -m corpusmill.jobs.reference > docs/recipes.md`."""

from __future__ import annotations

import dataclasses
import inspect
import json
import typing
from typing import Any

from corpusmill.pipeline.engine.budgets import LEAST_ROWS
from corpusmill.pipeline.engine.drops import EARLY_ROWS
from corpusmill.pipeline.engine.task import load_class
from corpusmill.pipeline.input import Input
from corpusmill.pipeline.recipe import Recipe, builtin_names
from corpusmill.pipeline.registry import RULES, STAGES, key_of

HEAD = """# Recipe keys

Made by `python -m corpusmill.jobs.reference`; a test keeps it equal to the code.

A recipe is one YAML file. A key that is not listed here is an error, and what is not given has the default shown.

| key | what it is | default |
|---|---|---|
| `inputs` | list of [inputs](#inputs): paths with wildcards, addresses, lists of files; what kind a file is, its bytes tell; `--input SOURCE=PATH` stands in for it | |
| `seed` | what every random choice is keyed by | SEED |
| `partition_bytes` | what one partition holds of an input, in bytes or like `256 MB` | PARTITION_BYTES |
| `max_drop` | share of the documents above which one reason is taken for a mistake: a cut of a verdict, or what extract drops by; added up partition by partition, from LARGE documents on the run stops in the middle of the stage, one of fewer documents warns at its end | MAX_DROP |
| `max_error_rate` | share of the rows of a stage that may fail; above it the run stops (in the middle of the stage after LARGE rows, at its end from FEW on; fewer warn) | MAX_ERROR_RATE |
| `stages` | list of stages, each one key of the list below with its fields; of two of a kind one needs a `name`; `max_error_rate` beside its fields is the stage's own | |

A row *fails* when an exception or a backstop (CPU time, memory, a crash) stopped it: that is an error. A row that a rule, a status or a
limit of `extract` (`too_large`, `too_deep`) turned away is *dropped*: that is a verdict, and counts in no error rate.
Budgets change no byte: after a run that one has stopped, a recipe with another budget goes on without `--update`.

The rules of a `filter` stage are listed in the order in which they are to be judged:

```yaml
stages:
  - extract: {with: trafilatura}
  - filter: [language: {keep: [en], at_least: 0.65}, gopher_quality: {min_words: 50}]
```

A reason is made of the rule, what it measured and the bound that was missed: `gopher_quality.words.at_least` stands at pages with fewer
words than `min_words`. The measure is a column, so `corpusmill show OUT --reason gopher_quality.words.at_least --columns url,words`
lists the pages and by how much each missed it. `when` limits a rule to pages with one of the values in a column of text, as in
`when: {language: [en, de]}` or `when: {source: [web]}`.

"""


def reference() -> str:
    """The whole page."""
    default = Recipe()
    head = (
        HEAD.replace("PARTITION_BYTES", f"{default.partition_bytes:,}")
        .replace("MAX_DROP", str(default.max_drop))
        .replace("SEED", str(default.seed))
        .replace("LARGE", f"{EARLY_ROWS:,}")
        .replace("FEW", f"{LEAST_ROWS:,}")
        .replace("MAX_ERROR_RATE", str(default.max_error_rate))
    )
    parts = [head, f"Built-in recipes: {', '.join(f'`{name}`' for name in builtin_names())}.\n"]
    parts.append(_entry("Inputs", Input, level=2))
    for title, table in (("Stages", STAGES), ("Rules of `filter`", RULES)):
        parts.append(f"\n## {title}\n")
        for name, path in table.items():
            parts.append(_entry(name, load_class(path)))
    return "".join(parts)


def _entry(name: str, kind: type[Any], level: int = 3) -> str:
    lines = [f"\n{'#' * level} {name}\n\n{_about(kind)}\n"]
    fields = [field for field in dataclasses.fields(kind) if field.name != "rules"]
    if fields:
        lines.append("\n| field | type | default |\n|---|---|---|\n")
    hints = typing.get_type_hints(kind, include_extras=True)
    nested: list[type[Any]] = []
    for field in fields:
        hint = hints[field.name]
        lines.append(f"| `{key_of(kind, field.name)}` | {_type(hint)} | {_default(field)} |\n")
        nested += _inside(hint)
    for each in nested:  # which grows by what is inside these
        lines.append(
            f"\nFields of {each.__name__} ({_about(each).splitlines()[0]})\n\n| field | type | default |\n|---|---|---|\n"
        )
        hints = typing.get_type_hints(each, include_extras=True)
        lines += [
            f"| `{field.name}` | {_type(hints[field.name])} | {_default(field)} |\n"
            for field in dataclasses.fields(each)
        ]
        nested += [inner for hint in hints.values() for inner in _inside(hint) if inner not in nested]
    return "".join(lines)


def _inside(hint: Any) -> list[type[Any]]:
    """The dataclasses of a field's type, however deep in lists and alternatives."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return [hint]
    return [each for argument in typing.get_args(hint) for each in _inside(argument)]


def _about(kind: type[Any]) -> str:
    return inspect.cleandoc(kind.__doc__ or "")


def _type(hint: Any) -> str:
    """A type in the words of YAML."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return f"map of {_type(arguments[0])} to {_type(arguments[1])}"
    if arguments:
        return " or ".join(_type(each) for each in arguments)
    names = {
        int: "whole number",
        float: "number",
        str: "text",
        bool: "true or false",
        type(None): "null",
        bytes: "bytes",
        Any: "anything",
    }
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        value = field.default
    elif field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    else:
        return "needed"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return "see below"
    text = json.dumps(value, ensure_ascii=False)
    return f"`{text if len(text) <= 100 else text[:97] + '...'}`"


if __name__ == "__main__":
    print(reference(), end="")
