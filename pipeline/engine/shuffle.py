"""Shuffles over files: scatter writes one Arrow file a unit with a record batch a slice, gather reads its slice of each.

The footer of an Arrow IPC file is the offset index: `get_batch(i)` reads slice i alone (a range read on an object store).
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.pipeline.engine.stage import TaskIO


def slices(table: pa.Table, bucket: npt.NDArray[np.integer], buckets: int) -> list[pa.RecordBatch]:
    """`table` cut into `buckets` record batches; rows of a bucket keep their order; empty buckets are empty batches."""
    order = np.argsort(bucket, kind="stable")
    ends = np.searchsorted(bucket[order], np.arange(buckets), side="right")
    rows = table.combine_chunks().take(pa.array(order)).combine_chunks()
    batches = []
    start = 0
    for end in ends.tolist():
        part = rows.slice(start, end - start).combine_chunks().to_batches()
        batches.append(part[0] if part else pa.RecordBatch.from_pylist([], schema=table.schema))
        start = end
    return batches


def gather(io: TaskIO, stage: str, names: Sequence[str], bucket: int) -> Iterator[pa.RecordBatch]:
    """Slice `bucket` of each scatter file, in the order of `names`."""
    for name in names:
        yield io.open_arrow(stage, name).get_batch(bucket)


def gathered(io: TaskIO, stage: str, names: Sequence[str], bucket: int, schema: pa.Schema) -> pa.Table:
    """The slices that `gather` yields as one table; `schema` is what they have, should there be none."""
    return pa.Table.from_batches(gather(io, stage, names, bucket), schema=schema)
