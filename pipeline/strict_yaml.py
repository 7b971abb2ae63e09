"""YAML as corpusmill reads it: the safe loader, and no key twice (the plain one lets the last of them win in silence)."""

from __future__ import annotations

from typing import Any

import yaml

from corpusmill.pipeline.errors import RecipeError


class _Strict(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no types
    """A SafeLoader that refuses a mapping with the same key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            name = (key.tag, str(key.value))
            if name in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} stands twice", problem_mark=key.start_mark
                )
            seen.add(name)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def read_yaml(text: str | bytes, where: str) -> Any:
    """Plain values; RecipeError, which `where` begins, with line and column of what is wrong."""
    try:
        return yaml.load(text, Loader=_Strict)  # a SafeLoader: no code, no objects
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none
        raise RecipeError(f"{where}: not valid YAML: {error}") from None
    except RecursionError:
        raise RecipeError(f"{where}: not valid YAML: nested too deeply") from None
