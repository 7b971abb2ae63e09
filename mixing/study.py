"""The words of a search for weights, as values: what is weighed, what is measured, which runs are made.

    Component    gets a weight
    Target       a validation set with a loss
    Proxy        what is trained in place of the model
    DesignRun    one proxy to train: on one mixture, with one seed
    Design       the list of runs, over named components (mixing/design.py makes it)

All are read and written as canonical JSON: equal values are equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.engine.results import canonical
from corpusmill.pipeline.engine.store import hash_bytes
from corpusmill.pipeline.errors import InputError, RecipeError
from corpusmill.pipeline.kinds import Synthetic
from corpusmill.pipeline.registry import build
from corpusmill.shards.mixture import PPB

Floats = npt.NDArray[np.float64]

ProxyKind = Literal["screen", "decoder", "command"]

Role = Literal["anchor", "repeat", "without", "more", "spread", "fill", "second", "verify"]
"""Why a run is in a design: a baseline, the same again with another seed, a component left out or boosted, drawn around the prior,
put where no other is, asked for by a first fit, or a candidate against baselines."""


@dataclass(frozen=True)
class Component:
    """What gets a weight. `hash` is of its manifest, so that evidence is about content and not about a name.

    `max_epochs`: how often it may be read; `generation`: of synthetic text, 1 where natural text was rephrased or prompted from,
    one more for each model between; `least` and `most`: shares of the mixture.
    """

    name: str
    hash: str
    tokens: int
    bytes: int
    rows: int
    max_epochs: float = 4.0
    synthetic: Synthetic = "none"
    generation: int = 0
    protected: bool = False
    least: float = 0.0
    most: float = 1.0


@dataclass(frozen=True)
class Target:
    """A validation set. `weight`: its importance, 0 for one that is watched only; `worsening`: bits per byte that it may get worse
    than with the best baseline, None for any; a protected one may not get worse beyond its interval."""

    name: str
    weight: float = 1.0
    worsening: float | None = None
    protected: bool = False
    bytes: int = 0
    tokens: int = 0

    @property
    def allowed(self) -> float | None:
        """How much worse it may get, in bits per byte; None: anything."""
        return 0.0 if self.worsening is None and self.protected else self.worsening


@dataclass(frozen=True)
class Proxy:
    """What is trained in place of the model. `screen`: n-gram counts that have learnt from `learnt` tokens (mixing/screen.py);
    `decoder`: a small model of a size by name, trained on `tokens` (mixing/proxy.py); `command`: any other trainer (mixing/command.py), which
    is told `tokens`; give it another `name` when its program changes, since of that only the line is known."""

    kind: ProxyKind = "screen"
    learnt: int = 10_000
    size: str | None = None
    tokens: int | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    command: str | None = None
    name: str | None = None

    @property
    def title(self) -> str:
        """For people and for the files of trials; of its own for all that differ."""
        if self.kind == "screen":
            return f"screen {self.learnt}"
        if self.kind == "command":
            return f"{self.name or 'command'} {self.tokens}"
        return f"{self.size} {self.tokens}" + (" cuda" if self.device == "cuda" else "")

    @property
    def hash(self) -> str:
        """All that makes it another proxy: losses compare only where it is equal."""
        return hash_bytes(canonical(asdict(self)))

    def times(self, factor: int) -> Proxy:
        """The same that has learnt from more."""
        return replace(self, learnt=factor * self.learnt, tokens=self.tokens and factor * self.tokens)

    def check(self, where: str) -> None:
        """RecipeError for fields that do not go together, and for what is not installed."""
        given = {key for key in ("size", "tokens", "command", "name") if getattr(self, key) is not None}
        given |= {"device"} if self.device != "cpu" else set()
        if wrong := sorted(given - TAKES[self.kind]):
            takes = ", ".join(sorted(TAKES[self.kind] or {"learnt"}))
            raise RecipeError(f"{where}: {wrong[0]} does not go with kind: {self.kind}, which has {takes}")
        if self.kind == "screen" and self.learnt < 1:
            raise RecipeError(f"{where}: learnt is {self.learnt}; at least 1 token is needed")
        if self.kind == "command":
            from corpusmill.mixing.command import Command
            from corpusmill.mixing.proxy import Training

            if self.command is None or self.tokens is None:
                raise RecipeError(
                    f"{where}: a command needs its line and tokens, like"
                    ' {kind: command, command: "train.sh {mixture} {seed} {out}", tokens: 20000000}'
                )
            Training(None, self.tokens)
            Command(self.command)
        if self.kind == "decoder":
            from corpusmill.mixing.proxy import Training

            if self.size is None or self.tokens is None:
                raise RecipeError(
                    f"{where}: a decoder needs size and tokens, like {{kind: decoder, size: 1M, tokens: 20000000}}"
                )
            Training(self.size, self.tokens)
            if find_spec("torch") is None:
                raise RecipeError(f"{where}: decoders need torch: pip install 'corpusmill[train]'")


TAKES: Mapping[ProxyKind, set[str]] = {
    "screen": set(),
    "decoder": {"size", "tokens", "device"},
    "command": {"command", "name", "tokens"},
}
"""Fields that a kind of proxy has beside `learnt`, which is the screen's."""


