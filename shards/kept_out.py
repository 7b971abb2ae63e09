"""Documents that the audit kept out of the shards: a list beside them, with address, reason and what was measured.

Scatter writes what each of its units kept out; when there is anything, one more unit of write gathers it into KEPT_OUT_FILE, sorted by id.
"""

from __future__ import annotations

import io as streams
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.pipeline.engine.stage import TaskIO
from corpusmill.shards.audit import AUDIT

KEPT_OUT_FILE = "kept_out.parquet"

KEPT_OUT = pa.schema(
    [
        pa.field("id", pa.binary(16), nullable=False),
        pa.field("url", pa.large_string()),
        pa.field("source", pa.string()),
        pa.field("file", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("length", pa.int64()),
        pa.field("reason", pa.string(), nullable=False),  # the limit of the recipe's `audit` that it was over
        pa.field("tokens", pa.int64(), nullable=False),  # without boundaries
        *AUDIT,
    ]
)


def list_name(unit: int) -> str:
    """The file of one unit of scatter."""
    return f"kept-out-{unit:05d}.arrow"


def refused(
    rows: pa.Table,
    origin: Mapping[str, pa.Array],
    audited: pa.Table,
    reasons: pa.Array,
    lengths: npt.NDArray[np.int64],
) -> pa.Table:
    """The lines of documents that have a reason."""
    columns = {
        **{name: rows[name] for name in ("id", "url", "source")},
        **origin,
        "reason": reasons,
        "tokens": pa.array(lengths),
        **{name: audited[name] for name in AUDIT.names},
    }
    return pa.table(columns).filter(reasons.is_valid()).select(KEPT_OUT.names).cast(KEPT_OUT)


def gather(io: TaskIO, scatter: str, units: Sequence[int]) -> tuple[bytes, int]:
    """The list of all `units` of scatter as Parquet, and its rows."""
    readers = [io.open_arrow(scatter, list_name(unit)) for unit in units]
    batches = [batch for reader in readers for batch in reader.batches()]
    table = pa.Table.from_batches(batches, schema=KEPT_OUT).sort_by("id")
    sink = streams.BytesIO()
    pq.write_table(table, sink, compression="zstd", compression_level=3)
    return sink.getvalue(), table.num_rows
