"""Rows of shards as numpy arrays: mapped files, views of raw buffers, each block's hash checked before its first token leaves.

Opening reads the manifests and block tables and compares every shard's length with its manifest, so that a missing or cut file
is an error at once and not in the middle of training. Blocks are found by their table, never by scanning a shard; the last
few are kept as views, which cost address space and page cache but no memory of their own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from corpusmill.pipeline.errors import ShardError
from corpusmill.shards.layout import MANIFEST, Manifest, ShardFile, read_blocks, read_manifest, schema
from corpusmill.shards.order import ComponentOrder, Order, Samples
from corpusmill.shards.permutation import Indices
from corpusmill.shards.pieces import Pieces
from corpusmill.shards.plan import Component, Plan, find_plan, read_plan

OPEN_SHARDS = 256  # mapped files kept; far below the 65,530 mappings that Linux grants a process

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class BlockView:
    """One block: `tokens` [rows, T + 1] and `batch`, both views of the mapped file."""

    first_row: int
    tokens: npt.NDArray[np.unsignedinteger[Any]]
    batch: pa.RecordBatch

    def lists(self, column: str) -> tuple[Indices, npt.NDArray[np.unsignedinteger[Any]]]:
        """(offsets, values) of a list column: row i holds values[offsets[i] : offsets[i + 1]]."""
        array = self.batch.column(self.batch.schema.get_field_index(column))
        return np.asarray(array.offsets).astype(np.int64), np.asarray(array.values)


class ComponentReader:
    """One component's blocks, opened when they are first needed."""

    def __init__(self, folder: Path, component: Component, keep: int) -> None:
        self.folder, self.component = folder, component
        self.manifest = _manifest(folder, component)
        table = read_blocks(folder, self.manifest)
        self.blocks = {name: np.asarray(table.column(name)) for name in table.column_names}
        self.first_row = self.blocks["first_row"].astype(np.int64)
        _check_table(folder, self.manifest, self.blocks)
        for shard in self.manifest.shards:
            check_length(folder / shard.file, shard.size_bytes)
        self._schema = schema(self.manifest.sequence_length, self.manifest.dtype)
        self._checked = np.zeros(len(self.first_row), np.bool_)
        self._views: OrderedDict[int, BlockView] = OrderedDict()
        self._files: OrderedDict[int, pa.Buffer] = OrderedDict()
        self._keep = keep

    def shard(self, block: int) -> ShardFile:
        return self.manifest.shards[int(self.blocks["shard"][block])]

    def block_of(self, rows: Indices) -> Indices:
        """The block that holds each component-wide row."""
        return np.searchsorted(self.first_row, rows, side="right") - 1

    def view(self, block: int) -> BlockView:
        """Raises ShardError naming shard and block when the stored bytes are not those that were written."""
        return _kept(self._views, block, self._keep, lambda: self._open(block))

    def _open(self, block: int) -> BlockView:
        number = int(self.blocks["shard"][block])
        data = _kept(
            self._files, number, OPEN_SHARDS, lambda: _map(self.folder, self.manifest.shards[number])
        )
        part = data.slice(int(self.blocks["offset"][block]), int(self.blocks["length"][block]))
        if not self._checked[block]:
            if xxhash.xxh3_64_intdigest(memoryview(part)) != int(self.blocks["xxh3"][block]):
                raise ShardError(self._damaged(block))
            self._checked[block] = True
        batch = pa.ipc.read_record_batch(pa.ipc.read_message(part), self._schema)
        tokens = np.asarray(batch.column(0).values).reshape(batch.num_rows, self.manifest.sequence_length + 1)
        return BlockView(int(self.first_row[block]), tokens, batch)

    def _damaged(self, block: int) -> str:
        first, rows = int(self.first_row[block]), int(self.blocks["rows"][block])
        return (
            f"{self.folder / self.shard(block).file}: block {block} (rows {first} to {first + rows - 1} of {self.component.name}) "
            "is damaged: its hash is not the one in blocks.arrow; restore the file or shard again (corpusmill verify lists all)"
        )


