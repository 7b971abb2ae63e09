"""A file on a store or web server as a seekable stream of blocks, held to the version that the run was laid out for.

Reads inside an expected range take BLOCK bytes a request and none behind its end; others begin with SMALL and double as long as they follow
one another, so that looking at a file's head or a Parquet footer costs little. 16 MiB are held at most.
"""

from __future__ import annotations

import io
import time
from dataclasses import asdict, dataclass, field
from typing import Any, BinaryIO, Protocol, cast

from corpusmill.pipeline import web
from corpusmill.pipeline.errors import CorpusmillError, InputError
from corpusmill.pipeline.remote import (
    WEB,
    Access,
    Unreachable,
    bucket_path,
    filesystem,
    mistake_in,
    redacted,
    scheme_of,
)

BLOCK = 8 << 20
SMALL = 1 << 16
HELD_BLOCKS = 2
"""Blocks' worth of bytes held, those used last: a search that looks over the end of a range comes back to what it knows."""

STORE_TRIES = 3
"""Reads of a block of a store, each with the client's own retries, which do not cover a body that breaks off."""


@dataclass(frozen=True)
class RemoteFile:
    """A file as it was found: `version` is what must still hold when it is read (an ETag, or the time of its last change)."""

    url: str
    size_bytes: int
    version: str = ""
    ranges: bool = True  # False: the server gives whole files only
    access: Access = field(default_factory=Access)

    def __str__(self) -> str:
        return redacted(self.url)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> RemoteFile:
        return cls(**{**value, "access": Access(**value["access"])})


class Reader(Protocol):
    """The bytes of one version of a file."""

    def read(self, start: int, end: int) -> bytes:
        """Exactly those bytes; InputError when the file is another one now, Unreachable when it cannot be had for long."""
        ...

    def settle(self) -> None:
        """InputError when what was read may be of two versions."""
        ...


class WebReader:
    """By https: the server checks the version with each request, so there is nothing to settle."""

    def __init__(self, file: RemoteFile) -> None:
        self.file = file
        self.known = web.Probe(file.size_bytes, file.version, file.ranges)

    def read(self, start: int, end: int) -> bytes:
        return web.read_range(self.file.url, start, end, self.known)

    def settle(self) -> None:
        pass


class StoreReader:
    """By the store's own client, which cannot make a read conditional: the object is looked at before the first read and after the last."""

    def __init__(self, file: RemoteFile) -> None:
        self.file = file
        self.path = bucket_path(file.url)
        self.system = filesystem(scheme_of(file.url), file.access)
        self.stream, found, self.tag = self._open()
        if found != (file.size_bytes, file.version):
            self.stream.close()
            raise self._changed()

    def read(self, start: int, end: int) -> bytes:
        for attempt in range(1, STORE_TRIES + 1):
            why = "fewer bytes came than were asked for"
            try:
                data: bytes = self.stream.read_at(end - start, start)
                if len(data) == end - start:
                    return data
            except OSError as error:
                failure = store_error(self.file.url, error)
                if not isinstance(failure, Unreachable):
                    raise failure from None
                why = str(failure)
            time.sleep(attempt - 1)
        raise Unreachable(why if why.startswith(str(self.file)) else f"{self.file}: {why}")

    def settle(self) -> None:
        stream, found, tag = self._open()
        stream.close()
        self.stream.close()
        if (found, tag) != ((self.file.size_bytes, self.file.version), self.tag):
            raise self._changed()

    def _open(self) -> tuple[Any, tuple[int, str], str]:
        """The object, its size and last change, and its ETag: one HEAD."""
        try:
            stream = self.system.open_input_file(self.path)
            about = {key.lower(): value.decode("latin-1") for key, value in stream.metadata().items()}
            return stream, (stream.size(), about.get("last-modified", "")), about.get("etag", "")
        except OSError as error:
            raise store_error(self.file.url, error) from None

    def _changed(self) -> InputError:
        return InputError(
            f"{self.file} changed while it was being read: when it has settled, run the same command with --update"
        )


class Blocks(io.RawIOBase):
    """A reader as a raw stream; see the module's head for how much it asks for."""

    def __init__(self, reader: Reader, size: int) -> None:
        self.reader, self.size = reader, size
        self.position = 0
        self.wanted = (0, 0)
        self.blocks: list[tuple[int, bytes]] = []  # (where it begins, bytes), the last used last

    def expect(self, start: int, end: int) -> None:
        """[start, end) is going to be read from start to end."""
        self.wanted = (start, min(end, self.size))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.position = offset + (0, self.position, self.size)[whence]
        return self.position

    def tell(self) -> int:
        return self.position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self.position >= self.size or not len(buffer):
            return 0
        begin, block = self._block(self.position, len(buffer))
        data = memoryview(block)[self.position - begin :][: len(buffer)]
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)

    def _block(self, position: int, wanted: int) -> tuple[int, bytes]:
        """The block that holds `position`."""
        for index in range(len(self.blocks) - 1, -1, -1):
            begin, block = self.blocks[index]
            if begin <= position < begin + len(block):
                if index < len(self.blocks) - 1:
                    self.blocks.append(self.blocks.pop(index))
                return begin, block
        end = min(self.size, position + self._span(position, wanted))
        room = HELD_BLOCKS * BLOCK - (
            end - position
        )  # before the next one is there, so that this is the most in memory
        while sum(len(block) for _, block in self.blocks) > room:
            del self.blocks[0]
        self.blocks.append((position, self.reader.read(position, end)))
        return self.blocks[-1]

    def _span(self, position: int, wanted: int) -> int:
        start, end = self.wanted
        if start <= position < end:
            return min(BLOCK, end - position)
        follows = [len(block) for begin, block in self.blocks if begin + len(block) == position]
        return min(BLOCK, max(wanted, SMALL, *(2 * length for length in follows if position != end)))

    def settle(self) -> None:
        """InputError when the bytes read may be of two versions of the file."""
        self.reader.settle()

    def close(self) -> None:
        self.blocks = []
        super().close()


def open_remote(file: RemoteFile) -> BinaryIO:
    """A seekable, buffered stream of the file."""
    if scheme_of(file.url) in WEB and not file.ranges:
        return web.spooled(file.url, web.Probe(file.size_bytes, file.version, False))
    reader = WebReader(file) if scheme_of(file.url) in WEB else StoreReader(file)
    return cast(BinaryIO, io.BufferedReader(Blocks(reader, file.size_bytes), SMALL))


def store_error(url: str, error: OSError) -> CorpusmillError | Unreachable:
    """What a store's client raised, as an error of ours: the user's to mend, or worth another attempt."""
    said = redacted(" ".join(str(error).split()))[:400]
    step = "there is no such object: check the address, endpoint and region"
    if not isinstance(error, FileNotFoundError):
        step = mistake_in(str(error)) or ""
    if step:
        return InputError(f"{redacted(url)}: {step} ({said})")
    return Unreachable(f"{redacted(url)}: {said}; the same command goes on from here once it can be read")
