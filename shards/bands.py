"""Bands of a measure: a column that tells components by quality, length or any other number that an earlier stage stored.

shard.edges   where a measure is cut into parts of as many bytes of text        one unit, a sample of kept rows
shard.bands   the band of every kept row, as a column of words like `words-2of4`

Edges are found in partitions in keyed order, up to SAMPLE_BYTES of text: all of a small corpus, of a large one a draw that does not depend
on how work is cut. Equal values are never parted, so a measure with few values may leave bands empty.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from corpusmill.pipeline.engine.stage import Inputs, Result, SetOperation, TaskIO, Unit
from corpusmill.pipeline.errors import RecipeError
from corpusmill.shards.components import Band

Floats = npt.NDArray[np.float64]

EDGES_FILE = "edges.json"
SAMPLE_BYTES = 256 << 20


@dataclass(frozen=True)
class BandEdges(SetOperation):
    """Edges of the bands that have `parts`, as edges.json: measure -> values."""

    seed: int
    bands: tuple[Band, ...]

    rate: ClassVar[float] = 100e6

    def units(self, inputs: Inputs) -> list[Unit]:
        stored = {
            part: sum(file.size_bytes for file in result.files)
            for part, result in inputs.results("documents").items()
        }
        parts = sorted(stored, key=lambda part: xxhash.xxh3_64_intdigest(f"{self.seed}/{part}".encode()))
        weight = min(sum(stored.values()), SAMPLE_BYTES)
        return [Unit(0, weight, {"order": parts}, tuple(sorted(parts)))]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        names = [band.band for band in self.bands]
        values: dict[str, list[Floats]] = {name: [] for name in names}
        sizes: list[Floats] = []
        read = 0.0
        for part in unit.fields["order"]:
            for _, rows in io.rows(part, list(dict.fromkeys(["text", *names])), kept=True):
                sizes.append(pc.binary_length(rows["text"]).to_numpy().astype(np.float64))
                read += float(sizes[-1].sum())
                for name in names:
                    values[name].append(numbers(rows, name))
            if read > SAMPLE_BYTES:
                break
        weights = np.concatenate([np.zeros(0), *sizes])
        found = {
            band.column: edges(np.concatenate([np.zeros(0), *values[band.band]]), weights, band.count)
            for band in self.bands
        }
        io.write_bytes(EDGES_FILE, json.dumps(found, indent=1, sort_keys=True).encode())
        return io.result(rows=len(weights), counts={"documents": len(weights), "text_bytes": int(read)})


@dataclass(frozen=True)
class Bands(SetOperation):
    """A row a document: its band by each measure; `none` where that is missing, null where the row is not kept. One partition a unit."""

    bands: tuple[Band, ...]
    edges: str | None  # the stage that says where bands with `parts` are cut

    rate: ClassVar[float] = 100e6

    def schema(self) -> pa.Schema:
        return pa.schema(
            [
                pa.field(
                    band.column,
                    pa.string(),
                    metadata={"about": f"band of {band.band}, 1 the lowest; null: not kept"},
                )
                for band in self.bands
            ]
        )

    def units(self, inputs: Inputs) -> list[Unit]:
        return [
            Unit(part, sum(file.size_bytes for file in result.files), {}, (part,))
            for part, result in sorted(inputs.results("documents").items())
        ]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        known = {} if self.edges is None else json.loads(io.read_bytes(self.edges, EDGES_FILE))
        (part,) = unit.parts
        count = len(io.documents(part, ["source"]))
        columns = [np.full(count, None, object) for _ in self.bands]
        for place, rows in io.rows(part, list(dict.fromkeys(band.band for band in self.bands)), kept=True):
            for band, column in zip(self.bands, columns, strict=True):
                cuts = known[band.column] if band.at is None else band.at
                column[place] = banded(numbers(rows, band.band), cuts, band.names())
        io.write_layer(
            part, pa.table([pa.array(each, pa.string()) for each in columns], schema=self.schema())
        )
        return io.result(rows=count)


def numbers(rows: pa.Table, name: str) -> Floats:
    """A measure as numbers, nan where there is none; RecipeError for what is no number."""
    kind = rows.schema.field(name).type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise RecipeError(
            f"components.by: a band of {name!r} cannot be: it holds {kind}, and bands are of numbers"
        )
    return np.asarray(rows[name].cast(pa.float64()).to_numpy(), np.float64)


def edges(values: Floats, weights: Floats, parts: int) -> list[float]:
    """Where bands begin, parts - 1 values: those with nearest to 1, 2, … of `parts` of the weight below them."""
    there = ~np.isnan(values)
    kinds, place = np.unique(values[there], return_inverse=True)
    if not len(kinds):
        return []
    weight = np.bincount(place, weights[there], minlength=len(kinds))
    below = np.concatenate([[0.0], np.cumsum(weight)])  # the weight under each kind, and under the end
    wanted = below[-1] * np.arange(1, parts) / parts
    nearest = np.abs(below[None, :-1] - wanted[:, None]).argmin(axis=1)  # ties: the lower value
    return [float(kinds[each]) for each in nearest]


def banded(values: Floats, cuts: Sequence[float], names: Sequence[str]) -> npt.NDArray[Any]:
    """The name of the band of each value: the number of cuts that it reaches."""
    place = np.searchsorted(np.asarray(cuts, np.float64), values, side="right")
    found = np.array([*names], object)[np.minimum(place, len(names) - 1)]
    found[np.isnan(values)] = "none"
    return found
