"""Where the bytes of shards come from: files of this machine, mapped; or objects of a store or web server, by way of the node's cache (cache.py).

A block of a store is one ranged GET for the whole node, whatever is read of it, in whatever order, by however many of its processes;
an object costs each process one HEAD before its first block. Manifests and block tables are named by their hashes and come once
a node too; plan and quarantine list may change and are read by every process that opens them. Blocks are fetched ahead by a few
threads, in an order of each process's own, so that processes which need the same blocks divide them among themselves.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import xxhash

from corpusmill.pipeline.errors import ShardError
from corpusmill.shards.fetchers import FETCHER, Damaged, Threads
from corpusmill.shards.permutation import Indices

if TYPE_CHECKING:
    from corpusmill.pipeline.engine.place import Place, Ranges
    from corpusmill.shards.cache import Cache

OPEN_BLOCKS = 256
"""Blocks of the cache that stay mapped: each costs a descriptor, and 1,024 is what processes mostly get."""

OPEN_SHARDS = 256
"""Mapped files, or objects whose length is known; far below the 65,530 mappings that Linux grants a process."""

TRIES, LONGEST_PAUSE_S = 6, 30.0
"""Reads of a block that a store does not give, each with the client's own 8; pauses of 1, 2, 4, ... s, random by half: some four minutes."""

SPREAD_S, LONGEST_SPREAD_S = 0.005, 10.0
"""Ranks that start together come to the store over 5 ms each: a thousand of them within 5 s."""

_chance = random.Random()  # not the program's own generator, which trainers seed


@dataclass
class Counts:
    """What a process had of a store. `refetched` counts blocks that came damaged from disk or store, `uncached` those for which there was no room."""

    hits: int = 0
    fetched: int = 0
    fetched_bytes: int = 0
    refetched: int = 0
    uncached: int = 0


class Source(Protocol):
    """How one plan's files are read. `keep` is how many blocks may be open at once; None leaves it to the reader."""

    keep: int | None
    counts: Counts

    def bound(self, block_bytes: int) -> None:
        """Told how large the largest block is, before any is read."""
        ...

    def needs(self, blocks: Sequence[Indices], window: int) -> None:
        """Told the bytes of each block by component, before a stream reads `window` blocks of each side by side."""
        ...

    def table(self, path: Path | Place, digest: str, check: Callable[[memoryview], bool]) -> pa.Buffer:
        """A whole file, the one of `digest` if there is one: what does not pass `check` is the caller's to explain."""
        ...

    def check_length(self, path: Path | Place, size_bytes: int) -> None:
        """ShardError when the file is missing or has another length, where looking costs nothing."""
        ...

    def block(self, path: Path | Place, size_bytes: int, offset: int, length: int, xxh3: int) -> pa.Buffer:
        """Bytes of a file of `size_bytes`, compared with their hash; Damaged when they are others."""
        ...

    def has(self, path: Path | Place, offset: int, xxh3: int) -> bool: ...

    def ahead(self, jobs: Sequence[Callable[[], Any]]) -> None:
        """Does the jobs some time soon, if that helps."""
        ...


class MappedFiles:
    """Files of this machine: each is mapped once, each block compared with its hash once."""

    keep: int | None = None

    def __init__(self) -> None:
        self.counts = Counts()
        self._files: OrderedDict[str, pa.Buffer] = OrderedDict()
        self._checked: dict[str, tuple[tuple[int, ...], set[int]]] = {}  # which file it was, and its blocks

    def bound(self, block_bytes: int) -> None:
        pass

    def needs(self, blocks: Sequence[Indices], window: int) -> None:
        pass

    def table(self, path: Path | Place, digest: str, check: Callable[[memoryview], bool]) -> pa.Buffer:
        if not Path(str(path)).stat().st_size:
            return pa.py_buffer(b"")
        with pa.memory_map(str(path)) as source:
            return source.read_buffer()

    def check_length(self, path: Path | Place, size_bytes: int) -> None:
        try:
            found = Path(str(path)).stat().st_size
        except FileNotFoundError as error:
            raise ShardError(f"{path} is missing; restore it or shard again") from error
        if found != size_bytes:
            raise ShardError(
                f"{path} has {found} bytes, its manifest says {size_bytes}; restore it or shard again"
            )

    def block(self, path: Path | Place, size_bytes: int, offset: int, length: int, xxh3: int) -> pa.Buffer:
        name = str(path)
        if name not in self._files:
            self._map(path, size_bytes)
        part = self._files[name].slice(offset, length)
        checked = self._checked[name][1]
        if offset not in checked:
            if xxhash.xxh3_64_intdigest(memoryview(part)) != xxh3:
                raise Damaged
            checked.add(offset)
        return part

    def _map(self, path: Path | Place, size_bytes: int) -> None:
        """Blocks of a file that is another than when it was mapped before are compared with their hashes again."""
        name, about = str(path), None
        while about is None or about != _about(name):  # it may be replaced at any moment
            about = _about(name)
            # Reading beyond the end of a mapped file would kill the process.
            self.check_length(path, size_bytes)
            with pa.memory_map(name) as source:
                self._files[name] = source.read_buffer()
        if name not in self._checked or self._checked[name][0] != about:
            self._checked[name] = about, set()
        if len(self._files) > OPEN_SHARDS:
            self._files.popitem(last=False)

    def has(self, path: Path | Place, offset: int, xxh3: int) -> bool:
        return True

    def ahead(self, jobs: Sequence[Callable[[], Any]]) -> None:
        pass


