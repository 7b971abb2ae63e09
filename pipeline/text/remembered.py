"""The words that an engine has seen, with their ids, in a table of fixed size.

A word of up to WORD bytes and its up to IDS ids fill a line of memory, and a new word takes the place of an old one: memory stays
what it is from the first text on, and hostile text can only cost merges. Whoever asks for a line some words ahead (`expect`) does not
wait for it: half of the 64 MB lie outside all caches.
"""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.text.merging import MIX
from corpusmill.pipeline.text.pretokens import Bytes
from corpusmill.pipeline.text.vectors import eight, prefetch

CACHE_BYTES: Final = 64 << 20

WORD: Final = 32
"""Bytes of the longest word that is remembered."""

WAYS: Final = 4
"""Neighbouring entries in which a word may lie."""

# An entry is eight numbers of 64 bits, one line of memory: four hold the word; one its length, how many ids, and the first id;
# three hold two ids each. The ids of a word that has more, mostly a run of blanks, lie in a row of a small table, behind the
# number of the entry that they belong to.
LINE: Final = 8
ABOUT: Final = 4
REST: Final = 5
IDS: Final = 7
SPARE: Final = 2
ROW: Final = 16
ROWS: Final = 1 << 15

Seen = npt.NDArray[np.uint64]

EIGHT, HALF, LOW = np.uint64(8), np.uint64(32), np.uint64(0xFFFFFFFF)


def lines(size_bytes: int, width: int) -> Seen:
    """Free entries of so many numbers; they begin where lines of memory do."""
    numbers = size_bytes // 8
    # numpy asks for large pages for these, for those of `zeros` it does not.
    made = np.empty(numbers + LINE, np.uint64)
    made.fill(0)
    first = -made.ctypes.data % 64 // 8
    return made[first : first + numbers].reshape(-1, width)


@numba.njit(nogil=True, forceinline=True)
def packed(data: Bytes, start: Any, n: Any) -> Any:
    """The `n` bytes from `start` on as a number, 0 for none, at most eight of them."""
    # Half of the bits that do not count: by all 64 no number can be shifted.
    half = np.uint64(32 - 4 * min(max(n, 0), 8))
    return eight(data, start) << half << half


@numba.njit(nogil=True, forceinline=True)
def word_of(data: Bytes, start: Any, n: Any) -> Any:
    """A word, or the first WORD bytes of it, as four numbers; of `data` so many bytes have to be there."""
    none = np.uint64(0)
    first, second = packed(data, start, n), packed(data, start + 8, n - 8)
    if n <= 16:
        return first, second, none, none
    return first, second, packed(data, start + 16, n - 16), packed(data, start + 24, n - 24)


@numba.njit(nogil=True, forceinline=True)
def line_of(word: Any, n: Any) -> Any:
    """A hash of a word and its length."""
    found = (word[0] ^ np.uint64(n) << np.uint64(56)) * MIX
    found = (found ^ found >> HALF ^ word[1]) * MIX
    if n > 16:
        found = (found ^ found >> HALF ^ word[2]) * MIX
        found = (found ^ found >> HALF ^ word[3]) * MIX
    return found ^ found >> HALF


@numba.njit(nogil=True, forceinline=True)
def expect(seen: Seen, line: Any) -> None:
    """Asks memory for the first entry in which a word may lie."""
    prefetch(seen, np.int64(line & np.uint64(len(seen) - 1)) * LINE)


@numba.njit(nogil=True, forceinline=True)
def holds(seen: Seen, s: Any, word: Any, n: Any) -> Any:
    """Whether entry `s` is that of a word."""
    other = seen[s, 0] ^ word[0] | seen[s, 1] ^ word[1] | seen[s, 2] ^ word[2] | seen[s, 3] ^ word[3]
    return not other | seen[s, ABOUT] & np.uint64(0xFF) ^ np.uint64(n)


@numba.njit(nogil=True, forceinline=True)
def recall(seen: Seen, more: Seen, line: Any, word: Any, n: Any, out: Any, at: Any) -> Any:
    """Writes the ids of a word to `out` from `at` on; how many they are, 0 when it is not there. Up to SPARE more are overwritten."""
    mask = np.uint64(len(seen) - 1)
    for way in range(WAYS):
        s = (line + np.uint64(way)) & mask
        if holds(seen, s, word, n):
            about = seen[s, ABOUT]
            out[at] = about >> HALF
            pair = seen[s, REST]
            out[at + 1], out[at + 2] = pair & LOW, pair >> HALF  # whether it has them or not
            count = np.int64(about >> EIGHT & np.uint64(0xFF))
            row = np.int64(line >> np.uint64(40)) & (len(more) - 1)
            if count > IDS and more[row, 0] != s + np.uint64(1):
                return 0
            for k in range(3, count):
                two = seen[s, REST + ((k - 1) >> 1)] if k < IDS else more[row, 1 + ((k - IDS) >> 1)]
                out[at + k] = two & LOW if k & 1 else two >> HALF
            return count
    return 0


@numba.njit(nogil=True, forceinline=True)
def remember(seen: Seen, more: Seen, line: Any, word: Any, n: Any, out: Any, at: Any, count: Any) -> None:
    """Puts a word and its ids where it was or there is room, or in the place of another."""
    mask = np.uint64(len(seen) - 1)
    s = (line + (line >> np.uint64(60)) % np.uint64(WAYS)) & mask
    for way in range(WAYS):
        other = (line + np.uint64(way)) & mask
        if seen[other, ABOUT] == 0 or holds(seen, other, word, n):
            s = other
            break
    for k in range(4):
        seen[s, k] = word[k]
    seen[s, ABOUT] = np.uint64(out[at]) << HALF | np.uint64(count) << EIGHT | np.uint64(n)
    row = np.int64(line >> np.uint64(40)) & (len(more) - 1)
    if count > IDS:
        more[row, 0] = s + np.uint64(1)
    for k in range(1, count):
        if k < IDS:
            put(seen, s, REST + ((k - 1) >> 1), k, out[at + k])
        else:
            put(more, row, 1 + ((k - IDS) >> 1), k, out[at + k])


@numba.njit(nogil=True, forceinline=True)
def put(table: Seen, row: Any, place: Any, k: Any, number: Any) -> None:
    """An id with an odd number in the lower half, which clears the upper, one with an even number in the upper."""
    if k & 1:
        table[row, place] = np.uint64(number)
    else:
        table[row, place] |= np.uint64(number) << HALF
