"""Reading what a manifest names: a file counts only with the bytes that were recorded.

The driver hands tasks the hashes of what they may read whole; a worker hashes a file before it first uses it, and again only when the
file has changed on disk. xxh3 reads some 10 GB/s, so this costs what it takes to bring the file into the page cache.
"""

from __future__ import annotations

from pathlib import Path

from corpusmill.pipeline.engine.store import hash_file
from corpusmill.pipeline.errors import DamagedError

MOST_SEEN = 100_000

_seen: dict[Path, tuple[int, int, int, str]] = {}
"""Files that this process has hashed: inode, size, time of change, hash."""


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


def damaged(path: Path, stage: str, name: str) -> DamagedError:
    return DamagedError(
        f"{path}: its bytes are not those that were written: delete it and run the same command again",
        stage,
        name,
    )
