"""Files on web servers: one probe each, then ranged reads that end in the file's own bytes or in an error.

A read asks for what is still missing, under the version that the probe saw (If-Match, else If-Unmodified-Since), checks the range, length
and version of each answer, and goes on where a connection was cut. Busy servers (408, 425, 429, 5xx) and silent ones are asked again with
back-off, jitter and their own Retry-After. Proxies come from the environment (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY).
No credentials are sent: an address that carries some, a query included, is refused before it is used.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import urlsplit

from corpusmill.pipeline.errors import InputError, RecipeError
from corpusmill.pipeline.remote import ATTEMPTS, WEB, Unreachable, redacted
from corpusmill.pipeline.web_client import Again, answer_of, changed, faults

T = TypeVar("T")

PIECE = 1 << 18
SPOOL_BYTES = 4 << 30
"""A file of a server that takes no ranges is copied to the temporary folder up to this size; Common Crawl's largest have 1.5 GB."""

ABSENT_TRIES = 4
"""Tries at an address where nobody answers: a misspelt host is known after seconds."""


@dataclass(frozen=True)
class Patience:
    """How long to go on asking: `attempts` in a row that bring no byte; waits double from `first_s` to `longest_s`, jittered by half."""

    attempts: int = ATTEMPTS
    first_s: float = 0.5
    longest_s: float = 30.0
    retry_after_s: float = 120.0  # the most of a server's own Retry-After that is waited for
    total_s: float = 900.0  # of one read, however slowly bytes come


@dataclass(frozen=True)
class Probe:
    """What a server says of a file. `version` is a strong ETag (it begins with a quote), else Last-Modified, else ""."""

    size_bytes: int
    version: str
    ranges: bool


def checked_url(url: str) -> str:
    """The address of a file without credentials, query or wildcards; RecipeError for another."""
    parts = urlsplit(url)
    if "@" in parts.netloc or "?" in url or "#" in url:
        raise RecipeError(
            f"{redacted(url)}: an address with credentials, ? or # would be kept in recipe and manifests; name the file's plain address"
        )
    try:
        good = (
            parts.scheme.lower() in WEB
            and parts.hostname
            and parts.port != 0
            and not parts.path.endswith("/")
        )
    except ValueError:
        good = False
    if not good or not parts.path or any(ord(letter) <= 32 for letter in url):
        raise RecipeError(f"{redacted(url)}: https://HOST/PATH of one file is needed")
    if "/../" in parts.path or parts.path.endswith("/.."):
        raise RecipeError(f"{redacted(url)}: no .. in an address")
    return url


def probe(url: str, patience: Patience = Patience()) -> Probe:
    """Size, version, and whether ranges work, by a request for one byte (a HEAD is refused by some, and proves no ranges)."""

    def once() -> Probe:
        with answer_of(url, {"Range": "bytes=0-0"}) as answer:
            return _probed(url, answer)

    return _patiently(url, once, patience)


def read_range(url: str, start: int, end: int, known: Probe, patience: Patience = Patience()) -> bytes:
    """Bytes [start, end) of the version that was probed; InputError when there is another now, Unreachable when patience ends."""
    data = memoryview(bytearray(end - start))
    have, failures, until = 0, 0, time.monotonic() + patience.total_s
    while have < len(data):
        before = have
        try:
            for piece in _pieces(url, start + have, end, known):
                data[have : have + len(piece)] = piece
                have += len(piece)
                if time.monotonic() > until:
                    raise Again(f"too slow: {have:,} of {len(data):,} bytes in {patience.total_s:.0f} s")
        except Again as error:
            failures = 0 if have > before else failures + 1
            if failures >= patience.attempts or time.monotonic() > until:
                raise _given_up(url, error) from None
            _pause(error, failures, patience)
    return data.obj  # type: ignore[return-value]


def spooled(url: str, known: Probe, patience: Patience = Patience()) -> BinaryIO:
    """The whole file in a temporary one that has no name: for a server that takes no ranges."""
    if known.size_bytes > SPOOL_BYTES:
        raise InputError(
            f"{url}: the server takes no ranges, and the file's {known.size_bytes:,} bytes are more than the {SPOOL_BYTES:,} "
            "that are copied for that; fetch it first, or take it from another place"
        )

    def once() -> BinaryIO:
        with contextlib.ExitStack() as stack:
            file = cast(BinaryIO, stack.enter_context(tempfile.TemporaryFile(prefix="corpusmill-")))
            with answer_of(url, _only_if(known.version)) as answer:
                _check_version(url, answer, known)
                if answer.status != 200:
                    raise Again(f"answer {answer.status} to a request for the whole file")
                for piece in _body(url, answer, known.size_bytes):
                    file.write(piece)
            file.seek(0)
            stack.pop_all()  # it is whole, and from here on the caller's to close
            return file

    return _patiently(url, once, patience)


