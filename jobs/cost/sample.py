"""The sample of an estimate: the recipe's own stages on some places of the inputs, in a folder that goes when they are measured.

Three runs by the same workers: a small one that starts everything (imports, models, kernels), the same once more (the difference
is what a worker pays once), and the sample itself. All of it is the engine of a real run, each unit a task of its own.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from corpusmill.jobs.cost.places import Stratum, choose, grouped
from corpusmill.jobs.reporter import SilentReporter
from corpusmill.pipeline.engine.attempts import Done, Queue
from corpusmill.pipeline.engine.driver import Driver
from corpusmill.pipeline.engine.files import Task
from corpusmill.pipeline.engine.local import LocalRunner, Stop
from corpusmill.pipeline.engine.metrics import read_lines
from corpusmill.pipeline.engine.place import place_of
from corpusmill.pipeline.engine.stage import Result, SetOperation, Stage
from corpusmill.pipeline.errors import InputError, ShardError
from corpusmill.pipeline.extract.places import Batch, sampled
from corpusmill.pipeline.recipe import Recipe

PROBE_BYTES = 64 << 10
"""A place of the first two runs, which say how many documents a byte holds."""

PROBE_DOCUMENTS = 5
UNKNOWN_DENSITY = 1 / 20_000
"""Documents a byte where the probe met none: a page of a compressed crawl is about 20 kB."""

DOCUMENTS_A_PLACE = 20
LEAST_PLACES = 8
MOST_PLACES = 32
MOST_WORKERS = 8
"""More workers than these measure the machine's memory bandwidth rather than the recipe."""


REPEATS = 2
"""Times that set stages are made again: on a sample they take milliseconds, of which half can be another process's."""


@dataclass
class Alone:
    """A runner whose stages are cut into tasks of one unit each, so that each is measured."""

    runner: LocalRunner
    queue: Queue
    workers: int = 1 << 30  # so many that no task is worth grouping

    def run(self, tasks: Sequence[Task], stop: Stop | None = None) -> Iterator[Done]:
        return self.runner.run(tasks, stop)


@dataclass(frozen=True)
class Observed:
    """One run: for each stage its results, and of each task (units, CPU seconds, peak bytes, worker); `stopped` says why it ended early."""

    results: dict[str, dict[int, Result]]
    tasks: dict[str, list[dict[str, Any]]]
    stages: list[Stage]
    driver: list[dict[str, Any]]
    seconds: float
    stopped: str | None = None

    def cpu(self, stage: str) -> float:
        """CPU seconds of all units, of each the least that it took when it was repeated."""
        least: dict[int, float] = {}
        for task in self.tasks.get(stage, ()):
            for unit in task["units"]:
                least[unit] = min(task["cpu_seconds"] / len(task["units"]), least.get(unit, float("inf")))
        return sum(least.values())


@dataclass(frozen=True)
class Sample:
    """The three runs, and what was asked."""

    strata: list[Stratum]
    cold: Observed
    warm: Observed
    full: Observed
    batches: tuple[Batch, ...]
    workers: int
    notes: list[str] = field(default_factory=list)

    @property
    def documents(self) -> int:
        return sum(result.rows for result in self.full.results["documents"].values())


def run_sample(
    recipe: Recipe, strata: list[Stratum], documents: int, seconds: float, workers: int, folder: Path | None
) -> Sample:
    """Measure about `documents` documents of the inputs, fewer when they would take longer than `seconds`.

    `folder` is where the temporary folder is made (None: the system's place); nothing is left in it.
    """
    workers = min(workers, MOST_WORKERS)
    with (
        tempfile.TemporaryDirectory(prefix="corpusmill-estimate-", dir=folder) as temporary,
        Stop() as stop,
        LocalRunner(workers, log=Path(temporary) / "workers.log") as runner,
    ):
        root, alone = Path(temporary), Alone(runner, runner.queue)
        probe = _probe(strata, workers)
        cold = _observe(recipe, probe, root / "cold", alone, stop)
        warm = _observe(recipe, probe, root / "warm", alone, stop, REPEATS)
        batches, notes = _batches(strata, warm, documents, seconds, workers)
        full = _observe(recipe, batches, root / "full", alone, stop, REPEATS)
    return Sample(strata, cold, warm, full, batches, workers, notes)


