"""Files on a disk: whole, put once under their final name (bucket.py has the same for object stores).

A put writes a temporary file beside the target, fsyncs it and renames it, so a reader sees all of a file or none of it.
No locks: names and bytes are functions of the recipe and the inputs, so two drivers waste work and end equal.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import xxhash

TEMPORARY = ".tmp-"


def hash_bytes(data: bytes | memoryview) -> str:
    """xxh3-128 in hex."""
    return xxhash.xxh3_128_hexdigest(data)


def hash_file(path: Path) -> str:
    """xxh3-128 of a file's bytes in hex, read in pieces of 4 MiB."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()


def temporary_beside(path: Path) -> Path:
    """A locally unique name in the same folder (a rename must not cross file systems)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_name(f"{temporary_name()}-{path.name}")


def temporary_name() -> str:
    """A name that says whose it is, so that `sweep` knows when it can go."""
    return f"{TEMPORARY}{os.uname().nodename}-{os.getpid()}-{uuid.uuid4().hex}"


def commit(temporary: Path, path: Path) -> None:
    """Make a finished temporary file durable under its final name."""
    handle = os.open(temporary, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    temporary.replace(path)


def put(path: Path, data: bytes | memoryview) -> None:
    """Write a whole file: temporary name, fsync, rename. The folder is made when it is missing."""
    temporary = temporary_beside(path)
    try:
        with temporary.open("wb") as file:
            file.write(data)
        commit(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sweep(folder: Path) -> None:
    """Remove what killed writers left below `folder`: temporary files of this host whose process is gone."""
    ours = f"{TEMPORARY}{os.uname().nodename}-"
    for path in files_below(folder):
        pid = path.name.removeprefix(ours).partition("-")[0]
        if path.name.startswith(ours) and pid.isdigit() and not _alive(int(pid)):
            path.unlink(missing_ok=True)


def files_below(folder: Path) -> Iterator[Path]:
    """All files; folders that another driver removes meanwhile are passed over (`rglob` raises)."""
    for where, _, names in os.walk(folder):
        yield from (Path(where, name) for name in names)


def own_folder() -> Path:
    """TMPDIR/corpusmill-<user>, for this user alone; PermissionError when what lies there is not this user's own folder.

    What lies below is trusted: compiled kernels are loaded as code, blocks of shards are handed to trainers.
    """
    folder = Path(tempfile.gettempdir()) / f"corpusmill-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(errno.EACCES, "it is another user's", str(folder))
    return folder


def can_write(folder: Path) -> bool:
    """Whether a file can be made in a folder, which is made where it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody waited for (init is not always there to) does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):  # no Linux, or it has just gone
        return True


def remove_tree(folder: Path) -> None:
    """Delete a folder and all below it; a missing one is fine."""
    shutil.rmtree(folder, ignore_errors=True)
