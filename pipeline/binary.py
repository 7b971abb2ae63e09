"""Arrow columns of fixed-width bytes (ids, hashes, signatures) as NumPy numbers, without a Python object a row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]


def halves(column: pa.ChunkedArray | pa.Array) -> tuple[U64, U64]:
    """A column of 16 bytes as two big-endian halves, so that numbers sort as the bytes do; null is 0, 0."""
    values = fixed(column, 16).view(">u8").reshape(-1, 2)
    return values[:, 0].astype(np.uint64), values[:, 1].astype(np.uint64)


def joined(high: U64, low: U64) -> pa.Array:
    """The inverse of `halves`."""
    values = np.stack([high, low], axis=1).astype(">u8")
    return pa.Array.from_buffers(pa.binary(16), len(high), [None, pa.py_buffer(values.tobytes())])


def fixed(column: pa.ChunkedArray | pa.Array, width: int) -> npt.NDArray[np.uint8]:
    """The bytes of a fixed-width binary column, [rows, width]; nulls are zeros."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if array.null_count:
        array = array.fill_null(bytes(width))
    data = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    return data[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)
