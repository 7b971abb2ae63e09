"""How the work is cut: groups of partitions and numbers of buckets, from row counts alone, so never from the number of workers.

group         consecutive partitions whose records fit in `bucket_bytes`: what a scatter unit reads and a slice is made for
hash bucket   content hashes;  key bucket  band keys;  pair bucket  candidates with the shingles to verify them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.binary import U64
from corpusmill.pipeline.engine.layout import consecutive
from corpusmill.pipeline.engine.stage import WORKER_BYTES, Inputs, Unit

HASH_RECORD_BYTES = 40
BAND_RECORD_BYTES = 28
PRIORITY_BYTES = 8
SHINGLE_BYTES_PER_STORED_BYTE = 4  # text inflates about threefold from zstd and makes 8 bytes of hash a word
MOST_PAIR_BUCKETS = 4096
MANY_UNITS = 64
LEAST_UNIT_BYTES = 4 << 20
COPIES_HELD = (
    4  # of the records of a unit at once: as read, in columns, in order, and the slices to be written
)


@dataclass(frozen=True)
class Shared:
    """What all stages of one dedup agree on. `stage` is its name in the recipe, `suffix` that of its measures."""

    stage: str
    bands: int
    rows: int
    scope: Literal["global", "source"]
    priority: tuple[str, ...]
    bucket_bytes: int
    suffix: str = ""

    def name(self, step: str) -> str:
        return f"{self.stage}.{step}"


@dataclass(frozen=True)
class Layout:
    """`starts`: the first partition of each group."""

    starts: tuple[int, ...]
    hash_buckets: int
    key_buckets: int
    pair_buckets: int

    @staticmethod
    def of(fields: Mapping[str, Any]) -> Layout:
        """The layout as a unit carries it."""
        value = fields["layout"]
        return Layout(
            tuple(value["starts"]), value["hash_buckets"], value["key_buckets"], value["pair_buckets"]
        )

    def fields(self) -> dict[str, Any]:
        return {
            "starts": list(self.starts),
            "hash_buckets": self.hash_buckets,
            "key_buckets": self.key_buckets,
            "pair_buckets": self.pair_buckets,
        }

    def group_of(self, numbers: U64) -> npt.NDArray[np.int64]:
        """The group of each document number."""
        parts = (numbers >> np.uint64(32)).astype(np.int64)
        return np.asarray(np.searchsorted(np.array(self.starts, np.int64), parts, "right") - 1, np.int64)

    def hash_bucket_of(self, contents: U64) -> npt.NDArray[np.int64]:
        """The hash bucket of each content hash."""
        return (contents % np.uint64(self.hash_buckets)).astype(np.int64)


def lay_out(inputs: Inputs, shared: Shared) -> tuple[Layout, list[Unit]]:
    """The layout, and a unit a group (weight: rows) for the stages that read partitions."""
    results = inputs.results("documents")
    rows = {part: results[part].rows for part in sorted(results)}
    stored = stored_bytes(inputs, "documents")
    extra = PRIORITY_BYTES * len(shared.priority)
    band_bytes = shared.bands * (BAND_RECORD_BYTES + extra)
    total = sum(rows.values())
    row_bytes = _row_bytes(shared)
    sizes = {part: count * row_bytes for part, count in rows.items()}
    groups = consecutive(sizes, _limit(total * row_bytes, shared.bucket_bytes))
    layout = Layout(
        starts=tuple(group[0] for group in groups),
        hash_buckets=_buckets(total * (HASH_RECORD_BYTES + extra), shared.bucket_bytes),
        key_buckets=_buckets(total * band_bytes, shared.bucket_bytes),
        pair_buckets=min(
            _buckets(stored * SHINGLE_BYTES_PER_STORED_BYTE, shared.bucket_bytes), MOST_PAIR_BUCKETS
        ),
    )
    fields = {"layout": layout.fields()}
    units = [Unit(i, sum(rows[part] for part in group), fields, group) for i, group in enumerate(groups)]
    return layout, units


def bucket_units(buckets: int, weight: int, layout: Layout, **fields: Any) -> list[Unit]:
    """A unit a bucket; together they weigh `weight` bytes."""
    same = {"layout": layout.fields(), **fields}  # one for all: it names every group
    return [Unit(i, weight // buckets + 1, same) for i in range(buckets)]


def scatter_memory(unit: Unit, shared: Shared) -> int:
    """Of a unit of `lay_out` whose records are held until they are sorted into slices."""
    return WORKER_BYTES + COPIES_HELD * unit.weight * _row_bytes(shared)


def gather_memory(unit: Unit) -> int:
    """Of a unit of `bucket_units`, which is read as a whole."""
    return WORKER_BYTES + COPIES_HELD * unit.weight


def file_name(unit: int) -> str:
    """The Arrow file of a unit."""
    return f"{unit:05d}.arrow"


def file_names(count: int) -> list[str]:
    return [file_name(unit) for unit in range(count)]


def scramble(values: U64, buckets: int) -> npt.NDArray[np.int64]:
    """A bucket for each number, evenly even where numbers are consecutive."""
    mixed = values * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return np.asarray((mixed * np.uint64(0xD6E8FEB86659FD93) >> np.uint64(32)) % np.uint64(buckets), np.int64)


def stored_bytes(inputs: Inputs, stage: str) -> int:
    """Bytes in files of an earlier stage, for the weights of its readers."""
    return sum(file.size_bytes for result in inputs.results(stage).values() for file in result.files)


def _row_bytes(shared: Shared) -> int:
    """Of the larger kind of records that one document makes."""
    extra = PRIORITY_BYTES * len(shared.priority)
    return max(shared.bands * (BAND_RECORD_BYTES + extra), HASH_RECORD_BYTES + extra)


def _limit(total_bytes: int, bucket_bytes: int) -> int:
    """Bytes for one unit: a share of what there is while that is little, so that small corpora use many cores too."""
    return min(bucket_bytes, max(total_bytes // MANY_UNITS, LEAST_UNIT_BYTES))


def _buckets(total_bytes: int, bucket_bytes: int) -> int:
    return max(1, -(-total_bytes // _limit(total_bytes, bucket_bytes)))
