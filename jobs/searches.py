"""What a search found, as the stages of a run hold it: for the tables of `corpusmill mix ...` and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from corpusmill.pipeline.engine.files import part_name
from corpusmill.pipeline.errors import InputError, RecipeError
from corpusmill.pipeline.recipe import Recipe

if TYPE_CHECKING:
    from corpusmill.mixing.records import Record
    from corpusmill.pipeline.run import Run

Found = dict[str, Any]

STEPS = {
    "stats": "stats",
    "design": "design",
    "run": "runs",
    "fit": "fit",
    "propose": "propose",
    "verify": "verify",
}
"""Verb of `corpusmill mix` -> the engine's stage below `mix`."""


def search_stage(recipe: Recipe) -> str:
    """The name of the recipe's mix stage with a search."""
    spec = recipe.stages[-1]
    if spec.key != "mix" or spec.config.search is None:
        raise RecipeError(
            "the recipe searches no weights: its last stage has to be `- mix: {search: {}}` (docs/mixing.md)"
        )
    return spec.name


def stage_of(recipe: Recipe, verb: str) -> str:
    """The last stage that a verb runs; with two rounds all runs are made before a fit."""
    stages = {**STEPS, "run": "runs2"} if recipe.stages[-1].config.search.rounds > 1 else STEPS
    return f"{search_stage(recipe)}.{stages[verb]}"


def file_of_stage(run: Run, stage: str, name: str) -> Any:
    state = run.state.stage(stage)
    if state is None:
        raise InputError(f"{run.out} has no stage {stage}; run the command again")
    return json.loads((run.out / state.folder / name).read_bytes())


def read_stats(run: Run, name: str) -> Found:
    stage = f"{name}.stats"
    names = ("study.json", "places.json", "told.json")
    return {key: value for name in names for key, value in file_of_stage(run, stage, name).items()}


def read_design(run: Run, name: str) -> Found:
    """All that is designed so far: a second round holds the first."""
    last = [each for each in ("design", "design2") if run.state.stage(f"{name}.{each}")][-1:]
    found: Found = file_of_stage(run, f"{name}.{last[0] if last else 'design'}", "design.json")
    return found


def records_of(run: Run, stage: str) -> list[Record]:
    """What the runs of a stage said."""
    from corpusmill.mixing.records import decode_records

    state = run.state.stage(stage)
    assert state is not None  # the recipe has been run beyond it
    folder = run.out / state.folder
    return [
        record
        for unit in sorted(run.manifest(stage).results)
        for record in decode_records((folder / part_name(unit)).read_bytes(), stage)
    ]


def records_of_design(run: Run, name: str) -> list[Record]:
    """Of one round or of both."""
    stages = [f"{name}.{each}" for each in ("runs", "runs2") if run.state.stage(f"{name}.{each}")]
    return [record for stage in stages for record in records_of(run, stage)]


def read_records_of(run: Run, name: str) -> Found:
    rows = [
        {
            "run": record.run,
            "seed": record.seed,
            "target": record.target,
            "bits_per_byte": record.bits_per_byte,
            "realised_tokens": list(record.realised_tokens),
        }
        for record in records_of_design(run, name)
    ]
    return {"records": rows}


def read_fit(run: Run, name: str) -> Found:
    found: Found = file_of_stage(run, f"{name}.fit", "fit.json")
    return found


def read_proposal(run: Run, name: str) -> Found:
    study = read_stats(run, name)
    budget = study["budget_tokens"]
    tokens = {each["name"]: each["tokens"] for each in study["components"]}
    found: Found = file_of_stage(run, f"{name}.propose", "proposal.json")
    return {**found, "epochs_of": {each: budget / tokens[each] for each in found["components"]}}


def read_verdict(run: Run, name: str) -> Found:
    found: Found = file_of_stage(run, f"{name}.verify", "verdict.json")
    return found


READ: dict[str, Callable[[Run, str], Found]] = {
    "stats": read_stats,
    "design": read_design,
    "run": read_records_of,
    "fit": read_fit,
    "propose": read_proposal,
    "verify": read_verdict,
}
