"""Foreign Parquet as drafts, by row groups; offsets are row numbers. Any string type will do for the text, and nothing is inferred.

A value that Python could not hold (text that is no UTF-8, a year past 9999, nanoseconds, an unknown time zone) costs no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.pipeline.documents import ROW_GROUP, document_id
from corpusmill.pipeline.errors import InputError
from corpusmill.pipeline.extract.jsonl import Keys, fill
from corpusmill.pipeline.extract.page import Outcome
from corpusmill.pipeline.extract.rows import Draft, Tally
from corpusmill.pipeline.extract.source import AnyFile, Source
from corpusmill.pipeline.remote import Unreachable


@dataclass(frozen=True)
class Groups:
    """Row groups of a file: the first row number of each and one past the last, and bytes of each."""

    starts: tuple[int, ...]
    sizes: tuple[int, ...]


def groups(path: AnyFile, text_key: str) -> Groups:
    """The file's row groups; InputError when it is damaged or has no column for the text."""
    with Source.open(path) as source:
        return _groups(_open(source, path), path, text_key)


def _groups(file: pq.ParquetFile, path: AnyFile, text_key: str) -> Groups:
    top = text_key if text_key in file.schema_arrow.names else text_key.partition(".")[0]
    if top not in file.schema_arrow.names:
        raise InputError(
            f"{path} has no column {text_key!r}; name the one that holds the text as text_key (columns: "
            f"{', '.join(file.schema_arrow.names)})"
        )
    starts, sizes = [0], []
    for index in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(index)
        starts.append(starts[-1] + group.num_rows)
        sizes.append(group.total_byte_size)
    return Groups(tuple(starts), tuple(sizes))


def spans(found: Groups, partition_bytes: int) -> list[tuple[int, int, int]]:
    """(first row, end row, bytes) of runs of row groups of up to `partition_bytes` (a larger group stands alone)."""
    runs: list[tuple[int, int, int]] = []
    for index, size in enumerate(found.sizes):
        start, end = found.starts[index], found.starts[index + 1]
        if runs and runs[-1][2] + size <= partition_bytes:
            runs[-1] = (runs[-1][0], end, runs[-1][2] + size)
        else:
            runs.append((start, end, size))
    return runs or [(0, 0, 0)]


def drafts(
    path: AnyFile, start: int, end: int, source_name: str, relative: str, keys: Keys, tally: Tally
) -> Iterator[Draft]:
    """A row for each row in [start, end), both borders of row groups."""
    with Source.open(path) as source:
        yield from _rows(_open(source, path), path, start, end, source_name, relative, keys, tally)
    tally.first, tally.next = start, end


def _rows(
    file: pq.ParquetFile,
    path: AnyFile,
    start: int,
    end: int,
    source_name: str,
    relative: str,
    keys: Keys,
    tally: Tally,
) -> Iterator[Draft]:
    found = _groups(file, path, keys.text)
    wanted = [index for index, first in enumerate(found.starts[:-1]) if start <= first < end]
    number = start
    try:
        for batch in file.iter_batches(batch_size=ROW_GROUP, row_groups=wanted):
            for value in _portable(batch).to_pylist():
                draft = Draft(
                    document_id(source_name, relative, number), number, 1, Outcome(reason="no_text")
                )
                text = value.get(keys.text)
                if isinstance(text, bytes) and not _is_utf8(text):
                    tally.counts["invalid_utf8"] += 1
                    draft.meta["replaced"] = text.decode("utf-8", "replace").count("\ufffd")
                fill(draft, _json(value), keys)
                number += 1
                yield draft
    except Unreachable:
        raise
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path}, row {number}: cannot be read on ({error}); a Parquet file has no place to go on from: fetch it again"
        ) from error


def _open(source: Source, path: AnyFile) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(pa.PythonFile(source.stream, mode="r"))
    except Unreachable:
        raise
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is a damaged Parquet file ({error}); fetch it again") from error


def _portable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with text as bytes and times as ISO 8601 text, in nested types too."""
    for leaf in (_in_utc, _as_text):
        fields = [field.with_type(_retyped(field.type, leaf)) for field in batch.schema]
        batch = batch.cast(pa.schema(fields))
    return batch


def _retyped(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """`kind` with `leaf` of each type in it that is not nested."""

    def inner(field: pa.Field) -> pa.Field:
        return field.with_type(_retyped(field.type, leaf))

    if pa.types.is_dictionary(kind):
        return _retyped(kind.value_type, leaf)
    if pa.types.is_struct(kind):
        return pa.struct([inner(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(inner(kind.key_field), inner(kind.item_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(inner(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(inner(kind.value_field), kind.list_size)
    return pa.list_(inner(kind.value_field)) if pa.types.is_list(kind) else leaf(kind)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def _as_text(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind):
        return pa.string()
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return pa.large_binary() if is_text else kind


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _json(value: Any) -> Any:
    """Arrow's Python values with bytes as text."""
    if isinstance(value, dict):
        return {key: _json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(each) for each in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
