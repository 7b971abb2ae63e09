"""The mixture file: weights for people, with what they rest on; compiled into the stream's plan.json.

    schema: corpusmill/mixture/v1
    id: sha256:...                  of all that follows, as canonical JSON
    unit: tokens
    tokenizer: sha256:...
    budget_tokens: 2000000000000
    seed: 17
    exhaust: repeat
    components:
      web: {hash: sha256:..., available_tokens: 310000000000, max_epochs: 4}
    phases:
      - {from: 0, ramp: 0, weights_ppb: {web: 700000000, books: 300000000}}      # from: absolute sample
    derived: {samples: 976562500, epochs: {web: 4.5161, ...}}
    evidence: {verdict: baseline, weights: unimax}

A file written by hand needs `phases` alone, with `weights_ppb` or with shares called `weights`; what else it states is checked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from corpusmill.mixing.weights import in_ppb, manual
from corpusmill.pipeline.engine.results import canonical
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.registry import suggestion
from corpusmill.shards.layout import Manifest
from corpusmill.shards.mixture import PPB
from corpusmill.shards.plan import Phase, Plan

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
COMPONENT_KEYS = ("hash", "available_tokens", "max_epochs")

Exhaust = Literal["repeat", "stop"]


@dataclass(frozen=True)
class Given:
    """What a mixture file asks for; None where it leaves the choice to the recipe."""

    phases: tuple[Phase, ...]
    budget_tokens: int | None
    seed: int | None
    exhaust: Exhaust | None
    max_epochs: dict[str, int]
    evidence: dict[str, Any]


def encode_mixture(
    plan: Plan,
    manifests: Mapping[str, Manifest],
    budget_tokens: int | None,
    exhaust: Exhaust,
    evidence: dict[str, Any],
) -> bytes:
    """The file of a compiled plan. The same bytes for the same plan."""
    import yaml

    counts = plan.mixture().counts(plan.samples) if plan.samples is not None else None
    names = [component.name for component in plan.components]
    content = {
        "unit": "tokens",
        "tokenizer": f"sha256:{next(iter(manifests.values())).tokenizer_sha256}",
        "budget_tokens": budget_tokens,
        "seed": plan.seed,
        "exhaust": exhaust,
        "components": {
            component.name: {
                "hash": f"sha256:{component.manifest}",
                "available_tokens": manifests[component.name].tokens,
                "max_epochs": component.max_epochs,
            }
            for component in plan.components
        },
        "phases": [
            {"from": phase.start, "ramp": phase.ramp, "weights_ppb": phase.weights_ppb}
            for phase in plan.phases
        ],
        "derived": {
            "samples": plan.samples,
            "epochs": None
            if counts is None
            else {
                name: round(count / component.epoch_rows, 4)
                for name, count, component in zip(names, counts, plan.components, strict=True)
            },
        },
        "evidence": evidence,
    }
    value = {"schema": SCHEMA, "id": _id_of(content), **content}
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000)).encode()


def decode_mixture(text: str, manifests: Mapping[str, Manifest], where: str) -> Given:
    """Checked against the components at hand; RecipeError names the place and what would be right."""
    value = load_mixture(text, where)
    _check_statements(value, manifests, where)
    phases = value.get("phases")
    if not isinstance(phases, list) or not phases:
        raise RecipeError(
            f"{where}: phases: a list is needed, like [{{from: 0, weights: {{{next(iter(manifests))}: 1.0}}}}]"
        )
    components = value.get("components") or {}
    return Given(
        phases=tuple(
            _phase(phase, manifests, f"{where}: phases.{place}") for place, phase in enumerate(phases)
        ),
        budget_tokens=_whole(value.get("budget_tokens"), f"{where}: budget_tokens"),
        seed=_whole(value.get("seed"), f"{where}: seed"),
        exhaust=value.get("exhaust"),
        max_epochs={
            name: most
            for name, stated in components.items()
            if (most := _whole(stated.get("max_epochs"), f"{where}: components.{name}.max_epochs"))
            is not None
        },
        evidence=value["evidence"] if "id" in value and "evidence" in value else {"verdict": "manual"},
    )


def load_mixture(text: str, where: str) -> dict[str, Any]:
    """The file as a mapping with known keys; one that carries an id must still be what the id was made of."""
    from corpusmill.pipeline.strict_yaml import read_yaml

    value = read_yaml(text, where)
    if not isinstance(value, dict):
        raise RecipeError(f"{where}: a mixture is a mapping with schema and phases")
    for key in value:
        if key not in KEYS:
            raise RecipeError(f"{where}: {key}: unknown key; {suggestion(str(key), KEYS)}")
    if value.get("schema") != SCHEMA:
        raise RecipeError(f"{where}: schema is {value.get('schema')!r}; this version reads {SCHEMA}")
    if value.get("id") is not None and not _fits(value):
        raise RecipeError(
            f"{where}: edited since it was written (its id does not fit); remove id and derived to use it as your own"
        )
    return value


def _fits(value: Mapping[str, Any]) -> bool:
    try:
        found = _id_of({key: value[key] for key in value if key not in ("schema", "id")})
    except (TypeError, ValueError):  # dates, names that are numbers: nothing that was ever written
        return False
    return bool(value["id"] == found)


def _id_of(content: Mapping[str, Any]) -> str:
    return f"sha256:{hashlib.sha256(canonical(content)).hexdigest()}"


def _check_statements(value: dict[str, Any], manifests: Mapping[str, Manifest], where: str) -> None:
    """Tokenizer, unit and components that the file states must be those at hand."""
    tokenizer = f"sha256:{next(iter(manifests.values())).tokenizer_sha256}"
    if value.get("tokenizer", tokenizer) != tokenizer:
        raise RecipeError(
            f"{where}: tokenizer is {value['tokenizer']}, these shards were made with {tokenizer}: weights do not carry over"
        )
    if value.get("unit", "tokens") != "tokens":
        raise RecipeError(f"{where}: unit is {value['unit']!r}; only tokens can be weighed")
    if value.get("exhaust") not in (None, "repeat", "stop"):
        raise RecipeError(f"{where}: exhaust is {value['exhaust']!r}; it can be repeat or stop")
    components = value.get("components") or {}
    if not isinstance(components, dict) or not all(
        isinstance(stated, dict) for stated in components.values()
    ):
        raise RecipeError(f"{where}: components: a mapping is needed, like {{web: {{max_epochs: 4}}}}")
    for name, stated in components.items():
        if name not in manifests:
            raise RecipeError(
                f"{where}: components: no component is called {name!r}; {suggestion(str(name), manifests)}"
            )
        for key in stated:
            if key not in COMPONENT_KEYS:
                raise RecipeError(
                    f"{where}: components.{name}: {key}: unknown key; {suggestion(str(key), COMPONENT_KEYS)}"
                )
        found = f"sha256:{manifests[name].hash}"
        if stated.get("hash", found) != found:
            raise RecipeError(
                f"{where}: components.{name}: the file was made for {stated['hash']}, these shards are {found}; drop the hash to use it"
            )


def _phase(value: Any, manifests: Mapping[str, Manifest], where: str) -> Phase:
    keys = ("name", "from", "ramp", "weights_ppb", "weights")
    if not isinstance(value, dict) or ("weights" in value) == ("weights_ppb" in value):
        raise RecipeError(
            f"{where}: a phase has from, and either weights (shares) or weights_ppb (parts in 10^9)"
        )
    for key in value:
        if key not in keys:
            raise RecipeError(f"{where}: {key}: unknown key; {suggestion(str(key), keys)}")
    start, ramp = (
        _whole(value.get("from", 0), f"{where}: from"),
        _whole(value.get("ramp", 0), f"{where}: ramp"),
    )
    given = value.get("weights", value.get("weights_ppb"))
    if not isinstance(given, dict):
        raise RecipeError(f"{where}: weights: a mapping of components to numbers is needed")
    sizes = {name: manifest.rows for name, manifest in manifests.items()}
    if "weights" in value:
        return Phase(start or 0, in_ppb(manual(given, sizes, f"{where}: weights")), ramp or 0)
    weights = {name: _part(weight, name, sizes, where) for name, weight in given.items()}
    if sum(weights.values()) != PPB:
        raise RecipeError(f"{where}: weights_ppb add up to {sum(weights.values())}, not {PPB}")
    return Phase(start or 0, {name: weights.get(name, 0) for name in sorted(sizes)}, ramp or 0)


def _part(weight: Any, name: str, known: Mapping[str, int], where: str) -> int:
    if name not in known:
        raise RecipeError(f"{where}: no component is called {name!r}; {suggestion(str(name), known)}")
    if type(weight) is not int or weight < 0:
        raise RecipeError(f"{where}: the weight of {name} is {weight!r}; whole parts in 10^9 are needed")
    return weight


def _whole(value: Any, where: str) -> int | None:
    """A whole number from 0, also as 2e12 (which YAML reads as text or a float)."""
    if value is None:
        return None
    try:
        number = float(value) if isinstance(value, str | float) else value
        if type(number) is bool or number != int(number) or number < 0:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise RecipeError(f"{where} is {value!r}; a whole number from 0 is needed") from None
    return int(number)
