"""Rows of shards as numpy arrays: mapped files, views of raw buffers, each block's hash checked before its first token leaves.

Opening reads the manifests and block tables and compares every shard's length with its manifest, so that a missing or cut file
is an error at once and not in the middle of training. Blocks are found by their table, never by scanning a shard; the last
few are kept as views, which cost address space and page cache but no memory of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.pipeline.engine.store import hash_bytes
from corpusmill.pipeline.errors import ShardError
from corpusmill.shards.append import PLANS_FOLDER
from corpusmill.shards.fetch import MappedFiles, Source, source_of
from corpusmill.shards.fetchers import Damaged
from corpusmill.shards.layout import (
    BLOCKS_FILE,
    MANIFEST,
    PLAN_FILE,
    Manifest,
    ShardFile,
    content_hash,
    decode_blocks,
    decode_manifest,
    file_of,
    schema,
)
from corpusmill.shards.opened import BlockView, OpenBlocks
from corpusmill.shards.order import ComponentOrder, Order, Samples
from corpusmill.shards.permutation import Indices
from corpusmill.shards.pieces import Pieces
from corpusmill.shards.plan import Component, Plan
from corpusmill.shards.plan_file import find_plan, place_at, read_plan
from corpusmill.shards.quarantine import Hidden, Quarantine, read_quarantine

if TYPE_CHECKING:
    from corpusmill.pipeline.engine.place import Place
    from corpusmill.shards.cache import Cache

KEPT_BLOCKS = 64
AT_ONCE = 16  # manifests and tables of a store

AHEAD = 8192
"""Samples whose blocks are brought from a store before they come up: 16 steps of 512, twice what the order works out at a time."""


class ComponentReader:
    """One component's manifest and block table; its blocks are opened when they are asked for."""

    def __init__(self, folder: Path | Place, component: Component, source: Source) -> None:
        self.folder, self.component, self.source = folder, component, source
        self.manifest = _manifest(folder, component, source)
        table = _table(folder, self.manifest, source)
        self.blocks = {name: np.asarray(table.column(name)) for name in table.column_names}
        self.first_row = self.blocks["first_row"].astype(np.int64)
        _check_table(folder, self.manifest, self.blocks)
        for shard in self.manifest.shards:
            source.check_length(folder / shard.file, shard.size_bytes)
        self.read_rows = _first(self.blocks["rows"].astype(np.int64), component.epoch_rows)
        """Of each block that is read, how many rows: of a component that is read in part the last one may be cut."""
        self._schema = schema(self.manifest.sequence_length, self.manifest.dtype)

    def shard(self, block: int) -> ShardFile:
        return self.manifest.shards[int(self.blocks["shard"][block])]

    @property
    def tokenizer(self) -> Path | Place:
        """tokenizer.json of the component."""
        return file_of(self.folder, self.manifest.tokenizer_file)

    def read_tokenizer(self) -> bytes:
        """Its bytes; raises ShardError when it is not the one that the shards were made with, OSError when it cannot be read."""
        data = self.tokenizer.read_bytes()
        if content_hash(data) != self.manifest.tokenizer_sha256:
            raise ShardError(
                f"{self.tokenizer} is not the tokenizer that the shards were made with; restore it"
            )
        return data

    def block_of(self, rows: Indices) -> Indices:
        """The block that holds each component-wide row."""
        return np.searchsorted(self.first_row, rows, side="right") - 1

    def view(self, block: int) -> BlockView:
        """Raises ShardError naming shard and block when the stored bytes are not those that were written."""
        part = self.stored(block)
        batch = pa.ipc.read_record_batch(pa.ipc.read_message(part), self._schema)
        if batch.num_rows != int(self.blocks["rows"][block]):
            raise ShardError(self._damaged(block, "its number of rows is not the one in blocks.arrow"))
        tokens = np.asarray(batch.column(0).values).reshape(batch.num_rows, self.manifest.sequence_length + 1)
        return BlockView(int(self.first_row[block]), tokens, batch)

    def stored(self, block: int) -> pa.Buffer:
        """The block's bytes; they have been compared with its hash."""
        shard = self.shard(block)
        offset, length, xxh3 = (int(self.blocks[name][block]) for name in ("offset", "length", "xxh3"))
        try:
            return self.source.block(self.folder / shard.file, shard.size_bytes, offset, length, xxh3)
        except Damaged:
            raise ShardError(self._damaged(block, "its hash is not the one in blocks.arrow")) from None

    def is_near(self, block: int) -> bool:
        """Whether the block is on this machine."""
        offset, xxh3 = int(self.blocks["offset"][block]), int(self.blocks["xxh3"][block])
        return self.source.has(self.folder / self.shard(block).file, offset, xxh3)

    def _damaged(self, block: int, how: str) -> str:
        first, rows = int(self.first_row[block]), int(self.blocks["rows"][block])
        at = int(self.blocks["offset"][block])
        return (
            f"{self.folder / self.shard(block).file}: block {block} (rows {first} to {first + rows - 1} of {self.component.name}, at byte {at}) "
            f"is damaged: {how}; restore the file or shard again (corpusmill verify lists all)"
        )


