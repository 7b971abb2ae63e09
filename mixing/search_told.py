"""What a search is told of its components: kinds by components.json (shards/about.py) and by the recipe's own words, which have to agree.

Synthetic components are compared with natural text in samples of tokens, whole documents of up to SAMPLE_TOKENS a side: 2.5 CPU seconds and
55 MB beside the libraries for each (drawn tokens, 2,000 pieces), whatever its size. Natural text is that of the components which agree with it in all that tells components but source
and kind (the same topic, the same language); where there are none, all that is natural, each component by its share.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from corpusmill.mixing.search import ComponentOptions
from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.engine.stage import Inputs
from corpusmill.pipeline.errors import InputError, RecipeError
from corpusmill.pipeline.kinds import Synthetic
from corpusmill.shards.about import COMPONENTS_FILE
from corpusmill.shards.components import SYNTHETIC

SAMPLE_TOKENS = 400_000
"""Of each side: half as much again as the pieces hold that are compared."""

DIGITS = (
    4  # of figures that come of arithmetic on floats, which another kind of CPU does otherwise in later ones
)


@dataclass(frozen=True)
class Told:
    """Of one component: the values that tell it, what it is, and how copied its text was (None: no dedup said)."""

    values: Mapping[str, str]
    synthetic: Synthetic
    generation: int
    protected: bool
    clusters: Mapping[str, float] | None


def told_of(inputs: Inputs, about: str, options: Mapping[str, ComponentOptions]) -> dict[str, Told]:
    """By name; RecipeError where the recipe's search says another kind than its inputs."""
    path = inputs.root / inputs.folder(about) / COMPONENTS_FILE
    found = json.loads(path.read_bytes())["components"]
    return {name: _agreed(name, each, options.get(name, ComponentOptions())) for name, each in found.items()}


def _agreed(name: str, said: Mapping[str, Any], options: ComponentOptions) -> Told:
    """Inputs that say nothing may be natural or not: then the search's word counts."""
    told = Told(said["values"], said["synthetic"], said["generation"], said["protected"], said["clusters"])
    if said["synthetic"] == "none":
        synthetic = options.synthetic or "none"
        generation = int(synthetic != "none") if options.generation is None else options.generation
        told = replace(told, synthetic=synthetic, generation=generation)
    for key in ("synthetic", "generation", "protected"):
        asked, known = getattr(options, key), getattr(told, key)
        if key == "protected" and asked and not known:
            told = replace(told, protected=True)
        elif asked is not None and asked != known:
            raise RecipeError(
                f"mix.search.components.{name}: {key} is {_yaml(asked)}, but the recipe's inputs say {_yaml(known)}: leave it out here, or change it there"
            )
    return told


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def beside(name: str, told: Mapping[str, Told]) -> list[str]:
    """The natural components that a synthetic one is compared with."""
    natural = [other for other, each in sorted(told.items()) if each.synthetic == "none"]
    same = [other for other in natural if _aspects(told[other]) == _aspects(told[name])]
    return same or natural


def _aspects(told: Told) -> dict[str, str]:
    return {column: value for column, value in told.values.items() if column not in ("source", SYNTHETIC)}


def compared(place: Place, others: Mapping[str, tuple[Place, int]], seed: int) -> dict[str, Any]:
    """Distance of the component in `place` from text of `others` (folder and tokens of each), or why it cannot be told."""
    from corpusmill.mixing.synthetic import distance
    from corpusmill.mixing.texts import first_documents, open_component

    total = sum(tokens for _, tokens in others.values())
    natural = [
        document
        for folder, tokens in others.values()
        for document in first_documents(
            open_component(folder), max(1, SAMPLE_TOKENS * tokens // total)
        ).tokens
    ]
    synthetic = first_documents(open_component(place), SAMPLE_TOKENS).tokens
    try:
        found = distance(natural, synthetic, seed)
    except InputError as error:
        return {"unknown": str(error)}
    return {
        "pieces": found.pieces,
        "auc": {"synthetic": round(found.auc, DIGITS), "natural": round(found.natural_auc, DIGITS)},
        **{
            key: {side: _rounded(getattr(getattr(found, side), key)) for side in ("synthetic", "natural")}
            for key in ("distinct", "self_repetition")
        },
    }


def _rounded(value: float | tuple[float, ...]) -> float | list[float]:
    return [round(each, DIGITS) for each in value] if isinstance(value, tuple) else round(value, DIGITS)
