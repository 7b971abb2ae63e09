"""Reading what a manifest names: a file counts only with the bytes that were recorded.

The driver hands tasks the hashes of what they may read whole; a worker hashes a file before it first uses it, and again only when the
file has changed on disk. xxh3 reads some 10 GB/s, so this costs what it takes to bring the file into the page cache. On a store what is
fetched whole (bucket.WHOLE_BYTES) is hashed; of a larger object only some ranges are read, and Parquet keeps a checksum of each page for that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from corpusmill.pipeline.engine.disk import Disk
from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.engine.store import hash_bytes, hash_file
from corpusmill.pipeline.errors import DamagedError

MOST_SEEN = 100_000

PAGE_DAMAGE = (
    "CRC checksum",
    "thrift",
    "ZSTD",
    "encoding type",
    "Unexpected end of stream",
    "but got length",
)
"""What pyarrow says of Parquet pages that are not as they were written: of 5,900 flipped bits in headers and pages none was read in silence."""

_seen: dict[Path, tuple[int, int, int, str]] = {}
"""Files that this process has hashed: inode, size, time of change, hash."""


def checked(place: Place, stage: str, name: str, known: str | None) -> Path | pa.NativeFile:
    """A file for pyarrow's readers, when its bytes are those that were recorded; DamagedError when not."""
    if isinstance(place, Disk):
        check(place.path, stage, name, known)
        return place.random()
    source = place.random()
    if known is not None and isinstance(source, pa.BufferReader):
        data = source.read_buffer()
        if hash_bytes(data) != known:
            raise damaged(place, stage, name)
        source.seek(0)
    return source


def check(path: Path, stage: str, name: str, known: str | None) -> Path:
    """`path`, when its bytes are those that were recorded; DamagedError when not. Without a record (None) nothing is looked at."""
    if known is None:
        return path
    stat = path.stat()
    state = (stat.st_ino, stat.st_size, stat.st_ctime_ns)
    if _seen.get(path) != (*state, known):
        if hash_file(path) != known:
            raise damaged(path, stage, name)
        if len(_seen) >= MOST_SEEN:
            _seen.clear()
        _seen[path] = (*state, known)
    return path


@contextlib.contextmanager
def pages(place: Place, stage: str, name: str) -> Iterator[None]:
    """Reads pages of a Parquet file; DamagedError when one is not as its checksum says."""
    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        if any(word in str(error) for word in PAGE_DAMAGE):
            raise damaged(place, stage, name) from None
        raise


def damaged(path: Path | Place, stage: str, name: str) -> DamagedError:
    return DamagedError(
        f"{path}: its bytes are not those that were written: delete it and run the same command again",
        stage,
        name,
    )
