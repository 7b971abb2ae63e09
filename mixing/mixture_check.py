"""What a mixture file says, and all that is wrong with it: each thing with its place and line, not the first alone.

What can be told without shards is told when a recipe is read; names, hashes and sizes when they are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, get_args

from corpusmill.mixing.weights import in_ppb, wrong_name, wrong_share, wrong_sum
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.kinds import Synthetic
from corpusmill.pipeline.registry import shown, suggestion
from corpusmill.shards.layout import Manifest
from corpusmill.shards.mixture import PPB
from corpusmill.shards.plan import MOST_SAMPLES, Phase

SCHEMA = "corpusmill/mixture/v1"
KEYS = (
    "schema",
    "id",
    "unit",
    "tokenizer",
    "budget_tokens",
    "seed",
    "exhaust",
    "components",
    "phases",
    "derived",
    "evidence",
)
COMPONENT_KEYS = ("hash", "available_tokens", "max_epochs", "synthetic", "generation")
PHASE_KEYS = ("name", "from", "ramp", "weights_ppb", "weights")

Exhaust = Literal["repeat", "stop", "redistribute"]

MOST_SAID = 50

Path = tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """Of synthetic text: how it was made, and how many models stand between it and people's (1: one)."""

    synthetic: Synthetic
    generation: int

    def stated(self) -> dict[str, Any]:
        return {"synthetic": self.synthetic, "generation": self.generation}


@dataclass(frozen=True)
class Given:
    """What a mixture file asks for; None where it leaves the choice to the recipe."""

    phases: tuple[Phase, ...]
    evidence: dict[str, Any]
    budget_tokens: int | None = None
    seed: int | None = None
    exhaust: Exhaust | None = None
    max_epochs: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, Kind] = field(default_factory=dict)


class Findings:
    """What is wrong in a file, collected."""

    def __init__(self, where: str, line: Callable[[Path], int]) -> None:
        self.where, self.line = where, line
        self.said: list[tuple[int, str]] = []

    def add(self, path: Path, message: str) -> None:
        line = self.line(path)
        place = ".".join(shown(part)[1:-1] for part in path)
        joined = " " if message.startswith("is ") else ": "
        self.said.append((line, f"{self.where}, line {line}: {place}{joined}{message}"))

    def need_none(self) -> None:
        """RecipeError with all of it, in the order of the file."""
        if self.said:
            lines = [message for _, message in sorted(self.said, key=lambda each: each[0])]
            more = [f"... and {len(lines) - MOST_SAID} more"] if len(lines) > MOST_SAID else []
            raise RecipeError("\n".join([*lines[:MOST_SAID], *more]))


def check_mixture(
    value: Mapping[str, Any], manifests: Mapping[str, Manifest] | None, found: Findings
) -> Given | None:
    """What it asks for, unless something was found. Without manifests names and sizes are taken as they are."""
    for key in value:
        if key not in KEYS:
            found.add((_name(key),), f"unknown key; {suggestion(_name(key), KEYS)}")
    _check_head(value, manifests, found)
    budget = _whole(value, (), "budget_tokens", found, 1)
    seed = _whole(value, (), "seed", found)
    max_epochs, kinds = _components(value.get("components"), manifests, found)
    phases = _phases(value.get("phases"), manifests, found)
    evidence = value.get("evidence")
    if evidence is not None and not isinstance(evidence, dict):
        found.add(("evidence",), f"is {shown(evidence)}; a mapping is needed")
    if found.said:
        return None
    stated = value["evidence"] if "id" in value and evidence is not None else {"verdict": "manual"}
    return Given(phases, stated, budget, seed, value.get("exhaust"), max_epochs, kinds)


def _check_head(value: Mapping[str, Any], manifests: Mapping[str, Manifest] | None, found: Findings) -> None:
    if value.get("unit", "tokens") != "tokens":
        found.add(("unit",), f"is {shown(value['unit'])}; only tokens can be weighed")
    if value.get("exhaust") is not None and value["exhaust"] not in get_args(Exhaust):
        found.add(("exhaust",), f"is {shown(value['exhaust'])}; it can be repeat, stop or redistribute")
    if manifests is not None and value.get("tokenizer") is not None:
        tokenizer = f"sha256:{next(iter(manifests.values())).tokenizer_sha256}"
        if value["tokenizer"] != tokenizer:
            found.add(
                ("tokenizer",),
                f"is {shown(value['tokenizer'])}, these shards were made with {tokenizer}: weights do not carry over",
            )


def _components(
    value: Any, manifests: Mapping[str, Manifest] | None, found: Findings
) -> tuple[dict[str, int], dict[str, Kind]]:
    """max_epochs and kinds, by component."""
    limits: dict[str, int] = {}
    kinds: dict[str, Kind] = {}
    if value is None:
        return limits, kinds
    if not isinstance(value, dict):
        found.add(("components",), "a mapping is needed, like {web: {max_epochs: 4}}")
        return limits, kinds
    for name, stated in value.items():
        path = ("components", _name(name))
        if (wrong := _wrong_component(name, manifests)) is not None:
            found.add(path, wrong)
        if not isinstance(stated, dict):
            found.add(path, f"is {shown(stated)}; a mapping is needed, like {{max_epochs: 4}}")
            continue
        for key in stated:
            if key not in COMPONENT_KEYS:
                found.add((*path, _name(key)), f"unknown key; {suggestion(_name(key), COMPONENT_KEYS)}")
        if (most := _whole(stated, path, "max_epochs", found, 1)) is not None:
            limits[name] = most
        if (kind := _kind(stated, path, found)) is not None:
            kinds[name] = kind
        tokens = _whole(stated, path, "available_tokens", found)
        if manifests is not None and name in manifests:
            _check_content(stated, tokens, manifests[name], path, found)
    return limits, kinds


