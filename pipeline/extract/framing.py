"""How records are framed in a WARC file: bare, a gzip member each, or a zstd frame each.

A framing answers two questions about a position: where does the next record start, and what bytes does the member there hold.
Starts are found by magic bytes and then proved by inflating the first bytes: a page may hold a gzip file of its own.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from corpusmill.pipeline.extract.source import CHUNK, GZIP, ZSTD, ZSTD_WINDOW, Source, Window

if TYPE_CHECKING:
    import zstandard

SCAN = 1 << 20
HEADER_LIMIT = 1 << 17  # bytes of a WARC header block; the longest seen has 3 kB
PROOF = 1 << 13  # bytes in which the header block of a bare record must end to be taken for a start
VERSION = re.compile(rb"WARC/\d+\.\d")
SKIPPABLE = range(0x184D2A50, 0x184D2A60)
DICTIONARY = 0x184D2A5D
"""Magic of the skippable frame that holds the dictionary of a WARC file (IIPC, WARC with Zstandard)."""


class Damaged(Exception):
    """A member that cannot be read; `str()` is the reason that the ledger shows."""


@dataclass(frozen=True, slots=True)
class Member:
    """What a member holds: `data` up to a cap, `total` bytes inflated, and the stored `end`."""

    data: bytes
    total: int
    end: int


class Framing(Protocol):
    @property
    def source(self) -> Source: ...

    def scan(self, position: int) -> int:
        """The first record start at or after `position`; the size of the file when there is none."""
        ...

    def head(self, position: int, size: int) -> bytes:
        """Up to `size` bytes of the member at `position`; less, or nothing, where it cannot be read."""
        ...

    def member(self, position: int, cap: int) -> Member:
        """The member at `position`, its first `cap` bytes kept; raises Damaged."""
        ...


def is_record(head: bytes) -> bool:
    """True for bytes that begin a record: `WARC/1.`, perhaps after line ends."""
    return VERSION.match(head.lstrip(b"\r\n")) is not None


def is_skippable(head: bytes) -> bool:
    """True for bytes that begin a skippable zstd frame."""
    return int.from_bytes(head[:4], "little") in SKIPPABLE


def _find(source: Source, magic: bytes, position: int) -> Iterator[int]:
    """Positions of `magic` from `position` on."""
    overlap = len(magic) - 1
    while position < source.size:
        data = source.read_at(position, SCAN + overlap)
        at = data.find(magic)
        while at >= 0:
            yield position + at
            at = data.find(magic, at + 1)
        position += max(len(data) - overlap, 1)


@dataclass(frozen=True)
class GzipFraming:
    """A gzip member for each record."""

    source: Source

    def head(self, position: int, size: int) -> bytes:
        inflater = zlib.decompressobj(31)
        data = b""
        try:
            while len(data) < size and not inflater.eof:
                feed = self.source.read_at(position, 4096)
                position += len(feed)
                if not feed:
                    break
                data += inflater.decompress(feed, size - len(data))
        except zlib.error:
            pass  # the bytes before the damage are what was asked for
        return data

    def scan(self, position: int) -> int:
        candidates = _find(self.source, GZIP, position)
        return next((at for at in candidates if is_record(self.head(at, 64))), self.source.size)

    def member(self, position: int, cap: int) -> Member:
        inflater = zlib.decompressobj(31)
        kept: list[bytes] = []
        room, total, read_to = cap, 0, position
        feed = b""
        while not inflater.eof:
            if not feed:
                # Half of all members end within the first 16 KiB; what lies behind them would be copied in vain.
                feed = self.source.read_at(read_to, CHUNK if total else CHUNK // 4)
                read_to += len(feed)
                if not feed:
                    raise Damaged("truncated")
            try:
                data = inflater.decompress(feed, SCAN)
            except zlib.error as error:
                raise Damaged(f"gzip: {str(error).rpartition(': ')[2]}") from None
            feed = inflater.unconsumed_tail
            total += len(data)
            if room:
                kept.append(data[:room])
                room -= len(kept[-1])
        return Member(
            kept[0] if len(kept) == 1 else b"".join(kept), total, read_to - len(inflater.unused_data)
        )


@dataclass(frozen=True)
class ZstdFraming:
    """A zstd frame for each record; the first frame may be a skippable one that holds a dictionary."""

    source: Source
    dictionary: bytes

    @classmethod
    def of(cls, source: Source) -> ZstdFraming:
        return cls(source, zstd_dictionary(source))

    def skipped(self, position: int) -> int:
        """`position` behind any skippable frames there; raises Damaged where one reaches beyond the file."""
        while is_skippable(head := self.source.read_at(position, 8)):
            position += 8 + int.from_bytes(head[4:], "little")
            if len(head) < 8 or position > self.source.size:
                raise Damaged("truncated")
        return position

    def reader(self, start: int, end: int) -> BinaryIO:
        """Frames from `start` on, inflated; a bounded read at a time."""
        window = cast(BinaryIO, Window(self.source, start, end))
        return cast(BinaryIO, io.BufferedReader(self.inflater.stream_reader(window), CHUNK))

    @cached_property
    def inflater(self) -> zstandard.ZstdDecompressor:
        """One for all frames: a dictionary is costly to load."""
        import zstandard

        dictionary = zstandard.ZstdCompressionDict(self.dictionary) if self.dictionary else None
        return zstandard.ZstdDecompressor(dict_data=dictionary, max_window_size=ZSTD_WINDOW)

    def head(self, position: int, size: int) -> bytes:
        import zstandard

        try:
            start = self.skipped(position)
            return self.reader(start, self._end(start)).read(size)
        except (Damaged, zstandard.ZstdError):
            return b""

    def _end(self, position: int) -> int:
        """Where the frame at `position` ends, at the latest."""
        try:
            return frame_end(self.source, position)
        except Damaged:
            return self.source.size

    def scan(self, position: int) -> int:
        candidates = _find(self.source, ZSTD, position)
        return next((at for at in candidates if is_record(self.head(at, 64))), self.source.size)

    def member(self, position: int, cap: int) -> Member:
        import zstandard

        end = frame_end(self.source, position)
        kept: list[bytes] = []
        room, total = cap, 0
        try:
            reader = self.reader(position, end)
            while data := reader.read(SCAN):
                total += len(data)
                if room:
                    kept.append(data[:room])
                    room -= len(kept[-1])
        except zstandard.ZstdError as error:
            raise Damaged(f"zstd: {str(error).rpartition(': ')[2]}") from None
        return Member(b"".join(kept), total, end)


@dataclass(frozen=True)
class PlainFraming:
    """Records one after the other, uncompressed: a start is a version line after an empty line, with a header block that parses."""

    source: Source

    def starts(self, position: int) -> bool:
        head = self.source.read_at(position, PROOF)
        end = re.search(rb"\r?\n\r?\n", head)
        if end is None or not VERSION.match(head):
            return False
        block = head[: end.start()].lower()
        return b"\nwarc-type:" in block and b"\ncontent-length:" in block

    def scan(self, position: int) -> int:
        for at in _find(self.source, b"WARC/", position):
            before = self.source.read_at(max(0, at - 1), 1) if at else b"\n"
            if before == b"\n" and self.starts(at):
                return at
        return self.source.size

    def head(self, position: int, size: int) -> bytes:
        return self.source.read_at(position, size)

    def member(self, position: int, cap: int) -> Member:
        """All that follows: bare records have no members."""
        return Member(self.head(position, cap), self.source.size - position, self.source.size)


def frame_end(source: Source, position: int) -> int:
    """Where the zstd frame at `position` ends, from its block headers (RFC 8878, 3.1.1); raises Damaged."""
    head = source.read_at(position, 18)
    if head[:4] != ZSTD or len(head) < 6:
        raise Damaged("zstd: no frame here")
    descriptor = head[4]
    single = descriptor >> 5 & 1
    content = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    at = position + 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + content
    last = False
    while not last:
        block = source.read_at(at, 3)
        if len(block) < 3:
            raise Damaged("truncated")
        word = int.from_bytes(block, "little")
        last, kind, size = bool(word & 1), word >> 1 & 3, word >> 3
        if kind == 3:
            raise Damaged("zstd: reserved block type")
        at += 3 + (1 if kind == 1 else size)  # a run-length block stores one byte
    at += 4 if descriptor >> 2 & 1 else 0
    if at > source.size:
        raise Damaged("truncated")
    return at


def zstd_dictionary(source: Source) -> bytes:
    """The dictionary in the leading skippable frame, itself perhaps compressed; empty when there is none that can be read."""
    head = source.read_at(0, 8)
    if len(head) < 8 or int.from_bytes(head[:4], "little") != DICTIONARY:
        return b""
    data = source.read_at(8, min(int.from_bytes(head[4:], "little"), 1 << 26))
    if not data.startswith(ZSTD):
        return data
    import zstandard

    inflater = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
    try:
        return inflater.stream_reader(io.BytesIO(data)).read(1 << 26)
    except zstandard.ZstdError:
        return b""
