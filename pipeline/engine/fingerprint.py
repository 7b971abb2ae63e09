"""Fingerprints: what a stage's bytes depend on, and how two of them differ in words."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any

from corpusmill.pipeline.engine.results import canonical
from corpusmill.pipeline.engine.stage import SetOperation, Stage
from corpusmill.pipeline.engine.store import hash_bytes
from corpusmill.pipeline.engine.task import dump_operation, path_of
from corpusmill.pipeline.errors import RecipeError

FORMAT = 3
"""Raised when the engine itself would lay out files in another way. 2: pages of Parquet have checksums. 3: an Arrow file's last batch says so."""


def own_ingredients(stage: Stage, seed: int) -> dict[str, Any]:
    """All that enters a stage's fingerprint except the layers it reads; raises ModelError when a model is missing."""
    operation = stage.operation
    return {
        "format": FORMAT,
        "operation": path_of(operation),
        "version": operation.version,
        "fields": dump_operation(operation),
        "suffix": stage.suffix,
        "seed": seed if isinstance(operation, SetOperation) else None,
        "models": operation.models(),
        "libraries": {name: _library_version(name) for name in operation.libraries},
    }


def _library_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        raise RecipeError(
            f"{name} is not installed, and a stage of this recipe needs it: pip install 'corpusmill[pipeline]'"
        ) from None


def fingerprint(own: Mapping[str, Any], reads: Mapping[str, str]) -> str:
    """16 hex digits of xxh3-128 over a stage's own ingredients and the content hashes of what it reads."""
    return hash_bytes(canonical({**own, "reads": dict(reads)}))[:16]


def differences(old: Any, new: Any, place: str = "") -> list[str]:
    """`place: old -> new` for every leaf that differs, in order."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        lines = []
        for key in [*old, *(key for key in new if key not in old)]:
            lines += differences(old.get(key), new.get(key), f"{place}.{key}" if place else str(key))
        return lines
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            line
            for i, pair in enumerate(zip(old, new, strict=True))
            for line in differences(*pair, f"{place}.{i}")
        ]
    if isinstance(old, tuple) or isinstance(new, tuple):
        return differences(list(old), list(new), place)
    return [] if old == new else [f"{place}: {_short(old)} -> {_short(new)}"]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
