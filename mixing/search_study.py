"""The first stage of a search (`mix.stats`): what is weighed, what is measured, and where both lie."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from corpusmill.mixing.caps import Caps, bounds_of
from corpusmill.mixing.constraints import Bounds
from corpusmill.mixing.design import baseline_weights
from corpusmill.mixing.held import target_hashes
from corpusmill.mixing.search import ComponentOptions, TargetOptions
from corpusmill.mixing.search_told import SAMPLE_TOKENS, Told, beside, compared, told_of
from corpusmill.mixing.study import Component, Target, decode_study, encode_study
from corpusmill.mixing.weights import manual
from corpusmill.pipeline.engine.place import Place, readable
from corpusmill.pipeline.engine.results import canonical
from corpusmill.pipeline.engine.stage import Inputs, Result, SetOperation, TaskIO, Unit
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.registry import suggestion
from corpusmill.shards.components import HOLDOUT
from corpusmill.shards.layout import Manifest, read_manifest

STUDY_FILE = "study.json"
PLACES_FILE = "places.json"
TOLD_FILE = "told.json"
"""Distances of synthetic components from natural text, and cluster sizes."""

BYTES_SAMPLE = 1_000_000
"""Tokens of a component of which the size as text is measured; that of all is in proportion."""


@dataclass(frozen=True)
class Study:
    """What the stages after `mix.stats` know of a search."""

    components: tuple[Component, ...]
    targets: tuple[Target, ...]
    slugs: Mapping[str, str]  # of components, and of targets that are held out
    paths: Mapping[str, str]  # of other targets
    budget_tokens: int
    sequence_length: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.components)

    @property
    def target_names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.targets)

    @property
    def budget_rows(self) -> int:
        return self.budget_tokens // self.sequence_length

    def bounds(self, caps: Caps) -> Bounds:
        return bounds_of(self.components, self.budget_tokens, caps)

    def baselines(self, caps: Caps, current: Mapping[str, float] | None) -> dict[str, tuple[int, ...]]:
        used = exact(self.components, current)
        return baseline_weights(self.components, self.bounds(caps), self.budget_rows, used)

    def place(self, shards: Place, name: str) -> Place:
        """Where a component or target lies; `shards` is the folder of the shards' stage."""
        return shards / self.slugs[name] if name in self.slugs else readable(self.paths[name])


def read_study(io: TaskIO, stats: str) -> Study:
    """In a worker."""
    return decode(io.read_bytes(stats, STUDY_FILE), io.read_bytes(stats, PLACES_FILE))


def decode(study: bytes, places: bytes) -> Study:
    components, targets = decode_study(study, STUDY_FILE)
    return Study(components, targets, **json.loads(places))


def exact(components: Sequence[Component], weights: Mapping[str, float] | None) -> dict[str, Fraction] | None:
    if weights is None:
        return None
    return manual(weights, {each.name: each.rows for each in components}, "mix: weights")


