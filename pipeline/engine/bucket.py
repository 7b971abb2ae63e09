"""A run on an object store: `s3://bucket/prefix` or `gs://bucket/prefix`, by pyarrow's client.

A put is one request for the whole object, from bytes or from a finished local temporary file: an output stream that is open while its
content is still being made publishes a cut object when an exception ends it, since its destructor closes it. Temporary files lie in TMPDIR.
docs/stores.md has the requests that each operation makes.
"""

from __future__ import annotations

import functools
import io
import os
import random
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from corpusmill.pipeline import remote
from corpusmill.pipeline.engine import store
from corpusmill.pipeline.engine.place import Place, Ranges
from corpusmill.pipeline.errors import InputError

T = TypeVar("T")

TRIES = 3
"""Times that an operation on a store is begun; within each the client itself tries remote.ATTEMPTS times."""

READS = 10
"""Reads of an object that others put anew meanwhile."""

AT_ONCE = 16
"""Requests in flight where many small ones are made: commits read, temporary files dropped. They wait, they do not compute."""

WHOLE_BYTES = 8 << 20
"""Objects up to this size are read by one request, larger ones by the ranges that are asked for."""

BIG_PIECE = 16 << 20

JOURNAL_SECONDS = 60.0
"""A store has no appending: a file of metrics is put whole after this time and at the end of a stage."""


@dataclass
class Journal:
    """A file of metrics that grows: its bytes, when they were last put, and whether there are new ones."""

    data: bytearray
    put_at: float
    changed: bool = False


JOURNALS: dict[Bucket, Journal] = {}
"""Of this process; one writes at a time (the driver)."""


