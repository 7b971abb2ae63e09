"""Rows that dedup considers, as NumPy columns, and the order in which survivors are chosen.

A row is considered when all earlier verdicts kept it and its signature stands. Of two similar documents the one stays that comes
first by (priority columns, more words, smaller content hash); nothing in that depends on files, partitions or arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from corpusmill.dedup.layout import Shared
from corpusmill.dedup.signatures import CONTENT, WORDS
from corpusmill.pipeline.binary import U32, U64, halves
from corpusmill.pipeline.documents import number
from corpusmill.pipeline.engine.stage import TaskIO
from corpusmill.pipeline.errors import RecipeError

WORST = np.uint64(0xFFFFFFFFFFFFFFFF)
SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class Rows:
    """Considered rows of one partition. `content` is the upper half of the content hash, mixed with the source in scope `source`.

    `brevity` is 2^32 - 1 - words, `priority` a column a priority name: smaller comes first in both. `scope` is 0 or a hash of the source.
    """

    row: npt.NDArray[np.int64]
    number: U64
    content: U64
    content_low: U64
    brevity: U32
    scope: U64
    priority: tuple[U64, ...]

    def take(self, chosen: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Rows:
        first = (self.row[chosen], self.number[chosen], self.content[chosen], self.content_low[chosen])
        return Rows(
            *first,
            self.brevity[chosen],
            self.scope[chosen],
            tuple(column[chosen] for column in self.priority),
        )

    def order(self) -> dict[str, npt.NDArray[np.unsignedinteger]]:
        """The columns that a record carries so that survivors can be told elsewhere, most significant first."""
        ranks = {f"p{i}": column for i, column in enumerate(self.priority)}
        return {**ranks, "brevity": self.brevity, "content": self.content}

    @property
    def has_words(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.brevity != np.uint32(0xFFFFFFFF), np.bool_)


def considered(io: TaskIO, part: int, shared: Shared) -> Rows:
    """The considered rows of a partition, in order."""
    names = [WORDS + shared.suffix, CONTENT + shared.suffix]
    layer = io.layer(shared.name("signatures"), part, names)
    row = np.flatnonzero(io.kept(part) & layer[names[0]].is_valid().to_numpy())
    high, low = halves(layer[names[1]])
    scope = _scopes(io, part, shared)[row]
    words = layer[names[0]].fill_null(0).to_numpy()[row].astype(np.uint32)
    priority = tuple(keys[row] for keys in priority_keys(io, part, shared.priority, layer.num_rows))
    numbers = row.astype(np.uint64) + np.uint64(number(part, 0))
    return Rows(row, numbers, high[row] ^ scope, low[row], np.uint32(0xFFFFFFFF) - words, scope, priority)


def order_names(shared: Shared) -> list[str]:
    """Names of the columns of `Rows.order`."""
    return [*(f"p{i}" for i in range(len(shared.priority))), "brevity", "content"]


def order_schema(shared: Shared) -> list[tuple[str, pa.DataType]]:
    return [(name, pa.uint32() if name == "brevity" else pa.uint64()) for name in order_names(shared)]


def priority_keys(io: TaskIO, part: int, names: Sequence[str], rows: int) -> list[U64]:
    """A column a name whose ascending order is the order of preference; rows without a value come last."""
    keys = [np.full(rows, WORST, np.uint64) for _ in names]
    if names:
        for index, table in io.rows(part, [name.removeprefix("-") for name in names], kept=True):
            for key, name, column in zip(keys, names, table.columns, strict=True):
                key[index] = ascending(column, name) if name.startswith("-") else descending(column, name)
    return keys


def ascending(column: pa.ChunkedArray, name: str) -> U64:
    """Integers that sort as the values do; null and NaN sort last."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        values = column.cast(pa.int64(), safe=False).fill_null(0).to_numpy()
        keys = values.view(np.uint64) ^ SIGN
        missing = column.is_null().to_numpy()
    elif pa.types.is_floating(kind):
        floats = column.cast(pa.float64()).fill_null(float("nan")).to_numpy() + 0.0  # -0.0 becomes 0.0
        bits = floats.view(np.uint64)
        keys = np.where(bits & SIGN != 0, ~bits, bits | SIGN)
        missing = np.isnan(floats)
    else:
        raise RecipeError(
            f"dedup.priority: {name.removeprefix('-')!r} is a column of {kind}; a priority is a number, a date or true/false"
        )
    # The last key is taken by missing values alone, so that they sort behind all others in both directions.
    return np.where(missing, WORST, np.minimum(keys, WORST - np.uint64(1)))


def descending(column: pa.ChunkedArray, name: str) -> U64:
    keys = ascending(column, name)
    return np.where(keys == WORST, WORST, WORST - np.uint64(1) - keys)


def begins_run(*columns: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Of rows sorted by `columns`, which ones differ from the row before: the first of each run of equals."""
    first = np.zeros(len(columns[0]), np.bool_)
    first[:1] = True
    for column in columns:
        first[1:] |= column[1:] != column[:-1]
    return first


def ranges(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """start[0], start[0] + 1, ..., end[0] - 1, start[1], ..."""
    counts = end - start
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(np.repeat(start, counts) + within, np.int64)


def _scopes(io: TaskIO, part: int, shared: Shared) -> U64:
    sources = io.documents(part, ["source"])["source"]
    if shared.scope == "global":
        return np.zeros(len(sources), np.uint64)
    encoded = sources.combine_chunks().dictionary_encode("encode")
    hashes = [xxhash.xxh3_64_intdigest(str(source).encode()) for source in encoded.dictionary.to_pylist()]
    return np.asarray(np.array(hashes, np.uint64)[encoded.indices.to_numpy()], np.uint64)
