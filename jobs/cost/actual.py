"""What a run has used so far, from OUT/metrics and the manifests: CPU seconds a stage, bytes, what failed attempts wasted.

A few bytes a task are read, no data. Lines count only for the folders in force, so a stage that `--update` made again is not counted twice.
Work that was in flight when the driver itself was killed left no line and is in no figure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corpusmill import __version__
from corpusmill.pipeline.engine.manifest import SPENT
from corpusmill.pipeline.engine.metrics import read_lines
from corpusmill.pipeline.engine.results import canonical
from corpusmill.pipeline.engine.state import read_recipe
from corpusmill.pipeline.engine.store import hash_bytes
from corpusmill.pipeline.run import Run

SECONDS_AN_HOUR = 3600.0
ESTIMATE = "estimate.json"


@dataclass(frozen=True)
class StageUsed:
    """`measured` of `units` have a line in the metrics: those adopted from another run or made by a killed driver's last tasks have none."""

    name: str
    area: str
    temporary: bool
    units: int
    measured: int
    cpu_seconds: float
    driver_seconds: float
    peak_bytes: int
    size_bytes: int


@dataclass(frozen=True)
class Used:
    """`kept`: share of all documents kept after each stage of the ledger. `wasted_seconds`: core-seconds of failed attempts."""

    stages: list[StageUsed]
    kept: dict[str, float]
    documents: int
    wasted_seconds: float
    failed_attempts: int

    @property
    def cpu_seconds(self) -> float:
        return sum(stage.cpu_seconds for stage in self.stages)

    @property
    def driver_seconds(self) -> float:
        return sum(stage.driver_seconds for stage in self.stages)

    @property
    def core_hours(self) -> float:
        """Of workers and driver, with what was wasted."""
        return (self.cpu_seconds + self.driver_seconds + self.wasted_seconds) / SECONDS_AN_HOUR

    def cost(self, price_per_core_hour: float) -> float:
        return self.core_hours * price_per_core_hour


def used(run: Run) -> Used:
    """All stages in force of a run."""
    metrics = run.out / "metrics"
    driver = list(read_lines(metrics / "run" / "driver.jsonl"))
    stages = [_stage(run, stage.name, stage.folder, driver) for stage in run.state.stages]
    ledger = run.ledger()
    documents = run.manifest("documents").rows
    lost = list(read_lines(metrics / "run" / "lost.jsonl"))
    return Used(
        stages,
        {name: counts["kept"] / documents if documents else 0.0 for name, counts in ledger},
        documents,
        sum(float(line["cpu_seconds"]) for line in lost),
        len(lost),
    )


def _stage(run: Run, name: str, folder: str, driver: Sequence[dict[str, object]]) -> StageUsed:
    manifest = run.manifest(name)
    lines = [
        line for line in read_lines(run.out / "metrics" / f"{name}.jsonl") if line.get("folder") == folder
    ]
    return StageUsed(
        name=name,
        area=folder.partition("/")[0],
        temporary=(run.out / folder / SPENT).is_file(),
        units=len(manifest.results),
        measured=len({unit for line in lines for unit in line["units"]}),
        cpu_seconds=sum(float(line["cpu_seconds"]) for line in lines),
        driver_seconds=sum(
            float(str(line["cpu_seconds"]))
            for line in driver
            if line["stage"] == name and line["folder"] == folder
        ),
        peak_bytes=max((int(line["peak_rss_bytes"]) for line in lines), default=0),
        size_bytes=sum(file.size_bytes for result in manifest.results.values() for file in result.files),
    )


def made_for(recipe: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]]) -> str:
    """What an estimate belongs to: this version, the canonical recipe without its budgets, and its input files."""
    asked = {name: recipe[name] for name in ("seed", "partition_bytes", "stages")}
    return hash_bytes(canonical([__version__, asked, list(inputs)]))


def read_estimate(run: Run) -> tuple[dict[str, Any] | None, list[str]]:
    """The estimate that was kept for a run, or why there is none to compare with; (None, []) when none was made."""
    place, recipe = run.out / "metrics" / ESTIMATE, read_recipe(run.out)
    try:
        value = json.loads(place.read_bytes())
    except FileNotFoundError:
        return None, []
    except ValueError:
        value = None
    if (
        recipe is None
        or not isinstance(value, dict)
        or value.get("made_for") != made_for(recipe, run.state.inputs)
    ):
        return None, [
            f"{place} is of another recipe, other inputs or another version: nothing is compared; `corpusmill estimate` makes a new one"
        ]
    return value, []
