"""Clusters of verified edges over the whole corpus, and the outcome of every document that has a copy or a similar one.

`clusters` is the one unit of a dedup that grows with the corpus: it holds the ends of verified edges, never all documents (about
NODE_BYTES and EDGE_BYTES each; over `memory_bytes` it refuses before it starts). `outcomes` joins it with the exact copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.dedup.exact import COPIES, among
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
from corpusmill.dedup.verify import EDGES, NODES
from corpusmill.pipeline.binary import U64
from corpusmill.pipeline.engine.shuffle import gathered, slices
from corpusmill.pipeline.engine.stage import WORKER_BYTES, Inputs, Result, SetOperation, TaskIO, Unit
from corpusmill.pipeline.errors import BudgetError

NODE_BYTES = 210
EDGE_BYTES = 56
"""Measured with 4 million documents, and with 8 million edges: files mapped, tables, arrays and the slices written."""

KEPT, EXACT, NEAR = 0, 1, 2

OUTCOMES = pa.schema(
    [
        ("number", pa.uint64()),
        ("outcome", pa.uint8()),  # KEPT, EXACT or NEAR
        ("kept_id", pa.binary(16)),  # null when the document is kept
        ("score", pa.float64()),  # similarity with that document; null when kept
        ("cluster", pa.uint64()),
        ("cluster_size", pa.uint32()),
    ]
)
NEAR_OUTCOMES = pa.schema([*OUTCOMES, ("content", pa.uint64()), ("id", pa.binary(16))])


@dataclass(frozen=True)
class Clusters(SetOperation):
    """Survivors and clusters among the ends of verified edges, a slice a hash bucket."""

    shared: Shared
    memory_bytes: int

    def units(self, inputs: Inputs) -> list[Unit]:
        layout, _ = lay_out(inputs, self.shared)
        stage = self.shared.name("edges")
        results = inputs.results(stage)
        edges = sum(result.counts["verified"] for result in results.values())
        nodes = sum(result.counts["ends"] for result in results.values())
        need = nodes * NODE_BYTES + edges * EDGE_BYTES
        if need > self.memory_bytes:
            raise BudgetError(
                f"{self.shared.name('clusters')}: {edges:,} verified edges between {nodes:,} documents need {need:,} bytes, "
                f"memory_bytes of the dedup stage is {self.memory_bytes:,}: raise it on a machine that has them, "
                "or dedup by source (scope: source)"
            )
        found = {
            "candidates": sum(result.counts["candidates"] for result in results.values()),
            "verified": edges,
            "long_runs": sum(result.counts["long_runs"] for result in results.values()),
            "longest_run": max((result.extra["longest_run"] for result in results.values()), default=0),
        }
        return bucket_units(
            1, stored_bytes(inputs, stage), layout, files=len(results), found=found, need_bytes=need
        )

    def worker_memory(self, unit: Unit) -> int:
        return WORKER_BYTES + int(unit.fields["need_bytes"])

    def run(self, unit: Unit, io: TaskIO) -> Result:
        layout, stage = Layout.of(unit.fields), self.shared.name("edges")
        names = file_names(unit.fields["files"])
        edges = _whole(io, stage, names, EDGES)
        table = near_outcomes(edges, _whole(io, stage, ["nodes-" + name for name in names], NODES))
        bucket = layout.hash_bucket_of(table["content"].to_numpy())
        io.write_arrow(file_name(unit.index), slices(table, bucket, layout.hash_buckets), NEAR_OUTCOMES)
        clusters = len(np.unique(table["cluster"].to_numpy()))
        counts = {"clusters": clusters, "edges": len(edges)}
        return io.result(rows=len(table), counts=counts, extra=unit.fields["found"])

    def warm(self) -> None:
        from corpusmill.dedup import survivors  # noqa: F401  (compiles on import)


def _whole(io: TaskIO, stage: str, names: Sequence[str], schema: pa.Schema) -> pa.Table:
    """All batches of some files."""
    readers = [io.open_arrow(stage, name) for name in names]
    return pa.Table.from_batches([batch for reader in readers for batch in reader.batches()], schema=schema)


def near_outcomes(edges: pa.Table, nodes: pa.Table) -> pa.Table:
    """What becomes of the ends of verified edges; an edge or a node may be given more than once."""
    from corpusmill.dedup.survivors import NOBODY, decide

    numbers, at = np.unique(nodes["number"].to_numpy(), return_index=True)
    nodes = nodes.take(pa.array(at)).combine_chunks()
    first = np.searchsorted(numbers, edges["first"].to_numpy()).astype(np.uint32)
    second = np.searchsorted(numbers, edges["second"].to_numpy()).astype(np.uint32)
    content = nodes["content"].to_numpy()
    decision = decide(first, second, edges["score"].to_numpy(), content, nodes["copies"].to_numpy())
    kept = pa.array(decision.kept)
    by = pa.array(np.where(decision.by == NOBODY, 0, decision.by).astype(np.int64), mask=decision.kept)
    columns = [
        pa.array(numbers),
        pa.array(np.where(decision.kept, KEPT, NEAR).astype(np.uint8)),
        nodes["id"].take(by),
        pa.array(decision.score, mask=np.asarray(kept)),
        pa.array(decision.cluster),
        pa.array(decision.size),
        pa.array(content),
        nodes["id"],
    ]
    return pa.table(columns, schema=NEAR_OUTCOMES)


@dataclass(frozen=True)
class Outcomes(SetOperation):
    """Every document with a copy or a similar one, a slice a group of partitions; `near` says whether clusters were sought."""

    shared: Shared
    near: bool

    def units(self, inputs: Inputs) -> list[Unit]:
        layout, _ = lay_out(inputs, self.shared)
        weight = stored_bytes(inputs, self.shared.name("copies"))
        return bucket_units(layout.hash_buckets, weight, layout)

    def worker_memory(self, unit: Unit) -> int:
        return gather_memory(unit)

    def run(self, unit: Unit, io: TaskIO) -> Result:
        layout = Layout.of(unit.fields)
        copies = _whole(io, self.shared.name("copies"), [file_name(unit.index)], COPIES)
        clusters = [file_name(0)] if self.near else []
        near = gathered(io, self.shared.name("clusters"), clusters, unit.index, NEAR_OUTCOMES)
        table = joined_outcomes(copies, near)
        group = layout.group_of(table["number"].to_numpy())
        io.write_arrow(file_name(unit.index), slices(table, group, len(layout.starts)), OUTCOMES)
        largest = int(table["cluster_size"].to_numpy().max(initial=0))
        return io.result(rows=len(table), extra={"largest": largest})


def joined_outcomes(copies: pa.Table, near: pa.Table) -> pa.Table:
    """Near outcomes, and those of members of exact groups, which share the fate of their leader.

    A copy of a leader that stays is exact; a copy of one that fell is as near as that one to the document that stays.
    """
    leader, number = copies["leader"].to_numpy(), copies["number"].to_numpy()
    numbers = near["number"].to_numpy()
    order = np.argsort(numbers)
    near = near.take(pa.array(order)).combine_chunks()
    clustered = among(leader, numbers[order])
    at = pa.array(np.searchsorted(numbers[order], leader), mask=~clustered)
    fate = near.take(at)  # null rows where the leader met nobody
    leads = leader == number
    leader_fell = np.asarray(fate["outcome"].fill_null(KEPT).to_numpy() == NEAR)
    outcome = np.where(leader_fell, NEAR, np.where(leads, KEPT, EXACT)).astype(np.uint8)
    falls_to_leader = ~leads & ~leader_fell
    kept_id = pc.if_else(pa.array(falls_to_leader), copies["leader_id"], fate["kept_id"])
    score = pc.if_else(pa.array(falls_to_leader), pa.scalar(1.0, pa.float64()), fate["score"])
    members = [
        copies["number"],
        pa.array(outcome),
        kept_id,
        score,
        pc.coalesce(fate["cluster"], copies["content"]),
        pc.coalesce(fate["cluster_size"], copies["copies"]),
    ]
    alone = near.filter(pa.array(~among(near["number"].to_numpy(), np.sort(number)))).select(OUTCOMES.names)
    return pa.concat_tables([pa.table(members, schema=OUTCOMES), alone.cast(OUTCOMES)])


def outcomes_in(io: TaskIO, shared: Shared, layout: Layout, group: int) -> tuple[U64, pa.Table]:
    """Outcomes of one group of partitions: document numbers (sorted) and the table in that order."""
    table = gathered(io, shared.name("outcomes"), file_names(layout.hash_buckets), group, OUTCOMES)
    table = table.sort_by("number").combine_chunks()
    return table["number"].to_numpy(), table
