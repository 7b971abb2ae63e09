"""Blocks of a store on this machine's disk, shared by all its processes and bounded in bytes.

    cache = Cache("/nvme/blocks", 64 << 30)          # the folder may be shared by any number of streams

A file is a block, named by what it is; it appears whole, by a rename, and each process compares it with its hash when it maps it first.
Nothing that is read depends on a lock. Locks (flock, which a killed process loses) only save work and bytes: who fetches a block holds
its `.part`, so that others wait instead of fetching too; who has one mapped holds it, so that it is not taken away under a reader and
the bytes on the disk are those in the folder; who makes room, or gives a file its name, holds the folder.

What is there is counted by looking, so a kill leaves nothing to repair: a file is made as long as it will be before a byte is written, and
the longest unused go until the sum is within bounds. Making room looks at every file: 5 us each, while a block comes from the store.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from corpusmill.pipeline.engine.store import own_folder
from corpusmill.pipeline.errors import ShardError
from corpusmill.shards.fetch import Counts
from corpusmill.shards.permutation import Indices

log = logging.getLogger(__name__)

DEFAULT_BYTES = 32 << 30
PART = ".part"
WAIT_S = 60.0  # for another process that fetches the same block, before it is fetched here as well
LOOK_S = 0.01
ROOM_WAIT_S = 5.0

Check = Callable[[memoryview], bool]


@dataclass(frozen=True)
class Cache:
    """`folder` holds at most `limit_bytes`; it is made when it is not there. None: one of this user in the temporary folder."""

    folder: str | Path | None = None
    limit_bytes: int = DEFAULT_BYTES

    def place(self) -> Path:
        """The folder, made: of this user alone, since what lies there is handed to trainers."""
        try:
            folder = own_folder() / "blocks" if self.folder is None else Path(self.folder)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ShardError(
                f"{error.filename}: blocks cannot be kept there ({error.strerror}); name another folder with cache=Cache(FOLDER)"
            ) from error
        return folder


@dataclass
class BlockCache:
    """One process's hand on a cache. What it returns stays mapped, and on the disk, for as long as it is referred to."""

    folder: Path
    limit_bytes: int
    counts: Counts = field(default_factory=Counts)
    _checked: dict[str, int] = field(default_factory=dict)  # name -> inode whose bytes were compared here

    def get(self, key: str, fetch: Callable[[], bytes], check: Check) -> pa.Buffer | None:
        """The bytes that `key` names, from the disk or by `fetch`; None when they came damaged twice. Errors of `fetch` pass through."""
        name = hashlib.sha256(key.encode()).hexdigest()[:40]
        path = self.folder / name
        if (found := self._mapped(path, check)) is not None:
            return found
        with self._part(path) as part:
            if part is not None and (found := self._mapped(path, check)) is not None:
                return found  # another process was faster
            data = self._fetched(fetch, check)
            if data is None:
                return None
            kept = part is not None and self._room(part, len(data)) and _written(part, data)
            if part is None or not kept or not self._placed(path):
                self.counts.uncached += 1
                return pa.py_buffer(data)
            self._checked[name] = os.fstat(part).st_ino
            return _map(part, len(data))

    def needs(self, blocks: Sequence[Indices], window: int) -> None:
        """Warns where a stream with `window` will fetch blocks again; `blocks` holds the bytes of each, by component."""
        least = least_bytes(blocks, window)
        if self.limit_bytes < least:
            log.warning(
                "the cache %s holds %d bytes, too few for the blocks that are read side by side: they will be fetched again and again; "
                "give it %d at least: cache=Cache(FOLDER, %d)",
                *(self.folder, self.limit_bytes, least, least),
            )

    def has(self, key: str) -> bool:
        return (self.folder / hashlib.sha256(key.encode()).hexdigest()[:40]).exists()

    def _fetched(self, fetch: Callable[[], bytes], check: Check) -> bytes | None:
        for _ in range(2):
            data = fetch()
            self.counts.fetched += 1
            self.counts.fetched_bytes += len(data)
            if check(memoryview(data)):
                return data
            self.counts.refetched += 1
        return None

    def _mapped(self, path: Path, check: Check) -> pa.Buffer | None:
        """The file, mapped and held; None when it is not there or not what it should be: then it is removed."""
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            _lock(file, fcntl.LOCK_SH)
            about = os.fstat(file)
            found = _map(file, about.st_size) if about.st_size else None
            if self._checked.get(path.name) != about.st_ino:
                if found is None or not check(memoryview(found)):
                    path.unlink(missing_ok=True)
                    self.counts.refetched += 1
                    return None
                self._checked[path.name] = about.st_ino
            with contextlib.suppress(OSError):  # last used now; one that went meanwhile is read all the same
                os.utime(path)
            self.counts.hits += 1
            return found
        finally:
            os.close(file)

    @contextlib.contextmanager
    def _part(self, path: Path) -> Iterator[int | None]:
        """The file that is to become `path`, held; None when another process kept it for too long, or nothing can be written.

        Comes back early when that process has made `path`: whoever holds the part looks again.
        """
        part = path.with_suffix(PART)
        file = _held(part)
        try:
            yield file
        finally:
            if file is not None:
                if _same(part, file):  # it did not become anything
                    part.unlink(missing_ok=True)
                os.close(file)

    def _room(self, part: int, size: int) -> bool:
        """Whether `part` may be as long as that; it is from here on, and others were removed for it."""
        with self._alone() as alone:
            if not alone:
                return False
            left = self.limit_bytes - size
            found = sorted(self._found(os.fstat(part).st_ino))
            used = sum(length for _, length, _ in found)
            for _, length, path in found:
                if used <= left:
                    break
                used -= length if _removed(path) else 0
            if used > left:
                return False
            try:
                os.ftruncate(part, size)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                return False
            return True

    def _placed(self, path: Path) -> bool:
        """The part becomes `path`; not while another looks, who could miss a file that changes its name meanwhile."""
        with self._alone() as alone:
            if alone:
                path.with_suffix(PART).rename(path)
            return alone

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Holds the folder; False when another process does for too long."""
        folder = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            until = time.monotonic() + ROOM_WAIT_S
            while not (held := _lock(folder, fcntl.LOCK_EX)) and time.monotonic() < until:
                time.sleep(LOOK_S)
            yield held
        finally:
            os.close(folder)

    def _found(self, but: int) -> Iterator[tuple[int, int, Path]]:
        """(when last used, bytes, path) of every file but that with the inode `but`."""
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    about = entry.stat(follow_symlinks=False)
                    if about.st_ino != but:
                        yield about.st_mtime_ns, about.st_size, Path(entry.path)


def _held(part: Path) -> int | None:
    """The part, made and held; None when another process keeps it for too long, or the disk takes no file."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                raise
            return None
        # It may have been renamed or removed between the opening and the lock.
        while not (held := _lock(file, fcntl.LOCK_EX)) and _same(part, file) and time.monotonic() < until:
            time.sleep(LOOK_S)
        if held and _same(part, file):
            os.ftruncate(file, 0)  # of one that was killed
            return file
        os.close(file)
        if time.monotonic() >= until:
            return None


