"""Dedup over documents in memory: the real operations, an engine of dicts, any cut into partitions."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.dedup.stage import Dedup
from corpusmill.pipeline.documents import document_id
from corpusmill.pipeline.engine.arrow_files import ArrowFile, write_arrow_file
from corpusmill.pipeline.engine.stage import FileRecord, InputFile, Measure, Result, SetOperation, Unit


@dataclass(frozen=True)
class Doc:
    """A document; `path` makes its id, so that it is the same document in any partition."""

    text: str | None
    path: str = ""
    source: str = "web"
    quality: float | None = None
    dropped: bool = False  # by a verdict before dedup

    @property
    def id(self) -> bytes:
        return document_id(self.source, self.path or str(self.text), 0)


@dataclass
class Memory:
    """Inputs and TaskIO over dicts, and a chain that runs each stage when it is appended."""

    parts: list[list[Doc]]
    seed: int = 17
    partition_bytes: int = 1 << 20
    columns: dict[str, str] = field(default_factory=dict)
    files: Sequence[InputFile] = ()
    root: Path = Path()
    layers: dict[tuple[str, int], pa.Table] = field(default_factory=dict)
    blobs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    done: dict[str, dict[int, Result]] = field(default_factory=dict)
    stage: str = ""
    unit: int = 0
    _written: list[FileRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.done["documents"] = {
            part: Result(part, (FileRecord("", len(docs), 1000 * len(docs), ""),), len(docs))
            for part, docs in enumerate(self.parts)
        }

    # the chain
    def measure(self, name: str, operation: Measure, suffix: str = "") -> None:
        for part in range(len(self.parts)):
            whole = self.documents(part, ["text"])
            index = np.flatnonzero(whole["text"].is_valid().to_numpy())
            table = operation.measure(whole.take(pa.array(index)))
            place = np.full(len(whole), -1)
            place[index] = np.arange(len(index))
            layer = table.take(pa.array(place, mask=place < 0))
            self.layers[name, part] = layer.rename_columns([c + suffix for c in layer.column_names])
        self.columns.update({column + suffix: name for column in operation.schema().names})

    def set(
        self,
        name: str,
        operation: SetOperation,
        reads: Sequence[str] = (),
        kept: bool = False,
        measures: Sequence[str] = (),
    ) -> None:
        self.stage = name
        self.done[name] = {}
        operation.warm()
        for unit in operation.units(self):
            self._run(operation, unit)
        assert operation.check({}, self.done[name]) == []
        for file, data in operation.seal(self.done[name], self).items():
            self.blobs[name, file] = data

    def _run(self, operation: SetOperation, unit: Unit) -> None:
        self.unit, self._written = unit.index, []
        self.done[self.stage][unit.index] = operation.run(unit, self)

    def verdict(self, *names: str) -> None:
        self.closed = names

    # Inputs
    def results(self, stage: str) -> Mapping[int, Result]:
        return self.done[stage]

    def folder(self, stage: str) -> str:
        return stage

    # TaskIO
    def documents(self, part: int, columns: Sequence[str]) -> pa.Table:
        docs = self.parts[part]
        table = pa.table(
            {
                "id": pa.array([doc.id for doc in docs], pa.binary(16)),
                "text": pa.array([doc.text for doc in docs], pa.large_string()),
                "source": pa.array([doc.source for doc in docs], pa.string()),
                "quality": pa.array([doc.quality for doc in docs], pa.float32()),
            }
        )
        return table.select(list(columns))

    def layer(self, stage: str, part: int, columns: Sequence[str] | None = None) -> pa.Table:
        table = self.layers[stage, part]
        return table if columns is None else table.select(list(columns))

    def kept(self, part: int) -> npt.NDArray[np.bool_]:
        return np.array([doc.text is not None and not doc.dropped for doc in self.parts[part]], np.bool_)

    def rows(
        self, part: int, columns: Sequence[str], kept: bool = False
    ) -> Iterator[tuple[npt.NDArray[np.int64], pa.Table]]:
        table = self.documents(part, columns)
        mask = self.kept(part) if kept else np.array([doc.text is not None for doc in self.parts[part]])
        for start in range(0, len(table), 64):
            index = start + np.flatnonzero(mask[start : start + 64])
            if len(index):
                yield index, table.take(pa.array(index))

    def open_arrow(self, stage: str, name: str) -> ArrowFile:
        return ArrowFile(
            pa.BufferReader(self.blobs[stage, name]), lambda: AssertionError(f"{stage}/{name} is damaged")
        )

    def read_bytes(self, stage: str, name: str) -> bytes:
        return self.blobs[stage, name]

    def write_layer(self, part: int, table: pa.Table) -> None:
        assert table.num_rows == len(self.parts[part])
        self.layers[self.stage, part] = table

    def write_documents(self, part: int, table: pa.Table) -> None:
        raise AssertionError("dedup writes no documents")

    def write_arrow(self, name: str, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> None:
        with tempfile.TemporaryDirectory() as folder:
            rows = write_arrow_file(Path(folder, "file"), batches, schema)
            self.write_bytes(name, Path(folder, "file").read_bytes(), rows)

    def write_bytes(self, name: str, data: bytes, rows: int = 0) -> None:
        assert (self.stage, name) not in self.blobs, f"{name} is written twice"
        self.blobs[self.stage, name] = data
        self._written.append(FileRecord(name, rows, len(data), ""))

    def result(
        self, rows: int = 0, counts: Mapping[str, int] | None = None, extra: Mapping[str, Any] | None = None
    ) -> Result:
        return Result(self.unit, tuple(self._written), rows, dict(counts or {}), dict(extra or {}))


def cut(docs: Sequence[Doc], parts: int) -> list[list[Doc]]:
    """`docs` in `parts` partitions of about equal size."""
    ends = [round(len(docs) * i / parts) for i in range(parts + 1)]
    return [list(docs[a:b]) for a, b in pairwise(ends)]


def dedup(docs: Sequence[Doc], parts: int = 1, **fields: Any) -> Memory:
    """A whole dedup stage over `docs`."""
    memory = Memory(cut(docs, parts))
    memory.columns["quality"] = "measures"
    Dedup(**fields).extend(memory, "dedup")
    return memory


def verdicts(memory: Memory, name: str = "dedup") -> dict[bytes, dict[str, Any]]:
    """Document id -> its row of the verdict layer."""
    found = {}
    for part, docs in enumerate(memory.parts):
        rows = memory.layers[f"{name}.verdict", part].to_pylist()
        found.update({doc.id: row for doc, row in zip(docs, rows, strict=True)})
    return found


def kept_paths(memory: Memory) -> list[str]:
    """Paths of the documents that stay, sorted."""
    rows = verdicts(memory)
    return sorted(doc.path for docs in memory.parts for doc in docs if rows[doc.id]["kept"])
