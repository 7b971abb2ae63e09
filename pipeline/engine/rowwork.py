"""What measures and edits do to rows: the schema of their layer, the work itself, and a row that could not be done.

Used by a worker and, for rows that have crashed one, by its child process; both give the same bytes.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

import pyarrow as pa

from corpusmill.pipeline.engine.files import TEXT_FIELD
from corpusmill.pipeline.engine.stage import Backstop, Edit, Measure
from corpusmill.pipeline.errors import CorpusmillError

FAILED_FIELD = pa.field(
    "failed",
    pa.string(),
    metadata={
        "about": "what stopped this row here: exception:<class>, cpu_limit, memory, crash:<signal>; else null"
    },
)

Work = Callable[[pa.Table], pa.Table]


def layer_schema(operation: Measure | Edit, suffix: str) -> pa.Schema:
    """The columns of a layer; `failed` is the last."""
    if isinstance(operation, Edit):
        return pa.schema([TEXT_FIELD, FAILED_FIELD])
    renamed = [column.with_name(column.name + suffix) for column in operation.schema()]
    return pa.schema([*renamed, FAILED_FIELD])


def work_of(operation: Measure | Edit, schema: pa.Schema) -> Work:
    """Rows in, a table of `schema` out."""

    def work(rows: pa.Table) -> pa.Table:
        if isinstance(operation, Edit):
            columns = [operation.edit(rows).cast(pa.large_string())]
        else:
            columns = operation.measure(rows).cast(operation.schema()).columns
        return pa.table([*columns, pa.nulls(rows.num_rows, pa.string())], schema=schema)

    return work


def failed_row(schema: pa.Schema, reason: str) -> pa.Table:
    """One row of nulls and why."""
    values = [*[None] * (len(schema) - 1), reason]
    arrays = [pa.array([value], column.type) for value, column in zip(values, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def halved(
    work: Work, schema: pa.Schema, rows: pa.Table, caught: type[BaseException] = Exception
) -> pa.Table:
    """Halve a piece that raises until the row that does stands alone: one bad page costs one page."""
    try:
        return work(rows)
    except (CorpusmillError, MemoryError):
        raise  # a missing model is not the page's fault; who took the memory is not known yet
    except caught as error:
        if rows.num_rows == 1:
            return failed_row(schema, f"exception:{type(error).__name__}")
        middle = rows.num_rows // 2
        parts = (rows.slice(0, middle), rows.slice(middle))
        halves = [halved(work, schema, part, caught) for part in parts]
        return pa.concat_tables(halves)


def allowance(backstop: Backstop, rows: pa.Table, patience: float) -> float:
    """CPU seconds for a piece of rows, and for each of its rows alone: what fails alone would have failed in the piece."""
    size_bytes: int = rows.nbytes
    return patience * (backstop.cpu_s + backstop.cpu_s_per_mb * size_bytes / 1e6)


@contextlib.contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """End this process by SIGPROF when the block takes more CPU time; a kernel timer, so inside C code too."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
