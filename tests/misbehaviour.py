"""Runs over documents that crash, hang and eat memory in the engine's rows (tests/operations holds what they do it with)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import corpusmill
from corpusmill.jobs.reporter import SilentReporter
from corpusmill.jobs.run import run_recipe
from corpusmill.pipeline.recipe import parse_recipe
from corpusmill.pipeline.registry import RULES, STAGES
from corpusmill.pipeline.run import Run

FOLDER = str(Path(__file__).parent / "operations")


def register(patch: pytest.MonkeyPatch) -> None:
    """Make the misbehaving rule and stage known to this process and to all that it starts."""
    patch.setenv("PYTHONPATH", FOLDER, prepend=os.pathsep)
    patch.setattr(corpusmill, "__path__", [*corpusmill.__path__, FOLDER])
    patch.setitem(RULES, "misbehaving", "corpusmill.misbehaving:Misbehaving")
    patch.setitem(STAGES, "shout", "corpusmill.misbehaving:Shout")
    patch.setitem(STAGES, "gather", "corpusmill.misbehaving:Gather")
    patch.setattr(sys, "dont_write_bytecode", True)


def write_texts(folder: Path, *files: Sequence[str]) -> list[str]:
    """JSON Lines files of texts; the recipe's inputs."""
    folder.mkdir(exist_ok=True)
    for number, texts in enumerate(files):
        lines = [
            json.dumps({"url": f"http://example.org/{number}/{row}", "text": text})
            for row, text in enumerate(texts)
        ]
        (folder / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    return [f"{folder}/*.jsonl"]


def run(out: Path, inputs: list[str], stages: Sequence[Any] = (), **options: Any) -> Run:
    """A run of the misbehaving rule (or of other stages) over texts."""
    stages = stages or [{"filter": ["misbehaving"]}]
    recipe = parse_recipe({"max_error_rate": 1, "stages": ["extract", *stages]}).with_inputs(inputs)
    return run_recipe(recipe, out, **{"reporter": SilentReporter(), "workers": 1, **options})


def fates(run: Run) -> dict[str, str]:
    """Text's first word -> reason, or `kept`."""
    table = run.table(["text", "reason"], kept=False)
    return {
        text.split()[0].lower(): reason or "kept"
        for text, reason in zip(table["text"].to_pylist(), table["reason"].to_pylist(), strict=True)
    }
