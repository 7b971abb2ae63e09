"""What OUT says of itself: `recipe.yaml` (the whole recipe with defaults) and `run.json` (the layers in force)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from corpusmill.pipeline.engine.fingerprint import differences
from corpusmill.pipeline.engine.place import Place, Where, place_of
from corpusmill.pipeline.engine.stage import InputFile
from corpusmill.pipeline.errors import InputError, RecipeError

RUN = "run.json"
RECIPE = "recipe.yaml"
BUDGET = "max_error_rate"
"""Key of a stage of the recipe that no byte depends on."""


@dataclass(frozen=True)
class StageState:
    """A stage in force: where it lies, what it is, and what a reader needs to join it."""

    name: str
    kind: str  # documents, measure, edit, judge, ledger, set
    folder: str
    fingerprint: str
    content: str
    own: dict[str, Any]
    text: list[str] = field(default_factory=list)
    ledger: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class State:
    """The content of run.json. `complete` is False while stages of the recipe are still to run."""

    inputs: list[dict[str, Any]]
    stages: list[StageState]
    seed: int
    complete: bool

    def stage(self, name: str) -> StageState | None:
        return next((stage for stage in self.stages if stage.name == name), None)


def describe_inputs(files: Sequence[InputFile]) -> list[dict[str, Any]]:
    """What identifies the inputs, free of where they lie."""
    return [
        {"source": f.source, "relative": f.relative, "size_bytes": f.size_bytes, "identity": f.identity}
        for f in files
    ]


def read_state(out: Where) -> State | None:
    """None when nothing was run here."""
    path = place_of(out) / RUN
    try:
        value = json.loads(path.read_latest())
        stages = [StageState(**stage) for stage in value["stages"]]
        return State(value["inputs"], stages, value["seed"], value["complete"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise _damaged(path) from None


def need_state(out: Where) -> State:
    """The state of a run, or an error that says what to do."""
    state = read_state(out)
    if state is None:
        raise InputError(f"{out} holds no run (no {RUN}): make one with `corpusmill run RECIPE --out {out}`")
    return state


def write_state(out: Where, state: State) -> None:
    data = json.dumps(asdict(state), indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"
    (place_of(out) / RUN).put(data)


def read_recipe(out: Where) -> dict[str, Any] | None:
    from corpusmill.pipeline.strict_yaml import read_yaml

    path = place_of(out) / RECIPE
    try:
        value = read_yaml(path.read_latest(), str(path))
    except FileNotFoundError:
        return None
    except RecipeError:
        raise _damaged(path) from None
    if not isinstance(value, dict) or not {"seed", "partition_bytes", "stages"} <= value.keys():
        raise _damaged(path)
    return value


def _damaged(path: Place) -> InputError:
    return InputError(
        f"{path} is damaged: delete it and run the same command again; all that stands is reused"
    )


def write_recipe(out: Where, recipe: dict[str, Any]) -> None:
    import yaml

    (place_of(out) / RECIPE).put(yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True).encode())


def is_continuation(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """One stage list begins with the other and all else but inputs and budgets is equal: nothing would be mixed with another recipe."""
    before, after = _stages(old), _stages(new)
    shorter = min(len(before), len(after))
    same = all(old[key] == new[key] for key in ("seed", "partition_bytes"))
    return same and before[:shorter] == after[:shorter]


def _stages(recipe: dict[str, Any]) -> list[dict[str, dict[str, Any]]]:
    """The stages without their budgets, which change no byte."""
    return [
        {
            key: {name: value for name, value in fields.items() if name != BUDGET}
            for key, fields in stage.items()
        }
        for stage in recipe["stages"]
    ]


def recipe_differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Lines that name each changed key, stages by their names."""

    def named(recipe: dict[str, Any]) -> dict[str, Any]:
        stages = {fields["name"]: {key: fields} for stage in _stages(recipe) for key, fields in stage.items()}
        return {
            "seed": recipe["seed"],
            "partition_bytes": recipe["partition_bytes"],
            "order": list(stages),
            **stages,
        }

    return differences(named(old), named(new))


def input_differences(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[str]:
    """Files that came, went or changed (at most ten lines)."""
    before = {(item["source"], item["relative"]): item for item in old}
    after = {(item["source"], item["relative"]): item for item in new}
    lines = [f"input gone: {key[1]} ({key[0]})" for key in before if key not in after]
    lines += [f"input new: {key[1]} ({key[0]})" for key in after if key not in before]
    lines += [
        f"input changed: {key[1]} ({key[0]})" for key in after if key in before and before[key] != after[key]
    ]
    return lines if len(lines) <= 10 else [*lines[:10], f"... and {len(lines) - 10} more"]


def changes(
    recipe: dict[str, Any],
    new: dict[str, Any],
    old: State | None,
    inputs: list[dict[str, Any]],
    own: Mapping[str, dict[str, Any]],
) -> list[str]:
    """What differs between what stands and what is asked: recipe, inputs, and if both are equal, models and library versions."""
    lines = [] if is_continuation(recipe, new) else recipe_differences(recipe, new)
    if old is not None:
        lines += input_differences(old.inputs, inputs)
        if not lines:
            same = [stage for stage in old.stages if stage.name in own]
            lines = [line for stage in same for line in differences(stage.own, own[stage.name], stage.name)]
    return lines


def refuse_other_recipe(out: Where, lines: list[str]) -> None:
    """No silent mixing: raise when the lines that say what differs are not empty."""
    if lines:
        listed = "\n  ".join(lines)
        raise RecipeError(
            f"{out} was made with another recipe:\n  {listed}\nadd --update to accept the change (what still fits is reused), or choose another --out"
        )
