"""Where a run lies: a folder of this machine (Disk, disk.py) or a prefix of an object store (Bucket, bucket.py), by one set of operations.

What a web server gives (Web, site.py) can be read by the same ones. A reader sees all of a file or none of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Protocol

import pyarrow as pa
import xxhash

from corpusmill.pipeline import remote
from corpusmill.pipeline.errors import InputError

PIECE = 4 << 20


class Ranges(Protocol):
    """A file of which ranges are read by several threads. Errors come at once: who asks decides how often to ask again."""

    def size(self) -> int: ...

    def read_at(self, nbytes: int, offset: int) -> bytes: ...


class Place:
    """A file or folder of a run. `/` goes below it; `str()` is what `place_of` takes."""

    local = False
    writable = True

    @property
    def name(self) -> str:
        raise NotImplementedError

    def absolute(self) -> Place:
        """The same place for a process with another current folder."""
        return self

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> Place:
        """The folder or prefix that this lies in."""
        raise NotImplementedError

    def __truediv__(self, below: str) -> Place:
        raise NotImplementedError

    def check(self, write: bool = False) -> None:
        """A folder that cannot be made, a wrong bucket, region or credentials: said in one line before any work.

        With `write` the folder is made and a store has to take a small object; otherwise only the top is listed.
        """
        raise NotImplementedError

    def read_bytes(self) -> bytes:
        """All bytes; FileNotFoundError when there is no such file."""
        raise NotImplementedError

    def read_latest(self) -> bytes:
        """All bytes of a file that others may put anew meanwhile with other bytes: those of one put, never of two."""
        return self.read_bytes()

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def read_all(self, names: Sequence[str]) -> Iterator[bytes | None]:
        """The bytes of many files below, in order; None for one that is gone."""
        raise NotImplementedError

    def size(self) -> int | None:
        """Bytes of a file; None when there is none."""
        raise NotImplementedError

    def is_file(self) -> bool:
        return self.size() is not None

    def sizes(self) -> dict[str, int]:
        """Name relative to here -> bytes of every file below, by one listing."""
        raise NotImplementedError

    def random(self) -> Path | pa.NativeFile:
        """What pyarrow's readers take to read ranges of a file."""
        raise NotImplementedError

    def mapped(self) -> pa.NativeFile:
        """Random access to slices: mapped on a disk, ranged reads on a store."""
        raise NotImplementedError

    def ranges(self) -> Ranges:
        """For what asks for a range again by itself when it does not come."""
        mapped: Ranges = self.mapped()
        return mapped

    @contextmanager
    def here(self) -> Iterator[Path]:
        """A file of this machine with the same bytes: the file itself, or a copy in TMPDIR that goes with the context."""
        with tempfile.NamedTemporaryFile(prefix="corpusmill-") as file:
            for piece in self.pieces():
                file.write(piece)
            file.flush()
            yield Path(file.name)

    def ahead(self, size: int) -> pa.NativeFile:
        """For reading from front to back: mapped on a disk, in pieces of `size` bytes on a store."""
        return self.mapped()

    def pieces(self) -> Iterator[bytes]:
        """A file in pieces."""
        with self.mapped() as file:
            while piece := file.read(PIECE):
                yield piece

    def put(self, data: bytes | memoryview) -> None:
        """Write a whole file."""
        raise NotImplementedError

    def append(self, text: str) -> None:
        """Add lines to a file of metrics; on a store they are put now and then, and by `flush`."""
        raise NotImplementedError

    def flush(self) -> None:
        """Put what `append` holds back, of all files below."""

    def temporary(self) -> Path:
        """A local name to prepare a file under that `put_file` then moves here."""
        raise NotImplementedError

    def put_file(self, temporary: Path) -> None:
        """Make a finished file of `temporary()` stand here; it is gone afterwards."""
        raise NotImplementedError

    def copy_to(self, target: Place) -> None:
        """The same bytes under another name of the same run: a link or a copy, never through this process on a store."""
        raise NotImplementedError

    def unlink(self) -> None:
        """Delete this file; one that is gone is fine."""
        self.unlink_all([""])

    def unlink_all(self, names: Iterable[str]) -> None:
        """Delete files below; those that are gone are fine."""
        raise NotImplementedError

    def remove_tree(self) -> None:
        """Delete all below; nothing there is fine."""
        raise NotImplementedError

    def sweep(self) -> None:
        """Remove what killed writers of this host left."""
        raise NotImplementedError

    def log(self) -> Path:
        """Where the workers of this machine write what libraries print."""
        raise NotImplementedError

    def hash(self) -> str:
        """xxh3-128 of a file's bytes in hex."""
        digest = xxhash.xxh3_128()
        for piece in self.pieces():
            digest.update(piece)
        return digest.hexdigest()


Where = Place | Path | str


def place_of(where: Where) -> Place:
    """The place that a path or an address names."""
    if isinstance(where, Place):
        return where
    scheme = remote.scheme_of(where) if isinstance(where, str) else ""
    if not scheme:
        from corpusmill.pipeline.engine.disk import Disk

        return Disk(Path(where))
    if scheme not in remote.BUCKETS:
        raise InputError(
            f"{remote.redacted(str(where))}: a run lies on a disk or on a store (s3://, gs://); {scheme}:// can only be read"
        )
    from corpusmill.pipeline.engine.bucket import Bucket

    return Bucket(scheme, remote.bucket_path(str(where)).rstrip("/"))


def readable(where: Where) -> Place:
    """The same, and what a web server gives (https://, http://), which can only be read."""
    if isinstance(where, str) and remote.scheme_of(where) in remote.WEB:
        from corpusmill.pipeline.engine.site import web_place

        return web_place(where)
    return place_of(where)
