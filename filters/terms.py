"""Terms of a text as numbers: hashes of its words, and of pairs of characters where a script has no spaces.

A word is a run of letters and marks in lower case, three characters or longer; a term of Han, Kana, Thai, Lao, Khmer or Myanmar is two
characters in a row. Only the first MOST_CHARS characters of a text are read: they say what it is about.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.text.chars import ALPHA, CLASS, LOWER, MARK, NOSPACE

BUCKET_BITS = 16
BUCKETS = 1 << BUCKET_BITS
MOST_CHARS = 16_384
SHORTEST = 3

_STEP = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Terms:
    """Occurrences, text after text: bucket and text of each, and where its characters lie in `letters`."""

    bucket: npt.NDArray[np.int64]
    text: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    letters: npt.NDArray[np.uint32]
    texts: int

    def spelling(self, place: int) -> str:
        first = self.start[place]
        return "".join(map(chr, self.letters[first : first + self.length[place]].tolist()))

    def weights(self) -> Any:
        """csr_array [texts, BUCKETS]: 1 + log of how often a text has a term."""
        from scipy.sparse import csr_array

        kinds, counts = np.unique(self.text << BUCKET_BITS | self.bucket, return_counts=True)
        rows = np.searchsorted(kinds, np.arange(self.texts + 1) << BUCKET_BITS)
        values = 1.0 + np.log(counts)
        return csr_array((values, kinds & (BUCKETS - 1), rows), shape=(self.texts, BUCKETS))


def terms_of(texts: list[str]) -> Terms:
    """All terms of some texts, a megabyte or two at a time."""
    cut = [text[:MOST_CHARS] for text in texts]
    joined = "\n".join([*cut, ""])  # a line end behind each keeps words of two texts apart
    code = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
    kind, letters = CLASS[code], LOWER[code]
    ends = np.cumsum([len(text) + 1 for text in cut])
    solid = (kind & NOSPACE) != 0
    letter = ((kind & (ALPHA | MARK)) != 0) & ~solid
    before = np.concatenate([[False], letter[:-1]])
    start = np.flatnonzero(letter & ~before)
    length = np.flatnonzero(~letter & before) - start
    start, length = start[length >= SHORTEST], length[length >= SHORTEST]
    pairs = np.flatnonzero(solid[:-1] & solid[1:])
    start = np.concatenate([start, pairs])
    length = np.concatenate([length, np.full(len(pairs), 2, np.int64)])
    order = np.argsort(start, kind="stable")
    start, length = start[order], length[order]
    hashes = _hashes(letters, start, length)
    bucket = (hashes >> np.uint64(64 - BUCKET_BITS)).astype(np.int64)
    return Terms(bucket, np.searchsorted(ends, start, side="right"), start, length, letters, len(texts))


def _hashes(
    letters: npt.NDArray[np.uint32], start: npt.NDArray[np.int64], length: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """A polynomial over the characters of each term: from sums up to its ends, moved to the front by the inverse of the step."""
    up, down = _powers(_STEP, len(letters)), _powers(pow(_STEP, -1, _MASK + 1), len(letters))
    mixed = (letters.astype(np.uint64) + np.uint64(1)) * np.uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> np.uint64(29)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed * up)])
    found = (sums[start + length] - sums[start]) * down[start]
    found ^= found >> np.uint64(32)
    return np.asarray(found * np.uint64(0x94D049BB133111EB))


def _powers(step: int, count: int) -> npt.NDArray[np.uint64]:
    """The first `count` powers, modulo 2^64."""
    return _powers_to(step, 1 << max(0, count - 1).bit_length())[:count]


@lru_cache(maxsize=8)
def _powers_to(step: int, count: int) -> npt.NDArray[np.uint64]:
    steps = np.full(count, step, np.uint64)
    steps[0] = 1
    return np.cumprod(steps)
