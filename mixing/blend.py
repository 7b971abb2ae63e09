"""A mixture for trainers that mix by themselves: Megatron's blend, OLMo-core's list of sources, olmix's `mix`.

A file a stretch of constant weights: one a phase, and up to 64 for a ramp. Weights are shares of tokens in all three: Megatron draws samples
of one length by them, OLMo-core tokens. Components without weight are left out, since Megatron takes no 0 and OLMo-core none either.

What no such file can say: none of them goes on where it stopped when the next begins. Megatron begins each data set anew, so a later
phase reads what the one before has read; our stream does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from corpusmill.pipeline.errors import RecipeError
from corpusmill.shards.mixture import PPB
from corpusmill.shards.plan import Plan


@dataclass(frozen=True)
class Source:
    """`data`: path of the component's files without their ending; `epochs`: times that the stretch reads it, None where it has no end."""

    name: str
    data: str
    weight_ppb: int
    epochs: float | None
    max_epochs: int | None

    @property
    def weight(self) -> str:
        """A decimal fraction, exact."""
        return f"{self.weight_ppb // PPB}.{self.weight_ppb % PPB:09d}"

    @property
    def repetition(self) -> float:
        """How often the trainer may read it: what is allowed, and more than it takes, lest rounding stops it."""
        return float(max(self.max_epochs or 1, math.floor(self.epochs or 0.0) + 1))


@dataclass(frozen=True)
class Blend:
    """Samples `start` to `stop` - 1 of the plan; `stop` None: to no end."""

    start: int
    stop: int | None
    sequence_length: int
    sources: tuple[Source, ...]

    @property
    def span(self) -> str:
        if self.stop is None:
            return f"samples from {self.start} on"
        return f"samples {self.start} to {self.stop - 1}"

    @property
    def tokens(self) -> int | None:
        return None if self.stop is None else (self.stop - self.start) * self.sequence_length


def blends(plan: Plan, data: Mapping[str, str], samples: int | None) -> list[Blend]:
    """The stretches of a plan that ends at `samples`; `data`: of each component, where its files are."""
    mixture = plan.mixture()
    steps = [step for step in mixture.steps if samples is None or step.start < samples]
    found = []
    for step, stop in pairwise([*steps, None]):
        assert step is not None
        end = samples if stop is None else stop.start
        counts = (
            None
            if end is None
            else [b - a for a, b in zip(mixture.counts(step.start), mixture.counts(end), strict=True)]
        )
        sources = tuple(
            Source(
                component.name,
                data[component.name],
                weight,
                None if counts is None else counts[place] / component.epoch_rows,
                component.max_epochs,
            )
            for place, (component, weight) in enumerate(zip(plan.components, step.weights, strict=True))
            if weight
        )
        found.append(Blend(step.start, end, plan.sequence_length, sources))
    return found


def megatron(blend: Blend) -> bytes:
    """For --data-args-path: words, weights and prefixes in turn; RecipeError for a path that would be two words."""
    for source in blend.sources:
        if source.data.split() != [source.data]:
            raise RecipeError(
                f"{source.data!r} has spaces, at which Megatron cuts its list of data: put the data elsewhere, or link it"
            )
    return "".join(f"{source.weight} {source.data}\n" for source in blend.sources).encode()


def olmo_core(blend: Blend) -> bytes:
    """For SourceMixtureList.from_yaml. The .bin of a Megatron export is what OLMo-core reads: token ids end to end, nothing else."""
    sources = [
        {
            "source_name": source.name,
            "target_ratio": float(source.weight),
            "paths": [f"{source.data}.bin"],
            "max_repetition_ratio": source.repetition,
        }
        for source in blend.sources
    ]
    return _yaml(blend, {"sources": sources})


def olmix(blend: Blend) -> bytes:
    """The `mix` of a launch file."""
    mix = {
        source.name: {"weight": float(source.weight), "repetition_factor": source.repetition}
        for source in blend.sources
    }
    return _yaml(blend, {"mix": mix})


def _yaml(blend: Blend, value: Mapping[str, Any]) -> bytes:
    import yaml

    tokens = "" if blend.tokens is None else f", {blend.tokens} tokens"
    head = f"# {blend.span} of {blend.sequence_length} tokens{tokens}\n"
    return (head + str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000))).encode()


@dataclass(frozen=True)
class Format:
    """`name` of the file of a stretch, with its number for `{}`."""

    name: str
    encode: Callable[[Blend], bytes]
    use: str  # how a trainer is given it


FORMATS = {
    "megatron": Format("blend-{}.txt", megatron, "--data-args-path"),
    "olmo-core": Format("sources-{}.yaml", olmo_core, "SourceMixtureList.from_yaml"),
    "olmix": Format("mix-{}.yaml", olmix, "mix: of a launch file"),
}
