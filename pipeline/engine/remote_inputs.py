"""Input files on stores and web servers: found by one paged listing below the fixed prefix, or looked at one by one.

A listing gives size and time of last change of 1,000 objects a request, and these are what tells one version from another; it gives no ETag,
and three ranged reads a file for a hash would be 270,000 requests for a crawl of 90,000 files. A web server is asked for one byte of each
file, CONNECTIONS files side by side, and gives size and ETag with it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import xxhash

from corpusmill.pipeline import web
from corpusmill.pipeline.engine.matching import WILDCARD, matches
from corpusmill.pipeline.errors import InputError
from corpusmill.pipeline.remote import BUCKETS, WEB, Access, bucket_path, filesystem, redacted, scheme_of
from corpusmill.pipeline.remote_file import RemoteFile, WebReader, store_error

PROBE_BYTES = 64 * 1024
"""Bytes hashed at the start, in the middle and at the end of an input: a changed file is noticed without reading it whole."""


def fixed_prefix(path: str) -> str:
    """The folder that stands before the first wildcard (the file's own folder when there is none), with its final `/`."""
    wildcard = WILDCARD.search(path)
    head = path if wildcard is None else path[: wildcard.start()]
    return head[: head.rfind("/") + 1]


def found_at(url: str, access: Access) -> RemoteFile:
    """One file by its address; InputError when it is not there or may not be read."""
    if scheme_of(url) in WEB:
        probe = web.probe(web.checked_url(url))
        return RemoteFile(url, probe.size_bytes, probe.version, probe.ranges)
    try:
        (info,) = filesystem(scheme_of(url), access).get_file_info([bucket_path(url)])
    except OSError as error:
        raise store_error(url, error) from None
    if not info.is_file:
        folder = info.type.name == "Directory"
        what = f"is a folder: name files, for example {url.rstrip('/')}/*" if folder else "is not there"
        raise InputError(f"{redacted(url)} {what}; check the address, endpoint and region")
    return _file(url, info, access)


def listed(pattern: str, access: Access, out: str = "") -> list[RemoteFile]:
    """The objects of a store that a pattern with wildcards finds, none of them below `out`; a name as it stands where it finds none."""
    scheme, path = scheme_of(pattern), bucket_path(pattern)
    prefix = fixed_prefix(path)
    inside = f"{bucket_path(out).rstrip('/')}/" if scheme_of(out) == scheme else None
    files = [
        _file(f"{scheme}://{info.path}", info, access)
        for info in _listing(pattern, prefix, access)
        if info.is_file
        and matches(path[len(prefix) :], info.path[len(prefix) :])
        and not (inside and info.path.startswith(inside))
    ]
    if files:
        return files
    try:
        return [found_at(pattern, access)]
    except InputError:
        raise InputError(f"no object matches {redacted(pattern)}") from None


def _listing(pattern: str, prefix: str, access: Access) -> list[Any]:
    from pyarrow import fs

    deep = "/" in pattern.partition("://")[2][len(prefix) :] or "**" in pattern
    selector = fs.FileSelector(prefix.rstrip("/"), recursive=deep)
    try:
        infos: list[Any] = filesystem(scheme_of(pattern), access).get_file_info(selector)
        return infos
    except FileNotFoundError:  # nothing below the prefix; a bucket that is not there is another error
        return []
    except OSError as error:
        raise store_error(pattern, error) from None


def _file(url: str, info: Any, access: Access) -> RemoteFile:
    """Times to the second: that is what a store says of one object, whatever its listing says."""
    changed = (
        datetime.fromtimestamp(info.mtime_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if info.mtime_ns
        else ""
    )
    return RemoteFile(url, info.size, changed, True, access)


def relative_of(url: str, prefix: str) -> str:
    """The path below the prefix, as a disk would name it."""
    rest = url[len(prefix) :]
    if scheme_of(url) in BUCKETS:
        return rest
    try:
        return unquote(rest, errors="strict")
    except UnicodeDecodeError:
        raise InputError(f"{url}: its name is not in UTF-8, and ids are made of names") from None


def probe_starts(size_bytes: int) -> tuple[int, int, int]:
    """Where the hashed bytes of a file begin: its first, middle and last PROBE_BYTES."""
    return 0, max(0, size_bytes // 2 - PROBE_BYTES // 2), max(0, size_bytes - PROBE_BYTES)


def remote_identity(file: RemoteFile) -> str:
    """Size and version; without an ETag a web server's file is looked at in three places as well, as one on a disk is."""
    digest = xxhash.xxh3_128(f"{file.size_bytes} {file.version}".encode())
    if scheme_of(file.url) in WEB and not file.version.startswith('"') and file.ranges:
        reader = WebReader(file)
        for start in probe_starts(file.size_bytes):
            digest.update(reader.read(start, min(file.size_bytes, start + PROBE_BYTES)))
    return digest.hexdigest()
