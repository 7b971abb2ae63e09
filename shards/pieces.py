"""What a trainer derives from the ends of the pieces of documents in a row: loss mask, positions, cu_seqlens.

All are about the T inputs `tokens[:, :-1]` and their targets `tokens[:, 1:]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.shards.permutation import Indices


@dataclass(frozen=True)
class Pieces:
    """Pieces of `rows` rows in order: piece i lies in row `row[i]` and ends before token `end[i]`; the rest of a row is padding."""

    rows: int
    sequence_length: int
    row: Indices
    end: Indices


def loss_mask(pieces: Pieces) -> npt.NDArray[np.bool_]:
    """[rows, T]: whether the target is a real token; False on padding."""
    real = np.zeros(pieces.rows, np.int32)
    real[pieces.row] = pieces.end  # the last piece of a row wins
    return np.arange(1, pieces.sequence_length + 1, dtype=np.int32) < real[:, None]


def position_ids(pieces: Pieces) -> npt.NDArray[np.int32]:
    """[rows, T]: distance of each input from the start of its piece; padding counts from its own start."""
    total = pieces.rows * pieces.sequence_length
    bounds = _bounds(pieces).astype(np.int32)
    starts = np.repeat(bounds, np.diff(np.append(bounds, total)))
    return (np.arange(total, dtype=np.int32) - starts).reshape(pieces.rows, pieces.sequence_length)


def cu_seqlens(pieces: Pieces) -> npt.NDArray[np.int32]:
    """Bounds of the pieces in all inputs laid end to end: 0, ..., rows * T; padding is a piece of its own."""
    return np.append(_bounds(pieces), pieces.rows * pieces.sequence_length).astype(np.int32)


def _bounds(pieces: Pieces) -> Indices:
    """Where a piece (or the padding) starts among rows * T inputs, in order. A piece that is target only starts nowhere."""
    length = pieces.sequence_length
    inside = pieces.end < length
    starts = np.concatenate(
        [np.arange(pieces.rows) * length, pieces.row[inside] * length + pieces.end[inside]],
    )
    return np.unique(starts)


DERIVED: dict[str, Callable[[Pieces], npt.NDArray[Any]]] = {
    "loss_mask": loss_mask,
    "position_ids": position_ids,
    "cu_seqlens": cu_seqlens,
}


def context_slice(batch: Mapping[str, npt.NDArray[Any]], rank: int, size: int) -> dict[str, npt.NDArray[Any]]:
    """The part of a context-parallel rank: inputs and targets from rank * T / size on, with `tokens` one longer than both.

    Positions count from where a piece starts in the whole row, and cu_seqlens stay those of the whole rows, the same on every
    rank: attention across ranks needs to know where a document begins that another rank holds.
    """
    length = (batch["tokens"].shape[1] - 1) // size
    first = rank * length
    parts = {"tokens": batch["tokens"][:, first : first + length + 1]}
    for name in batch:
        if name != "tokens":
            parts[name] = batch[name] if name == "cu_seqlens" else batch[name][:, first : first + length]
    return {name: np.ascontiguousarray(part) for name, part in parts.items()}
