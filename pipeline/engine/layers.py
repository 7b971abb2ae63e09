"""Measures, edits and judges over one partition: row groups in, one row-aligned layer out.

One bad page costs one page: a piece that raises is halved until the row that does stands alone (rowwork.py), and one that ends the
process is done again in a child, which finds the row (guarded.py).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.pipeline.documents import ROW_GROUP
from corpusmill.pipeline.engine.failures import PREFIX
from corpusmill.pipeline.engine.files import Files, Task, part_name
from corpusmill.pipeline.engine.guarded import RowGuard
from corpusmill.pipeline.engine.results import canonical
from corpusmill.pipeline.engine.rowwork import (
    Work,
    allowance,
    cpu_limit,
    failed_row,
    halved,
    layer_schema,
    work_of,
)
from corpusmill.pipeline.engine.stage import Edit, Measure, Result
from corpusmill.pipeline.judge import Judge

_warmed: set[bytes] = set()
"""Operations whose kernels and models this process holds."""


def run_measure(operation: Measure, part: int, files: Files) -> Result:
    table = _over_rows(operation, part, files, kept=False)
    files.write_layer(part, table)
    return _layer_result(files, table)


def run_edit(operation: Edit, part: int, files: Files) -> Result:
    table = _over_rows(operation, part, files, kept=files.task.ledger is not None)
    files.write_parquet(part_name(part), table, ROW_GROUP, with_text=True)
    changed = table.num_rows - table["text"].null_count
    return _layer_result(files, table, {"changed": changed})


def run_judge(operation: Judge, part: int, files: Files) -> Result:
    indexes, tables = [], []
    for index, rows in files.rows(part, operation.needs):
        indexes.append(index)
        tables.append(operation.judge(rows))
    table = _placed(indexes, tables, operation.schema(), files.row_count(part))
    files.write_layer(part, table)
    hits = {"judged": sum(len(index) for index in indexes)}
    masks = table["cuts_hit"].drop_null().to_numpy()
    for bit, name in enumerate(operation.reasons()):
        hits[f"hit.{name}"] = int(np.count_nonzero(masks >> np.uint64(bit) & np.uint64(1)))
    return files.result(
        rows=table.num_rows, counts={name: n for name, n in hits.items() if n or name == "judged"}
    )


def _layer_result(files: Files, table: pa.Table, counts: Mapping[str, int] | None = None) -> Result:
    failed = Counter(table["failed"].drop_null().to_pylist())
    return files.result(
        rows=table.num_rows, counts={**(counts or {}), **{PREFIX + reason: n for reason, n in failed.items()}}
    )


def _over_rows(operation: Measure | Edit, part: int, files: Files, kept: bool) -> pa.Table:
    """The work over the rows of a partition; a row that cannot be done gets nulls and why in `failed`."""
    schema = layer_schema(operation, files.task.suffix)
    indexes, tables = [], []
    known = _known_rows(part, files)
    with _doing(operation, files.task, schema) as do:
        for index, rows in files.rows(part, operation.needs, kept=kept):
            indexes.append(index)
            # One chunk a piece, however it was put together: chunks show in a file's pages.
            tables.append(_around(known, do, schema, index, rows).combine_chunks())
    return _placed(indexes, tables, schema, files.row_count(part))


@contextlib.contextmanager
def _doing(operation: Measure | Edit, task: Task, schema: pa.Schema) -> Iterator[Work]:
    """The work here, within its CPU time; or in a child process, for a task that has ended its worker before."""
    if task.guarded:
        with RowGuard(operation, task) as guard:
            yield guard.run
        return
    key = canonical([task.operation, task.fields])
    if key not in _warmed:  # kernels compile here, on nobody's CPU time
        operation.warm()
        _warmed.add(key)
    work = work_of(operation, schema)

    def do(rows: pa.Table) -> pa.Table:
        with cpu_limit(allowance(operation.backstop, rows, task.patience)):
            return halved(work, schema, rows)

    yield do


def _known_rows(part: int, files: Files) -> dict[int, str]:
    """Row -> reason of the rows that a list says fail here."""
    if not files.known:
        return {}
    names = files.documents(part, ["id"])["id"].to_pylist()
    return {row: files.known[name.hex()] for row, name in enumerate(names) if name.hex() in files.known}


def _around(
    known: Mapping[int, str], do: Work, schema: pa.Schema, index: npt.NDArray[np.int64], rows: pa.Table
) -> pa.Table:
    """The work over all rows but those that are known to fail."""
    stops = np.isin(index, list(known))
    if not stops.any():
        return do(rows)
    tried = [] if stops.all() else [do(rows.filter(pa.array(~stops)))]
    failed = [failed_row(schema, known[row]) for row in index[stops].tolist()]
    order = np.argsort(np.concatenate([index[~stops], index[stops]]))
    return pa.concat_tables([*tried, *failed]).take(pa.array(order))


def _placed(
    indexes: list[npt.NDArray[np.int64]], tables: list[pa.Table], schema: pa.Schema, rows: int
) -> pa.Table:
    """Put results at their row numbers; all other rows are null."""
    if not tables:
        return pa.table([pa.nulls(rows, column.type) for column in schema], schema=schema)
    table, index = pa.concat_tables(tables), np.concatenate(indexes)
    if len(index) == rows:
        return table
    place = np.full(rows, -1, dtype=np.int64)
    place[index] = np.arange(len(index))
    placed = table.take(pa.array(place, mask=place < 0))
    return placed.replace_schema_metadata(schema.metadata)
