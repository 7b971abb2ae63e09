"""HTTP responses as crawls store them: the bytes decide over the headers, and no body inflates past its bound.

Crawlers keep `Transfer-Encoding: chunked` on bodies that they have already joined, say gzip over plain text and the other way
round; what cannot be decoded as said is taken as it stands and named.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from corpusmill.pipeline.extract.source import GZIP, ZSTD, ZSTD_WINDOW

STATUS = re.compile(rb"HTTP/\d(?:\.\d)?[ \t]+(\d{3})")
EMPTY_LINE = re.compile(rb"\r?\n\r?\n")
FOLD = re.compile(r"\r?\n[ \t]+")
CHUNK_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]{0,256})?\r?\n")
HEADER_LIMIT = 1 << 18
SLICE = 1 << 13


class Bomb(Exception):
    """A body that inflates past its bound."""


@dataclass(frozen=True, slots=True)
class Response:
    """`status` is None for a block that is no HTTP message; then the whole block is the body."""

    status: int | None
    headers: dict[str, str]
    body: bytes


def parse_response(block: bytes) -> Response:
    """Split an HTTP response; a message without an empty line is all header when it ends there."""
    line = STATUS.match(block)
    if line is None:
        return Response(None, {}, block)
    end = EMPTY_LINE.search(block, 0, HEADER_LIMIT)
    head, body = (block[: end.start()], block[end.end() :]) if end else (block[:HEADER_LIMIT], b"")
    headers: dict[str, str] = {}
    for field in FOLD.sub(" ", head.decode("latin-1")).split("\n")[1:]:
        name, colon, value = field.partition(":")
        if colon:
            headers.setdefault(name.strip().lower(), value.strip())
    return Response(int(line[1]), headers, body)


def media_type(value: str) -> tuple[str, str | None]:
    """(type in lower case, charset label or None) of a Content-Type value."""
    kind, _, rest = value.partition(";")
    label = re.search(r"charset\s*=\s*[\"']?([^\s\"';,]+)", rest, re.IGNORECASE)
    return kind.strip().lower(), label[1] if label else None


def dechunk(body: bytes) -> tuple[bytes, bool] | None:
    """(joined chunks, whole) or None when the bytes are not chunks; a body cut inside a chunk is joined up to there."""
    parts: list[bytes] = []
    position = 0
    while line := CHUNK_SIZE.match(body, position):
        size = int(line[1], 16)
        if size == 0:
            return b"".join(parts), True
        start, end = line.end(), line.end() + size
        parts.append(body[start:end])
        if end >= len(body):
            return b"".join(parts), False
        if body[end : end + 2] == b"\r\n":
            position = end + 2
        elif body[end : end + 1] == b"\n":
            position = end + 1
        else:
            return None
    return (b"".join(parts), False) if parts and position >= len(body) else None


def transfer_decoded(response: Response) -> tuple[bytes, str | None]:
    """(body without chunk lines, note): `chunked`, `chunked_lie` (said, is not), `chunked_cut`, `chunked_unsaid`."""
    said = "chunked" in response.headers.get("transfer-encoding", "").lower()
    found = dechunk(response.body) if said or CHUNK_SIZE.match(response.body) else None
    if found is None:
        return response.body, "chunked_lie" if said and response.body else None
    joined, whole = found
    if said:
        return joined, "chunked" if whole else "chunked_cut"
    # Without the header only a body that is chunks to its last byte is taken for one.
    return (joined, "chunked_unsaid") if whole and joined else (response.body, None)


def content_decoded(body: bytes, said: str, limit: int) -> tuple[bytes, str | None]:
    """(body without content encodings, note); at most two are stacked. Raises Bomb past `limit` bytes.

    The note names what was undone (`gzip`, `br`, `gzip+br`), or `gzip_lie` where the header says gzip and the bytes do not.
    """
    undone: list[str] = []
    names = [name.strip().lower() for name in said.split(",") if name.strip()]
    for _ in range(2):
        step = _decode_once(body, names, limit)
        if step is None:
            break
        name, body = step
        undone.append(name)
        names = [other for other in names if other != name]
    if undone:
        return body, "+".join(undone)
    lies = [name for name in names if name != "identity"]
    return body, f"{lies[0]}_lie" if lies and body and lies[0] in (
        "gzip",
        "x-gzip",
        "deflate",
        "br",
        "zstd",
    ) else None


def _decode_once(body: bytes, names: list[str], limit: int) -> tuple[str, bytes] | None:
    """(encoding, decoded) for the encoding that the bytes show, or that a header names and the bytes allow."""
    attempts: list[tuple[str, Callable[[], bytes | None]]] = []
    if body.startswith(GZIP):
        attempts.append(("gzip", lambda: _inflate(body, 31, limit)))
    if body.startswith(ZSTD):
        attempts.append(("zstd", lambda: _unzstd(body, limit)))
    if "deflate" in names:
        attempts += [
            ("deflate", lambda: _inflate(body, 15, limit)),
            ("deflate", lambda: _inflate(body, -15, limit)),
        ]
    if "br" in names:
        attempts.append(("br", lambda: _unbrotli(body, limit)))
    for name, attempt in attempts:
        decoded = attempt()
        if decoded is not None:
            return name, decoded
    return None


def _inflate(body: bytes, wbits: int, limit: int) -> bytes | None:
    """Inflated bytes, up to the cut or the damage of a body that has one; None when the bytes are no such stream."""
    parts: list[bytes] = []
    total = position = 0
    inflater = zlib.decompressobj(wbits)
    while position < len(body):
        # Slices, since zlib gives nothing of a call that ends in damage, and copies all that lies behind a member's end.
        feed = body[position : position + SLICE]
        try:
            data = inflater.decompress(feed, limit + 1 - total)
        except zlib.error:
            break
        parts.append(data)
        total += len(data)
        if total > limit:
            raise Bomb
        position += len(feed)
        if inflater.eof:
            position -= len(inflater.unused_data)
            if wbits != 31 or not body.startswith(GZIP, position):
                break
            inflater = zlib.decompressobj(wbits)
    return b"".join(parts) if total else None


def _unzstd(body: bytes, limit: int) -> bytes | None:
    import zstandard

    inflater = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
    reader = inflater.stream_reader(body, read_across_frames=True)
    parts: list[bytes] = []
    total = 0
    try:
        while data := reader.read(min(1 << 20, limit + 1)):
            parts.append(data)
            total += len(data)
            if total > limit:
                raise Bomb
    except zstandard.ZstdError:
        pass  # a cut or damaged body: what came before is the answer
    return b"".join(parts) or None


def _unbrotli(body: bytes, limit: int) -> bytes | None:
    import brotli

    inflater = brotli.Decompressor()
    parts: list[bytes] = []
    total = 0
    feed = body
    try:
        while True:
            data = inflater.process(feed, output_buffer_limit=1 << 20)
            feed = b""
            parts.append(data)
            total += len(data)
            if total > limit:
                raise Bomb
            if inflater.is_finished():
                return b"".join(parts)
            if not data:
                break  # cut: brotli has no check, so half a stream cannot be told from none
    except brotli.error:
        return None
    return b"".join(parts) or None