@dataclass(frozen=True)
class Bucket(Place):
    """A prefix or an object of a bucket: `key` is `bucket/prefix`."""

    scheme: str
    key: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.key}"

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> Bucket:
        return Bucket(self.scheme, self.key.rpartition("/")[0])

    def __truediv__(self, below: str) -> Bucket:
        return Bucket(self.scheme, f"{self.key}/{below}" if below else self.key)

    @property
    def client(self) -> Any:
        if pa.io_thread_count() < AT_ONCE:
            # A worker's one thread would fetch the columns of a row group in turn.
            pa.set_io_thread_count(AT_ONCE)
        return remote.filesystem(self.scheme)

    def check(self, write: bool = False) -> None:
        from pyarrow import fs

        selector = fs.FileSelector(self.key, recursive=False, allow_not_found=True)
        try:
            found, bucket = self.client.get_file_info(selector), self.key.partition("/")[0]
            if not found and self.client.get_file_info(bucket).type == fs.FileType.NotFound:
                raise OSError(f"NO_SUCH_BUCKET {bucket}")  # a listing that may find nothing does not tell
            if write:
                probe = self / f"metrics/probe-{uuid.uuid4().hex}"
                probe.put(b"")
                probe.unlink()
        except OSError as error:
            step = remote.mistake_in(str(error)) or (
                "the store does not answer: see AWS_ENDPOINT_URL and the network; the same command goes on when it does"
            )
            said = " ".join(remote.redacted(str(error)).removeprefix(f"{self}: ").split())
            raise InputError(f"{self}: {step} ({said[:300]})") from None

    def read_bytes(self) -> bytes:
        return self._again(lambda: bytes(self._open().read()))

    def read_latest(self) -> bytes:
        """The client asks for an object's length, then for so many bytes: of an object that was put in between it gives a part, or more
        than there is. So the version is looked at again behind the read."""

        def once() -> tuple[bytes, bool]:
            file = self._open()
            data = bytes(file.read())
            return data, file.metadata() == self._open().metadata()

        for _ in range(READS):
            data, settled = self._again(once)
            if settled:
                return data
        raise OSError(f"{self}: it was put anew during each of {READS} reads; is another run writing there?")

    def read_all(self, names: Sequence[str]) -> Iterator[bytes | None]:
        def read(name: str) -> bytes | None:
            try:
                return (self / name).read_bytes()
            except FileNotFoundError:
                return None

        with ThreadPoolExecutor(AT_ONCE) as pool:
            yield from pool.map(read, names)

    def size(self) -> int | None:
        try:
            return int(self._again(lambda: self._open().size()))
        except FileNotFoundError:
            return None

    def sizes(self) -> dict[str, int]:
        from pyarrow import fs

        selector = fs.FileSelector(self.key, recursive=True, allow_not_found=True)
        start = len(self.key) + 1
        listed = self._again(lambda: self.client.get_file_info(selector))
        return {item.path[start:]: item.size for item in listed if item.is_file}

    def random(self) -> pa.NativeFile:
        file = self._open()
        return file if file.size() > WHOLE_BYTES else pa.BufferReader(self._again(file.read_buffer))

    def mapped(self) -> pa.NativeFile:
        return self._open()

    def ranges(self) -> Ranges:
        opened: Ranges = self.client.open_input_file(self.key)
        return opened

    def ahead(self, size: int) -> pa.NativeFile:
        return pa.PythonFile(io.BufferedReader(self._open(), size), mode="r")

    def put(self, data: bytes | memoryview) -> None:
        self._again(lambda: _in_thread(lambda: self._put(data)))

    def _put(self, data: Any) -> None:
        """One write of all, then close: nothing that could raise stands between.

        Above 5 MiB the client makes a multipart upload of it, which is an object only when its last request has succeeded. A busy answer to
        that request the client takes for a failure even where its own repetition succeeds: then all is put once more, with the same bytes.
        """
        buffer = pa.py_buffer(data)
        # No compression by the name: what ends in .zst is compressed already.
        stream = self.client.open_output_stream(self.key, compression=None)
        stream.write(buffer)
        stream.close()

    def append(self, text: str) -> None:
        journal = JOURNALS.get(self)
        if journal is None:
            try:
                before = self.read_bytes()
            except FileNotFoundError:
                before = b""
            journal = JOURNALS.setdefault(self, Journal(bytearray(before), time.monotonic()))
        journal.data += text.encode()
        journal.changed = True
        if time.monotonic() - journal.put_at > JOURNAL_SECONDS:
            self._put_journal(journal)

    def flush(self) -> None:
        """Files below that changed are put; they are read again should more be appended."""
        for place in [place for place in JOURNALS if f"{place}/".startswith(f"{self}/")]:
            journal = JOURNALS.pop(place)
            if journal.changed:
                place._put_journal(journal)

    def _put_journal(self, journal: Journal) -> None:
        self.put(bytes(journal.data))
        journal.put_at, journal.changed = time.monotonic(), False

    def pieces(self) -> Iterator[bytes]:
        with self._open() as file:
            while piece := self._again(lambda: file.read(BIG_PIECE)):
                yield piece

    def temporary(self) -> Path:
        return local_folder() / f"{store.temporary_name()}-{self.name}"

    def put_file(self, temporary: Path) -> None:
        if temporary.stat().st_size:
            with pa.memory_map(str(temporary)) as file:
                self.put(file.read_buffer())
        else:
            self.put(b"")
        temporary.unlink()

    def copy_to(self, target: Place) -> None:
        assert isinstance(target, Bucket)
        self._again(lambda: self.client.copy_file(self.key, target.key))

    def unlink_all(self, names: Iterable[str]) -> None:
        def unlink(name: str) -> None:
            place = self / name
            try:
                place._again(lambda: place.client.delete_file(place.key))
            except FileNotFoundError:
                return

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(unlink, names))

    def remove_tree(self) -> None:
        try:
            self._again(lambda: self.client.delete_dir(self.key))
        except FileNotFoundError:
            return

    def sweep(self) -> None:
        store.sweep(local_folder())

    def log(self) -> Path:
        return local_folder() / f"workers-{store.hash_bytes(str(self).encode())[:8]}.log"

    def _open(self) -> pa.NativeFile:
        return self._again(lambda: self.client.open_input_file(self.key))

    def _again(self, work: Callable[[], T]) -> T:
        """`work`, begun anew after errors that may pass; what a store said is passed on without secrets."""
        began = time.monotonic()
        for left in reversed(range(TRIES)):
            try:
                return work()
            except FileNotFoundError:
                raise FileNotFoundError(2, "no such object", str(self)) from None
            except OSError as error:
                if remote.mistake_in(str(error)):
                    raise OSError(f"{self}: {remote.redacted(str(error))}") from None
                if not left:
                    raise remote.Unreachable(
                        f"{self}: the store has not done this for {time.monotonic() - began:.0f} s, asked {TRIES} times over: "
                        f"{remote.redacted(str(error))}; what is done stands, and the same command goes on when the store does"
                    ) from None
                time.sleep(random.uniform(0.5, 1.5) * (TRIES - left))
        raise AssertionError


@functools.cache
def _threads(pid: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(AT_ONCE)


def _in_thread(work: Callable[[], T]) -> T:
    """In another thread, where no Ctrl-C can come between opening an object and writing it."""
    return _threads(os.getpid()).submit(work).result()


@functools.cache
def local_folder() -> Path:
    """TMPDIR/corpusmill-<user>: files on their way to a store, and the logs of workers. What killed writers left there is removed."""
    try:
        folder = store.own_folder()
    except PermissionError:  # nothing is written where another user could read or change it
        folder = Path(tempfile.gettempdir()) / f"corpusmill-{os.getuid()}-{uuid.uuid4().hex}"
        folder.mkdir(mode=0o700)
    store.sweep(folder)
    return folder