def _check_content(
    stated: Mapping[str, Any], tokens: int | None, manifest: Manifest, path: Path, found: Findings
) -> None:
    here = f"sha256:{manifest.hash}"
    if stated.get("hash", here) != here:
        found.add(
            (*path, "hash"),
            f"the file was made for {shown(stated['hash'])[1:-1]}, these shards are {here}; drop the hash to use it",
        )
    elif tokens is not None and tokens != manifest.tokens:
        found.add(
            (*path, "available_tokens"),
            f"is {tokens}, these shards have {manifest.tokens}; drop it to use the file",
        )


def _kind(stated: Mapping[str, Any], path: Path, found: Findings) -> Kind | None:
    synthetic = stated.get("synthetic", "none")
    if synthetic not in get_args(Synthetic):
        found.add(
            (*path, "synthetic"),
            f"is {shown(synthetic)}; {suggestion(_name(synthetic), get_args(Synthetic))}",
        )
        return None
    generation = _whole(stated, path, "generation", found)
    if synthetic == "none":
        if generation:
            found.add(
                (*path, "generation"), f"is {generation}, but natural text has none; state synthetic as well"
            )
        return None
    if generation == 0:
        found.add((*path, "generation"), "is 0; text that a model made is of generation 1 or later")
    return Kind(synthetic, 1 if generation is None else generation)


def _phases(value: Any, manifests: Mapping[str, Manifest] | None, found: Findings) -> tuple[Phase, ...]:
    if not isinstance(value, list) or not value:
        example = next(iter(manifests)) if manifests else "web"
        found.add(("phases",), f"a list is needed, like [{{from: 0, weights: {{{example}: 1.0}}}}]")
        return ()
    phases: list[Phase] = []
    for place, each in enumerate(value):
        path = ("phases", str(place))
        if not isinstance(each, dict) or ("weights" in each) == ("weights_ppb" in each):
            found.add(path, "a phase has from, and either weights (shares) or weights_ppb (parts in 10^9)")
            continue
        for key in each:
            if key not in PHASE_KEYS:
                found.add((*path, _name(key)), f"unknown key; {suggestion(_name(key), PHASE_KEYS)}")
        start = _whole(each, path, "from", found) or 0
        ramp = _whole(each, path, "ramp", found) or 0
        _check_order(phases, place, start, ramp, path, found)
        phases.append(Phase(start, _weights(each, manifests, path, found), ramp))
    return tuple(phases)


def _check_order(before: list[Phase], place: int, start: int, ramp: int, path: Path, found: Findings) -> None:
    if place == 0 and (start or ramp):
        what = "from" if start else "ramp"
        found.add(
            (*path, what), f"is {start or ramp}; the first phase begins at sample 0, with its own weights"
        )
    if before and start <= before[-1].start:
        found.add(
            (*path, "from"), f"is {start}; phases rise, and the one before begins at {before[-1].start}"
        )
    elif before and before[-1].start + before[-1].ramp > start:
        found.add(
            (*path, "from"),
            f"is {start}, where the ramp of the phase before is not yet over ({before[-1].start} + {before[-1].ramp})",
        )


def _weights(
    phase: Mapping[str, Any], manifests: Mapping[str, Manifest] | None, path: Path, found: Findings
) -> dict[str, int]:
    key = "weights" if "weights" in phase else "weights_ppb"
    given, path = phase[key], (*path, key)
    if not isinstance(given, dict):
        found.add(path, "a mapping of components to numbers is needed")
        return {}
    wrong_one = wrong_share if key == "weights" else _wrong_part
    wrong = [
        (name, message)
        for name, weight in given.items()
        if (message := _wrong_component(name, manifests) or wrong_one(_name(name), weight)) is not None
    ]
    for name, message in wrong:
        found.add((*path, _name(name)), message)
    if wrong:
        return {}
    if key == "weights":
        exact = {name: Fraction(repr(weight)) for name, weight in given.items()}
        wrong_total = wrong_sum(exact)
    else:
        exact = {}
        total = sum(given.values())
        wrong_total = None if total == PPB else f"weights_ppb add up to {shown(total)}, not {PPB}"
    if wrong_total is not None:
        found.add(path, wrong_total)
        return {}
    if manifests is None:
        return {}
    weights = in_ppb({name: exact.get(name, Fraction(0)) for name in manifests}) if exact else given
    return {name: weights.get(name, 0) for name in sorted(manifests)}


def _wrong_component(name: Any, manifests: Mapping[str, Manifest] | None) -> str | None:
    if manifests is not None:
        return wrong_name(name, manifests)
    return None if isinstance(name, str) else f"no component is called {shown(name)}: names are text"


def _wrong_part(name: str, weight: Any) -> str | None:
    if type(weight) is int and weight >= 0:
        return None
    return f"the weight of {name} is {shown(weight)}; whole parts in 10^9 are needed"


def _whole(value: Mapping[str, Any], path: Path, key: str, found: Findings, least: int = 0) -> int | None:
    """A whole number, also as 2e12 (which YAML reads as text or a float); None where there is none, or a wrong one."""
    given = value.get(key)
    if given is None:
        return None
    try:
        number = float(given) if isinstance(given, str | float) else given
        if type(number) not in (int, float) or not math.isfinite(number) or number != int(number):
            raise ValueError
        if not least <= number <= MOST_SAMPLES:
            raise ValueError
    except (ValueError, OverflowError):
        found.add((*path, key), f"is {shown(given)}; a whole number from {least} is needed")
        return None
    return int(number)


def _name(key: Any) -> str:
    return key if isinstance(key, str) else shown(key)