def _patiently(url: str, once: Callable[[], T], patience: Patience) -> T:
    """`once`, again as long as it raises Again and patience lasts."""
    for failures in itertools.count(1):
        try:
            return once()
        except Again as error:
            if failures >= (min(ABSENT_TRIES, patience.attempts) if error.absent else patience.attempts):
                raise _given_up(url, error) from None
            _pause(error, failures, patience)
    raise AssertionError("never left")


def _given_up(url: str, error: Again) -> Unreachable:
    return Unreachable(
        f"{redacted(url)}: {redacted(str(error))}; the same command goes on from here once it can be read"
    )


def _pause(error: Again, failures: int, patience: Patience) -> None:
    """Wait before another try. Random, so that workers that failed together do not come back together; it decides no byte."""
    wait = min(patience.longest_s, patience.first_s * 2 ** max(0, failures - 1)) * random.uniform(0.5, 1.0)
    if error.wait_s is not None:
        wait = max(wait, min(error.wait_s, patience.retry_after_s))
    time.sleep(wait)


def _probed(url: str, answer: Any) -> Probe:
    version = _version(answer.headers)
    if answer.status == 206:
        first, _, total = _content_range(answer.headers)
        if first != 0:
            raise Again("the answer holds another range than was asked for")
        return Probe(total, version, True)
    if answer.status == 416:
        if re.fullmatch(r"bytes \*/0", answer.headers.get("Content-Range", "")):
            return Probe(0, version, True)
        raise InputError(f"{url}: the server refuses ranges of this file (416)")
    length = answer.headers.get("Content-Length", "")
    if not length.isdecimal():
        raise InputError(
            f"{url}: the server takes no ranges and does not say the file's length; fetch it first"
        )
    return Probe(int(length), version, False)


def _pieces(url: str, start: int, end: int, known: Probe) -> Iterator[bytes]:
    """The bytes of one answer to a request for [start, end), as they come; perhaps fewer, never others."""
    with answer_of(url, {"Range": f"bytes={start}-{end - 1}", **_only_if(known.version)}) as answer:
        _check_version(url, answer, known)
        if answer.status == 416:
            raise changed(url, "it is shorter than it was")
        if answer.status != 206:
            raise Again("the server took ranges before, and now sends the whole file")
        first, last, total = _content_range(answer.headers)
        if total != known.size_bytes:
            if not known.version:
                raise changed(url, f"it has {total:,} bytes, not {known.size_bytes:,}")
            raise Again(f"the answer says that the file has {total:,} bytes, and it has {known.size_bytes:,}")
        if first != start or not first <= last < end:
            raise Again(f"bytes {first}-{last} came where {start}-{end - 1} were asked for")
        yield from _body(url, answer, last + 1 - first)


def _body(url: str, answer: Any, length: int) -> Iterator[bytes]:
    """Exactly `length` bytes; Again when there are fewer or more. What came before a cut is good."""
    promised = answer.headers.get("Content-Length")
    if promised is not None and promised != str(length):
        raise Again(f"{promised} bytes are promised where {length} belong")
    have = 0
    with faults(url):
        while piece := answer.read(PIECE, decode_content=False):
            if have + len(piece) > length:
                raise Again("more bytes came than belong there")
            have += len(piece)
            yield piece
    if have < length:
        raise Again(f"the connection ended after {have:,} of {length:,} bytes")


def _version(headers: Mapping[str, str]) -> str:
    """A strong ETag, else Last-Modified: what a later request can be made conditional on."""
    tag = headers.get("ETag", "").strip()
    return tag if tag.startswith('"') and len(tag) > 2 else headers.get("Last-Modified", "").strip()


def _only_if(version: str) -> dict[str, str]:
    if not version:
        return {}
    return {"If-Match" if version.startswith('"') else "If-Unmodified-Since": version}


def _check_version(url: str, answer: Any, known: Probe) -> None:
    now = _version(answer.headers)
    if known.version and now != known.version and answer.status in (200, 206):
        if not now:
            raise Again("the answer does not say which version it is of")
        raise changed(url, "the server has another version")


def _content_range(headers: Mapping[str, str]) -> tuple[int, int, int]:
    """(first, last, size of the file) of a 206 answer."""
    value = headers.get("Content-Range", "")
    found = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", value.strip())
    if found is None:
        raise Again(f"Content-Range {value[:60]!r} names no range of a file of known size")
    return int(found[1]), int(found[2]), int(found[3])
