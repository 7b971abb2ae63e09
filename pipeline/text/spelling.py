"""Hashes of words inside kernels, and the look-up of exceptions by them (words.exceptions() makes the table)."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.text import words

START = np.uint32(words.START)
LONGEST, MASK = words.LONGEST, words.SLOTS - 1
BASIS, PRIME, HALF = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3), np.uint64(32)

Codes = npt.NDArray[np.int32]
Flags = npt.NDArray[np.uint32]
Keys = npt.NDArray[np.uint64]
Cuts = npt.NDArray[np.int64]


@numba.njit(nogil=True)
def mixed(value: Any, code: Any) -> Any:
    """One step of words.spelling_hash."""
    value = (value ^ np.uint64(code)) * PRIME
    return value ^ (value >> HALF)


@numba.njit(nogil=True)
def look_up(hashed: Any, keys: Keys, cuts: Cuts) -> Any:
    """The value of a hash in the table of exceptions, -1 if it has none."""
    if hashed == 0:
        hashed = np.uint64(1)
    slot = np.int64(hashed & np.uint64(MASK))
    while keys[slot] != 0:
        if keys[slot] == hashed:
            return cuts[slot]
        slot = (slot + 1) & MASK
    return -1


@numba.njit(nogil=True)
def spans(packed: Any) -> Any:
    """The sum of packed lengths. A text made to collide with an exception's hash must not lead past its own end."""
    total = 0
    while packed > 0:
        total += packed & 15
        packed >>= 4
    return total


@numba.njit(nogil=True)
def exception(code: Codes, a: int, b: int, keys: Keys, cuts: Cuts) -> Any:
    """The packed lengths if code[a:b] is an exception, else 0."""
    if b - a > LONGEST or b <= a:
        return 0
    hashed = BASIS
    for i in range(a, b):
        hashed = mixed(hashed, code[i])
    packed = max(look_up(hashed, keys, cuts), 0)
    return packed if spans(packed) == b - a else 0


@numba.njit(nogil=True)
def mark_packed(flags: Flags, a: int, b: int, packed: int) -> None:
    """Marks the words of an exception at [a, b) by their packed lengths, and no others."""
    for i in range(a + 1, b):
        flags[i] &= ~START
    while packed:
        flags[a] |= START
        a += packed & 15
        packed >>= 4