def _about(name: str) -> tuple[int, ...] | None:
    """What a file of this name is told by from one that took its place; None where there is none."""
    try:
        found = Path(name).stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class CachedObjects:
    """Objects of a store or web server, by way of the node's cache. Not to be used in a forked child: their clients do not survive a fork."""

    def __init__(self, cache: Cache) -> None:
        from corpusmill.shards.cache import BlockCache

        self.counts = Counts()
        self.cache = BlockCache(cache.place(), cache.limit_bytes, self.counts)
        self.keep: int | None = OPEN_BLOCKS
        self._half = 1
        self._process = os.getpid()
        self._objects: OrderedDict[str, Ranges] = OrderedDict()
        self._lock = threading.Lock()
        self._damaged: set[str] = set()
        self._opening: dict[str, threading.Lock] = {}
        self._threads: Threads | None = None

    def bound(self, block_bytes: int) -> None:
        """Open blocks cannot leave the cache: all of them together take half of it at most."""
        self._half = max(1, self.cache.limit_bytes // (2 * max(1, block_bytes)))
        self.keep = min(OPEN_BLOCKS, self._half)

    def needs(self, blocks: Sequence[Indices], window: int) -> None:
        self.cache.needs(blocks, window)

    def table(self, path: Path | Place, digest: str, check: Callable[[memoryview], bool]) -> pa.Buffer:
        found = self.cache.get(f"table\0{digest}", path.read_bytes, check)
        return pa.py_buffer(path.read_bytes()) if found is None else found

    def check_length(self, path: Path | Place, size_bytes: int) -> None:
        pass  # would be a request an object; a block that is not there is named when it is needed

    def block(self, path: Path | Place, size_bytes: int, offset: int, length: int, xxh3: int) -> pa.Buffer:
        def check(data: memoryview) -> bool:
            return len(data) == length and xxhash.xxh3_64_intdigest(data) == xxh3

        key = _key(path, offset, xxh3)
        if key in self._damaged:  # asked for again by the next batch that holds it
            raise Damaged
        found = self.cache.get(key, lambda: self._range(path, size_bytes, offset, length), check)
        if found is None:
            self._damaged.add(key)
            raise Damaged
        return found

    def has(self, path: Path | Place, offset: int, xxh3: int) -> bool:
        return self.cache.has(_key(path, offset, xxh3))

    def ahead(self, jobs: Sequence[Callable[[], Any]]) -> None:
        if os.getpid() != self._process:
            return
        if self._threads is None:
            self._threads = Threads()
        near = jobs[: self._half]  # more would push each other out before they are used
        self._threads.do(_chance.sample(near, len(near)))

    def _range(self, path: Any, size_bytes: int, offset: int, length: int) -> bytes:
        from corpusmill.pipeline.remote import Unreachable
        from corpusmill.pipeline.remote_file import store_error

        if os.getpid() != self._process:
            raise ShardError(f"{path} was opened by the process that this one was forked from: open it here")
        what, pause = f"bytes {offset} to {offset + length - 1}", 1.0
        # A thread that reads ahead asks once: who needs the block asks again, and a program that ends waits for such threads.
        for left in reversed(range(1 if threading.current_thread().name == FETCHER else TRIES)):
            try:
                data = self._object(path, size_bytes).read_at(length, offset)
                if len(data) == length:
                    return data
                why = f"{len(data)} of {length} came"
            except OSError as error:
                failure = error if isinstance(error, Unreachable) else store_error(str(path), error)
                if not isinstance(failure, Unreachable):
                    raise ShardError(f"{failure}; {what} are needed") from None
                why = str(failure)
            self._forget(path)
            if left:
                time.sleep(pause * _chance.uniform(0.5, 1.5))
                pause = min(2 * pause, LONGEST_PAUSE_S)
        raise ShardError(
            f"{path}: {what} cannot be had ({why}); go on from the cursor when the store answers"
        )

    def _object(self, path: Any, size_bytes: int) -> Ranges:
        """The object, opened: one request, however many threads want it."""
        name = str(path)
        with self._lock:
            opening = self._opening.setdefault(name, threading.Lock())
        with opening:
            with self._lock:
                if name in self._objects:
                    self._objects.move_to_end(name)
                    return self._objects[name]
            opened: Ranges = path.ranges()
            if (found := opened.size()) != size_bytes:
                raise ShardError(
                    f"{path} has {found} bytes, its manifest says {size_bytes}; restore it or shard again"
                )
            with self._lock:
                self._objects[name] = opened
                if len(self._objects) > OPEN_SHARDS:
                    self._opening.pop(self._objects.popitem(last=False)[0], None)
            return opened

    def _forget(self, path: Any) -> None:
        with self._lock:
            self._objects.pop(str(path), None)


def _key(path: Path | Place, offset: int, xxh3: int) -> str:
    return f"block\0{path}\0{offset}\0{xxh3:016x}"


def source_of(path: Path | Place, cache: Cache | None) -> Source:
    """How to read what lies around `path`."""
    if isinstance(path, Path) or path.local:
        return MappedFiles()
    from corpusmill.shards.cache import Cache

    return CachedObjects(cache or Cache())


def spread(path: object, ranks: int) -> None:
    """Before shards of a store are opened: waits a random moment, the longer the more ranks start at once."""
    if "://" in str(path):
        time.sleep(_chance.uniform(0, min(LONGEST_SPREAD_S, SPREAD_S * (ranks - 1))))
