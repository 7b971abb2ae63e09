"""Measures, edits and judges over one partition: row groups in, one row-aligned layer out.

A piece that raises is halved until the row that does stands alone: one bad page costs one page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.pipeline.documents import ROW_GROUP
from corpusmill.pipeline.engine.failures import PREFIX
from corpusmill.pipeline.engine.files import TEXT_FIELD, Files, part_name
from corpusmill.pipeline.engine.stage import Edit, Measure, Result
from corpusmill.pipeline.errors import CorpusmillError
from corpusmill.pipeline.judge import Judge

FAILED_FIELD = pa.field(
    "failed", pa.string(), metadata={"about": "exception that stopped this row here; null for all others"}
)


def run_measure(operation: Measure, part: int, files: Files) -> Result:
    schema = pa.schema(
        [_renamed(column, files.task.suffix) for column in operation.schema()] + [FAILED_FIELD]
    )

    def measure(rows: pa.Table) -> pa.Table:
        table = operation.measure(rows)
        return pa.table(
            [*table.cast(operation.schema()).columns, pa.nulls(rows.num_rows, pa.string())], schema=schema
        )

    table = _over_rows(measure, schema, operation.needs, part, files, kept=False)
    files.write_layer(part, table)
    return _layer_result(files, table)


def run_edit(operation: Edit, part: int, files: Files) -> Result:
    schema = pa.schema([TEXT_FIELD, FAILED_FIELD])

    def edit(rows: pa.Table) -> pa.Table:
        return pa.table(
            [operation.edit(rows).cast(pa.large_string()), pa.nulls(rows.num_rows, pa.string())],
            schema=schema,
        )

    table = _over_rows(edit, schema, operation.needs, part, files, kept=files.task.ledger is not None)
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


def _renamed(column: pa.Field, suffix: str) -> pa.Field:
    return column.with_name(column.name + suffix)


def _layer_result(files: Files, table: pa.Table, counts: Mapping[str, int] | None = None) -> Result:
    failed = Counter(table["failed"].drop_null().to_pylist())
    return files.result(
        rows=table.num_rows, counts={**(counts or {}), **{PREFIX + reason: n for reason, n in failed.items()}}
    )


def _over_rows(
    work: Callable[[pa.Table], pa.Table],
    schema: pa.Schema,
    needs: Sequence[str],
    part: int,
    files: Files,
    kept: bool,
) -> pa.Table:
    """`work` over the rows of a partition; a row that raises gets nulls and its exception in `failed`."""
    indexes, tables = [], []
    for index, rows in files.rows(part, needs, kept=kept):
        indexes.append(index)
        tables.append(_guarded(work, schema, rows))
    return _placed(indexes, tables, schema, files.row_count(part))


def _guarded(work: Callable[[pa.Table], pa.Table], schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """Halve a piece that raises until the row that does stands alone: one bad page costs one page."""
    try:
        return work(rows)
    except CorpusmillError:
        raise  # a missing model or a wrong recipe is not the page's fault
    except Exception as error:
        if rows.num_rows == 1:
            values = [None] * (len(schema) - 1) + [f"exception:{type(error).__name__}"]
            return pa.table(
                [pa.array([value], column.type) for value, column in zip(values, schema, strict=True)],
                schema=schema,
            )
        middle = rows.num_rows // 2
        halves = [_guarded(work, schema, half) for half in (rows.slice(0, middle), rows.slice(middle))]
        return pa.concat_tables(halves)


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
