"""A run in a folder of this machine. A put is a temporary file beside the target, fsync and rename (store.py)."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from corpusmill.pipeline.engine import store
from corpusmill.pipeline.engine.place import PIECE, Place
from corpusmill.pipeline.errors import RecipeError


@dataclass(frozen=True)
class Disk(Place):
    """A file or folder of this machine."""

    path: Path
    local = True

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def parent(self) -> Disk:
        return Disk(self.path.parent)

    def __truediv__(self, below: str) -> Disk:
        return Disk(self.path / below)

    def check(self, write: bool = False) -> None:
        try:
            if write:
                self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecipeError(f"--out {self}: this folder cannot be made: {error.strerror}") from None

    def absolute(self) -> Disk:
        return Disk(self.path.resolve())

    def read_bytes(self) -> bytes:
        return self.path.read_bytes()

    def read_all(self, names: Sequence[str]) -> Iterator[bytes | None]:
        for name in names:
            try:
                yield (self.path / name).read_bytes()
            except FileNotFoundError:
                yield None

    def size(self) -> int | None:
        try:
            found = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def sizes(self) -> dict[str, int]:
        found = {}
        start = len(str(self.path / "_")) - 1  # of "." and "/", too
        for path in store.files_below(self.path):
            try:
                found[str(path)[start:]] = path.stat().st_size
            except FileNotFoundError:  # another driver's temporary file
                continue
        return found

    def random(self) -> Path:
        return self.path.absolute()  # pyarrow takes a relative `run-10:30/x` for an address

    def mapped(self) -> pa.NativeFile:
        return pa.memory_map(str(self.path))

    @contextmanager
    def here(self) -> Iterator[Path]:
        yield self.path

    def pieces(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            while piece := file.read(PIECE):
                yield piece

    def put(self, data: bytes | memoryview) -> None:
        store.put(self.path, data)

    def append(self, text: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)

    def temporary(self) -> Path:
        return store.temporary_beside(self.path.absolute())

    def put_file(self, temporary: Path) -> None:
        store.commit(temporary, self.path)

    def copy_to(self, target: Place) -> None:
        temporary = target.temporary()
        try:
            os.link(self.path, temporary)
        except OSError:  # another file system, or one without links
            shutil.copyfile(self.path, temporary)
        target.put_file(temporary)

    def unlink_all(self, names: Iterable[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def remove_tree(self) -> None:
        store.remove_tree(self.path)

    def sweep(self) -> None:
        store.sweep(self.path)

    def log(self) -> Path:
        return self.path / "metrics" / "workers.log"
