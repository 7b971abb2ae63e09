"""What the engine runs: operations, bound into stages, cut into units.

    Operation   what to do, as a frozen dataclass whose fields are JSON values; all that enters its fingerprint
      Measure     text -> columns       pure, row by row
      Edit        text -> text          pure, row by row
      SetOperation  anything across partitions (extract, dedup, shard, mix), in units of its own
    Stage       an operation under a name, with the layers that it reads
    Unit        the smallest piece that is committed: one partition, one bucket, one shard

A worker gets an operation by import path and fields, so nothing is pickled. Everything a unit writes is named by the unit,
never by the task, the worker or the clock: regrouping, retries and two drivers at once cannot change a byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.pipeline.engine.arrow_files import ArrowFile
from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.remote_file import RemoteFile

Area = Literal["text", "layers", "shards"]
"""Where a stage's files go below OUT: `text` holds originals (restricted), `layers` holds none, `shards` is what a stream reads."""

WORKER_BYTES = 512 << 20
"""Memory of a worker that holds little of its data at a time: mostly libraries and kernels (380 MB at the most, seen on small runs)."""


@dataclass(frozen=True)
class Backstop:
    """What the rows of a measure or an edit may take at most: far above what any needs, since it depends on the machine.

    CPU seconds are of a piece of rows (a row group), and for each megabyte of it; memory is counted for a row that crashes, alone.
    """

    cpu_s: float = 60.0
    cpu_s_per_mb: float = 10.0
    memory_bytes: int = 4 << 30


@dataclass(frozen=True)
class Operation:
    """Base of all that a worker runs. Subclasses are frozen dataclasses with JSON-able fields (nested dataclasses allowed)."""

    version: ClassVar[int] = 1  # raise it when the same fields would give other bytes
    libraries: ClassVar[tuple[str, ...]] = ()  # distributions whose versions can change the bytes
    area: ClassVar[Area] = "layers"
    gpus: ClassVar[float] = 0.0  # of one worker; a part of one lets several share it

    def worker_memory(self, unit: Unit) -> int:
        """Bytes that a worker may take for a unit: decides how many run at once, where (resources.py), and no byte of the output."""
        return WORKER_BYTES

    def models(self) -> dict[str, str]:
        """Name -> sha256 of every file beside the inputs that the bytes depend on; raises ModelError when one is missing."""
        return {}

    def warm(self) -> None:
        """Run once in the driver before workers start: compile kernels, check models."""


@dataclass(frozen=True)
class Measure(Operation):
    """Columns computed from each row alone."""

    needs: ClassVar[tuple[str, ...]] = ("text",)  # document columns, `text`, or measures of earlier stages
    backstop: ClassVar[Backstop] = Backstop()
    by_name: ClassVar[bool] = False  # later stages read it by its stage's name, not by its columns

    def schema(self) -> pa.Schema:
        """The columns it adds; unit, range and source of each stand in the field's metadata under `about`."""
        raise NotImplementedError

    def measure(self, rows: pa.Table) -> pa.Table:
        """`rows` has the columns of `needs`, only rows with text, any number of them; returns `schema()` row for row."""
        raise NotImplementedError


@dataclass(frozen=True)
class Edit(Operation):
    """Another text for each row."""

    area: ClassVar[Area] = "text"
    needs: ClassVar[tuple[str, ...]] = ("text",)
    backstop: ClassVar[Backstop] = Backstop()

    def edit(self, rows: pa.Table) -> pa.Array:
        """large_string, row for row; null where the text stays as it was. An emptied text is "", not null."""
        raise NotImplementedError


@dataclass(frozen=True)
class SetOperation(Operation):
    """Work across partitions, in units that it lays out itself from manifests."""

    # Bytes of Unit.weight a second and core: decides how units are grouped into tasks.
    rate: ClassVar[float] = 20e6
    temporary: ClassVar[bool] = False  # its files go when the manifests of all its readers stand
    # Reads places of the inputs only: that nothing is there says nothing of the rest.
    probes: ClassVar[bool] = False

    def units(self, inputs: Inputs) -> list[Unit]:
        """Driver side, from manifests only; the same list whatever the number of workers."""
        raise NotImplementedError

    def run(self, unit: Unit, io: TaskIO) -> Result:
        """Worker side: read through `io`, write through `io`, return `io.result(...)`."""
        raise NotImplementedError

    def check(self, units: Mapping[int, Unit], results: Mapping[int, Result]) -> list[Unit]:
        """Driver side, when all units are in: units to run again in another way (they replace the old ones); [] when all is well."""
        return []

    def seal(self, results: Mapping[int, Result], inputs: Inputs) -> dict[str, bytes]:
        """Driver side, after `check`: small files (name -> content) to stand beside the units' files."""
        return {}

    def publish(self) -> dict[str, str]:
        """Sealed or unit file name -> path below OUT where a copy is put once the manifest stands."""
        return {}

    def replaces(self, target: str, there: bytes, made: bytes) -> dict[str, bytes]:
        """Path below OUT -> content: what to put when `made` is published at `target`, where other bytes stand."""
        return {target: made}


