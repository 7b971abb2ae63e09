"""The reference engine: candidates out of datasketch's own index instead of sorted band keys.

For a check of our buckets by a library that others trust, up to MOST_DOCUMENTS: the index takes some 5 kB a document in one process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from corpusmill.dedup.exact import copies_in
from corpusmill.dedup.layout import Layout, Shared, lay_out, scatter_memory
from corpusmill.dedup.pairs import candidates_of, pairs_in_runs, write_pairs
from corpusmill.dedup.records import Rows, order_names
from corpusmill.pipeline.binary import U32
from corpusmill.pipeline.engine.stage import Inputs, Result, SetOperation, TaskIO, Unit
from corpusmill.pipeline.errors import BudgetError

MOST_DOCUMENTS = 1_000_000


@dataclass(frozen=True)
class DatasketchPairs(SetOperation):
    """Candidate pairs as `Pairs` writes them, from one `datasketch.MinHashLSH` a scope."""

    temporary: ClassVar[bool] = True
    libraries: ClassVar[tuple[str, ...]] = ("datasketch",)
    shared: Shared
    leaders: int
    long_run: int

    def units(self, inputs: Inputs) -> list[Unit]:
        layout, groups = lay_out(inputs, self.shared)
        rows = sum(unit.weight for unit in groups)
        if rows > MOST_DOCUMENTS:
            raise BudgetError(
                f"{self.shared.name('pairs')}: engine datasketch takes at most {MOST_DOCUMENTS:,} documents, "
                f"the inputs have {rows:,}: leave `engine` out"
            )
        parts = tuple(part for unit in groups for part in unit.parts)
        return [
            Unit(0, rows, {"layout": layout.fields(), "groups": [list(unit.parts) for unit in groups]}, parts)
        ]

    def worker_memory(self, unit: Unit) -> int:
        return scatter_memory(unit, self.shared)

    def run(self, unit: Unit, io: TaskIO) -> Result:
        layout = Layout.of(unit.fields)
        found: list[tuple[Rows, U32]] = []
        for group, parts in enumerate(unit.fields["groups"]):
            followers, _, _ = copies_in(io, self.shared, layout, group)
            found.extend(candidates_of(io, part, self.shared, layout, followers) for part in parts)
        number = np.concatenate([rows.number for rows, _ in found])
        scope = np.concatenate([rows.scope for rows, _ in found])
        orders = [rows.order() for rows, _ in found]
        order = [np.concatenate([each[name] for each in orders]) for name in order_names(self.shared)]
        signatures = np.concatenate([signatures for _, signatures in found])
        run, member = buckets_of(signatures, scope, self.shared.bands, self.shared.rows)
        pairs = pairs_in_runs(
            run, number[member], [column[member] for column in order], self.leaders, self.long_run
        )
        return write_pairs(io, unit, pairs)


def buckets_of(signatures: U32, scope: np.ndarray, bands: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """(number of the bucket, position of the document) for every document and band, as datasketch's index has them."""
    from datasketch import MinHash, MinHashLSH

    runs, members = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    count = 0
    for value in np.unique(scope):
        index = MinHashLSH(num_perm=signatures.shape[1], params=(bands, rows))
        for position in np.flatnonzero(scope == value).tolist():
            index.insert(position, MinHash(hashvalues=signatures[position], scheme="affine32"))
        for table in index.hashtables:
            for key in table:
                bucket = sorted(table.get(key))
                members.append(np.array(bucket, np.int64))
                runs.append(np.full(len(bucket), count, np.uint64))
                count += 1
    return np.concatenate(runs), np.concatenate(members)
