"""A keyed permutation of 0..n-1 that needs no array: any place, and its inverse, in constant time and memory.

A Feistel network on Z_a x Z_b with a, b near sqrt(n): 6 rounds, each adding a splitmix64 hash of one half to the other, then
walking on while the result lies at or above n (a*b exceeds n by less than 1 in sqrt(n)). The round function must not be
linear: low bits of neighbouring places would stay together in a batch. Works for any n below 2^62.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import xxhash

Indices = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]
_Step = Callable[[_Words, np.uint64, np.uint64, list[int]], _Words]

ROUNDS = 6
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def derive(*parts: int | str) -> int:
    """A 64-bit key of its own for every tuple of names and numbers."""
    return int(xxhash.xxh3_64_intdigest("\0".join(map(str, parts)).encode()))


def permute(places: Indices, n: int, key: int) -> Indices:
    """Where each of `places` (all in 0..n-1) goes."""
    return _walk(places, n, key, _forward)


def unpermute(places: Indices, n: int, key: int) -> Indices:
    """The inverse of `permute`."""
    return _walk(places, n, key, _backward)


def _walk(places: Indices, n: int, key: int, step: _Step) -> Indices:
    rows = math.isqrt(n - 1) + 1 if n > 1 else 1
    columns = np.uint64(-(-n // rows))
    keys = [_mixed(key + (i + 1) * _GOLDEN) for i in range(ROUNDS)]
    values = step(places.astype(np.uint64), np.uint64(rows), columns, keys)
    outside = np.flatnonzero(values >= n)
    while outside.size:
        values[outside] = step(values[outside], np.uint64(rows), columns, keys)
        outside = outside[values[outside] >= n]
    return values.astype(np.int64)


def _forward(values: _Words, rows: np.uint64, columns: np.uint64, keys: list[int]) -> _Words:
    left, right = np.divmod(values, columns)
    for i, key in enumerate(keys):
        if i % 2 == 0:
            left = (left + _hash(right, key) % rows) % rows
        else:
            right = (right + _hash(left, key) % columns) % columns
    return left * columns + right


def _backward(values: _Words, rows: np.uint64, columns: np.uint64, keys: list[int]) -> _Words:
    left, right = np.divmod(values, columns)
    for i, key in reversed(list(enumerate(keys))):
        if i % 2 == 0:
            left = (left + (rows - _hash(right, key) % rows)) % rows
        else:
            right = (right + (columns - _hash(left, key) % columns)) % columns
    return left * columns + right


def _hash(values: _Words, key: int) -> _Words:
    """splitmix64's finalizer; uint64 wraps around in numpy arrays."""
    z = values + np.uint64(key)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _mixed(value: int) -> int:
    z = value & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
