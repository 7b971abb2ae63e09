"""Results of a stage in small: what the driver holds of units, decoded where it is looked at.

As Python objects a result takes 1.6 kB. `Packed` takes them as they come in, as the canonical JSON that content hashes are made of;
`Stored` is a manifest's table. Both are mappings unit -> `Result`. Every access decodes anew: keep what you use twice.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

import pyarrow as pa

from corpusmill.pipeline.engine.stage import FileRecord, Result

SCHEMA = pa.schema(
    [
        ("unit", pa.int64()),
        (
            "files",
            pa.list_(
                pa.struct(
                    [
                        ("name", pa.string()),
                        ("rows", pa.int64()),
                        ("size_bytes", pa.int64()),
                        ("xxh3", pa.string()),
                    ]
                )
            ),
        ),
        ("rows", pa.int64()),
        ("counts", pa.string()),
        ("extra", pa.string()),
    ]
)

CHUNK = 1024
"""Results that are Python lists at a time while a table is made."""


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no spaces: the form that is hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def result_to_json(result: Result) -> dict[str, Any]:
    """By hand: `dataclasses.asdict` copies every value, at 20 times the cost."""
    return {
        "unit": result.unit,
        "files": [vars(file) for file in result.files],
        "rows": result.rows,
        "counts": result.counts,
        "extra": result.extra,
    }


def result_from_json(value: Mapping[str, Any]) -> Result:
    files = tuple(FileRecord(**file) for file in value["files"])
    return Result(value["unit"], files, value["rows"], dict(value["counts"]), dict(value["extra"]))


class Packed(MutableMapping[int, Result]):
    """Results that come in one by one."""

    def __init__(self, results: Mapping[int, Result] | None = None) -> None:
        self._bodies: dict[int, bytes] = {}
        self.update(results or {})

    def __getitem__(self, unit: int) -> Result:
        return result_from_json(json.loads(self._bodies[unit]))

    def __setitem__(self, unit: int, result: Result) -> None:
        self._bodies[unit] = canonical(result_to_json(result))

    def __delitem__(self, unit: int) -> None:
        del self._bodies[unit]

    def __iter__(self) -> Iterator[int]:
        return iter(self._bodies)

    def __len__(self) -> int:
        return len(self._bodies)

    def __contains__(self, unit: object) -> bool:
        return unit in self._bodies

    def bodies(self) -> Iterator[bytes]:
        """The canonical JSON of each, by unit."""
        return (self._bodies[unit] for unit in sorted(self._bodies))

    def table(self) -> pa.Table:
        """As SCHEMA, by unit, every column one array: a table's chunks could change the bytes of its Parquet file."""
        chunks: list[pa.RecordBatch] = []
        values: list[dict[str, Any]] = []
        for body in self.bodies():
            values.append(json.loads(body))
            if len(values) == CHUNK:
                chunks.append(_batch(values))
                values = []
        chunks.append(_batch(values))
        return pa.Table.from_batches(chunks, schema=SCHEMA).combine_chunks()


def _batch(values: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    rows = [
        {
            **value,
            "counts": canonical(value["counts"]).decode(),
            "extra": canonical(value["extra"]).decode(),
        }
        for value in values
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


class Stored(Mapping[int, Result]):
    """The results of a manifest's table, which is sorted by unit."""

    def __init__(self, table: pa.Table) -> None:
        columns = {name: table[name].combine_chunks() for name in SCHEMA.names}
        self._units: list[int] = columns["unit"].to_pylist()
        self._rows, self._counts, self._extra = (columns[name] for name in ("rows", "counts", "extra"))
        self._ends = columns["files"].offsets
        files = columns["files"].values
        self._files = [files.field(name) for name in ("name", "rows", "size_bytes", "xxh3")]

    def __len__(self) -> int:
        return len(self._units)

    def __iter__(self) -> Iterator[int]:
        return iter(self._units)

    def __getitem__(self, unit: int) -> Result:
        at = self._place(unit)
        if at is None:
            raise KeyError(unit)
        counts, extra = (json.loads(column[at].as_py()) for column in (self._counts, self._extra))
        return Result(unit, self._files_at(at), self._rows[at].as_py(), counts, extra)

    def files(self, unit: int) -> tuple[FileRecord, ...]:
        """The files of a unit; none where there is no such unit."""
        at = self._place(unit)
        return () if at is None else self._files_at(at)

    def _place(self, unit: int) -> int | None:
        """The row of a unit; None where there is none."""
        at = bisect.bisect_left(self._units, unit)
        return at if at < len(self._units) and self._units[at] == unit else None

    def _files_at(self, at: int) -> tuple[FileRecord, ...]:
        places = range(self._ends[at].as_py(), self._ends[at + 1].as_py())
        return tuple(FileRecord(*(column[place].as_py() for column in self._files)) for place in places)
