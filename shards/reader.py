"""Rows of shards as numpy arrays: mapped files, views of raw buffers, each block's hash checked before its first token leaves.

Opening reads the manifests and block tables and compares every shard's length with its manifest, so that a missing or cut file
is an error at once and not in the middle of training. Blocks are found by their table, never by scanning a shard; the last
few are kept as views, which cost address space and page cache but no memory of their own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from corpusmill.pipeline.errors import ShardError
from corpusmill.shards.layout import MANIFEST, Manifest, ShardFile, read_blocks, read_manifest, schema
from corpusmill.shards.opened import BlockView, OpenBlocks
from corpusmill.shards.order import ComponentOrder, Order, Samples
from corpusmill.shards.permutation import Indices
from corpusmill.shards.pieces import Pieces
from corpusmill.shards.plan import Component, Plan, find_plan, read_plan
from corpusmill.shards.quarantine import Hidden, read_quarantine

KEPT_BLOCKS = 64
OPEN_SHARDS = 256  # mapped files kept; far below the 65,530 mappings that Linux grants a process


class ComponentReader:
    """One component's manifest and block table; its blocks are opened when they are asked for."""

    def __init__(self, folder: Path, component: Component) -> None:
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
        self._files: OrderedDict[int, pa.Buffer] = OrderedDict()

    def shard(self, block: int) -> ShardFile:
        return self.manifest.shards[int(self.blocks["shard"][block])]

    def block_of(self, rows: Indices) -> Indices:
        """The block that holds each component-wide row."""
        return np.searchsorted(self.first_row, rows, side="right") - 1

    def view(self, block: int) -> BlockView:
        """Raises ShardError naming shard and block when the stored bytes are not those that were written."""
        part = self._stored(block)
        batch = pa.ipc.read_record_batch(pa.ipc.read_message(part), self._schema)
        if batch.num_rows != int(self.blocks["rows"][block]):
            raise ShardError(self._damaged(block, "its number of rows is not the one in blocks.arrow"))
        tokens = np.asarray(batch.column(0).values).reshape(batch.num_rows, self.manifest.sequence_length + 1)
        return BlockView(int(self.first_row[block]), tokens, batch)

    def _stored(self, block: int) -> pa.Buffer:
        """The block's bytes; they have been compared with its hash."""
        number = int(self.blocks["shard"][block])
        if number not in self._files:
            self._files[number] = _map(self.folder, self.manifest.shards[number])
            if len(self._files) > OPEN_SHARDS:
                self._files.popitem(last=False)
        part = self._files[number].slice(int(self.blocks["offset"][block]), int(self.blocks["length"][block]))
        if not self._checked[block]:
            if xxhash.xxh3_64_intdigest(memoryview(part)) != int(self.blocks["xxh3"][block]):
                raise ShardError(self._damaged(block, "its hash is not the one in blocks.arrow"))
            self._checked[block] = True
        return part

    def _damaged(self, block: int, how: str) -> str:
        first, rows = int(self.first_row[block]), int(self.blocks["rows"][block])
        return (
            f"{self.folder / self.shard(block).file}: block {block} (rows {first} to {first + rows - 1} of {self.component.name}) "
            f"is damaged: {how}; restore the file or shard again (corpusmill verify lists all)"
        )


class Shards:
    """All that a plan names, opened: the order of its samples, the rows behind them, and what a quarantine hides of them."""

    def __init__(self, path: str | Path) -> None:
        self.path = find_plan(path)
        self.plan: Plan = read_plan(self.path)
        self.components = tuple(
            ComponentReader(self.path.parent / component.folder, component)
            for component in self.plan.components
        )
        for reader in self.components:
            _check_kind(self.plan, reader)
        self.quarantine = read_quarantine(self.path.parent, self.plan)
        self.hidden = Hidden(self.quarantine, self.plan)
        self.order = Order(
            self.plan.mixture(),
            [
                ComponentOrder(r.component.name, self.plan.seed, self.plan.window, r.blocks["rows"])
                for r in self.components
            ],
        )

        self.opened = OpenBlocks(
            int(self.order.first_block[-1]),
            self.plan.sequence_length + 1,
            self.plan.dtype,
            max(KEPT_BLOCKS, 2 * self.plan.window * len(self.components)),
            self._view,
        )

    def tokens(self, samples: Samples) -> npt.NDArray[np.unsignedinteger[Any]]:
        """[samples, T + 1] ids as they are stored, a copy that the caller may change."""
        return self.opened.gather(samples.block, samples.inside)

    def _view(self, block: int) -> BlockView:
        component = int(np.searchsorted(self.order.first_block, block, side="right")) - 1
        return self.components[component].view(block - int(self.order.first_block[component]))

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
        order = np.argsort(samples.block, kind="stable")
        cuts = np.flatnonzero(np.diff(samples.block[order])) + 1
        for group in np.split(order, cuts) if order.size else ():
            yield self.opened.view(int(samples.block[group[0]])), group, samples.inside[group]


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