class Shards:
    """All that a plan names, opened: the order of its samples and the rows behind them."""

    def __init__(self, path: str | Path) -> None:
        self.path = find_plan(path)
        self.plan: Plan = read_plan(self.path)
        keep = max(64, 2 * self.plan.window)
        self.components = tuple(
            ComponentReader(self.path.parent / component.folder, component, keep)
            for component in self.plan.components
        )
        for reader in self.components:
            _check_kind(self.plan, reader)
        self.order = Order(
            self.plan.mixture(),
            [
                ComponentOrder(r.component.name, self.plan.seed, self.plan.window, r.blocks["rows"])
                for r in self.components
            ],
        )

    def tokens(self, samples: Samples) -> npt.NDArray[np.unsignedinteger[Any]]:
        """[samples, T + 1] ids, a copy that the caller may change."""
        out = np.empty((len(samples.row), self.plan.sequence_length + 1), self.plan.dtype)
        for view, places, rows in self._grouped(samples):
            out[places] = view.tokens[rows]
        return out

    def pieces(self, samples: Samples) -> Pieces:
        """The pieces of documents in each sample, in order."""
        places_of, ends_of = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for view, places, rows in self._grouped(samples):
            offsets, ends = view.lists("doc_ends")
            counts = offsets[rows + 1] - offsets[rows]
            flat = np.repeat(offsets[rows] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
            places_of.append(np.repeat(places, counts))
            ends_of.append(ends[flat].astype(np.int64))
        place = np.concatenate(places_of)
        order = np.argsort(place, kind="stable")
        return Pieces(
            len(samples.row), self.plan.sequence_length, place[order], np.concatenate(ends_of)[order]
        )

    def _grouped(self, samples: Samples) -> Iterator[tuple[BlockView, Indices, Indices]]:
        """(block, places in `samples`, rows in the block), each block once."""
        for i in np.unique(samples.component).tolist():  # of hundreds of components a small batch holds a few
            reader = self.components[i]
            places = np.flatnonzero(samples.component == i)
            blocks = reader.block_of(samples.row[places])
            order = np.argsort(blocks, kind="stable")
            cuts = np.flatnonzero(np.diff(blocks[order])) + 1
            for group in np.split(order, cuts):
                view = reader.view(int(blocks[group[0]]))
                yield view, places[group], samples.row[places[group]] - view.first_row


def check_length(path: Path, size_bytes: int) -> None:
    """Raises ShardError when the file is missing or has another length."""
    try:
        found = path.stat().st_size
    except FileNotFoundError as error:
        raise ShardError(f"{path} is missing; restore it or shard again") from error
    if found != size_bytes:
        raise ShardError(
            f"{path} has {found} bytes, its manifest says {size_bytes}; restore it or shard again"
        )


def _map(folder: Path, shard: ShardFile) -> pa.Buffer:
    path = folder / shard.file
    check_length(path, shard.size_bytes)  # reading beyond the end of a mapped file would kill the process
    with pa.memory_map(str(path)) as source:
        return source.read_buffer()


def _manifest(folder: Path, component: Component) -> Manifest:
    manifest = read_manifest(folder)
    if (
        manifest.hash != component.manifest
        or manifest.rows != component.rows
        or manifest.blocks != component.blocks
    ):
        raise ShardError(
            f"{folder / MANIFEST} ({manifest.hash[:8]}, {manifest.rows} rows) is not the plan's ({component.manifest[:8]}, "
            f"{component.rows} rows); restore the shards the plan was made for, or run mix again"
        )
    return manifest


def _check_table(folder: Path, manifest: Manifest, blocks: dict[str, npt.NDArray[Any]]) -> None:
    rows = blocks["rows"].astype(np.int64)
    firsts = np.concatenate([[0], np.cumsum(rows)])
    if (
        len(rows) != manifest.blocks
        or firsts[-1] != manifest.rows
        or (blocks["first_row"] != firsts[:-1]).any()
    ):
        raise ShardError(
            f"{folder}: blocks.arrow and manifest.json disagree on rows; restore both or shard again"
        )


def _check_kind(plan: Plan, reader: ComponentReader) -> None:
    manifest = reader.manifest
    if (manifest.sequence_length, manifest.dtype, manifest.eos) != (
        plan.sequence_length,
        plan.dtype,
        plan.eos,
    ):
        raise ShardError(
            f"{reader.folder} and the plan disagree on sequence length, dtype or eos; run mix again"
        )


def _kept(store: OrderedDict[int, _Value], key: int, limit: int, make: Callable[[], _Value]) -> _Value:
    """`store[key]`, made when it is not there; the longest unused goes when there are more than `limit`."""
    if key in store:
        store.move_to_end(key)
    else:
        store[key] = make()
        if len(store) > limit:
            store.popitem(last=False)
    return store[key]
