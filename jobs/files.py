"""The first rows of one file: a table, a shard, a plan or a cursor. The core install is enough."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from corpusmill.jobs.tables import table_lines
from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.engine.state import RECIPE
from corpusmill.pipeline.errors import InputError
from corpusmill.shards.layout import PLAN_FILE


def file_lines(path: Place, rows: int, columns: list[str] | None, as_json: bool) -> Iterator[str]:
    """A table, a shard, a plan or a cursor, by its name."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        file = pq.ParquetFile(path.random())
        _need_columns(path, file.schema_arrow, columns)
        head = next(file.iter_batches(batch_size=rows, columns=columns), None)
        yield f"{file.metadata.num_rows:,} rows, {file.metadata.num_row_groups} row groups"
        yield from table_lines(head.to_pylist() if head is not None else [], as_json)
    elif path.suffix == ".arrow":
        yield from arrow_lines(path, rows, columns, as_json)
    else:
        yield from stream_lines(path)


def arrow_lines(path: Place, rows: int, columns: list[str] | None, as_json: bool) -> Iterator[str]:
    """An Arrow IPC file: its schema's metadata and first rows."""
    with pa.ipc.open_file(path.mapped()) as reader:
        _need_columns(path, reader.schema, columns)
        count = sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))
        yield f"{count:,} rows in {reader.num_record_batches} blocks"
        for key, value in (reader.schema.metadata or {}).items():
            yield f"  {key.decode()}: {value.decode()[:200]}"
        if reader.num_record_batches:
            head = pa.Table.from_batches([reader.get_batch(0)]).slice(0, rows)
            yield from table_lines((head.select(columns) if columns else head).to_pylist(), as_json)


def stream_lines(path: Place) -> Iterator[str]:
    """A plan (components, weights, phases) or a cursor."""
    if path.suffix == ".json" and path.is_file() and path.name != PLAN_FILE:
        yield from (f"{key}: {value}" for key, value in json.loads(path.read_text(encoding="utf-8")).items())
        return
    for place in (path, path / PLAN_FILE, path / "shards" / PLAN_FILE):
        if place.is_file():
            yield json.dumps(json.loads(place.read_text(encoding="utf-8")), indent=1)
            return
    if (path / RECIPE).is_file():
        raise InputError(f"{path}: no stage of this run is done yet; run the same command again to go on")
    raise InputError(
        f"{path}: nothing to show; name a run's folder, a .parquet or .arrow file, plan.json or a cursor"
    )


def _need_columns(path: Place, schema: pa.Schema, columns: list[str] | None) -> None:
    unknown = [name for name in columns or () if name not in schema.names]
    if unknown:
        raise InputError(f"{path} has no column {unknown[0]!r}; it has {', '.join(schema.names)}")
