"""What kernels of several rooms share: buffers of a text column, and a stamp for numba's cache."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash


def source_stamp(*modules: str) -> int:
    """A number that changes with the source of any of the modules.

    A kernel that closes over it is compiled again when one of them has changed: numba keys its cache by the file of the outermost
    function and by the values that this closes over, and would run old code of the others.
    """
    digest = xxhash.xxh3_64()
    for name in modules:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(name)
        digest.update(Path(spec.origin).read_bytes())
    return digest.intdigest() >> 1


def utf8(column: pa.Array | pa.ChunkedArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """(bytes, offsets) of a string column of any layout, without a copy where it is one large_string chunk; null reads as empty."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # what combine_chunks leaves when there is no chunk
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], pa.large_string())
    if array.type != pa.large_string():
        array = array.cast(pa.large_string())
    if len(array) == 0:
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return (np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)), ends


def texts(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> pa.Array:
    """A large_string column from a kernel's output: bytes, and where each text begins and ends."""
    return pa.LargeStringArray.from_buffers(
        len(offsets) - 1, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data.tobytes())
    )
