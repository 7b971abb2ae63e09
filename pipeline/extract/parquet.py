"""Foreign Parquet as drafts, by row groups; offsets are row numbers. Any string type will do for the text, and nothing is inferred."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.pipeline.documents import ROW_GROUP, document_id
from corpusmill.pipeline.errors import InputError
from corpusmill.pipeline.extract.jsonl import Keys, fill
from corpusmill.pipeline.extract.page import Outcome
from corpusmill.pipeline.extract.rows import Draft, Tally
from corpusmill.pipeline.extract.source import open_bytes


@dataclass(frozen=True)
class Groups:
    """Row groups of a file: the first row number of each and one past the last, and bytes of each."""

    starts: tuple[int, ...]
    sizes: tuple[int, ...]


def groups(path: str, text_key: str) -> Groups:
    """The file's row groups; InputError when it is damaged or has no column for the text."""
    file = _open(path)
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
    path: str, start: int, end: int, source_name: str, relative: str, keys: Keys, tally: Tally
) -> Iterator[Draft]:
    """A row for each row in [start, end), both borders of row groups."""
    file = _open(path)
    found = groups(path, keys.text)
    wanted = [index for index, first in enumerate(found.starts[:-1]) if start <= first < end]
    number = start
    try:
        for batch in file.iter_batches(batch_size=ROW_GROUP, row_groups=wanted):
            for value in batch.to_pylist():
                draft = Draft(
                    document_id(source_name, relative, number), number, 1, Outcome(reason="no_text")
                )
                fill(draft, _json(value), keys)
                number += 1
                yield draft
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}, row {number}: cannot be read on ({error}); a Parquet file has no place to go on from: fetch it again"
        ) from error
    tally.first, tally.next = start, end


def _open(path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(pa.PythonFile(open_bytes(path), mode="r"))
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is a damaged Parquet file ({error}); fetch it again") from error


def _json(value: Any) -> Any:
    """Arrow's Python values with bytes as text; dates stay what they are."""
    if isinstance(value, dict):
        return {key: _json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_json(each) for each in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
