"""Wildcards on names that a store listed, with the rules of Python's `glob` on a disk (a test holds them against it)."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

WILDCARD = re.compile(r"[*?\[]")


def matches(pattern: str, name: str) -> bool:
    """Whether `name`, the key of an object, is found by `pattern`. `*` stays inside a folder, `**` is any number of folders, hidden ones not."""
    return _match(pattern.split("/"), name.split("/"))


def _match(pattern: Sequence[str], name: Sequence[str]) -> bool:
    if not pattern:
        return not name
    first, rest = pattern[0], pattern[1:]
    if first == "**":
        if not rest:  # files at any depth
            return bool(name) and not any(part.startswith(".") for part in name)
        if _match(rest, name):
            return True
        return bool(name) and not name[0].startswith(".") and _match(pattern, name[1:])
    return bool(name) and _one(first, name[0]) and _match(rest, name[1:])


def _one(pattern: str, part: str) -> bool:
    if not WILDCARD.search(pattern):
        return pattern == part
    if part.startswith(".") and not pattern.startswith("."):
        return False
    return bool(part) and fnmatch.fnmatchcase(part, pattern)
