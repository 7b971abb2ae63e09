"""Lists of files: `paths_file`, and the lists that Common Crawl keeps of each crawl. One path a line, relative to a base."""

from __future__ import annotations

import gzip
import itertools
import zlib
from pathlib import Path
from typing import BinaryIO, cast

from corpusmill.pipeline.engine.remote_inputs import found_at
from corpusmill.pipeline.errors import InputError, RecipeError
from corpusmill.pipeline.input import COMMON_CRAWL, Input
from corpusmill.pipeline.remote import Unreachable, redacted, scheme_of
from corpusmill.pipeline.remote_file import open_remote

OWN = "crawl-data/"
"""What the lines of Common Crawl's lists begin with: of a list whose lines do not, the base has to be named."""

LINE_BYTES = 4096
LIST_BYTES = 1 << 28
"""A list of 90,000 paths inflates to 12 MB; a larger one than this is something else."""


def base_of(item: Input) -> str:
    """What the lines are relative to, with its final `/`."""
    base = item.base or COMMON_CRAWL
    return base if base.endswith("/") else f"{base}/"


def paths_of(item: Input) -> list[str]:
    """The relative paths of a list; InputError with the number of the line that is none."""
    base = base_of(item)
    name = item.paths_file if item.crawl is None else f"{base}crawl-data/{item.crawl}/{item.kind}.paths.gz"
    assert name is not None
    with _open(name, item) as stream:
        paths = _read(stream, redacted(name), base, item.base is not None or item.crawl is not None)
    if not paths:
        raise InputError(f"{redacted(name)} lists no file")
    return paths


def _open(name: str, item: Input) -> BinaryIO:
    if scheme_of(name):
        return open_remote(found_at(name, item.access))
    try:
        return cast(BinaryIO, Path(name).open("rb"))
    except OSError as error:
        raise InputError(f"cannot read the list {name}: {error.strerror}") from None


def _read(stream: BinaryIO, name: str, base: str, base_given: bool) -> list[str]:
    packed = stream.read(2) == b"\x1f\x8b"
    stream.seek(0)
    lines = gzip.GzipFile(fileobj=stream) if packed else stream
    paths: list[str] = []
    total = 0
    for number in itertools.count(1):
        line = _line(lines, f"{name}, line {number}")
        total += len(line)
        if not line or total > LIST_BYTES:
            break
        path = _path(line, f"{name}, line {number}", base)
        if path and not base_given and not path.startswith(OWN):
            raise RecipeError(
                f"{name}, line {number}: {path!r} is none of Common Crawl's: say with `base` what it is relative to"
            )
        paths += [path] if path else []
    if total > LIST_BYTES:
        raise InputError(f"{name}: more than {LIST_BYTES:,} bytes are no list of paths")
    return paths


def _line(lines: BinaryIO | gzip.GzipFile, where: str) -> bytes:
    try:
        return lines.readline(LINE_BYTES + 1)
    except Unreachable:
        raise
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{where}: the list is damaged ({error}); fetch it again") from None


def _path(line: bytes, where: str, base: str) -> str:
    """The path in a line; "" for a blank one or a comment."""
    try:
        text = line.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise InputError(f"{where}: not in UTF-8, so no list of paths") from None
    if not text or text.startswith("#"):
        return ""
    path = text.removeprefix(base)
    odd = any(part in ("", ".", "..") for part in path.split("/")) or any(ord(letter) < 32 for letter in path)
    if odd or len(line) > LINE_BYTES or path[0] in "<{[":
        raise InputError(f"{where}: {redacted(text[:80])!r} is no path relative to {redacted(base)}")
    return path
