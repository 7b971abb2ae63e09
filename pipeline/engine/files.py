"""The one implementation of TaskIO: files below `root`, earlier layers read by row position, whole files written.

Joining by row position needs no ids and no hash table; that the rows belong together is checked by their count and, since a layer
lies under a fingerprint made of its documents' hashes, by its very path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpusmill.pipeline.documents import DOCUMENTS, ROW_GROUP
from corpusmill.pipeline.engine.arrow_files import ArrowFile, write_arrow_file
from corpusmill.pipeline.engine.checked import checked, damaged, pages
from corpusmill.pipeline.engine.metrics import FIGURES
from corpusmill.pipeline.engine.place import Place, place_of
from corpusmill.pipeline.engine.stage import FileRecord, Result, Unit
from corpusmill.pipeline.engine.store import hash_file
from corpusmill.pipeline.errors import InputError
from corpusmill.pipeline.ledger import KEPT

LAYER_ROW_GROUP = 65_536
"""Rows in a row group of a layer: 512-row groups read 4 to 10 times slower than 2,048 to 20,000."""

TEXT_FIELD = pa.field(
    "text", pa.large_string(), metadata={"about": "text after this edit; null where it stays as it was"}
)


@dataclass(frozen=True)
class Task:
    """A message to a worker: JSON both ways, nothing pickled. `folders` maps stage names to folders below `root`."""

    root: str
    stage: str
    operation: str  # "corpusmill.filters.measures:TextMeasures"
    fields: dict[str, Any]
    folders: dict[str, str]
    seed: int
    text: tuple[str, ...] = ()
    ledger: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    suffix: str = ""
    units: tuple[dict[str, Any], ...] = ()
    memory_bytes: int = 0  # of the worker that runs it, and `gpus`: for the runner (resources.py)
    gpus: float = 0.0
    again: int = 0  # the round of SetOperation.check that asked for these units
    # Its worker has died before: rows go to a child process, which finds the one at fault.
    guarded: bool = False
    patience: float = 1.0  # factor on the backstops of rows: CPU time and memory
    # Unit -> id in hex -> why it fails, untried.
    known: dict[str, dict[str, str]] = field(default_factory=dict)
    # Of files it reads whole: stage -> name -> xxh3.
    hashes: dict[str, dict[str, str]] = field(default_factory=dict)


def part_name(part: int) -> str:
    return f"part-{part:05d}.parquet"


class Files:
    """TaskIO over files below `root`: reads earlier layers by row position, writes whole files, keeps their records."""

    def __init__(self, task: Task, unit: Unit) -> None:
        self.task = task
        self.unit = unit
        self.seed = task.seed
        self.patience = task.patience
        self.known: Mapping[str, str] = task.known.get(str(unit.index), {})
        self.root = place_of(task.root)
        self.metrics = self.root / "metrics"
        self._rows: dict[int, int] = {}  # of documents partitions: asked for with every layer
        self._part, self._open = -1, dict[str, Any]()
        self._written: list[FileRecord] = []

    def folder(self, stage: str) -> Place:
        return self.root / self.task.folders[stage]

    def existing(self, stage: str, name: str) -> Path | pa.NativeFile:
        """An earlier stage's file for pyarrow's readers; DamagedError when its bytes are not those that were recorded."""
        return checked(self.folder(stage) / name, stage, name, self.task.hashes.get(stage, {}).get(name))

    def part(self, stage: str, part: int) -> Path | pa.NativeFile:
        """The file of a partition; on a store it stays open while the unit reads of this partition, since each opening is a request."""
        if self.root.local:
            return self.existing(stage, part_name(part))
        if part != self._part:
            self._part, self._open = part, {}
        if stage not in self._open:
            self._open[stage] = self.existing(stage, part_name(part))
        return self._open[stage]

    def row_count(self, part: int) -> int:
        if part not in self._rows:
            self._rows[part] = int(pq.read_metadata(self.part("documents", part)).num_rows)
        return self._rows[part]

    def documents(self, part: int, columns: Sequence[str]) -> pa.Table:
        return self._table("documents", part, list(columns))

    def layer(self, stage: str, part: int, columns: Sequence[str] | None = None) -> pa.Table:
        table = self._table(stage, part, None if columns is None else list(columns))
        rows = self.row_count(part)
        if table.num_rows != rows:
            raise InputError(
                f"{self.folder(stage) / part_name(part)}: {table.num_rows} rows, its documents have {rows}: delete the layer's folder and run again"
            )
        return table

    def kept(self, part: int) -> npt.NDArray[np.bool_]:
        if self.task.ledger is None:
            return _have_text(self.documents(part, ["reason", "failed"]))
        state = self.layer(self.task.ledger, part, ["state"])["state"].to_numpy()
        return np.asarray(state == KEPT, dtype=np.bool_)

    def rows(
        self, part: int, columns: Sequence[str], kept: bool = False
    ) -> Iterator[tuple[npt.NDArray[np.int64], pa.Table]]:
        stored = [name for name in columns if name in DOCUMENTS.names]
        measures = self._measures(part, [name for name in columns if name not in DOCUMENTS.names])
        edits = {name: self._parquet(name, part) for name in self.task.text} if "text" in stored else {}
        keep = self.kept(part) if kept else None
        documents = self._parquet("documents", part)
        start = 0
        for group in range(documents.num_row_groups):
            names = [*dict.fromkeys([*stored, "reason", "failed"])]
            piece = self._group(documents, "documents", part, group, names)
            here = slice(start, start + piece.num_rows)
            index = np.flatnonzero(_have_text(piece) if keep is None else keep[here])
            if edits:
                texts = [
                    self._group(edit, name, part, group, ["text"])["text"] for name, edit in edits.items()
                ]
                piece = _with_edits(piece, texts)
            table = pa.table(
                {
                    **{name: piece[name] for name in stored},
                    **{name: measures[name][here] for name in measures},
                }
            )
            if len(index):
                yield index + start, table.select(list(columns)).take(pa.array(index))
            start += piece.num_rows

    def _table(self, stage: str, part: int, columns: list[str] | None) -> pa.Table:
        """Whole columns. Pages are checked where the file may not have been: on a store."""
        with pages(self.folder(stage) / part_name(part), stage, part_name(part)):
            return pq.read_table(
                self.part(stage, part),
                columns=columns,
                partitioning=None,
                page_checksum_verification=not self.root.local,
            )

    def _parquet(self, stage: str, part: int) -> pq.ParquetFile:
        """For reading by row groups; on a store the columns of a group are fetched together, near ones by one request."""
        away = not self.root.local
        return pq.ParquetFile(self.part(stage, part), pre_buffer=away, page_checksum_verification=away)

    def _group(self, file: pq.ParquetFile, stage: str, part: int, group: int, columns: list[str]) -> pa.Table:
        with pages(self.folder(stage) / part_name(part), stage, part_name(part)):
            return file.read_row_group(group, columns=columns)

    def _measures(self, part: int, names: Sequence[str]) -> dict[str, pa.ChunkedArray]:
        by_stage: dict[str, list[str]] = {}
        for name in names:
            by_stage.setdefault(self.task.columns[name], []).append(name)
        found = {}
        for stage, wanted in by_stage.items():
            table = self.layer(stage, part, wanted)
            found.update({name: table[name] for name in wanted})
        return found

    def whole(self, part: int, columns: Sequence[str]) -> pa.Table:
        """Document columns of all rows of a partition, with the edits applied to `text`."""
        table = self.documents(part, columns)
        if "text" in columns and self.task.text:
            edits = [self.layer(name, part, ["text"])["text"] for name in self.task.text]
            table = _with_edits(table, edits)
        return table

    def open_arrow(self, stage: str, name: str, ahead: int = 0) -> ArrowFile:
        path = self.folder(stage) / name
        return ArrowFile(path.ahead(ahead) if ahead else path.mapped(), lambda: damaged(path, stage, name))

    def read_bytes(self, stage: str, name: str) -> bytes:
        source = self.existing(stage, name)
        return source.read_bytes() if isinstance(source, Path) else bytes(source.read())

    def write_layer(self, part: int, table: pa.Table) -> None:
        self.write_parquet(part_name(part), table, LAYER_ROW_GROUP, with_text=False)

    def write_documents(self, part: int, table: pa.Table) -> None:
        self.write_parquet(part_name(part), table.cast(DOCUMENTS), ROW_GROUP, with_text=True)

    def write_parquet(self, name: str, table: pa.Table, row_group: int, with_text: bool) -> None:
        """zstd level 3 (level 9 gains 9 % of the bytes for 2.6 times the seconds); no dictionaries or statistics on texts or measures."""

        def write(path: Path) -> int:
            dictionary = ["source", "stage", "reason", "failed", "language"]
            pq.write_table(
                table,
                path,
                compression="zstd",
                compression_level=3,
                row_group_size=row_group,
                use_dictionary=[column for column in dictionary if column in table.column_names],
                write_statistics=not with_text,
                write_page_checksum=True,  # for readers of ranges (checked.py)
            )
            return int(table.num_rows)

        self._write(name, write)

    def write_arrow(self, name: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
        return self._write(name, lambda path: write_arrow_file(path, batches, schema))

    def write_bytes(self, name: str, data: bytes, rows: int = 0) -> None:
        def write(path: Path) -> int:
            path.write_bytes(data)
            return rows

        self._write(name, write)

    def _write(self, name: str, write: Callable[[Path], int]) -> int:
        """`write` makes a local file and says how many rows are in it."""
        path = self.folder(self.task.stage) / name
        temporary = path.temporary()
        try:
            rows = write(temporary)
            record = FileRecord(name, rows, temporary.stat().st_size, hash_file(temporary))
            path.put_file(temporary)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self._written.append(record)
        return rows

    def used(self, figures: Mapping[str, int]) -> None:
        FIGURES.update(figures)

    def result(
        self, rows: int = 0, counts: Mapping[str, int] | None = None, extra: Mapping[str, Any] | None = None
    ) -> Result:
        return Result(
            self.unit.index,
            tuple(self._written),
            rows,
            dict(sorted((counts or {}).items())),
            dict(extra or {}),
        )


def _have_text(documents: pa.Table) -> npt.NDArray[np.bool_]:
    """Rows that extract neither dropped nor failed."""
    stands = documents["reason"].is_null().to_numpy() & documents["failed"].is_null().to_numpy()
    return np.asarray(stands, dtype=np.bool_)


def _with_edits(piece: pa.Table, edits: list[pa.ChunkedArray]) -> pa.Table:
    """The text at a stage: the latest edit that is not null, else the documents' text."""
    text = pc.coalesce(*edits, piece["text"])
    return piece.set_column(piece.schema.get_field_index("text"), TEXT_FIELD, text)
