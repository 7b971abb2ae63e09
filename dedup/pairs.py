"""Candidates: documents that share a band, by sorting band keys bucket by bucket.

`bands` scatters a record a row and band; `pairs` sorts a bucket and reads off runs of equal keys. In a run every member is
compared with the first `leaders` in survivor order: with the one that will stay if they are similar, and, should a comparison
fail, with the next ones. So a run of m members costs at most leaders x m comparisons; runs of up to leaders + 1 members give all pairs.
Both stages together take some 3 microseconds a document (100,000 documents, a quarter of them copies).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.dedup.bands import band_keys
from corpusmill.dedup.exact import among, copies_in
from corpusmill.dedup.layout import (
    Layout,
    Shared,
    bucket_units,
    file_name,
    file_names,
    gather_memory,
    lay_out,
    scatter_memory,
    scramble,
    stored_bytes,
)
from corpusmill.dedup.records import (
    Rows,
    begins_run,
    considered,
    order_names,
    order_schema,
    ranges,
)
from corpusmill.dedup.signatures import SIGNATURE
from corpusmill.pipeline.binary import U32, U64, fixed
from corpusmill.pipeline.engine.merge import chosen
from corpusmill.pipeline.engine.shuffle import gathered, slices
from corpusmill.pipeline.engine.stage import Inputs, Result, SetOperation, TaskIO, Unit

FEW_LEADERS = 2
"""Leaders of a run longer than `long_run`: such runs are copies of one boilerplate, and comparisons with all leaders would multiply them."""

PAIRS = pa.schema([("first", pa.uint64()), ("second", pa.uint64())])
WANTED = pa.schema([("number", pa.uint64()), ("bucket", pa.uint32())])


def band_schema(shared: Shared) -> pa.Schema:
    return pa.schema([("key", pa.uint64()), ("number", pa.uint64()), *order_schema(shared)])


def candidates_of(io: TaskIO, part: int, shared: Shared, layout: Layout, followers: U64) -> tuple[Rows, U32]:
    """Rows of a partition that can be near duplicates, and their signatures: with words, and no copies of another."""
    rows = considered(io, part, shared)
    rows = rows.take(rows.has_words & ~among(rows.number, followers))
    layer = io.layer(shared.name("signatures"), part, [SIGNATURE + shared.suffix])
    column = layer[SIGNATURE + shared.suffix]
    signatures = fixed(column, column.type.byte_width)[rows.row].view("<u4").astype(np.uint32, copy=False)
    return rows, signatures


@dataclass(frozen=True)
class BandScatter(SetOperation):
    """Band keys of all candidates with what orders survivors, a slice a key bucket."""

    version: ClassVar[int] = 2  # 2: results say how many slices a file has
    temporary: ClassVar[bool] = True
    rate: ClassVar[float] = 2e5  # rows
    shared: Shared

    def units(self, inputs: Inputs) -> list[Unit]:
        return lay_out(inputs, self.shared)[1]

    def worker_memory(self, unit: Unit) -> int:
        return scatter_memory(unit, self.shared)

    def run(self, unit: Unit, io: TaskIO) -> Result:
        layout, schema = Layout.of(unit.fields), band_schema(self.shared)
        followers, _, _ = copies_in(io, self.shared, layout, unit.index)
        tables = [schema.empty_table()]
        for part in unit.parts:
            rows, signatures = candidates_of(io, part, self.shared, layout, followers)
            keys = band_keys(signatures, self.shared.bands, self.shared.rows) ^ rows.scope[:, None]
            repeated = [
                np.repeat(column, self.shared.bands) for column in (rows.number, *rows.order().values())
            ]
            tables.append(pa.table([pa.array(keys.reshape(-1)), *map(pa.array, repeated)], schema=schema))
        table = pa.concat_tables(tables)
        bucket = scramble(table["key"].to_numpy(), layout.key_buckets)
        io.write_arrow(file_name(unit.index), slices(table, bucket, layout.key_buckets), schema)
        return io.result(rows=table.num_rows, extra={"slices": layout.key_buckets})

    def warm(self) -> None:
        band_keys(np.zeros((1, 2), np.uint32), 1, 2)


@dataclass(frozen=True)
class Pairs(SetOperation):
    """Candidate pairs of a key bucket, and which partition must hand its shingles to which pair bucket."""

    temporary: ClassVar[bool] = True
    shared: Shared
    leaders: int
    long_run: int

    def units(self, inputs: Inputs) -> list[Unit]:
        layout, _ = lay_out(inputs, self.shared)
        stage = chosen(inputs, self.shared.name("bands"), self.shared.name("bands.merged"))
        files = len(inputs.results(stage))
        return bucket_units(layout.key_buckets, stored_bytes(inputs, stage), layout, stage=stage, files=files)

    def worker_memory(self, unit: Unit) -> int:
        return gather_memory(unit)

    def run(self, unit: Unit, io: TaskIO) -> Result:
        names, schema = file_names(unit.fields["files"]), band_schema(self.shared)
        table = gathered(io, unit.fields["stage"], names, unit.index, schema)
        columns = {name: table[name].to_numpy() for name in table.column_names}
        order = [columns[name] for name in order_names(self.shared)]
        found = pairs_in_runs(columns["key"], columns["number"], order, self.leaders, self.long_run)
        return write_pairs(io, unit, found)


@dataclass(frozen=True)
class Found:
    """Pairs (`first` comes first in survivor order) with the first member of their run, each pair once; and how long runs were."""

    first: U64
    second: U64
    anchor: U64
    long_runs: int
    longest: int


def pairs_in_runs(
    key: U64, number: U64, order: Sequence[npt.NDArray[Any]], leaders: int, long_run: int
) -> Found:
    """Pairs of records with equal keys; `order` is the survivor order, most significant first."""
    chosen = _repeated(key)
    ranked = chosen[np.lexsort([*(column[chosen] for column in reversed(order)), key[chosen]])]
    keys = key[ranked]
    starts = np.flatnonzero(begins_run(keys))
    sizes = np.diff(np.append(starts, len(keys)))
    first, second, anchor = _star_pairs(number[ranked], starts, sizes, leaders, long_run)
    order_of_pairs = np.lexsort([anchor, second, first])
    first, second, anchor = first[order_of_pairs], second[order_of_pairs], anchor[order_of_pairs]
    once = begins_run(first, second)
    longest = int(sizes[sizes > 1].max(initial=0))
    return Found(first[once], second[once], anchor[once], int(np.count_nonzero(sizes > long_run)), longest)


def _repeated(key: U64) -> npt.NDArray[np.int64]:
    """Positions of keys that may occur more than once: a few per cent of all, so the costly order is computed for these alone.

    Upper bits of the key and position share one integer, because sorting values is several times faster than sorting positions;
    keys that differ in the lower bits only come along and are told apart later.
    """
    bits = np.uint64(max(len(key) - 1, 0).bit_length())
    low = (np.uint64(1) << bits) - np.uint64(1)
    packed = np.sort((key & ~low) | np.arange(len(key), dtype=np.uint64))
    same = (packed[1:] >> bits) == (packed[:-1] >> bits)
    inside = np.zeros(len(key), np.bool_)
    inside[1:] |= same
    inside[:-1] |= same
    return np.asarray(packed[inside] & low, np.int64)


def _star_pairs(
    member: U64, starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], leaders: int, long_run: int
) -> tuple[U64, U64, U64]:
    """(leader, member, first of the run) of every comparison; a round of array work for each leader."""
    first, second, anchor = [], [], []
    for lead in range(leaders):
        wide = (sizes > lead + 1) & ((sizes <= long_run) | (lead < FEW_LEADERS))
        run_starts, counts = starts[wide], sizes[wide] - lead - 1
        if not len(counts):
            break
        first.append(member[np.repeat(run_starts + lead, counts)])
        second.append(member[ranges(run_starts + lead + 1, run_starts + sizes[wide])])
        anchor.append(member[np.repeat(run_starts, counts)])
    none = [np.empty(0, np.uint64)]
    return np.concatenate(none + first), np.concatenate(none + second), np.concatenate(none + anchor)


def write_pairs(io: TaskIO, unit: Unit, found: Found) -> Result:
    """Pairs by the bucket that verifies them, and by group of partitions who is wanted there.

    Pairs of a run go to one bucket, so that a document is handed out once for each cluster that it may belong to.
    """
    layout = Layout.of(unit.fields)
    bucket = scramble(found.anchor, layout.pair_buckets)
    pairs = pa.table([pa.array(found.first), pa.array(found.second)], schema=PAIRS)
    io.write_arrow(file_name(unit.index), slices(pairs, bucket, layout.pair_buckets), PAIRS)
    wanted = wanted_of(np.concatenate([found.first, found.second]), np.concatenate([bucket, bucket]))
    group = layout.group_of(wanted["number"].to_numpy())
    io.write_arrow("wanted-" + file_name(unit.index), slices(wanted, group, len(layout.starts)), WANTED)
    counts = {"pairs": len(found.first), "long_runs": found.long_runs}
    return io.result(rows=len(found.first), counts=counts, extra={"longest_run": found.longest})


def wanted_of(numbers: U64, buckets: npt.NDArray[np.integer[Any]]) -> pa.Table:
    """Each (document number, bucket) once, sorted."""
    order = np.lexsort([buckets, numbers])
    numbers, buckets = numbers[order], buckets[order]
    once = begins_run(numbers, buckets)
    return pa.table([pa.array(numbers[once]), pa.array(buckets[once].astype(np.uint32))], schema=WANTED)
