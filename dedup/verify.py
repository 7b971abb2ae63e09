"""Verification: every candidate pair by the exact Jaccard similarity of its two sets of shingles.

`shingles` (75 ns a shingle, most of it sorting) reads the texts of candidates alone and hands their sets (64-bit hashes, so exact up to a collision in 2^64) to the pair
buckets; `edges` compares. No estimate from signatures is used: at 112 hashes it is off by 0.043 near 0.7, which would keep one
duplicate in eight there. A bucket holds the sets of its leaders; all others stream past, so one huge cluster does not fill memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.dedup import shingle
from corpusmill.dedup.exact import among, copies_in
from corpusmill.dedup.layout import (
    Layout,
    Shared,
    bucket_units,
    file_name,
    file_names,
    gather_memory,
    lay_out,
    stored_bytes,
)
from corpusmill.dedup.pairs import PAIRS, WANTED, wanted_of
from corpusmill.dedup.records import begins_run, considered, ranges
from corpusmill.pipeline.binary import U64
from corpusmill.pipeline.engine.merge import chosen
from corpusmill.pipeline.engine.shuffle import gather, gathered, slices
from corpusmill.pipeline.engine.stage import Inputs, Result, SetOperation, TaskIO, Unit

SETS = pa.schema(
    [
        ("number", pa.uint64()),
        ("id", pa.binary(16)),
        ("content", pa.uint64()),
        ("copies", pa.uint32()),  # documents of this content, itself among them
        ("shingles", pa.large_list(pa.field("item", pa.uint64(), nullable=False))),  # sorted, each once
    ]
)
EDGES = pa.schema([("first", pa.uint64()), ("second", pa.uint64()), ("score", pa.float64())])
NODES = pa.schema([field for field in SETS if field.name != "shingles"])
PARTS_FILE = "parts.json"

Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ShingleScatter(SetOperation):
    """Sets of shingles of candidates, one file a partition, a slice a pair bucket."""

    version: ClassVar[int] = 2  # 2: results say how many slices a file has
    temporary: ClassVar[bool] = True
    rate: ClassVar[float] = 1e5  # rows
    shared: Shared
    ngram: int

    def units(self, inputs: Inputs) -> list[Unit]:
        _, groups = lay_out(inputs, self.shared)
        files = len(inputs.results(self.shared.name("pairs")))
        return [Unit(u.index, u.weight, {**u.fields, "files": files}, u.parts) for u in groups]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        layout = Layout.of(unit.fields)
        names = ["wanted-" + name for name in file_names(unit.fields["files"])]
        table = gathered(io, self.shared.name("pairs"), names, unit.index, WANTED)
        wanted = wanted_of(table["number"].to_numpy(), table["bucket"].to_numpy())
        _, leads, copies = copies_in(io, self.shared, layout, unit.index)
        total = 0
        for part in unit.parts:
            here = wanted["number"].to_numpy() >> np.uint64(32) == np.uint64(part)
            sets, bucket = self._sets(io, part, wanted.filter(pa.array(here)), leads, copies)
            io.write_arrow(file_name(part), slices(sets, bucket, layout.pair_buckets), SETS)
            total += len(sets)
        return io.result(rows=total, extra={"parts": list(unit.parts), "slices": layout.pair_buckets})

    def _sets(
        self, io: TaskIO, part: int, wanted: pa.Table, leads: U64, copies: npt.NDArray[np.uint32]
    ) -> tuple[pa.Table, Index]:
        """A row for each wanted (document, bucket) of a partition."""
        rows = considered(io, part, self.shared)
        rows = rows.take(among(rows.number, np.unique(wanted["number"].to_numpy())))
        times = np.ones(len(rows.number), np.uint32)
        leading = among(rows.number, leads)
        times[leading] = copies[np.searchsorted(leads, rows.number[leading])]
        ids = io.documents(part, ["id"])["id"].combine_chunks().take(pa.array(rows.row))
        sets = pa.concat_arrays([_no_sets(), *self._read_sets(io, part, rows.row)])
        table = pa.table(
            [pa.array(rows.number), ids, pa.array(rows.content), pa.array(times), sets], schema=SETS
        )
        at = np.searchsorted(rows.number, wanted["number"].to_numpy())
        return table.take(pa.array(at)), wanted["bucket"].to_numpy().astype(np.int64)

    def _read_sets(self, io: TaskIO, part: int, chosen: Index) -> Iterator[pa.Array]:
        if not len(chosen):
            return
        for index, table in io.rows(part, ["text"], kept=True):
            mask = np.isin(index, chosen, assume_unique=True)
            if mask.any():
                values, ends = shingle.shingle_sets(table["text"].filter(pa.array(mask)), self.ngram)
                yield pa.LargeListArray.from_arrays(
                    pa.array(ends), pa.array(values), type=SETS.field("shingles").type
                )

    def seal(self, results: Mapping[int, Result], inputs: Inputs) -> dict[str, bytes]:
        parts = sorted(part for result in results.values() for part in result.extra["parts"])
        return {PARTS_FILE: json.dumps(parts).encode()}

    def warm(self) -> None:
        shingle.warm()


def _no_sets() -> pa.Array:
    return pa.array([], SETS.field("shingles").type)


@dataclass(frozen=True)
class Edges(SetOperation):
    """Verified pairs of a pair bucket (first comes first in survivor order), and the documents at their ends."""

    rate: ClassVar[float] = 50e6
    shared: Shared
    at_least: float

    def units(self, inputs: Inputs) -> list[Unit]:
        layout, _ = lay_out(inputs, self.shared)
        stage = chosen(inputs, self.shared.name("shingles"), self.shared.name("shingles.merged"))
        weight = stored_bytes(inputs, stage)
        pairs = inputs.results(self.shared.name("pairs"))
        # Passed on in these units' results, so that later stages do not bring the files of `pairs` back to ask for them.
        runs = {
            "long_runs": sum(result.counts["long_runs"] for result in pairs.values()),
            "longest_run": max((result.extra["longest_run"] for result in pairs.values()), default=0),
        }
        sets = {"stage": stage, "sets": len(inputs.results(stage))}
        units = bucket_units(layout.pair_buckets, weight, layout, files=len(pairs), runs={}, **sets)
        return [replace(units[0], fields={**units[0].fields, "runs": runs}), *units[1:]]

    def worker_memory(self, unit: Unit) -> int:
        return gather_memory(unit)

    def run(self, unit: Unit, io: TaskIO) -> Result:
        files = file_names(unit.fields["files"])
        table = gathered(io, self.shared.name("pairs"), files, unit.index, PAIRS)
        first, second = _once(table["first"].to_numpy(), table["second"].to_numpy())
        stage, scatter = unit.fields["stage"], self.shared.name("shingles")
        numbers = (
            json.loads(io.read_bytes(scatter, PARTS_FILE)) if stage == scatter else range(unit.fields["sets"])
        )
        names = [file_name(number) for number in numbers]
        score = similarities(lambda: gather(io, stage, names, unit.index), first, second)
        kept = score >= self.at_least
        ends = np.unique(np.concatenate([first[kept], second[kept]]))
        nodes = [
            batch.select(NODES.names).filter(pa.array(among(_numbers(batch), ends)))
            for batch in gather(io, stage, names, unit.index)
        ]
        edges = pa.table(
            [pa.array(first[kept]), pa.array(second[kept]), pa.array(score[kept])],
            schema=EDGES,
        )
        io.write_arrow(file_name(unit.index), edges.combine_chunks().to_batches(), EDGES)
        io.write_arrow("nodes-" + file_name(unit.index), [batch for batch in nodes if batch.num_rows], NODES)
        runs = unit.fields["runs"]
        counts = {
            "candidates": len(first),
            "verified": int(kept.sum()),
            "ends": len(ends),
            "long_runs": runs.get("long_runs", 0),
        }
        return io.result(rows=len(edges), counts=counts, extra={"longest_run": runs.get("longest_run", 0)})

    def warm(self) -> None:
        from corpusmill.dedup import set_kernel  # noqa: F401  (compiles on import)


def similarities(
    sets: Callable[[], Iterator[pa.RecordBatch]], first: U64, second: U64
) -> npt.NDArray[np.float64]:
    """Jaccard similarity of each pair. `sets` is read twice: once for the first ends, which stay in memory, once for the second ends."""
    from corpusmill.dedup import set_kernel

    wanted = np.unique(first)
    numbers, values, offsets = _load(sets(), wanted)
    assert len(numbers) == len(wanted), "shingles of a candidate are missing"
    left = np.searchsorted(numbers, first)
    score = np.zeros(len(first), np.float64)
    by_second = np.argsort(second, kind="stable")
    ordered = second[by_second]
    for batch in sets():
        here = _numbers(batch)
        start, end = np.searchsorted(ordered, here, "left"), np.searchsorted(ordered, here, "right")
        pairs = by_second[ranges(start, end)]
        right = np.repeat(np.arange(len(here)), end - start)
        if not len(pairs):
            continue
        own_values, own_offsets = _list_buffers(batch.column("shingles"))
        shared = np.empty(len(pairs), np.int64)
        set_kernel.overlaps(values, offsets, own_values, own_offsets, left[pairs], right, shared)
        union = np.diff(offsets)[left[pairs]] + np.diff(own_offsets)[right] - shared
        score[pairs] = shared / union
    return score


def _load(batches: Iterator[pa.RecordBatch], wanted: U64) -> tuple[U64, U64, Index]:
    """The sets of some documents: numbers (sorted), concatenated hashes and their offsets."""
    found = [
        batch.select(["number", "shingles"]).filter(pa.array(among(_numbers(batch), wanted)))
        for batch in batches
    ]
    table = pa.Table.from_batches(found, schema=pa.schema([SETS.field("number"), SETS.field("shingles")]))
    table = table.sort_by("number").combine_chunks()
    if table.num_rows == 0:
        return np.empty(0, np.uint64), np.empty(0, np.uint64), np.zeros(1, np.int64)
    values, offsets = _list_buffers(table["shingles"].combine_chunks())
    return table["number"].to_numpy(), values, offsets


def _list_buffers(column: pa.Array) -> tuple[U64, Index]:
    """Values and offsets of a large_list column, without a copy."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0)
    offsets = column.offsets.to_numpy()
    return column.values.to_numpy(), np.asarray(offsets, np.int64)


def _numbers(batch: pa.RecordBatch) -> U64:
    return np.asarray(batch.column("number").to_numpy(), np.uint64)


def _once(first: U64, second: U64) -> tuple[U64, U64]:
    """Each pair once, sorted."""
    order = np.lexsort([second, first])
    first, second = first[order], second[order]
    once = begins_run(first, second)
    return first[once], second[once]
