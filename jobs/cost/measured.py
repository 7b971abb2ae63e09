"""What the runs of a sample say of each stage: documents that reached it, seconds, bytes, memory, the start of a worker."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from corpusmill.jobs.cost.sample import Observed, Sample
from corpusmill.pipeline.engine.stage import Result, Stage
from corpusmill.pipeline.ledger import Ledger


@dataclass(frozen=True)
class Measured:
    """A unit of the sample: its stratum, the bytes (rows) of input that its documents stand for, those that were read, documents."""

    index: int
    stratum: int
    extent: float
    read: float
    rows: int


def measured(result: Result) -> Measured:
    """A unit by its result of the stage that made the documents."""
    read, seen = float(result.extra["extent"]), result.extra["seen"]
    stands_for = read * result.rows / seen if seen else read
    return Measured(result.unit, result.extra["stratum"], stands_for, read, result.rows)


def reached(observed: Observed, stage: Stage) -> float:
    """Documents that were kept before a stage in a run of the sample."""
    last = None
    for each in observed.stages:
        if each.name == stage.name:
            break
        if isinstance(each.operation, Ledger):
            last = each.name
    results = observed.results.get(last or "documents", {})
    return float(sum(r.counts["kept"] if last else r.rows for r in results.values()))


def warm_tasks(sample: Sample, stage: str) -> list[dict[str, Any]]:
    """Tasks of the sample by workers that had done the stage before, so that no start is in them; all when there are none."""
    started = {task["pid"] for run in (sample.cold, sample.warm) for task in run.tasks.get(stage, ())}
    tasks = sample.full.tasks[stage]
    return [task for task in tasks if task["pid"] in started] or tasks


def startup_seconds(sample: Sample, stage: str) -> float:
    """CPU seconds that a worker pays once for a stage: the first of two equal runs less the second."""
    workers = len({task["pid"] for task in sample.cold.tasks.get(stage, ())})
    return max(0.0, sample.cold.cpu(stage) - sample.warm.cpu(stage)) / max(1, workers)


def peak_bytes(sample: Sample, stage: str) -> int:
    """The most memory that a worker held in a task of a stage."""
    return max((int(task["peak_rss_bytes"]) for task in sample.full.tasks[stage]), default=0)


def driver_seconds(observed: Observed) -> float:
    """The driver's CPU seconds a unit: the median of the sample's stages with eight units and more."""
    rates = [
        line["cpu_seconds"] / len(observed.results[line["stage"]])
        for line in observed.driver
        if len(observed.results.get(line["stage"], ())) >= 8
    ]
    return statistics.median(rates) if rates else 0.0


def driver_bytes(observed: Observed) -> int:
    """The most memory that the driver of a run held: on a sample, its libraries and kernels."""
    return max(int(line["peak_rss_bytes"]) for line in observed.driver)


def size_of(results: Iterable[Result]) -> float:
    """Bytes of all their files."""
    return float(sum(file.size_bytes for result in results for file in result.files))


def files_of(results: Iterable[Result]) -> int:
    """How many files they have."""
    return sum(len(result.files) for result in results)
