# mypy: ignore-errors
"""Compiled loops over sorted sets of hashes: repeats out, members shared by two sets."""

import numpy as np
from numba import njit
from numba.types import Array, int64, uint64, void

HASHES = uint64[::1]
OFFSETS = int64[::1]
# What Arrow maps from a file is read-only; a signature that says so takes both kinds.
HASHES_IN = Array(uint64, 1, "C", readonly=True)
OFFSETS_IN = Array(int64, 1, "C", readonly=True)


@njit(int64(HASHES, OFFSETS_IN, OFFSETS), nogil=True, cache=True)
def compact(values, offsets, out_offsets):
    """Drop repeats from sorted lists, in place; returns the new total."""
    end = 0
    for d in range(offsets.shape[0] - 1):
        out_offsets[d] = end
        for i in range(offsets[d], offsets[d + 1]):
            if i == offsets[d] or values[i] != values[i - 1]:
                # values[i - 1] may be overwritten only by an equal or earlier value: end <= i
                values[end] = values[i]
                end += 1
    out_offsets[offsets.shape[0] - 1] = end
    return end


@njit(
    void(HASHES_IN, OFFSETS_IN, HASHES_IN, OFFSETS_IN, OFFSETS_IN, OFFSETS_IN, OFFSETS),
    nogil=True,
    cache=True,
)
def overlaps(left, left_offsets, right, right_offsets, first, second, shared):
    """Per pair (first[p], second[p]): how many hashes the two sorted sets share."""
    for p in range(first.shape[0]):
        i = np.uint64(left_offsets[first[p]])
        i_end = np.uint64(left_offsets[first[p] + 1])
        j = np.uint64(right_offsets[second[p]])
        j_end = np.uint64(right_offsets[second[p] + 1])
        count = 0
        while i < i_end and j < j_end:
            x = left[i]
            y = right[j]
            # Both steps are computed, no branch depends on the data: a mispredicted one costs more than the whole step.
            count += np.int64(x == y)
            i += np.uint64(x <= y)
            j += np.uint64(y <= x)
        shared[p] = count
