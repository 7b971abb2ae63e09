"""A sample's measures times the size of the inputs: the CPU seconds, bytes, memory and wall time of a whole run.

Stages of partitions: a fixed cost a partition and one a byte of input, for each stratum, with the interval between sampled units.
Set stages: a fixed cost a unit and one a document that reaches them, from two runs of different size.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from corpusmill.jobs.cost.fit import Interval, fixed_cost, line_through, ratio, share, total
from corpusmill.jobs.cost.measured import (
    Measured,
    driver_bytes,
    driver_seconds,
    files_of,
    measured,
    peak_bytes,
    reached,
    size_of,
    startup_seconds,
    warm_tasks,
)
from corpusmill.jobs.cost.projection import Projected, Shuffle, is_set, projected_results, shuffle_of
from corpusmill.jobs.cost.sample import Sample
from corpusmill.pipeline.engine.layout import group_units, kind_of, rate_of
from corpusmill.pipeline.engine.stage import FileRecord, Result, SetOperation, Stage, Unit
from corpusmill.pipeline.ledger import Ledger

ALL_CANDIDATES = {"ShingleScatter": 2.0, "Edges": 1.0}
"""Stages whose work is that of candidate pairs, and their cost should every document be one, in that of its signature
(75 ns a shingle against 38: module heads of dedup/verify.py and dedup/kernel.py)."""

OF_CANDIDATES = (*ALL_CANDIDATES, "Pairs", "Copies", "Clusters", "Outcomes")


@dataclass(frozen=True)
class StageForecast:
    """What one stage will cost. `startup_seconds`: CPU seconds that each worker pays once."""

    name: str
    kind: str
    area: str
    temporary: bool
    units: int
    tasks: int
    cpu_seconds: Interval
    startup_seconds: float
    wall_seconds: float
    size_bytes: Interval
    peak_bytes: int


@dataclass(frozen=True)
class Kept:
    """The share of all documents that are kept after a stage. `upper_bound`: a larger corpus has more duplicates than its sample."""

    stage: str
    share: Interval
    upper_bound: bool


@dataclass(frozen=True)
class Forecast:
    """All stages of a run. `driver_bytes`: what its driver holds before there are partitions to keep."""

    documents: Interval
    kept: list[Kept]
    stages: list[StageForecast]
    shuffles: list[Shuffle]
    driver_bytes: int
    notes: list[str] = field(default_factory=list)


class Forecaster:
    """Holds what all stages share: the sample's units, the strata's sizes and the documents that reach each stage."""

    def __init__(self, sample: Sample, inputs: Projected, workers: int) -> None:
        self.sample, self.inputs, self.workers = sample, inputs, workers
        self.strata = sample.strata
        self.partitions = [len(stratum.spans) for stratum in self.strata]
        self.measured = [measured(result) for result in sample.full.results["documents"].values()]
        self.documents = [self._documents(number) for number in range(len(self.strata))]
        self.all_documents = total(self.documents)
        self.reaches = Interval(1.0, 1.0, 1.0)  # share of all documents kept so far
        self.by_duplicates = False
        self.signatures = Interval(0.0, 0.0, 0.0)
        self.driver_seconds_a_unit = driver_seconds(sample.full)
        self.components = 1

    def run(self, units: Sequence[Unit]) -> Forecast:
        kept: list[Kept] = []
        stages: list[StageForecast] = []
        shuffles: list[Shuffle] = []
        full = self.sample.full
        notes = list(self.sample.notes)
        for stage in full.stages:
            if stage.name not in full.results:
                notes.append(
                    f"{stage.name} and what follows could not be measured on so few documents: {full.stopped}"
                )
                break
            forecast, shuffle = self._stage(stage, units)
            stages.append(forecast)
            shuffles += [shuffle] if shuffle else []
            if type(stage.operation).__name__ == "Verdict":
                self.by_duplicates = True
            if isinstance(stage.operation, Ledger):
                self.reaches = self._kept(stage)
                kept.append(Kept(stage.operation.stage, self.reaches, self.by_duplicates))
        notes += [
            f"{each.stage}: slices of {each.slice_bytes / 1024:,.0f} KiB in {each.files:,} files are too small to read at a good rate: "
            "raise partition_bytes or bucket_bytes"
            for each in shuffles
            if each.is_fine
        ]
        return Forecast(self.all_documents, kept, stages, shuffles, driver_bytes(full), notes)

    def _documents(self, number: int) -> Interval:
        stratum = self.strata[number]
        seen = {
            r.unit: (r.extra["extent"], r.extra["seen"])
            for r in self.sample.full.results["documents"].values()
            if r.extra["stratum"] == number
        }
        return ratio(list(seen.values())).times(stratum.extent)

    def _kept(self, stage: Stage) -> Interval:
        """The share of all documents that is kept after a ledger."""
        results = self.sample.full.results[stage.name]
        parts = []
        for number in range(len(self.strata)):
            pairs = [
                (float(unit.rows), float(results[unit.index].counts["kept"]))
                for unit in self.measured
                if unit.stratum == number
            ]
            parts.append(share(pairs).times(self.documents[number].expected))
        whole = max(sum(documents.expected for documents in self.documents), 1e-9)
        found = total(parts).times(1 / whole)
        return Interval(found.low, found.expected, min(1.0, found.high))

    def _stage(self, stage: Stage, units: Sequence[Unit]) -> tuple[StageForecast, Shuffle | None]:
        if is_set(stage):
            laid = self.inputs.units(stage)
            cpu, size = self._set_costs(stage, laid)
        else:
            laid = list(units) if stage.name == "documents" else self.inputs.units(stage)
            cpu, size = self._partition_costs(stage)
        growth = self._growth()
        sample = self.sample.full.results[stage.name]
        if stage.name == "documents":
            self.inputs.made["documents"] = self._projected_documents(units, size)
        else:
            self.inputs.made[stage.name] = projected_results(stage, laid, sample, growth, size.expected)
        if type(stage.operation).__name__ == "Scatter":
            self.components = max(
                1, len({tuple(key) for r in sample.values() for key in r.extra["components"]})
            )
        if stage.name.endswith(".signatures"):
            self.signatures = cpu
        startup = startup_seconds(self.sample, stage.name)
        tasks = group_units(laid, rate_of(stage), self.workers) if laid else []
        wall = startup + _wall(tasks, cpu.expected, self.workers) + self.driver_seconds_a_unit * len(laid)
        forecast = StageForecast(
            name=stage.name,
            kind=kind_of(stage),
            area=stage.operation.area,
            temporary=isinstance(stage.operation, SetOperation) and stage.operation.temporary,
            units=len(laid),
            tasks=len(tasks),
            cpu_seconds=cpu,
            startup_seconds=startup,
            wall_seconds=wall,
            size_bytes=size,
            peak_bytes=peak_bytes(self.sample, stage.name),
        )
        return forecast, shuffle_of(stage, laid, self.components, size.expected)

    def _growth(self) -> float:
        """Documents that reach a stage in the whole run for one in the sample."""
        rows = sum(unit.rows for unit in self.measured)
        return self.all_documents.expected / max(rows, 1)

    def _partition_costs(self, stage: Stage) -> tuple[Interval, Interval]:
        """(CPU seconds, bytes) of a stage that makes a file for each partition."""
        results = self.sample.full.results[stage.name]
        cpu = {
            unit: task["cpu_seconds"]
            for task in warm_tasks(self.sample, stage.name)
            for unit in task["units"]
        }
        sizes = {
            unit: float(sum(file.size_bytes for file in result.files)) for unit, result in results.items()
        }
        reads_all = stage.name == "documents"
        return self._over_partitions(cpu, reads_all), self._over_partitions(sizes, False)

    def _over_partitions(self, values: Mapping[int, float], reads_all: bool) -> Interval:
        """A total over all partitions of what units of the sample had each. `reads_all`: a dump costs its bytes, whatever is taken of it."""
        units = [unit for unit in self.measured if unit.index in values]

        def size(unit: Measured) -> float:
            dump = self.strata[unit.stratum].kind != "warc"
            return unit.read if reads_all and dump else unit.extent

        fixed = fixed_cost([(float(unit.rows), values[unit.index]) for unit in units if unit.rows])
        parts = []
        for number, stratum in enumerate(self.strata):
            pairs = [(size(u), max(0.0, values[u.index] - fixed)) for u in units if u.stratum == number]
            base, count = ratio(pairs).times(stratum.extent), fixed * self.partitions[number]
            parts.append(Interval(base.low + count, base.expected + count, base.high + count))
        return total(parts)

    def _set_costs(self, stage: Stage, units: Sequence[Unit]) -> tuple[Interval, Interval]:
        """(CPU seconds, bytes) of a stage across partitions: by the documents that reach it, or up to what a trained tokenizer reads."""
        kind, full = type(stage.operation).__name__, self.sample.full
        if kind == "TrainedTokenizer":
            return self._training_costs(stage)
        observed = [run for run in (self.sample.warm, full) if stage.name in run.results]
        # A unit that scatters partitions opens each of them; one that gathers a bucket is one piece.
        by_parts = any(unit.parts for unit in units)
        sizes = [len(run.results["documents"] if by_parts else run.results[stage.name]) for run in observed]
        documents = [reached(run, stage) for run in observed]
        pieces = sum(max(1, len(unit.parts)) for unit in units)
        reaches = self.reaches.times(self.all_documents.expected)

        def scaled(values: Sequence[float], sizes: Sequence[int], pieces: int) -> Interval:
            runs = list(zip(map(float, sizes), documents, values, strict=True))
            fixed, slope = line_through(runs[0], runs[-1])
            found = reaches.times(slope)
            return Interval(*(bound + fixed * pieces for bound in (found.low, found.expected, found.high)))

        cpu = scaled([run.cpu(stage.name) for run in observed], sizes, pieces)
        files = [files_of(run.results[stage.name].values()) for run in observed]
        a_part = by_parts and files[-1] > len(full.results[stage.name])
        size = scaled(
            [size_of(run.results[stage.name].values()) for run in observed],
            files,
            pieces if a_part else len(units),
        )
        if kind in OF_CANDIDATES:
            more = ALL_CANDIDATES.get(kind, 0.0) * self.signatures.high * self.reaches.high
            cpu = Interval(cpu.low, cpu.expected, cpu.high + more)
        return cpu, size

    def _training_costs(self, stage: Stage) -> tuple[Interval, Interval]:
        """Of a tokenizer that is trained: by the text that it reads, which its recipe bounds."""
        results = self.sample.full.results[stage.name].values()
        used = sum(result.counts["text_bytes"] for result in results)
        factor = min(stage.operation.sample_bytes / max(used, 1), self._growth())  # type: ignore[attr-defined]
        cpu, made = self.sample.full.cpu(stage.name), size_of(results)
        return Interval(cpu, cpu * factor, cpu * factor * 2), Interval(made, made, made)

    def _projected_documents(self, units: Sequence[Unit], size: Interval) -> dict[int, Result]:
        """Rows and bytes of every partition of the real run, by what its stratum holds."""
        dense = {
            (s.source, s.kind, s.compression, s.split, s.sample): (
                self.documents[i].expected / max(s.extent, 1),
                s.extent,
            )
            for i, s in enumerate(self.strata)
        }
        rows: dict[int, float] = {}
        for unit in units:
            for span in unit.fields["spans"]:
                taken = span["sample"] if (span["sample"] or 1.0) < 1 else None
                key = (span["source"], span["kind"], span["compression"], span["split"], taken)
                rows[unit.index] = rows.get(unit.index, 0.0) + dense.get(key, (0.0, 0))[0] * (
                    span["end"] - span["start"]
                )
        bytes_each = size.expected / max(sum(rows.values()), 1e-9)
        return {
            unit: Result(unit, (FileRecord("projected", 0, round(n * bytes_each), ""),), round(n))
            for unit, n in rows.items()
        }


def _wall(tasks: Sequence[Sequence[Unit]], cpu_seconds: float, workers: int) -> float:
    """Until the last of the tasks ends when each goes, in order, to the worker that is free first."""
    weights = [sum(unit.weight for unit in task) for task in tasks]
    whole = max(sum(weights), 1e-9)
    free = [0.0] * min(workers, max(1, len(tasks)))
    for weight in weights:
        heapq.heapreplace(free, free[0] + cpu_seconds * weight / whole)
    return max(free)
