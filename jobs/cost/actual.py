"""What a run has used so far, from OUT/metrics and the manifests: CPU seconds a stage, bytes, what failed attempts wasted.

A few bytes a task are read, no data. Lines count only for the folders in force, so a stage that `--update` made again is not counted twice.
Work that was in flight when the driver itself was killed left no line and is in no figure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from corpusmill.pipeline.engine.manifest import SPENT
from corpusmill.pipeline.engine.metrics import read_lines
from corpusmill.pipeline.engine.place import Place
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


def read_estimate(out: Place) -> dict[str, Any] | None:
    """The estimate that was kept for a run; None when there is none or it cannot be read."""
    try:
        value = json.loads((out / "metrics" / ESTIMATE).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return value if isinstance(value, dict) else None