@dataclass(frozen=True)
class Stats(SetOperation):
    """A unit a component or target: tokens by its manifest, bytes by decoding; sealed as the study.

    One more for each synthetic component: its distance from natural text.
    """

    shards: str
    components: dict[str, ComponentOptions]
    targets: dict[str, TargetOptions]
    max_epochs: float
    budget_tokens: int | None
    epochs: float | None
    eval_tokens: int
    about: str
    seed: int

    version: ClassVar[int] = 2
    libraries: ClassVar[tuple[str, ...]] = ("tokenizers", "scikit-learn")

    def models(self) -> dict[str, str]:
        """Targets of other runs are inputs of this one: their manifests."""
        return target_hashes(
            {name: each.path for name, each in self.targets.items() if each.path is not None}
        )

    def units(self, inputs: Inputs) -> list[Unit]:
        found = self._manifests(inputs)
        training = [manifest for manifest in found if not _held(manifest)]
        known = [manifest.name for manifest in training]
        for name in self.components:
            if name not in known:
                raise RecipeError(
                    f"mix.search.components: no component is called {name!r}; {suggestion(name, known)}"
                )
        if len(training) < 2:
            raise RecipeError(
                f"mix.search: {', '.join(known)} is the only component; components.by of the shard stage can split it"
            )
        told = told_of(inputs, self.about, self.components)
        length = training[0].sequence_length
        if self.budget_tokens is not None and self.budget_tokens < length:
            raise RecipeError(f"mix: budget_tokens is {self.budget_tokens}, one sequence has {length}")
        slugs = {manifest.name: manifest.slug for manifest in training}
        held, paths = self._targets({each.name: each.slug for each in found if _held(each)}, told)
        units: list[Unit] = []
        for name, folder in {**slugs, **held, **paths}.items():
            most = BYTES_SAMPLE if name in slugs else self.eval_tokens
            where = "path" if name in paths else "slug"
            fields = {"name": name, where: folder, "most": most, "target": name not in slugs}
            units.append(Unit(len(units), 4 * most, fields))
        tokens = {manifest.name: manifest.tokens for manifest in training}
        for name in known:
            others = beside(name, told)
            if told[name].synthetic != "none" and others:
                against = {other: [slugs[other], tokens[other]] for other in others}
                fields = {"name": name, "slug": slugs[name], "against": against}
                units.append(Unit(len(units), 8 * SAMPLE_TOKENS, fields))
        return units

    def _manifests(self, inputs: Inputs) -> list[Manifest]:
        results = inputs.results(self.shards).values()
        slugs = sorted({result.extra["slug"] for result in results if "slug" in result.extra})
        root = inputs.root / inputs.folder(self.shards)
        return sorted((read_manifest(root / slug) for slug in slugs), key=lambda manifest: manifest.name)

    def _targets(
        self, there: Mapping[str, str], told: Mapping[str, Told]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Folders of held-out targets and paths of others: those that are named, or all natural text that is held out, if any is."""
        if not self.targets and not there:
            raise RecipeError(
                "mix.search: there is nothing to measure mixtures on: set holdout of the shard stage (0.01), or name targets with a path"
            )
        for name, options in self.targets.items():
            if options.path is None and name not in there:
                near = suggestion(name, there) if there else "nothing is held out"
                raise RecipeError(f"mix.search.targets: nothing that is held out is called {name!r}; {near}")
        paths = {name: options.path for name, options in self.targets.items() if options.path is not None}
        if both := sorted(set(paths) & set(told)):
            raise RecipeError(
                f"mix.search.targets: {both[0]} is the name of a component: call the target otherwise"
            )
        if self.targets:
            return {name: there[name] for name in self.targets if name not in paths}, paths
        # What a model wrote is no measure of a model, unless the recipe says so.
        synthetic = {f"{HOLDOUT}/{name}" for name, each in told.items() if each.synthetic != "none"}
        return {name: there[name] for name in there if name not in synthetic} or dict(there), paths

    def run(self, unit: Unit, io: TaskIO) -> Result:
        from corpusmill.mixing.texts import first_documents, open_component, sizes_of

        fields = unit.fields
        if "against" in fields:
            folder = io.folder(self.shards)
            others = {name: (folder / slug, tokens) for name, (slug, tokens) in fields["against"].items()}
            distance = compared(folder / fields["slug"], others, self.seed)
            return io.result(extra={"distance_of": fields["name"], "against": sorted(others), **distance})
        place = readable(fields["path"]) if "path" in fields else io.folder(self.shards) / fields["slug"]
        reader = open_component(place)
        documents = first_documents(reader, fields["most"])
        manifest = reader.manifest
        measured = {
            "hash": manifest.hash,
            "tokenizer": manifest.tokenizer_sha256,
            "sequence_length": manifest.sequence_length,
            "rows": manifest.rows,
            "tokens": manifest.tokens,
            "measured_tokens": documents.count,
            "measured_bytes": sum(sizes_of(reader, documents.tokens)),
        }
        return io.result(rows=len(documents.tokens), extra={**fields, **measured})

    def seal(self, results: Mapping[int, Result], inputs: Inputs) -> dict[str, bytes]:
        facts = {each.extra["name"]: each.extra for each in results.values() if "name" in each.extra}
        told = told_of(inputs, self.about, self.components)
        training = [manifest.name for manifest in self._manifests(inputs) if not _held(manifest)]
        self._check_tokenizers(facts, training[0])
        components = [self._component(facts[name], told[name]) for name in training]
        names = [name for name in facts if name not in training]
        targets = [self._target(facts[name]) for name in names]
        length = facts[training[0]]["sequence_length"]
        rows = sum(each.rows for each in components)
        budget = self.budget_tokens or max(1, int(rows * (self.epochs or 1))) * length
        places = {
            "slugs": {name: each["slug"] for name, each in facts.items() if "slug" in each},
            "paths": {name: each["path"] for name, each in facts.items() if "path" in each},
            "budget_tokens": budget,
            "sequence_length": length,
        }
        distances = {
            each.extra["distance_of"]: {key: each.extra[key] for key in each.extra if key != "distance_of"}
            for each in results.values()
            if "distance_of" in each.extra
        }
        clusters = {name: told[name].clusters for name in training}
        return {
            STUDY_FILE: encode_study(components, targets),
            PLACES_FILE: canonical(places),
            TOLD_FILE: canonical({"distances": distances, "clusters": clusters}),
        }

    def _check_tokenizers(self, facts: Mapping[str, dict[str, Any]], first: str) -> None:
        for name, each in facts.items():
            if each["tokenizer"] != facts[first]["tokenizer"]:
                raise RecipeError(
                    f"target {name} has tokens of another tokenizer ({each['tokenizer'][:12]}) than {first}"
                    f" ({facts[first]['tokenizer'][:12]}): shard it with the same"
                )

    def _component(self, facts: Mapping[str, Any], told: Told) -> Component:
        options = self.components.get(facts["name"], ComponentOptions())
        return Component(
            name=facts["name"],
            hash=facts["hash"],
            tokens=facts["tokens"],
            bytes=_in_proportion(facts),
            rows=facts["rows"],
            max_epochs=float(self.max_epochs if options.max_epochs is None else options.max_epochs),
            synthetic=told.synthetic,
            generation=told.generation,
            protected=told.protected,
            least=options.least,
            most=options.most,
        )

    def _target(self, facts: Mapping[str, Any]) -> Target:
        options = self.targets.get(facts["name"], TargetOptions())
        return Target(
            facts["name"],
            options.weight,
            options.worsening,
            options.protected,
            bytes=facts["measured_bytes"],
            tokens=facts["measured_tokens"],
        )


def _held(manifest: Manifest) -> bool:
    return manifest.slug.startswith(f"{HOLDOUT}/")


def _in_proportion(facts: Mapping[str, Any]) -> int:
    return int(facts["tokens"] * facts["measured_bytes"] // max(1, facts["measured_tokens"]))