def _written(part: int, data: bytes) -> bool:
    """False when the disk is full: the part is empty again."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.pwrite(part, rest, len(data) - len(rest)) :]
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        os.ftruncate(part, 0)
        return False
    _lock(part, fcntl.LOCK_SH)  # from here on it is a reader's
    return True


def _map(file: int, size: int) -> pa.Buffer:
    """The mapping keeps a descriptor of its own, and with it the lock, until the last reference goes."""
    return pa.py_buffer(mmap.mmap(file, size, access=mmap.ACCESS_READ))


def _removed(path: Path) -> bool:
    """Whether the file could go: nobody holds it, neither a reader nor who is writing it."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        if not _lock(file, fcntl.LOCK_EX):
            return False
        if _same(path, file):
            path.unlink(missing_ok=True)
        return True
    finally:
        os.close(file)


def _same(path: Path, file: int) -> bool:
    """Whether `path` still names the open file."""
    try:
        return path.stat().st_ino == os.fstat(file).st_ino
    except FileNotFoundError:
        return False


def _lock(file: int, kind: int) -> bool:
    """False when another holds it. A file system without locks gives it to all: work is done twice, nothing else."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise
    return True


def least_bytes(blocks: Sequence[Indices], window: int) -> int:
    """Bytes of a cache that fetches no block twice: a window of each component, and as much that comes next; at most all blocks."""
    longest = max(int(sizes.max()) for sizes in blocks)
    at_once = sum(min(window, len(sizes)) for sizes in blocks)
    return min(2 * at_once * longest, sum(int(sizes.sum()) for sizes in blocks))
