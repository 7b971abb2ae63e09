"""YAML as corpusmill reads it: the safe loader, no key twice (the plain one lets the last of them win in silence), nothing that grows.

Aliases can make a file of a kilobyte stand for more values than memory holds, or hold itself: both are refused before anything is made of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.registry import shown

MOST_VALUES = 1_000_000
"""Of a file, aliases followed. A mixture of 10,000 components has some 100,000."""


class _Strict(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no types
    """A SafeLoader that refuses a mapping with the same key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            name = (key.tag, str(key.value))
            if name in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {shown(key.value)} stands twice", problem_mark=key.start_mark
                )
            seen.add(name)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


@dataclass(frozen=True)
class Lines:
    """Keys and places in lists, from the outermost in, as text -> line in the file, from 1."""

    of_path: Mapping[tuple[str, ...], int]

    def of(self, path: tuple[str, ...]) -> int:
        """Of what stands there, or should."""
        while path and path not in self.of_path:
            path = path[:-1]
        return self.of_path.get(path, 1)


def read_yaml(text: str | bytes, where: str) -> Any:
    """Plain values; RecipeError, which `where` begins, with line and column of what is wrong."""
    return _read(text, where)[0]


def read_with_lines(text: str | bytes, where: str) -> tuple[Any, Lines]:
    """The same, and where in the text each value stands."""
    value, node = _read(text, where)
    return value, Lines({} if node is None else dict(_lines(node, ())))


def _read(text: str | bytes, where: str) -> tuple[Any, yaml.Node | None]:
    try:
        loader = _Strict(text)  # a SafeLoader: no code, no objects
        try:
            node = loader.get_single_node()
            if node is None:
                return None, None
            _count(node, {})
            return loader.construct_document(node), node
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none
        raise RecipeError(f"{where}: not valid YAML: {error}") from None
    except RecursionError:
        raise RecipeError(f"{where}: not valid YAML: nested too deeply") from None


def _count(node: yaml.Node, known: dict[int, int | None]) -> int:
    """Values that a node stands for; each node is looked at once. None in `known`: it is being counted."""
    if id(node) not in known:
        known[id(node)] = None
        total = 1 + sum(_count(each, known) for _, _, each in _inside(node))
        if total > MOST_VALUES:
            raise yaml.MarkedYAMLError(
                problem=f"it stands for more than {MOST_VALUES:,} values", problem_mark=node.start_mark
            )
        known[id(node)] = total
    found = known[id(node)]
    if found is None:
        raise yaml.MarkedYAMLError(problem="it holds itself", problem_mark=node.start_mark)
    return found


def _inside(node: yaml.Node) -> Iterator[tuple[str, int, yaml.Node]]:
    """What a node holds, with its name and line; those of keys for a mapping's values."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                yield "", key.start_mark.line, key
            yield str(key.value), key.start_mark.line, value
    elif isinstance(node, yaml.SequenceNode):
        for place, value in enumerate(node.value):
            yield str(place), value.start_mark.line, value


def _lines(node: yaml.Node, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    for name, line, each in _inside(node):
        yield (*path, name), line + 1
        yield from _lines(each, (*path, name))
