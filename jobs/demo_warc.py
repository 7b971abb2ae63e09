"""WARC files byte for byte reproducible: a gzip member a record, no clock, ids by hash.

Written by hand and not with a library: each record's date, id and order of headers must be the caller's.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from dataclasses import dataclass, field

import xxhash

DATE = "2026-03-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}Z"


@dataclass(frozen=True)
class Exchange:
    """What a crawler saw at one URL. `headers` are the response's beside Content-Type; `body` is as on the wire."""

    url: str
    body: bytes
    status: str = "200 OK"
    content_type: str = "text/html; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = field(default=())

    def response(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status}"]
        if self.content_type:
            lines.append(f"Content-Type: {self.content_type}")
        lines += [f"{name}: {value}" for name, value in self.headers]
        if not any(name == "Transfer-Encoding" for name, _ in self.headers):
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body

    def request(self) -> bytes:
        host, _, path = self.url.split("://", 1)[1].partition("/")
        return f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: demo-crawler/1.0\r\nAccept: text/html\r\n\r\n".encode()


def warcinfo(name: str) -> bytes:
    """The record that a WARC file begins with."""
    block = b"software: corpusmill demo\r\nformat: WARC File Format 1.1\r\nisPartOf: demo\r\n"
    return gzipped(
        _record("warcinfo", None, name, 0, "application/warc-fields", block, [("WARC-Filename", name)])
    )


def exchange(seen: Exchange, number: int) -> list[bytes]:
    """The three members that a crawl writes for a page: request, response, metadata."""
    response = ("WARC-Payload-Digest", _digest(seen.body))
    fetched = f"fetchTimeMs: {20 + number % 400}\r\ncharset-detected: UTF-8\r\n".encode()
    return [
        gzipped(
            _record(
                "request", seen.url, "request", number, "application/http; msgtype=request", seen.request()
            )
        ),
        gzipped(
            _record(
                "response",
                seen.url,
                "response",
                number,
                "application/http; msgtype=response",
                seen.response(),
                [response],
            )
        ),
        gzipped(_record("metadata", seen.url, "metadata", number, "application/warc-fields", fetched)),
    ]


def gzipped(data: bytes) -> bytes:
    """One gzip member without a time: `gzip.compress` writes other header bytes on other Pythons."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def damaged(member: bytes) -> bytes:
    """The member with its middle overwritten, its length as it was."""
    middle = len(member) // 2
    return member[: middle - 16] + b"\xa5" * 32 + member[middle + 16 :]


def _record(
    kind: str,
    url: str | None,
    key: str,
    number: int,
    content_type: str,
    block: bytes,
    more: list[tuple[str, str]] | None = None,
) -> bytes:
    second = number // 4
    date = DATE.format(
        day=1 + second // 86_400 % 28, hour=second // 3600 % 24, minute=second // 60 % 60, second=second % 60
    )
    headers = [
        ("WARC-Type", kind),
        ("WARC-Record-ID", f"<urn:uuid:{_uuid(kind, key, str(url), str(number))}>"),
        ("WARC-Date", date),
    ]
    if url is not None:
        headers.append(("WARC-Target-URI", url))
    headers += [
        *(more or []),
        ("WARC-Block-Digest", _digest(block)),
        ("Content-Type", content_type),
        ("Content-Length", str(len(block))),
    ]
    return (
        b"WARC/1.0\r\n"
        + "".join(f"{name}: {value}\r\n" for name, value in headers).encode()
        + b"\r\n"
        + block
        + b"\r\n\r\n"
    )


def _digest(data: bytes) -> str:
    return "sha1:" + base64.b32encode(hashlib.sha1(data).digest()).decode()


def _uuid(*keys: str) -> str:
    text = xxhash.xxh3_128_hexdigest("\0".join(keys).encode())
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}"
