"""Files below an address of a web server, https:// or http://, as a place that can only be read.

A server lists nothing: what is read has to be named, as plans name shards. A file is one request for its length and one for each range
that is asked for; a range that does not come whole is asked for again (web.py). Needs urllib3, which the `pipeline` extra brings.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from corpusmill.pipeline import web
from corpusmill.pipeline.engine.place import Place, Ranges
from corpusmill.pipeline.errors import InputError, RecipeError
from corpusmill.pipeline.remote import redacted
from corpusmill.pipeline.remote_file import BLOCK, RemoteFile, open_remote
from corpusmill.pipeline.web_client import Absent

SOON = web.Patience(attempts=2, longest_s=2.0)
"""For ranges that their reader asks for again by itself."""


@dataclass(frozen=True)
class WebRanges:
    """Ranges of a file. Bound to no version: whoever reads them compares what comes with a hash."""

    url: str
    found: web.Probe

    def size(self) -> int:
        return self.found.size_bytes

    def read_at(self, nbytes: int, offset: int) -> bytes:
        return web.read_range(self.url, offset, offset + nbytes, self.found, SOON)


@dataclass(frozen=True)
class Web(Place):
    """A file, or what files lie below."""

    url: str
    writable = False

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> Web:
        return Web(self.url.rpartition("/")[0])

    def __truediv__(self, below: str) -> Web:
        return Web(f"{self.url}/{quote(below)}" if below else self.url)

    def check(self, write: bool = False) -> None:
        if write:
            raise self._read_only()

    def read_bytes(self) -> bytes:
        try:
            found = web.probe(self.url)
        except Absent:
            raise FileNotFoundError(2, "no such file", self.url) from None
        if found.ranges:
            return web.read_range(self.url, 0, found.size_bytes, found)
        with web.spooled(self.url, found) as whole:
            return whole.read()

    def size(self) -> int | None:
        try:
            return web.probe(self.url).size_bytes
        except Absent:
            return None

    def sizes(self) -> dict[str, int]:
        raise InputError(f"{self}: a web server lists no files; name the folder of shards, or one file")

    def random(self) -> pa.NativeFile:
        return self.mapped()

    def mapped(self) -> pa.NativeFile:
        found = web.probe(self.url)
        file = RemoteFile(self.url, found.size_bytes, found.version, found.ranges)
        return pa.PythonFile(open_remote(file), mode="r")

    def ranges(self) -> Ranges:
        found = web.probe(self.url)
        if not found.ranges:
            raise InputError(
                f"{self}: the server takes no ranges, and blocks of shards are read by them; copy the shards to a disk, or serve them otherwise"
            )
        return WebRanges(self.url, web.Probe(found.size_bytes, "", True))

    def pieces(self) -> Iterator[bytes]:
        found = web.probe(self.url)
        if not found.ranges:
            with web.spooled(self.url, found) as whole:
                while piece := whole.read(BLOCK):
                    yield piece
            return
        for start in range(0, found.size_bytes, BLOCK):
            yield web.read_range(self.url, start, min(start + BLOCK, found.size_bytes), found)

    def put(self, data: bytes | memoryview) -> None:
        raise self._read_only()

    def temporary(self) -> Path:
        raise self._read_only()

    def unlink_all(self, names: Iterable[str]) -> None:
        raise self._read_only()

    def _read_only(self) -> RecipeError:
        return RecipeError(f"{self}: what a web server gives can only be read; write to a disk or a store")


def web_place(url: str) -> Web:
    """Raises RecipeError for an address that carries more than a plain path, and where the library is missing."""
    if importlib.util.find_spec("urllib3") is None:
        raise RecipeError(
            f"{redacted(url)}: reading by https needs the pipeline extra (urllib3 is missing): pip install 'corpusmill[pipeline]'"
        )
    url = url.rstrip("/")
    scheme, _, rest = web.checked_url(f"{url}/any").removesuffix("/any").partition("://")
    return Web(f"{scheme.lower()}://{rest}")