@dataclass(frozen=True)
class DesignRun:
    """One proxy run; `name` is its own in the design. Runs of equal seed share model and order: they compare in pairs."""

    index: int
    role: Role
    name: str
    weights_ppb: tuple[int, ...]
    seed: int

    def weights(self) -> Floats:
        return np.array(self.weights_ppb) / PPB


@dataclass(frozen=True)
class Design:
    """Runs over components, whose order is that of every run's weights. `notes`: what could not be had, for people."""

    components: tuple[str, ...]
    runs: tuple[DesignRun, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = set()
        for place, run in enumerate(self.runs):
            where = f"design: run {run.name!r}"
            if run.index != place or run.name in names:
                raise RecipeError(f"{where}: runs are numbered from 0 and named once")
            if len(run.weights_ppb) != len(self.components) or min(run.weights_ppb) < 0:
                raise RecipeError(f"{where}: a weight from 0 is needed for each of {len(self.components)}")
            if sum(run.weights_ppb) != PPB:
                raise RecipeError(f"{where}: weights add up to {sum(run.weights_ppb)}, not {PPB}")
            names.add(run.name)

    def mixtures(self) -> dict[tuple[int, ...], str]:
        """Weights -> the name of their first run."""
        found: dict[tuple[int, ...], str] = {}
        for run in self.runs:
            found.setdefault(run.weights_ppb, run.name)
        return found

    def run(self, name: str) -> DesignRun:
        return next(run for run in self.runs if run.name == name)


def encode(value: Component | Target | DesignRun | Design) -> bytes:
    """Canonical JSON."""
    return canonical(asdict(value))


def decode_design(data: bytes, where: str) -> Design:
    """InputError for what is no JSON, RecipeError for what is no design; both name `where`."""
    found: Design = build(Design, _mapping(data, where), where)
    return found


def encode_study(components: Sequence[Component], targets: Sequence[Target]) -> bytes:
    """What a search is about, both in order of names."""
    return canonical(
        {
            "components": [asdict(each) for each in sorted(components, key=lambda each: each.name)],
            "targets": [asdict(each) for each in sorted(targets, key=lambda each: each.name)],
        }
    )


def decode_study(data: bytes, where: str) -> tuple[tuple[Component, ...], tuple[Target, ...]]:
    value = _mapping(data, where)
    if value.keys() != {"components", "targets"}:
        raise InputError(f"{where}: a study holds components and targets, and nothing else")
    components = tuple(build(Component, each, f"{where}: components") for each in value["components"])
    return components, tuple(build(Target, each, f"{where}: targets") for each in value["targets"])


def _mapping(data: bytes, where: str) -> Mapping[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise InputError(f"{where} is no JSON ({error})") from error
    if not isinstance(value, dict):
        raise InputError(f"{where}: a JSON object is needed")
    return value
