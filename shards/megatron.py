"""Megatron's indexed datasets, `PREFIX.bin` and `PREFIX.idx`, as megatron-core 0.16 reads them.

    .bin    token ids of all sequences, end to end
    .idx    MMIDIDX\\0\\0 · version u64 = 1 · dtype u8 · sequences u64 · document bounds u64 · lengths i32[sequences]
            · byte pointers i64[sequences] · document bounds i64[documents + 1], counted in sequences; all little-endian

Pointers are sums in 64 bits: the lengths alone, in 32 bits, say nothing of how far a file reaches. Writing holds 4 bytes a sequence;
reading maps both files.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.errors import InputError, ShardError

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
DTYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float64", 7: "float32", 8: "uint16"}
HEADER = struct.Struct("<9sQBQQ")

_AT_ONCE = 1 << 20  # sequences whose pointers are made at a time

Integers = npt.NDArray[np.int64]


def stored_dtype(vocab_size: int) -> np.dtype[Any]:
    """uint16 as long as the ids fit, else int32: the format knows no unsigned 32 bits."""
    if vocab_size > 1 << 31:
        raise ShardError(f"a vocabulary of {vocab_size} ids does not fit Megatron's int32")
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<i4")


def write_index(
    file: BinaryIO, dtype: np.dtype[Any], lengths: Sequence[npt.NDArray[np.integer[Any]]]
) -> None:
    """The index of documents of one sequence each; `lengths` in any number of arrays. Raises ShardError for a length over 2^31 - 1."""
    count = sum(len(part) for part in lengths)
    code = next(code for code, name in DTYPES.items() if np.dtype(name) == dtype)
    file.write(HEADER.pack(MAGIC, VERSION, code, count, count + 1))
    for part in lengths:
        if len(part) and int(part.max()) >= 1 << 31:
            raise ShardError(
                f"a document of {int(part.max())} tokens does not fit Megatron's index, which counts in 31 bits"
            )
        file.write(np.asarray(part, "<i4").tobytes())
    begin = 0
    for part in lengths:
        ends = begin + np.cumsum(part, dtype=np.int64) * dtype.itemsize
        file.write((ends - np.asarray(part, np.int64) * dtype.itemsize).astype("<i8").tobytes())
        begin = int(ends[-1]) if len(part) else begin
    for first in range(0, count + 1, _AT_ONCE):
        file.write(np.arange(first, min(first + _AT_ONCE, count + 1), dtype="<i8").tobytes())


@dataclass(frozen=True)
class Indexed:
    """A dataset, mapped: document i is `tokens[bounds[i] : bounds[i + 1]]`, its sequences one behind the other."""

    path: Path
    tokens: npt.NDArray[Any]
    bounds: Integers

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def document(self, number: int) -> npt.NDArray[Any]:
        part: npt.NDArray[Any] = self.tokens[self.bounds[number] : self.bounds[number + 1]]
        return part


def read_indexed(prefix: Path) -> Indexed:
    """Raises InputError when a file is missing, cut or of another format, or the index does not fit the tokens."""
    idx, data = (prefix.parent / f"{prefix.name}{ending}" for ending in (".idx", ".bin"))
    try:
        raw = np.memmap(idx, np.uint8, mode="r")
        size = data.stat().st_size
        magic, version, code, sequences, documents = HEADER.unpack(raw[: HEADER.size].tobytes())
    except (OSError, ValueError, struct.error) as error:
        raise InputError(
            f"{idx} cannot be read as Megatron's index ({error}); PREFIX.idx and PREFIX.bin are needed"
        ) from error
    if magic != MAGIC or version != VERSION or DTYPES.get(code) not in ("uint8", "uint16", "int32", "int64"):
        raise InputError(
            f"{idx} is no index of token ids, format MMIDIDX version 1; export it anew with Megatron's own tools"
        )
    dtype = np.dtype(DTYPES[code])
    if len(raw) < HEADER.size + 12 * sequences + 8 * documents or documents < 1:
        raise InputError(f"{idx} is cut: {len(raw)} bytes do not hold {sequences} sequences; copy it again")
    lengths, pointers, ends = _columns(raw, sequences, documents)
    starts = np.append(0, np.cumsum(lengths, dtype=np.int64))
    if (lengths < 0).any() or (pointers != starts[:-1] * dtype.itemsize).any():
        raise InputError(
            f"{idx}: sequences do not lie end to end in {data.name}; merge them anew with Megatron's own tools"
        )
    if size != int(starts[-1]) * dtype.itemsize:
        raise InputError(
            f"{data} has {size} bytes, its index tells of {int(starts[-1]) * dtype.itemsize}; copy both again"
        )
    if ends[0] != 0 or ends[-1] != sequences or (np.diff(ends) < 0).any():
        raise InputError(f"{idx}: its documents do not take all sequences in order; export it anew")
    tokens = np.memmap(data, dtype, mode="r") if size else np.empty(0, dtype)
    return Indexed(data, tokens, starts[ends])


def _columns(raw: npt.NDArray[np.uint8], sequences: int, documents: int) -> Iterator[Integers]:
    """Lengths, pointers and document bounds. They stand at odd offsets, so each is copied."""
    at = HEADER.size
    for count, kind in ((sequences, "<i4"), (sequences, "<i8"), (documents, "<i8")):
        size = count * np.dtype(kind).itemsize
        yield raw[at : at + size].copy().view(kind).astype(np.int64)
        at += size
