"""The mixture file: weights for people, with what they rest on; compiled into the stream's plan.json.

    schema: corpusmill/mixture/v1
    id: sha256:...                  of all that follows, as canonical JSON
    unit: tokens
    tokenizer: sha256:...
    budget_tokens: 2000000000000
    seed: 17
    exhaust: repeat                 stop: the stream ends where a component is used up; redistribute: its weight goes to the others
    components:
      web: {hash: sha256:..., available_tokens: 310000000000, max_epochs: 4}
      stories: {hash: sha256:..., available_tokens: 9000000000, max_epochs: 2, synthetic: generated, generation: 1}
    phases:
      - {from: 0, ramp: 0, weights_ppb: {web: 700000000, books: 300000000}}      # from: absolute sample
    derived: {samples: 976562500, epochs: {web: 4.5161, ...}}
    evidence: {verdict: baseline, weights: unimax}

A file written by hand needs `phases` alone, with `weights_ppb` or with shares called `weights`; what else it states is checked, and
all that is wrong is said at once, each with its line (mixture_check.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from corpusmill.mixing.mixture_check import SCHEMA, Exhaust, Findings, Given, Kind, check_mixture
from corpusmill.pipeline.engine.results import canonical
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.registry import shown
from corpusmill.shards.layout import Manifest
from corpusmill.shards.plan import Plan

__all__ = ["Exhaust", "Given", "Kind", "decode_mixture", "encode_mixture", "load_mixture"]

MOST_BYTES = 16 << 20
"""Of a mixture file; 10,000 components in ten phases take some 5 MB."""


def encode_mixture(
    plan: Plan,
    manifests: Mapping[str, Manifest],
    budget_tokens: int | None,
    exhaust: Exhaust,
    evidence: dict[str, Any],
    kinds: Mapping[str, Kind] | None = None,
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
                **(kinds[component.name].stated() if kinds and component.name in kinds else {}),
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
    """Checked against the components at hand; RecipeError names all that is wrong, each with its line."""
    value, found = _opened(text, where)
    given = check_mixture(value, manifests, found)
    found.need_none()
    assert given is not None  # something would have been found
    return given


def load_mixture(text: str, where: str) -> None:
    """The same as far as it can be told without the shards."""
    value, found = _opened(text, where)
    check_mixture(value, None, found)
    found.need_none()


def _opened(text: str, where: str) -> tuple[dict[str, Any], Findings]:
    """The file as a mapping of this version, and what is wrong with it as a whole: one that carries an id must be what the id was made of."""
    from corpusmill.pipeline.strict_yaml import read_with_lines

    if len(text) > MOST_BYTES:
        raise RecipeError(f"{where}: {len(text):,} characters; a mixture file has up to {MOST_BYTES:,}")
    value, lines = read_with_lines(text, where)
    if not isinstance(value, dict):
        raise RecipeError(f"{where}: a mixture is a mapping with schema and phases")
    found = Findings(where, lines.of)
    if value.get("schema") != SCHEMA:
        found.add(("schema",), f"is {shown(value.get('schema'))}; this version reads {SCHEMA}")
        found.need_none()
    if value.get("id") is not None and not _fits(value):
        found.add(
            ("id",),
            "edited since it was written (its id does not fit); remove id and derived to use it as your own",
        )
    return value, found


def _fits(value: Mapping[str, Any]) -> bool:
    try:
        found = _id_of({key: value[key] for key in value if key not in ("schema", "id")})
    except (TypeError, ValueError):  # dates, names that are numbers: nothing that was ever written
        return False
    return bool(value["id"] == found)


def _id_of(content: Mapping[str, Any]) -> str:
    return f"sha256:{hashlib.sha256(canonical(content)).hexdigest()}"