class Shards:
    """All that a plan names, opened: the order of its samples, the rows behind them, and what a quarantine hides of them."""

    def __init__(
        self, path: str | Path | Place, cache: Cache | None = None, plan: Plan | None = None
    ) -> None:
        """`plan`: one of the caller's own over the components below folder `path`; lists of a quarantine are for plans that are stored."""
        self.path = find_plan(path) if plan is None else place_at(path) / PLAN_FILE
        self.plan: Plan = read_plan(self.path) if plan is None else plan
        _check_place(self.path, self.plan)
        self.source = source_of(self.path, cache)
        self.components = _components(self.path.parent, self.plan, self.source)
        for reader in self.components:
            _check_kind(self.plan, reader)
        self.quarantine = read_quarantine(self.path.parent, self.plan) if plan is None else Quarantine()
        self.hidden = Hidden(self.quarantine, self.plan)
        self.order = Order(
            self.plan.mixture(),
            [
                ComponentOrder(r.component.name, self.plan.seed, self.plan.window, r.read_rows)
                for r in self.components
            ],
        )
        longest = max(int(reader.blocks["length"].max()) for reader in self.components)
        self.source.bound(longest)
        most = max(KEPT_BLOCKS, 2 * self.plan.window * len(self.components))
        self.opened = OpenBlocks(
            int(self.order.first_block[-1]),
            self.plan.sequence_length + 1,
            self.plan.dtype,
            most if self.source.keep is None else min(most, self.source.keep),
            self._view,
            self._fetch,
        )
        self._expected = 0

    def tokens(self, *parts: Samples) -> npt.NDArray[np.unsignedinteger[Any]]:
        """[samples of all parts, T + 1] ids as they are stored, a copy that the caller may change."""
        if len(parts) == 1:
            return self.opened.gather(parts[0].block, parts[0].inside)
        block, inside = ([getattr(part, name) for part in parts] for name in ("block", "inside"))
        return self.opened.gather(np.concatenate(block), np.concatenate(inside))

    def expect(self, sample: int) -> None:
        """Samples from `sample` on are about to be read: blocks of a store that come up in the next AHEAD are fetched meanwhile."""
        if isinstance(self.source, MappedFiles) or sample + AHEAD <= self._expected:
            return
        if not self._expected:
            self.source.needs([reader.blocks["length"] for reader in self.components], self.plan.window)
        start, end = max(sample, self._expected), sample + 2 * AHEAD
        if self.plan.samples is not None:
            end = min(end, self.plan.samples)
        self._expected = sample + 2 * AHEAD
        self._fetch(list(dict.fromkeys(self.order.samples(start, end).block.tolist())))

    def _fetch(self, blocks: Sequence[int]) -> None:
        """Has blocks brought to this machine, side by side."""
        if isinstance(self.source, MappedFiles):
            return
        jobs = []
        for reader, block in map(self._reader, blocks):
            if not reader.is_near(block):
                jobs.append(partial(reader.stored, block))
        self.source.ahead(jobs)

    def _view(self, block: int) -> BlockView:
        reader, number = self._reader(block)
        return reader.view(number)

    def _reader(self, block: int) -> tuple[ComponentReader, int]:
        component = int(np.searchsorted(self.order.first_block, block, side="right")) - 1
        return self.components[component], block - int(self.order.first_block[component])

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


def _first(rows: Indices, count: int) -> Indices:
    """Rows of the blocks that hold the first `count` rows, the last of them cut to what is read of it."""
    ends = np.cumsum(rows)
    blocks = int(np.searchsorted(ends, count)) + 1
    found = rows[:blocks].copy()
    found[-1] -= ends[blocks - 1] - count
    return found


def _components(folder: Any, plan: Plan, source: Source) -> tuple[ComponentReader, ...]:
    """All of a plan's components; those of a store side by side, since each waits for two requests."""

    def read(component: Component) -> ComponentReader:
        return ComponentReader(folder / component.folder, component, source)

    if isinstance(source, MappedFiles):
        return tuple(map(read, plan.components))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return tuple(pool.map(read, plan.components))


def _manifest(folder: Any, component: Component, source: Source) -> Manifest:
    path = folder / MANIFEST
    try:
        data = source.table(
            path, component.manifest, lambda found: content_hash(bytes(found)) == component.manifest
        )
    except OSError as error:
        raise ShardError(
            f"{path} is missing; restore the component's folder or shard again ({error})"
        ) from error
    manifest = decode_manifest(data.to_pybytes(), str(path))
    if (
        manifest.hash != component.manifest
        or manifest.rows != component.rows
        or manifest.blocks != component.blocks
    ):
        raise ShardError(
            f"{path} ({manifest.hash[:8]}, {manifest.rows} rows) is not the plan's ({component.manifest[:8]}, "
            f"{component.rows} rows); restore the shards the plan was made for, or run mix again"
        )
    return manifest


def _table(folder: Any, manifest: Manifest, source: Source) -> pa.Table:
    path = folder / BLOCKS_FILE
    try:
        data = source.table(
            path, manifest.blocks_xxh3, lambda found: hash_bytes(found) == manifest.blocks_xxh3
        )
    except OSError as error:
        raise ShardError(f"{path} is missing; restore it or shard again ({error})") from error
    return decode_blocks(data, manifest, str(path))


def _check_table(folder: Path | Place, manifest: Manifest, blocks: dict[str, npt.NDArray[Any]]) -> None:
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


def _check_place(path: Path | Place, plan: Plan) -> None:
    """Raises ShardError for an earlier plan where it is kept: its folders are counted from the folder above."""
    if (path.parent.name, path.name) == (PLANS_FOLDER, f"{plan.id}.json"):
        raise ShardError(
            f"{path} is kept for comparing, its components lie below {path.parent.parent}: copy it there, and open the copy"
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