@dataclass(frozen=True, slots=True)
class Unit:
    """`index` names it; `weight` is bytes to read; `fields` are JSON values for `run`; `parts` are the partitions it reads."""

    index: int
    weight: int
    fields: dict[str, Any] = field(default_factory=dict)
    parts: tuple[int, ...] = ()


@dataclass(frozen=True)
class FileRecord:
    """A file of a unit: name relative to the stage's folder, rows, bytes, xxh3-128 of its bytes in hex."""

    name: str
    rows: int
    size_bytes: int
    xxh3: str


@dataclass(frozen=True)
class Result:
    """What a unit did. `counts` are sums for the manifest (rows by outcome or type), `extra` is JSON for later `units` and `check`."""

    unit: int
    files: tuple[FileRecord, ...] = ()
    rows: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class InputFile:
    """A file of the recipe's inputs. `relative` is the path below the fixed prefix; `identity` changes with the content.

    It is of size and xxh3 of three places, or of size and version where `remote` says how the file is read.
    """

    path: str
    relative: str
    source: str
    size_bytes: int
    identity: str
    named: bool = False  # given by its exact name, not by a wildcard: refusing it is an error
    remote: RemoteFile | None = None  # None: a file on this machine
    sample: float | None = None  # only this share of its documents; `identity` is of it too

    @property
    def address(self) -> str | RemoteFile:
        """What the readers take."""
        return self.remote or self.path


class Inputs(Protocol):
    """Driver side view: what stands before a set operation lays out its units."""

    files: Sequence[InputFile]
    partition_bytes: int
    root: Place  # OUT

    def results(self, stage: str) -> Mapping[int, Result]:
        """Unit -> result of an earlier stage that this one reads (`documents` for extract's)."""
        ...

    def folder(self, stage: str) -> str:
        """The stage's folder, relative to OUT."""
        ...


class TaskIO(Protocol):
    """Worker side view of one unit: the only way to read earlier layers and to write."""

    seed: int
    patience: float  # factor on the backstops of rows
    known: Mapping[str, str]  # id in hex -> why this row fails here, untried (replay.py)
    metrics: Place  # OUT/metrics, for what may differ from run to run

    def documents(self, part: int, columns: Sequence[str]) -> pa.Table:
        """Columns of one documents partition, all rows."""
        ...

    def layer(self, stage: str, part: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Columns of one partition of a layer, all rows, checked against the documents' row count."""
        ...

    def kept(self, part: int) -> npt.NDArray[np.bool_]:
        """Rows with text that every verdict before this stage kept."""
        ...

    def rows(
        self, part: int, columns: Sequence[str], kept: bool = False
    ) -> Iterator[tuple[npt.NDArray[np.int64], pa.Table]]:
        """Row-group-sized pieces: (row numbers in the partition, table with `columns`), only rows with text, or only kept ones.

        `text` is the text at this stage: the last earlier edit, else the documents'. Other names are document columns or
        measures of earlier stages.
        """
        ...

    def open_arrow(self, stage: str, name: str, ahead: int = 0) -> ArrowFile:
        """An Arrow file of another set stage, mapped; `get_batch(i)` reads slice i alone (pipeline/engine/shuffle.py).

        With `ahead` it is to be read from front to back: on a store in pieces of so many bytes.
        """
        ...

    def read_bytes(self, stage: str, name: str) -> bytes:
        """A whole file of another stage."""
        ...

    def folder(self, stage: str) -> Place:
        """Another stage's folder, for files that are checked by hashes of their own: shards."""
        ...

    def write_layer(self, part: int, table: pa.Table) -> None:
        """The one row-aligned Parquet file of this partition (`part-00000.parquet`)."""
        ...

    def write_documents(self, part: int, table: pa.Table) -> None:
        """The documents partition, in row groups of ROW_GROUP."""
        ...

    def write_arrow(self, name: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
        """An Arrow IPC file, one record batch a slice, made as they come; its footer is the offset index. Returns its rows."""
        ...

    def write_bytes(self, name: str, data: bytes, rows: int = 0) -> None:
        """Any other whole file."""
        ...

    def used(self, figures: Mapping[str, int]) -> None:
        """Add to this task's line in OUT/metrics; never to its result."""
        ...

    def result(
        self, rows: int = 0, counts: Mapping[str, int] | None = None, extra: Mapping[str, Any] | None = None
    ) -> Result:
        """The result of this unit with the records of the files written so far."""
        ...


@dataclass(frozen=True)
class Stage:
    """An operation in its place. `reads` are stages whose layers it uses; `text` the edits it sees, latest first."""

    name: str
    operation: Operation
    reads: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    # The ledger stage that says which rows are kept so far; None: every row with text.
    ledger: str | None = None
    columns: dict[str, str] = field(
        default_factory=dict
    )  # measure -> stage that holds it, for `needs`; a set's own, too
    suffix: str = ""  # appended to the names of the measures that it writes: "@c4"
