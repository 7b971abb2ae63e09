"""A run's claim on OUT: the recipe under which it may write there, what was in force before, and run.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from corpusmill.pipeline.engine import state as states
from corpusmill.pipeline.engine.fingerprint import differences
from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.engine.stage import Stage
from corpusmill.pipeline.errors import RunError
from corpusmill.pipeline.recipe import Recipe
from corpusmill.pipeline.rules import BOUNDS

Described = list[dict[str, Any]]
"""As `describe_inputs` gives them."""


@dataclass
class Claim:
    """`old` is the state found in OUT, `admitted` the recipe that stands there since; `keep_longer` when ours is the beginning of it."""

    out: Place
    inputs: Described
    old: states.State | None
    admitted: dict[str, Any] | None
    keep_longer: bool
    written: bool = False  # whether this run has put a run.json of its own

    def need(self) -> None:
        """Stop before this run mixes its records with those of one that was admitted after it."""
        if states.read_recipe(self.out) != self.admitted:
            raise RunError(
                f"another run with another recipe has taken over {self.out}: let it end, or choose another --out"
            )

    def save(self, state: states.State) -> None:
        """Write run.json, unless it says all this already; a shorter recipe leaves the later stages of a longer one in force."""
        if self._stands(state):
            if state.complete:
                self.need()
            return
        if self.keep_longer and self.old is not None:
            names = {stage.name for stage in state.stages}
            rest = [stage for stage in self.old.stages if stage.name not in names]
            state = replace(state, stages=[*state.stages, *rest], complete=self.old.complete)
        self.need()
        states.write_state(self.out, state)
        self.written = True

    def _stands(self, state: states.State) -> bool:
        """Whether what was found says it: a run that only finds all in place need not write at each stage how far it has come."""
        old = self.old
        if self.written or old is None or (old.inputs, old.seed) != (state.inputs, state.seed):
            return False
        whole = self.keep_longer or not state.complete
        return state.stages == (old.stages[: len(state.stages)] if whole else old.stages) and (
            old.complete or not state.complete
        )

    def why(self, stage: Stage, own: Mapping[str, Any], contents: Mapping[str, str]) -> list[str]:
        """In words, how the stage differs from the one that was in force; [] when it does not. `contents` are those of what it reads."""
        before = self.old.stage(stage.name) if self.old else None
        if self.old is None or before is None:
            return ["new"]
        lines = differences_of(before.own, own)
        if stage.name == "documents":
            lines += states.input_differences(self.old.inputs, self.inputs)
        was = {each.name: each.content for each in self.old.stages}
        return lines + [f"{name} changed" for name, content in contents.items() if was.get(name) != content]


def claim(
    out: Place, recipe: Recipe, inputs: Described, own: Mapping[str, dict[str, Any]], update: bool
) -> Claim:
    """Compare with what stands in OUT; another recipe, input or version is an error unless `update` is given."""
    new, old, standing = recipe.canonical(), states.read_state(out), states.read_recipe(out)
    lines: list[str] = []
    if standing is not None:
        lines = states.changes(standing, new, old, inputs, own)
        if not update:
            states.refuse_other_recipe(out, lines)
    keep_longer = standing is not None and not lines and len(standing["stages"]) > len(new["stages"])
    if not keep_longer and standing != new:
        states.write_recipe(out, new)
    return Claim(out, inputs, old, states.read_recipe(out), keep_longer)


def differences_of(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """How a stage's own ingredients differ; the cuts of a verdict by the reasons that the ledger has, where each has one of its own."""
    before, after = _cuts(old), _cuts(new)
    lines = differences(before, after) if before and after else []
    return [*differences(_without_cuts(old), _without_cuts(new)), *lines] if lines else differences(old, new)


def _cuts(own: Mapping[str, Any]) -> dict[str, Any]:
    """{} where two cuts share a reason: then only their places tell them apart."""
    cuts = own["fields"].get("cuts", ())
    bounds = [
        (
            f"{rule}.{cut['measure']}.{name}",
            {"bound": cut[name], "when": cut["only"]} if cut.get("only") else cut[name],
        )
        for rule, cut in cuts
        for name in BOUNDS
        if cut[name] is not None
    ]
    named = dict(bounds)
    return named if len(named) == len(bounds) else {}


def _without_cuts(own: Mapping[str, Any]) -> dict[str, Any]:
    return {**own, "fields": {name: value for name, value in own["fields"].items() if name != "cuts"}}
