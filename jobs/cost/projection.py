"""The whole run as its driver would lay it out, before it has run: results of stages that do not exist yet, scaled from a sample's.

Set stages lay out their units from the results of earlier ones; given projected results their own `units` says how many buckets,
slices and shards there will be. Costs what the driver's layout costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from corpusmill.pipeline.engine.layout import units_of
from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.engine.stage import FileRecord, InputFile, Result, SetOperation, Stage, Unit

LEAST_SLICE_BYTES = 256 << 10
"""Below this a slice of a shuffle costs more to ask for than to read."""

WORTH_A_WARNING_BYTES = 1 << 30
"""Smaller shuffles are quick whatever their slices."""


@dataclass
class Projected:
    """What `SetOperation.units` sees: projected results instead of manifests."""

    files: Sequence[InputFile]
    partition_bytes: int
    root: Place
    made: dict[str, dict[int, Result]] = field(default_factory=dict)

    def results(self, stage: str) -> Mapping[int, Result]:
        return self.made[stage]

    def folder(self, stage: str) -> str:
        return stage

    def units(self, stage: Stage) -> list[Unit]:
        return units_of(stage, self)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Shuffle:
    """Files that a stage scatters and the slices in each; `slice_bytes` is what a gather reads at a time."""

    stage: str
    files: int
    slices: int
    size_bytes: float

    @property
    def slice_bytes(self) -> float:
        return self.size_bytes / max(1, self.files * self.slices)

    @property
    def is_fine(self) -> bool:
        """Whether its slices are too small to read at a good rate."""
        return self.slice_bytes < LEAST_SLICE_BYTES and self.size_bytes > WORTH_A_WARNING_BYTES


def shuffle_of(stage: Stage, units: Sequence[Unit], components: int, size_bytes: float) -> Shuffle | None:
    """The shuffle that a temporary stage writes; None for stages that write none."""
    kind = type(stage.operation).__name__
    if not units or kind not in SLICES:
        return None
    key = SLICES[kind]
    fields = units[0].fields
    slices = fields["ranges"] * components if key == "ranges" else fields["layout"][key]
    files = sum(len(unit.parts) for unit in units) if kind == "ShingleScatter" else len(units)
    return Shuffle(stage.name, files, int(slices), size_bytes)


SLICES = {
    "HashScatter": "hash_buckets",
    "BandScatter": "key_buckets",
    "ShingleScatter": "pair_buckets",
    "Scatter": "ranges",
}
"""Operation -> the field of its units that says how many slices a file has (shard.scatter: for each component)."""


def projected_results(
    stage: Stage, units: Sequence[Unit], sample: Mapping[int, Result], growth: float, size_bytes: float
) -> dict[int, Result]:
    """Results of all units: counts and bytes of the sample times `growth`, spread evenly; facts in `extra` as they were there."""
    if not units:
        return {}
    if type(stage.operation).__name__ == "Scatter":
        return {0: _scattered(units[0], sample, growth)}
    share = growth / len(units)
    counts: dict[str, float] = {}
    rows = 0.0
    for result in sample.values():
        rows += result.rows
        for name, n in result.counts.items():
            counts[name] = counts.get(name, 0) + n
    extra = dict(next(iter(sample.values())).extra) if sample else {}
    each = round(size_bytes / len(units))
    return {
        unit.index: Result(
            unit.index,
            (FileRecord("projected", 0, each, ""),),
            round(rows * share),
            {name: round(n * share) for name, n in counts.items()},
            extra,
        )
        for unit in units
    }


def _scattered(unit: Unit, sample: Mapping[int, Result], growth: float) -> Result:
    """All slices of shard.scatter as those of one file, even over the ranges: what `arrange` counts shards from."""
    ranges = unit.fields["ranges"]
    documents: dict[tuple[Any, ...], float] = {}
    tokens: dict[tuple[Any, ...], float] = {}
    for result in sample.values():
        for place, key in enumerate(result.extra["components"]):
            documents[tuple(key)] = documents.get(tuple(key), 0) + sum(result.extra["documents"][place])
            tokens[tuple(key)] = tokens.get(tuple(key), 0) + sum(result.extra["tokens"][place])
    names = sorted(documents)

    def spread(values: Mapping[tuple[Any, ...], float]) -> list[list[int]]:
        return [[round(values[name] * growth / ranges)] * ranges for name in names]

    extra = {
        "components": [list(name) for name in names],
        "documents": spread(documents),
        "tokens": spread(tokens),
        "kept_out": round(growth * sum(result.extra["kept_out"] for result in sample.values())),
    }
    return Result(0, extra=extra)


def is_set(stage: Stage) -> bool:
    """Whether a stage works across partitions (extract, which makes them, does not count)."""
    return isinstance(stage.operation, SetOperation) and stage.name != "documents"
