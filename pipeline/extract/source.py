"""Bytes of an input file: random reads, and decompressed streams with a bound on what one read may give.

Files are read with seek and read only, so that ranges work on an object store as on a disk.
"""

from __future__ import annotations

import io
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, cast

from corpusmill.pipeline.errors import InputError
from corpusmill.pipeline.remote_file import Blocks, RemoteFile, open_remote

CHUNK = 1 << 16
GZIP = b"\x1f\x8b\x08"
ZSTD = b"\x28\xb5\x2f\xfd"
ZSTD_WINDOW = 1 << 27  # bytes that a frame may look back, and so that inflating it may hold


AnyFile = str | RemoteFile
"""A file on this machine by its path, or one on a store or web server."""


def open_bytes(address: AnyFile) -> BinaryIO:
    """A seekable stream of the file."""
    if isinstance(address, RemoteFile):
        return open_remote(address)
    try:
        return Path(address).open("rb", buffering=1 << 20)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{address} cannot be opened: {error}; check the path and the rights to read it"
        ) from error


class Source:
    """Random access to a file; use it as a context manager."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.stream = stream
        self.name = name
        self.size = stream.seek(0, io.SEEK_END)

    @classmethod
    def open(cls, address: AnyFile) -> Source:
        return cls(open_bytes(address), str(address))

    @property
    def blocks(self) -> Blocks | None:
        """How a remote file is read; None for one on this machine."""
        raw = getattr(self.stream, "raw", None)
        return raw if isinstance(raw, Blocks) else None

    def expect(self, start: int, end: int) -> None:
        """[start, end) is going to be read from start to end: a remote file is asked for no more."""
        if self.blocks is not None:
            self.blocks.expect(start, end)

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        self.stream.seek(position)
        return self.stream.read(size)

    def __enter__(self) -> Source:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.stream:
            # GeneratorExit: a reader that has had enough; what it has is used as well.
            if self.blocks is not None and kind in (None, GeneratorExit):
                self.blocks.settle()


class Window(io.RawIOBase):
    """Bytes [start, end) of a source as a stream."""

    def __init__(self, source: Source, start: int, end: int) -> None:
        self.source, self.position, self.end = source, start, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.source.read_at(self.position, min(len(buffer), self.end - self.position))
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)


class Inflated(io.RawIOBase):
    """All gzip members or zstd frames of a source after one another, inflated.

    zlib.error, zstandard.ZstdError or EOFError where the source is damaged or cut (zstandard's own reader ends there in silence).
    """

    def __init__(self, source: Source, compression: str) -> None:
        self.source = source
        self.zstd = compression == "zstd"
        self.position = 0
        self.member = self._member()
        self.fed = False  # whether the member has seen a byte
        self.pending = b""
        self.ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self.ready:
            self.ready = memoryview(self._next(len(buffer)))
        data = self.ready[: len(buffer)]
        self.ready = self.ready[len(data) :]
        buffer[: len(data)] = data
        return len(data)

    def _member(self) -> Any:
        if not self.zstd:
            return zlib.decompressobj(31)
        import zstandard

        return zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()

    def _next(self, size: int) -> bytes:
        """The next inflated bytes; b"" at the end."""
        while True:
            if not self.pending:
                # 4 KiB of zstd give 128 MiB at most (a block of 4 bytes can repeat one byte 131,072 times).
                self.pending = self.source.read_at(self.position, 4096 if self.zstd else CHUNK)
                self.position += len(self.pending)
            if self.member.eof:
                self.member, self.fed = self._member(), False
            if not self.fed:
                self.pending = self.pending.lstrip(b"\0\r\n")  # padding between members is allowed
            if not self.pending:
                if self.position < self.source.size:
                    continue
                if self.fed:
                    raise EOFError("the file ends inside a compressed member")
                return b""
            self.fed = True
            data: bytes = (
                self.member.decompress(self.pending)
                if self.zstd
                else self.member.decompress(self.pending, size)
            )
            self.pending = self.member.unused_data if self.member.eof else self.member.unconsumed_tail
            if data:
                return data


def decompressed(source: Source, compression: str | None) -> BinaryIO:
    """The whole source as one stream, inflated where `compression` is gzip or zstd."""
    raw = Inflated(source, compression) if compression else Window(source, 0, source.size)
    return cast(BinaryIO, io.BufferedReader(raw, CHUNK))


def damage_errors() -> tuple[type[Exception], ...]:
    """What reading a damaged compressed stream raises."""
    import zstandard

    return (zlib.error, EOFError, zstandard.ZstdError)
