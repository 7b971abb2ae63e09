"""A keyed permutation of 0..n-1 that needs no array: any place, and its inverse, in constant time and memory.

A Feistel network on Z_a x Z_b with a, b near sqrt(n): 6 rounds, each adding a splitmix64 hash of one half to the other, then
walking on while the result lies at or above n (a*b exceeds n by less than 1 in sqrt(n)). The round function must not be
linear: low bits of neighbouring places would stay together in a batch. Works for any n below 2^62; 45 ns a place in a run of 4,096, whatever n is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

Indices = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]

ROUNDS = 6
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_STEPS = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST = np.uint64(31)


def derive(*parts: int | str) -> int:
    """A 64-bit key of its own for every tuple of names and numbers."""
    return int(xxhash.xxh3_64_intdigest("\0".join(map(str, parts)).encode()))


@dataclass(frozen=True)
class _Domain:
    """What a walk needs: scalars for one permutation, or an array with an item a place when each has its own."""

    n: np.uint64 | _Words
    rows: np.uint64 | _Words
    columns: np.uint64 | _Words
    keys: tuple[np.uint64 | _Words, ...]

    def at(self, places: Indices) -> _Domain:
        if not isinstance(self.n, np.ndarray):
            return self
        n, rows, columns, *keys = (
            np.asarray(v)[places] for v in (self.n, self.rows, self.columns, *self.keys)
        )
        return _Domain(n, rows, columns, tuple(keys))


def permute(places: Indices, n: int, key: int) -> Indices:
    """Where each of `places` (all in 0..n-1) goes."""
    return _walk(places, _domain(n, key), _forward)


def unpermute(places: Indices, n: int, key: int) -> Indices:
    """The inverse of `permute`."""
    return _walk(places, _domain(n, key), _backward)


def permute_each(places: Indices, sizes: Sequence[tuple[int, int]], counts: Indices) -> Indices:
    """`permute` with (n, key) `sizes[0]` for the first `counts[0]` places, `sizes[1]` for the next `counts[1]`, ..."""
    if len(sizes) == 1:
        return permute(places, *sizes[0])
    domains = [_domain(n, key) for n, key in sizes]
    columns = zip(*((d.n, d.rows, d.columns, *d.keys) for d in domains), strict=True)
    n, rows, width, *keys = (np.repeat(np.array(column, np.uint64), counts) for column in columns)
    return _walk(places, _Domain(n, rows, width, tuple(keys)), _forward)


def _domain(n: int, key: int) -> _Domain:
    rows = math.isqrt(n - 1) + 1 if n > 1 else 1
    keys = tuple(np.uint64(_mixed(key + (i + 1) * _GOLDEN)) for i in range(ROUNDS))
    return _Domain(np.uint64(n), np.uint64(rows), np.uint64(-(-n // rows)), keys)


def _walk(places: Indices, domain: _Domain, step: Callable[[_Words, _Domain], _Words]) -> Indices:
    values = step(places.astype(np.uint64), domain)
    outside = np.flatnonzero(values >= domain.n)
    while outside.size:
        again = domain.at(outside)
        values[outside] = step(values[outside], again)
        outside = outside[values[outside] >= again.n]
    return values.astype(np.int64)


def _forward(values: _Words, domain: _Domain) -> _Words:
    left = values // domain.columns
    right = values - left * domain.columns
    for i, key in enumerate(domain.keys):
        if i % 2 == 0:
            left = _below(left + _hashed(right, key, domain.rows), domain.rows)
        else:
            right = _below(right + _hashed(left, key, domain.columns), domain.columns)
    left *= domain.columns
    left += right
    return left


def _backward(values: _Words, domain: _Domain) -> _Words:
    left = values // domain.columns
    right = values - left * domain.columns
    for i, key in reversed(list(enumerate(domain.keys))):
        if i % 2 == 0:
            left = _below(left + (domain.rows - _hashed(right, key, domain.rows)), domain.rows)
        else:
            right = _below(right + (domain.columns - _hashed(left, key, domain.columns)), domain.columns)
    left *= domain.columns
    left += right
    return left


def _below(sums: _Words, n: np.uint64 | _Words) -> _Words:
    """`sums` % n for sums below 2n: taking n off one that is below it wraps around to more than any."""
    np.minimum(sums, sums - n, out=sums)
    return sums


def _hashed(values: _Words, key: np.uint64 | _Words, n: np.uint64 | _Words) -> _Words:
    """splitmix64's finalizer, modulo n; uint64 wraps around in numpy arrays. In place, and by a quotient, which numpy vectorises."""
    z = values + key
    for shift, factor in _STEPS:
        z ^= z >> shift
        z *= factor
    z ^= z >> _LAST
    z -= z // n * n
    return z


def _mixed(value: int) -> int:
    z = value & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
