"""One writer at a time in a folder, for files that are read, added to and put again: plans and quarantine lists.

On a disk the folder is locked (flock), which a killed process loses. pyarrow's client of a store has no conditional puts, so there each
writer first puts a claim of a name of its own and then lists the folder: of two that come together at least one sees the other's claim,
since its own stood before it looked, and takes its own back for a random moment. Nobody sees a claim but a writer: 1 PUT, 1 LIST, 1 HEAD and
1 DELETE more for a change, readers ask for nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from corpusmill.pipeline.engine.disk import Disk
from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.errors import RunError

if TYPE_CHECKING:
    from corpusmill.pipeline.engine.bucket import Bucket

CLAIM = "claim-"
STALE = timedelta(minutes=15)
"""A claim that is older than ours by that much is a killed process's. A change takes a few requests, which the client gives up before."""

WAIT_S = 60.0


@contextmanager
def alone(folder: Place) -> Iterator[None]:
    """Until the context ends no other `alone` of this folder goes on, in this process or any other."""
    if isinstance(folder, Disk):
        with _locked(folder):
            yield
    else:
        from corpusmill.pipeline.engine.bucket import Bucket

        assert isinstance(folder, Bucket)
        with _claimed(folder):
            yield


@contextmanager
def _locked(folder: Disk) -> Iterator[None]:
    folder.check(write=True)
    handle = os.open(folder.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:  # a file system without locks: as good as it gets
            if error.errno not in (
                errno.ENOLCK,
                errno.EOPNOTSUPP,
                errno.ENOSYS,
                errno.EINVAL,
                errno.EBADF,
            ):
                raise
        yield
    finally:
        os.close(handle)


@contextmanager
def _claimed(folder: Bucket) -> Iterator[None]:
    until = time.monotonic() + WAIT_S
    for turn in range(1, 1 << 30):
        mine = folder / f"{CLAIM}{uuid.uuid4().hex}"
        try:
            mine.put(b"")
            other = _other(folder, mine)
            if other is None:
                yield
                return
        finally:
            mine.unlink()
        if time.monotonic() > until:
            raise RunError(
                f"{other} has been there for a minute: somebody else is changing {folder}. Give the same command again; the claim of a killed "
                f"command counts no longer after {STALE.seconds // 60} minutes, or delete it"
            )
        time.sleep(random.uniform(0.05, min(2.0, 0.2 * turn)))


def _other(folder: Bucket, mine: Bucket) -> Bucket | None:
    """A claim beside ours that counts, by the store's own clock; those of killed writers are removed."""
    from pyarrow import fs

    listed = folder.client.get_file_info(fs.FileSelector(folder.key, recursive=False))
    claims: dict[Bucket, datetime] = {
        folder / item.base_name: item.mtime for item in listed if item.base_name.startswith(CLAIM)
    }
    now = claims[mine]
    for claim, made in claims.items():
        if now - made > STALE:
            claim.unlink()
        elif claim != mine:
            return claim
    return None