def _forget_sets(driver: Driver) -> None:
    """Let the set stages be made again, and with them nothing else: their results are the same."""
    for stage in driver.stages:
        is_set = isinstance(stage.operation, SetOperation) and stage.name != "documents"
        if is_set and stage.name in driver.folders:
            (driver.out / driver.folders[stage.name]).remove_tree()


def _probe(strata: Sequence[Stratum], workers: int) -> tuple[Batch, ...]:
    """Two places of each stratum, and enough that every worker gets some."""
    places = max(2, -(-2 * workers // len(strata)))
    return tuple(
        batch
        for number, stratum in enumerate(strata)
        for batch in grouped(
            number, choose(stratum, 2 * places, PROBE_BYTES, PROBE_DOCUMENTS, _guess(stratum))
        )
    )


def _guess(stratum: Stratum) -> float:
    return 1.0 if stratum.kind == "parquet" else UNKNOWN_DENSITY


def density(observed: Observed, number: int, stratum: Stratum) -> float:
    """Documents a byte (a row) of a stratum, as a run met them."""
    results = [r for r in observed.results["documents"].values() if r.extra["stratum"] == number]
    extent, seen = sum(r.extra["extent"] for r in results), sum(r.extra["seen"] for r in results)
    return float(seen / extent) if extent and seen else _guess(stratum)


def _batches(
    strata: Sequence[Stratum], warm: Observed, documents: int, seconds: float, workers: int
) -> tuple[tuple[Batch, ...], list[str]]:
    """The places of the sample: shares of `documents` by what strata cost, each over LEAST_PLACES to MOST_PLACES places."""
    notes = []
    rows = max(1, sum(result.rows for result in warm.results["documents"].values()))
    affordable = int(rows * max(0.0, seconds - 2 * warm.seconds) / max(warm.seconds, 1e-9))
    there = sum(density(warm, number, stratum) * stratum.extent for number, stratum in enumerate(strata))
    documents = min(documents, max(rows, round(there)))
    if affordable < documents:
        notes.append(
            f"the sample was cut to about {max(affordable, rows):,} of {documents:,} documents to end in {seconds:g} s: --seconds allows more"
        )
        documents = max(affordable, rows)
    weight = sum(stratum.weight for stratum in strata)
    batches: list[Batch] = []
    for number, stratum in enumerate(strata):
        wanted = max(LEAST_PLACES, documents * stratum.weight // weight)
        places = max(LEAST_PLACES, min(MOST_PLACES, wanted // DOCUMENTS_A_PLACE))
        dense = density(warm, number, stratum)
        extent = max(1, round(wanted / places / dense))
        batches += grouped(number, choose(stratum, places, extent, wanted / places, dense))
    return tuple(batches), notes


def _observe(
    recipe: Recipe, batches: tuple[Batch, ...], out: Path, runner: Alone, stop: Stop, repeats: int = 0
) -> Observed:
    """Run the recipe on the places, and read what it made and used. Too little text for a later stage ends the run there."""
    first, *rest = recipe.stages
    on_places = replace(
        recipe,
        stages=(replace(first, config=sampled(first.config, batches)), *rest),
        max_drop=1.0,
        max_error_rate=1.0,
    )
    started, stopped = time.perf_counter(), None
    out.mkdir()
    for repeat in range(repeats + 1):
        driver = Driver(place_of(out), on_places, runner, SilentReporter(), stop=stop, files=())
        try:
            driver.run()
        except ShardError as error:
            stopped = str(error)
        if not repeat:
            seconds = time.perf_counter() - started
        if repeat < repeats:
            _forget_sets(driver)
    if not any(result.rows for result in driver.manifests["documents"].results.values()):
        raise InputError("the sampled places of the inputs hold no document at all: look at one of the files")
    return Observed(
        {name: dict(manifest.results) for name, manifest in driver.manifests.items()},
        {name: list(read_lines(out / "metrics" / f"{name}.jsonl")) for name in driver.manifests},
        driver.stages,
        list(read_lines(out / "metrics" / "run" / "driver.jsonl")),
        seconds,
        stopped,
    )
