"""The second level of a shuffle: consecutive scatter files become one, slice by slice, where their slices are too small to read.

With n scatter files a gather asks for n slices, and slices shrink as n grows: a crawl has 100,000 files with slices of some kilobytes, each
of which costs a store's request. A merge reads some files from front to back, in large pieces, and writes one whose slice i holds their
slices i in order: a gather reads the same rows in the same order. Where slices are large enough there is nothing to merge, and no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from corpusmill.pipeline.engine.arrow_files import ArrowFile
from corpusmill.pipeline.engine.layout import consecutive
from corpusmill.pipeline.engine.stage import (
    WORKER_BYTES,
    FileRecord,
    Inputs,
    Result,
    SetOperation,
    TaskIO,
    Unit,
)

READ_AHEAD = 4 << 20
"""Bytes that an open file takes on a store, where it is read in pieces of this size."""


@dataclass(frozen=True)
class Bounds:
    """Files are merged when there are more than `many` slices and their mean is under `small` bytes: then a request to a store costs more than
    what it brings. Merged slices have about `aim` bytes, of `most` files at most, which are open at once."""

    small: int = 256 << 10
    aim: int = 1 << 20
    many: int = 1 << 14
    most: int = 256


BOUNDS = Bounds()

Slice = tuple[int, int]
"""A slice: (file, batch in it)."""


@dataclass(frozen=True)
class Merge(SetOperation):
    """`scatter`: the stage whose files are merged; all of them have the same slices."""

    scatter: str
    bounds: Bounds

    temporary: ClassVar[bool] = True
    rate: ClassVar[float] = 100e6

    def units(self, inputs: Inputs) -> list[Unit]:
        results = [
            replace(result, files=sliced)
            for _, result in sorted(inputs.results(self.scatter).items())
            if (sliced := self.sliced(result))
        ]
        slices = sum(self.slices(result.extra) * len(result.files) for result in results)
        total = sum(file.size_bytes for result in results for file in result.files)
        files = sum(len(result.files) for result in results)
        if files < 2 or slices <= self.bounds.many or total >= self.bounds.small * slices:
            return []
        sizes = {place: len(result.files) for place, result in enumerate(results)}
        together = max(2, min(self.bounds.most, self.bounds.aim * slices // max(1, total)))
        groups = [[results[place] for place in group] for group in consecutive(sizes, together)]
        return [self._unit(index, group) for index, group in enumerate(groups)]

    def _unit(self, index: int, results: Sequence[Result]) -> Unit:
        files = [file for result in results for file in result.files]
        fields = {
            "files": [file.name for file in files],
            "extra": self.together([result.extra for result in results]),
        }
        return Unit(index, sum(file.size_bytes for file in files), fields)

    def sliced(self, result: Result) -> tuple[FileRecord, ...]:
        """The files of a result of the scatter that are cut into slices."""
        return result.files

    def slices(self, extra: Mapping[str, Any]) -> int:
        """Slices of each file of a result of the scatter."""
        return int(extra["slices"])

    def together(self, extras: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What the merged file's result says, of what those of its files say."""
        return {"slices": extras[0]["slices"]}

    def worker_memory(self, unit: Unit) -> int:
        return WORKER_BYTES + len(unit.fields["files"]) * READ_AHEAD

    def run(self, unit: Unit, io: TaskIO) -> Result:
        files = [io.open_arrow(self.scatter, name, READ_AHEAD) for name in unit.fields["files"]]
        schema, places = self.lay_out(files)
        rows = io.write_arrow(self.file_name(unit.index), merged(files, schema, places), schema)
        return io.result(rows=rows, extra=unit.fields["extra"])

    def lay_out(self, files: Sequence[ArrowFile]) -> tuple[pa.Schema, list[list[Slice]]]:
        """The schema of the merged file, and what each of its slices is made of."""
        batches = range(files[0].num_record_batches)
        return files[0].schema, [[(file, batch) for file in range(len(files))] for batch in batches]

    @staticmethod
    def file_name(unit: int) -> str:
        """As the scatter names its files."""
        return f"{unit:05d}.arrow"


def merged(
    files: Sequence[ArrowFile], schema: pa.Schema, places: list[list[Slice]]
) -> Iterator[pa.RecordBatch]:
    """The slices of a merged file, one after the other."""
    for parts in places:
        batches = [files[file].get_batch(batch) for file, batch in parts]
        columns = [
            pa.chunked_array([batch.column(place) for batch in batches], column.type)
            for place, column in enumerate(schema)
        ]
        whole = pa.Table.from_arrays(columns, schema=schema).combine_chunks().to_batches()
        yield whole[0] if whole else pa.RecordBatch.from_pylist([], schema=schema)


def chosen(inputs: Inputs, scatter: str, merge: str) -> str:
    """The stage whose files a gather reads: the merge if it made any, else the scatter."""
    return merge if inputs.results(merge) else scatter
