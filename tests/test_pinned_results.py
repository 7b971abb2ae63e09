"""A stage whose results change needs another `version`: what each makes of a fixed input is pinned (pin_results.py)."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from pathlib import Path

import pytest
from pin_results import Pin, advice, blamed, read_table, results_of

import corpusmill
from corpusmill.pipeline.engine.stage import Operation

ELSEWHERE = {
    "corpusmill.pipeline.extract.places:ExtractPlaces": "what an estimate's sample runs on; leaves nothing in OUT",
    "corpusmill.jobs.export:Export": "copies of what stands",
    "corpusmill.filters.topics_stage:GivenTopics": "copies of what stands",
    "corpusmill.filters.topic_labels:LabelTopics": "what a model that is given says",
    "corpusmill.mixing.ablation_sides:Sides": "of a comparison of recipes, which leaves no documents for others",
    "corpusmill.mixing.ablation_sides:WriteSide": "shards as `Write` makes them",
    **{
        f"corpusmill.mixing.{name}": "of a comparison of recipes, whose trainings are arithmetic that differs from one kind of CPU to another"
        for name in ("ablation_sides:SideLeaks", "ablation_runs:TrainSides", "ablation_verdict:Compare")
    },
    **{
        f"corpusmill.mixing.{name}": "of a search, whose fits are arithmetic that differs from one kind of CPU to another"
        for name in (
            "search_study:Stats",
            "search_leaks:Leaks",
            "search_design:MakeDesign",
            "search_design:SecondDesign",
            "search_pace:Paces",
            "search_runs:Screening",
            "search_runs:Runs",
            "search_runs:TorchRuns",
            "search_fit:Fit",
            "search_fit:Propose",
            "search_fit:Judge",
        )
    },
}
"""Operations that make no layer of a run, or whose numbers no other machine has to give."""


@pytest.mark.parametrize("name", ["crawled", "given", "hosts", "kinds", "language", "told"])
def test_results_of_a_stage_change_with_its_version_only(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if name == "language":
        request.getfixturevalue("language_model")
    pinned = {stage: pin for stage, pin in read_table().items() if stage.startswith(f"{name}/")}
    found = results_of(name, tmp_path)
    assert not (wrong := blamed(pinned, found)), advice(wrong)
    assert found == pinned, "pin the new versions with `python -m tests.pin_results`"


def test_every_operation_is_pinned() -> None:
    for package in ("pipeline", "filters", "dedup", "mixing", "shards", "jobs"):
        for module in pkgutil.walk_packages(
            [f"{corpusmill.__path__[0]}/{package}"], f"corpusmill.{package}."
        ):
            if "ray" not in module.name and "torch" not in module.name and "demo" not in module.name:
                importlib.import_module(module.name)
    waiting, classes = [Operation], set()
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("corpusmill.") and kind.__module__ != Operation.__module__:
            classes.add(f"{kind.__module__}:{kind.__qualname__}")
    ours = {each for each in classes if "misbehaving" not in each}
    assert ours - ELSEWHERE.keys() == {pin.operation for pin in read_table().values()}


def test_the_stage_that_changed_is_blamed_and_not_those_that_read_it() -> None:
    was = {
        "documents": Pin("a", 1, "0"),
        "measures": Pin("b", 1, "1", ("documents",)),
        "verdict": Pin("c", 2, "2", ("documents", "measures")),
    }
    assert blamed(was, was) == []
    now = {
        **was,
        "measures": replace(was["measures"], sha256="9"),
        "verdict": replace(was["verdict"], sha256="8"),
    }
    assert blamed(was, now) == ["measures"]
    assert blamed(was, {**now, "measures": replace(now["measures"], version=2)}) == []
    assert blamed(was, {**was, "new": Pin("d", 1, "7")}) == []
