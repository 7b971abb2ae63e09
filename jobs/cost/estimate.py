"""`corpusmill estimate RECIPE`: what a run will cost, before a hundred nodes are booked for it.

The inputs are planned as a run plans them; a sample of their documents goes through the recipe's own stages; what it used is
extrapolated. docs/estimate.md says what scales how, and how far off estimates were.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from corpusmill.dedup.bands import CURVE, probability
from corpusmill.dedup.stage import Dedup
from corpusmill.jobs.cost.actual import ESTIMATE, SECONDS_AN_HOUR, made_for
from corpusmill.jobs.cost.fit import Interval, total
from corpusmill.jobs.cost.forecast import Forecast, Forecaster, Kept, StageForecast
from corpusmill.jobs.cost.places import strata_of
from corpusmill.jobs.cost.projection import Projected, Shuffle
from corpusmill.jobs.cost.requests import Requests, requests
from corpusmill.jobs.cost.sample import run_sample
from corpusmill.jobs.run import cores
from corpusmill.pipeline.chain import compile_recipe
from corpusmill.pipeline.engine.inputs import find_inputs
from corpusmill.pipeline.engine.place import Place, place_of
from corpusmill.pipeline.engine.stage import InputFile, SetOperation, Unit
from corpusmill.pipeline.engine.state import describe_inputs
from corpusmill.pipeline.errors import InputError
from corpusmill.pipeline.extract.formats import READABLE
from corpusmill.pipeline.recipe import Recipe

DRIVER_BYTES_A_PARTITION = 3_000
"""What a driver holds for a partition: 2.8 kB at its peak in a run of two stages (benchmarks/engine.py --partitions, up to 20,000), and
0.2 kB for the third manifest's table that longer runs keep."""

PARTITION_FACTOR = 4.2
"""Memory of a worker in extract for a byte of its partition's documents as stored: 151 MB more for 36 MB more (135 MB of text)."""


@dataclass(frozen=True)
class InputGroup:
    """Files of one source and kind."""

    source: str
    kind: str
    files: int
    partitions: int
    size_bytes: int


@dataclass(frozen=True)
class BandCurve:
    """How surely a pair of some similarity becomes a candidate of a dedup stage."""

    stage: str
    bands: int
    rows: int
    at_least: float
    at_threshold: float
    curve: dict[str, float]


@dataclass(frozen=True)
class Estimate:
    """Everything that estimate.json holds. Bytes are on disk; `wall_seconds` is for `workers`."""

    made_for: str  # recipe and inputs, hashed (actual.made_for)
    inputs: list[InputGroup]
    partitions: int
    seed: int
    sample_documents: int
    sample_places: int
    workers: int
    documents: Interval
    kept: list[Kept]
    stages: list[StageForecast]
    shuffles: list[Shuffle]
    curves: list[BandCurve]
    cpu_seconds: Interval
    wall_seconds: float
    peak_worker_bytes: int
    peak_driver_bytes: int
    final_bytes: dict[str, Interval]
    peak_temporary_bytes: float
    requests: Requests
    notes: list[str]
    price_per_core_hour: float | None = None

    @property
    def cost(self) -> Interval | None:
        """Of the core-hours of work; workers that wait cost too."""
        price = self.price_per_core_hour
        return None if price is None else self.cpu_seconds.times(price / SECONDS_AN_HOUR)

    def to_json(self) -> bytes:
        value = asdict(self)
        value["cost"] = None if self.cost is None else asdict(self.cost)
        return json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"


def estimate(
    recipe: Recipe,
    *,
    workers: int | None = None,
    documents: int = 1000,
    seconds: float = 300.0,
    price: float | None = None,
    out: Place | None = None,
) -> Estimate:
    """Estimate `recipe` on its inputs for `workers` (None: the cores of this machine). With `out` it is kept for the run's end."""
    files = find_inputs(recipe.inputs, None if out is None else str(out))
    first = compile_recipe(recipe)[0].operation
    assert isinstance(first, SetOperation)
    inputs = Projected(files, recipe.partition_bytes, out or place_of("."))
    units = first.units(inputs)
    strata = strata_of(units, recipe.seed, recipe.stages[0].config.text_key)
    if not strata:
        raise InputError("none of the inputs can be read: there is nothing to estimate")
    # A worker is a core here too: more than this machine has would measure waiting.
    sample = run_sample(recipe, strata, documents, seconds, min(workers or cores(), cores()), None)
    count = workers or cores()
    forecast = Forecaster(sample, inputs, count).run(units)
    made = _estimate(recipe, files, units, forecast, count, price, sample.documents, sample.batches)
    if out is not None:
        (out / "metrics" / ESTIMATE).put(made.to_json())
    return made


