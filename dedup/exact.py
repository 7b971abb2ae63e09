"""Exact copies: documents whose normalised text has one hash fall to the first of them in survivor order.

Two stages over files: `hashes` scatters 40 bytes a considered row by content hash, `copies` groups each bucket. Copies go before
bands are cut, so that a page that stands a million times on the web is one document to the near search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from corpusmill.dedup.layout import (
    Layout,
    Shared,
    bucket_units,
    file_name,
    file_names,
    gather_memory,
    lay_out,
    scatter_memory,
    stored_bytes,
)
from corpusmill.dedup.records import begins_run, considered
from corpusmill.pipeline.binary import U32, U64, halves, joined
from corpusmill.pipeline.engine.shuffle import gathered, slices
from corpusmill.pipeline.engine.stage import Inputs, Result, SetOperation, TaskIO, Unit

COPIES = pa.schema(
    [
        ("number", pa.uint64()),
        ("leader", pa.uint64()),  # of the copies; the leader itself has a row too
        ("copies", pa.uint32()),  # documents in the group, at least 2
        ("content", pa.uint64()),
        ("leader_id", pa.binary(16)),
    ]
)


def hash_schema(shared: Shared) -> pa.Schema:
    columns = [
        "content",
        "content_low",
        "number",
        "id_high",
        "id_low",
        *(f"p{i}" for i in range(len(shared.priority))),
    ]
    return pa.schema([(name, pa.uint64()) for name in columns])


@dataclass(frozen=True)
class HashScatter(SetOperation):
    """Content hashes of considered rows, a slice a hash bucket."""

    temporary: ClassVar[bool] = True
    rate: ClassVar[float] = 1e6  # rows
    shared: Shared

    def units(self, inputs: Inputs) -> list[Unit]:
        return lay_out(inputs, self.shared)[1]

    def worker_memory(self, unit: Unit) -> int:
        return scatter_memory(unit, self.shared)

    def run(self, unit: Unit, io: TaskIO) -> Result:
        layout, schema = Layout.of(unit.fields), hash_schema(self.shared)
        tables = [schema.empty_table()]
        for part in unit.parts:
            rows = considered(io, part, self.shared)
            high, low = halves(io.documents(part, ["id"])["id"])
            columns = [
                rows.content,
                rows.content_low,
                rows.number,
                high[rows.row],
                low[rows.row],
                *rows.priority,
            ]
            tables.append(pa.table([pa.array(column) for column in columns], schema=schema))
        table = pa.concat_tables(tables)
        bucket = layout.hash_bucket_of(table["content"].to_numpy())
        io.write_arrow(file_name(unit.index), slices(table, bucket, layout.hash_buckets), schema)
        return io.result(rows=table.num_rows, counts={"considered": table.num_rows})


@dataclass(frozen=True)
class Copies(SetOperation):
    """Members of groups of equal content, a slice a group of partitions."""

    temporary: ClassVar[bool] = True
    shared: Shared

    def units(self, inputs: Inputs) -> list[Unit]:
        layout, groups = lay_out(inputs, self.shared)
        stage = self.shared.name("hashes")
        return bucket_units(layout.hash_buckets, stored_bytes(inputs, stage), layout, files=len(groups))

    def worker_memory(self, unit: Unit) -> int:
        return gather_memory(unit)

    def run(self, unit: Unit, io: TaskIO) -> Result:
        layout = Layout.of(unit.fields)
        names, schema = file_names(unit.fields["files"]), hash_schema(self.shared)
        table = copies_of(gathered(io, self.shared.name("hashes"), names, unit.index, schema))
        group = layout.group_of(table["number"].to_numpy())
        io.write_arrow(file_name(unit.index), slices(table, group, len(layout.starts)), COPIES)
        leaders = int(np.count_nonzero(table["number"].to_numpy() == table["leader"].to_numpy()))
        largest = int(table["copies"].to_numpy().max(initial=0))
        return io.result(
            rows=table.num_rows, counts={"copies": table.num_rows - leaders}, extra={"largest": largest}
        )


def copies_of(records: pa.Table) -> pa.Table:
    """Groups of two and more equal contents; the leader is first by priority, then by document id (words are equal in a group)."""
    column = {name: records[name].to_numpy() for name in records.column_names}
    ranks = [column[name] for name in reversed(records.column_names) if name.startswith("p")]
    order = np.lexsort(
        [column["id_low"], column["id_high"], *ranks, column["content_low"], column["content"]]
    )
    sort = {name: values[order] for name, values in column.items()}
    starts = np.flatnonzero(begins_run(sort["content"], sort["content_low"]))
    sizes = np.diff(np.append(starts, len(order)))
    size, first = np.repeat(sizes, sizes), np.repeat(starts, sizes)
    chosen = np.flatnonzero(size > 1)
    leader = first[chosen]
    columns = [
        pa.array(sort["number"][chosen]),
        pa.array(sort["number"][leader]),
        pa.array(size[chosen].astype(np.uint32)),
        pa.array(sort["content"][chosen]),
        joined(sort["id_high"][leader], sort["id_low"][leader]),
    ]
    return pa.table(columns, schema=COPIES)


def copies_in(io: TaskIO, shared: Shared, layout: Layout, group: int) -> tuple[U64, U64, U32]:
    """Of one group of partitions: numbers that fell as copies (sorted); numbers that lead copies (sorted) and how many each stands for."""
    table = gathered(io, shared.name("copies"), file_names(layout.hash_buckets), group, COPIES)
    numbers, leaders = table["number"].to_numpy(), table["leader"].to_numpy()
    leads = np.flatnonzero(numbers == leaders)
    leads = leads[np.argsort(numbers[leads])]
    return np.sort(numbers[numbers != leaders]), numbers[leads], table["copies"].to_numpy()[leads]


def among(values: U64, sorted_values: U64) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of `values` stand in a sorted column."""
    if not len(sorted_values):
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(sorted_values, values), len(sorted_values) - 1)
    return np.asarray(sorted_values[at] == values, np.bool_)
