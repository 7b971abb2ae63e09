"""`corpusmill ablate`: two recipes as one whose last stage compares them (mixing/ablation.py), and its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from corpusmill.jobs.tables import interval, table_lines
from corpusmill.mixing.ablation import NO_PART, Ablate
from corpusmill.mixing.ablation_verdict import read_ablation
from corpusmill.mixing.caps import MANY_EPOCHS
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.recipe import Recipe, StageSpec, canonical_stage
from corpusmill.pipeline.run import Run

STAGE = "ablate"


def ablation_recipe(a: Recipe, b: Recipe, how: Ablate) -> Recipe:
    """The stages that both begin with are its own, the others are of `how`. RecipeError where they are not about the same documents."""
    for key in ("seed", "partition_bytes"):
        if getattr(a, key) != getattr(b, key):
            raise RecipeError(
                f"{key} is {getattr(a, key)} in one recipe and {getattr(b, key)} in the other: an ablation needs the same documents"
            )
    if a.inputs != b.inputs:
        raise RecipeError(
            "the recipes have different inputs: an ablation needs the same; --input gives both theirs"
        )
    first, second = ([stage for stage in each.stages if stage.key not in ("shard", "mix")] for each in (a, b))
    if canonical_stage(first[0]) != canonical_stage(second[0]):
        raise RecipeError(
            "the recipes extract differently: an ablation compares what is done with the same documents; give both the same extract"
        )
    for stage in (*first, *second):
        if stage.key in NO_PART[1:]:
            raise RecipeError(f"{stage.name}: a recipe with the stage {stage.key} cannot be ablated")
    count = _shared(first, second)
    config = replace(
        how,
        a=tuple(canonical_stage(stage) for stage in first[count:]),
        b=tuple(canonical_stage(stage) for stage in second[count:]),
    )
    return replace(
        a,
        stages=(*first[:count], StageSpec(STAGE, STAGE, config)),
        max_drop=max(a.max_drop, b.max_drop),
        max_error_rate=max(a.max_error_rate, b.max_error_rate),
    )


def _shared(first: Sequence[StageSpec], second: Sequence[StageSpec]) -> int:
    """How many stages both begin with."""
    pairs = zip(first, second, strict=False)
    same = [canonical_stage(one) == canonical_stage(other) for one, other in pairs]
    return same.index(False) if False in same else len(same)


def read_result(run: Run) -> dict[str, Any]:
    """Of a run whose last stage compares recipes."""
    return read_ablation(run.out / run.state.stages[-1].folder)


def ablation_lines(found: Mapping[str, Any]) -> list[str]:
    """The recipes, the gain on each target, the verdict."""
    recipes = [
        {
            "recipe": name,
            "keeps": f"{each['documents']:,} documents",
            "to train on": f"{each['tokens']:,} tokens",
            "trained on": f"{each['trained_tokens']:,} tokens",
            "epochs": f"{each['epochs']:.2f}",
        }
        for name, each in found["recipes"].items()
    ]
    targets = [
        {
            "target": each["target"],
            "documents": f"{each['documents']:,}",
            "A": f"{each['A']:.4f}",
            "B": f"{each['B']:.4f}",
            "gain of B": interval(each["gain"], each["low"], each["high"]),
            "": "" if each["counts"] else "watched",
        }
        for each in found["targets"]
    ]
    total = found["gain"]
    counted = [
        {
            "target": "all that count",
            "documents": f"{total['documents']:,}",
            "A": f"{total['A']:.4f}",
            "B": f"{total['B']:.4f}",
            "gain of B": interval(total["gain"], total["low"], total["high"]),
            "": "",
        }
    ]
    often = [
        f"{name} read its text {each['epochs']:.1f} times: beyond {MANY_EPOCHS} that costs; give fewer tokens or more documents"
        for name, each in found["recipes"].items()
        if each["epochs"] > MANY_EPOCHS
    ]
    return [
        *table_lines(recipes, False),
        f"both keep {found['kept_by_both']:,} documents",
        *often,
        "",
        *table_lines([*targets, *counted], False),
        f"bits per byte (lower is better) and 95 % intervals over {found['seeds']} seeds and the documents",
        "",
        f"verdict: {found['verdict']}: {found['reason']}",
    ]