def _estimate(
    recipe: Recipe,
    files: Sequence[InputFile],
    units: Sequence[Unit],
    forecast: Forecast,
    workers: int,
    price: float | None,
    documents: int,
    batches: Sequence[Any],
) -> Estimate:
    stages = forecast.stages
    # Workers start as tasks come: a stage of two tasks starts two, however many the run may have.
    startup = sum(stage.startup_seconds * min(workers, stage.tasks) for stage in stages)
    cpu = total(stage.cpu_seconds for stage in stages)
    return Estimate(
        made_for=made_for(recipe.canonical(), describe_inputs(files)),
        inputs=input_groups(files, units),
        partitions=len(units),
        seed=recipe.seed,
        sample_documents=documents,
        sample_places=sum(len(batch.places) for batch in batches),
        workers=workers,
        documents=forecast.documents,
        kept=forecast.kept,
        stages=stages,
        shuffles=forecast.shuffles,
        curves=band_curves(recipe),
        cpu_seconds=Interval(cpu.low + startup, cpu.expected + startup, cpu.high + startup),
        wall_seconds=sum(stage.wall_seconds for stage in stages),
        peak_worker_bytes=round(_worker_peak(stages, len(units))),
        peak_driver_bytes=forecast.driver_bytes + DRIVER_BYTES_A_PARTITION * len(units),
        final_bytes=_final(stages),
        peak_temporary_bytes=temporary_peak(stages),
        requests=requests(units, stages),
        notes=forecast.notes,
        price_per_core_hour=price,
    )


def input_groups(files: Sequence[InputFile], units: Sequence[Unit]) -> list[InputGroup]:
    """Files, partitions and bytes by source and kind; kinds that are not read are named as refused."""
    size = {(file.source, file.relative): file.size_bytes for file in files}
    groups: dict[tuple[str, str], tuple[set[str], int]] = {}
    for unit in units:
        for span in unit.fields["spans"]:
            kind = span["kind"] if span["kind"] in READABLE else f"{span['kind']} (refused)"
            key = (span["source"], "/".join(filter(None, (kind, span["compression"]))))
            names, partitions = groups.get(key, (set(), 0))
            groups[key] = ({*names, span["relative"]}, partitions + 1)
    return [
        InputGroup(source, kind, len(names), partitions, sum(size[source, name] for name in names))
        for (source, kind), (names, partitions) in sorted(groups.items())
    ]


def band_curves(recipe: Recipe) -> list[BandCurve]:
    """The S-curve of every dedup stage that seeks near duplicates, at its own threshold too."""
    curves = []
    for spec in recipe.stages:
        if isinstance(spec.config, Dedup) and spec.config.near:
            bands, rows, _ = spec.config.banding()
            points = sorted({*CURVE, spec.config.at_least})
            curve = {f"{s:g}": probability(s, bands, rows) for s in points}
            at_least = spec.config.at_least
            curves.append(
                BandCurve(spec.name, bands, rows, at_least, probability(at_least, bands, rows), curve)
            )
    return curves


def temporary_peak(stages: Sequence[StageForecast]) -> float:
    """Most bytes of temporary stages at one time: each stands until the last stage of its recipe stage is made."""
    peak, standing, group = 0.0, 0.0, ""
    for stage in stages:
        if stage.name.partition(".")[0] != group:
            group, standing = stage.name.partition(".")[0], 0.0
        standing += stage.size_bytes.expected if stage.temporary else 0.0
        peak = max(peak, standing)
    return peak


def _final(stages: Sequence[StageForecast]) -> dict[str, Interval]:
    """Bytes that stay, by area."""
    areas = dict.fromkeys(stage.area for stage in stages)
    return {
        area: total(each.size_bytes for each in stages if each.area == area and not each.temporary)
        for area in areas
    }


def _worker_peak(stages: Sequence[StageForecast], partitions: int) -> float:
    """What the sample's workers held, and beside it a partition's documents as extract holds them."""
    base = max(stage.peak_bytes for stage in stages)
    return base + PARTITION_FACTOR * stages[0].size_bytes.expected / max(1, partitions)
