# mypy: allow-untyped-defs, allow-untyped-calls
"""Who stays: clusters of verified edges and a survivor rule that removes nobody without a similar document that stays.

Edges point from the document that comes first in survivor order to the other. In that order each document stays unless an edge
leads to it from one that stays; so in a chain a-b-c, where only neighbours are similar, b falls to a and c stays. Clusters
(connected components, by union-find) are evidence and weights, they remove nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.types import Array, float64, int64, uint32, uint64, void

from corpusmill.pipeline.binary import U32, U64

_U32 = uint32[::1]
_U32_IN = Array(uint32, 1, "C", readonly=True)
_U64_IN = Array(uint64, 1, "C", readonly=True)
_F64_IN = Array(float64, 1, "C", readonly=True)

NOBODY = 0xFFFFFFFF


@dataclass(frozen=True)
class Decision:
    """Per document: whether it stays; the position of the one it falls to (NOBODY) and their similarity; its cluster and that one's size."""

    kept: npt.NDArray[np.bool_]
    by: U32
    score: npt.NDArray[np.float64]
    cluster: U64
    size: U32


def decide(first: U32, second: U32, score: npt.NDArray[np.float64], content: U64, copies: U32) -> Decision:
    """`first` and `second` are positions in `content`. A cluster is named by its least content, its size counts exact copies."""
    count = len(content)
    root = np.arange(count, dtype=np.uint32)
    components(first, second, root)
    cluster, size = np.full(count, NOBODY << 32 | NOBODY, np.uint64), np.zeros(count, np.uint32)
    np.minimum.at(cluster, root, content)
    np.add.at(size, root, copies)
    order = np.argsort(first, kind="stable").astype(np.uint32)
    offsets = np.zeros(count + 1, np.int64)
    offsets[1:] = np.cumsum(np.bincount(first, minlength=count))
    by, best = np.full(count, NOBODY, np.uint32), np.zeros(count, np.float64)
    stay(second[order], score[order], offsets, content, by, best)
    return Decision(by == NOBODY, by, best, cluster[root], size[root])


@njit(uint32(_U32, uint32), nogil=True, cache=True)
def find(root, x):
    while root[x] != x:
        root[x] = root[root[x]]  # halves the path
        x = root[x]
    return x


@njit(void(_U32_IN, _U32_IN, _U32), nogil=True, cache=True)
def components(first, second, root):
    """Union-find over edges, 4 bytes a document; the root of a component is its smallest position."""
    for e in range(first.shape[0]):
        a = find(root, first[e])
        b = find(root, second[e])
        if a < b:
            root[b] = a
        elif b < a:
            root[a] = b
    for x in range(root.shape[0]):
        root[x] = find(root, np.uint32(x))


@njit(
    void(_U32_IN, _F64_IN, Array(int64, 1, "C", readonly=True), _U64_IN, _U32, float64[::1]),
    nogil=True,
    cache=True,
)
def stay(second, score, offsets, content, by, best):
    """Visit documents when all that come before them and are similar to them have been decided (the edges make no cycle).

    A document falls to the most similar one that stays, of equals to the one with the smaller content.
    """
    count = offsets.shape[0] - 1
    waiting = np.zeros(count, np.uint32)
    for e in range(second.shape[0]):
        waiting[second[e]] += np.uint32(1)
    ready = np.empty(count, np.uint32)
    end = 0
    for x in range(count):
        if waiting[x] == 0:
            ready[end] = x
            end += 1
    done = 0
    while done < end:
        x = ready[done]
        done += 1
        stays = by[x] == np.uint32(NOBODY)
        for e in range(offsets[x], offsets[x + 1]):
            y = second[e]
            if stays:
                rival = by[y]
                if (
                    rival == np.uint32(NOBODY)
                    or score[e] > best[y]
                    or (score[e] == best[y] and content[x] < content[rival])
                ):
                    by[y] = x
                    best[y] = score[e]
            waiting[y] -= np.uint32(1)
            if waiting[y] == 0:
                ready[end] = y
                end += 1
