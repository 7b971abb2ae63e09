"""Kernels for what repeats in a text: lines, paragraphs, n-grams of words (Rae et al. 2021, Gopher, appendix A, as FineWeb counts).

Elements are the same when their 64-bit hashes are. A `Seen` is an open-addressing table that is never cleared: a slot counts only if
its stamp is that of the present question, and a question uses no more slots than twice its elements, so that short texts stay in
the processor's cache. Every function walks its text once: any input costs linear time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.text import chars
from corpusmill.pipeline.text.spelling import BASIS, Codes, Flags, mixed

NEWLINE, SPACE, TERMINAL = 10, chars.SPACE, chars.TERMINAL
BASE = np.uint64(0x9E3779B97F4A7C15)  # odd: of the polynomial over the hashes of words


class Seen(NamedTuple):
    """`keys[slot]` counts if `stamps[slot]` is the number of the question; `stamp[0]` is the number of the last question."""

    keys: npt.NDArray[np.uint64]
    stamps: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int32]
    stamp: npt.NDArray[np.int64]


@numba.njit(nogil=True)
def seen_table(elements: Any) -> Any:
    """A table for questions of up to `elements` elements."""
    slots = 16
    while slots < 2 * elements:
        slots *= 2
    return Seen(
        np.empty(slots, np.uint64),
        np.zeros(slots, np.int64),
        np.empty(slots, np.int32),
        np.zeros(1, np.int64),
    )


@numba.njit(nogil=True)
def question(seen: Seen, elements: Any) -> Any:
    """Begins a question of up to `elements` elements; the result is the mask of its slots."""
    seen.stamp[0] += 1
    slots = 16
    while slots < 2 * elements:
        slots *= 2
    return slots - 1


@numba.njit(nogil=True)
def slot_of(seen: Seen, mask: Any, key: Any) -> Any:
    """The slot of a key; a key that is new to the question gets one with count 0."""
    stamp = seen.stamp[0]
    key *= BASE
    slot = np.int64((key >> np.uint64(32)) & np.uint64(mask))
    while seen.stamps[slot] == stamp:
        if seen.keys[slot] == key:
            return slot
        slot = (slot + 1) & mask
    seen.stamps[slot] = stamp
    seen.keys[slot] = key
    seen.counts[slot] = 0
    return slot


@numba.njit(nogil=True)
def repeats(seen: Seen, mask: Any, key: Any) -> Any:
    """Whether the question has met the key before; from now on it has."""
    slot = slot_of(seen, mask, key)
    seen.counts[slot] += 1
    return seen.counts[slot] > 1


@numba.njit(nogil=True)
def count_newlines(code: Codes, n: Any) -> Any:
    found = 0
    for i in range(n):
        found += code[i] == NEWLINE
    return found


@numba.njit(nogil=True)
def lines(code: Codes, flags: Flags, n: Any, newlines: Any, limits: Any, short: Any, seen: Seen) -> Any:
    """(lines, of them ending in terminal punctuation, repeating an earlier one, characters of these).

    Lines are what stands between newlines and is not blank. `short[k]` becomes the number of lines of at most `limits[k]` characters.
    """
    mask = question(seen, newlines + 1)
    total, terminal, doubled, doubled_chars = 0, 0, 0, 0
    start = 0
    blank = True
    hashed = BASIS
    for i in range(n + 1):
        if i < n and code[i] != NEWLINE:
            blank &= (flags[i] & SPACE) != 0
            hashed = mixed(hashed, code[i])
            continue
        if not blank:
            total += 1
            terminal += (flags[i - 1] & TERMINAL) != 0
            if repeats(seen, mask, hashed):
                doubled += 1
                doubled_chars += i - start
            for k in range(len(limits)):
                short[k] += i - start <= limits[k]
        start = i + 1
        blank = True
        hashed = BASIS
    return total, terminal, doubled, doubled_chars


@numba.njit(nogil=True)
def paragraphs(code: Codes, flags: Flags, n: Any, newlines: Any, seen: Seen) -> Any:
    """(paragraphs, of them repeating an earlier one, characters of these): what stands between two or more newlines, not blank.

    White space at both ends of the text belongs to no paragraph.
    """
    mask = question(seen, newlines + 1)
    start = 0
    while start < n and flags[start] & SPACE:
        start += 1
    while n > start and flags[n - 1] & SPACE:
        n -= 1
    total, doubled, doubled_chars = 0, 0, 0
    blank = True
    hashed = BASIS
    i = start
    while i <= n:
        if i < n and not (code[i] == NEWLINE and i + 1 < n and code[i + 1] == NEWLINE):
            blank &= (flags[i] & SPACE) != 0
            hashed = mixed(hashed, code[i])
            i += 1
            continue
        if not blank:
            total += 1
            if repeats(seen, mask, hashed):
                doubled += 1
                doubled_chars += i - start
        while i < n and code[i] == NEWLINE:
            i += 1
        start = i
        i += start == n
        blank = True
        hashed = BASIS
    return total, doubled, doubled_chars


@numba.njit(nogil=True)
def polynomial(hashes: Any, words: Any, sums: Any) -> None:
    """Prefix sums over the hashes of words, from which the key of any n-gram is one step."""
    sums[0] = np.uint64(0)
    for i in range(words):
        sums[i + 1] = sums[i] * BASE + hashes[i]


@numba.njit(nogil=True)
def power(n: Any) -> Any:
    value = np.uint64(1)
    for _ in range(n):
        value *= BASE
    return value


@numba.njit(nogil=True)
def top_ngram(sums: Any, ends: Any, words: Any, n: Any, slots: Any, seen: Seen) -> Any:
    """(characters of the most frequent n-gram with the spaces that join its words, times its count; that count).

    Overlapping places count. The first of equally frequent ones is taken. `ends[i]` is the length of the first i words.
    """
    grams = words - n + 1
    if grams <= 0:
        return 0, 0
    mask = question(seen, grams)
    high = power(n)
    most = 0
    for i in range(grams):
        slot = slot_of(seen, mask, sums[i + n] - sums[i] * high)
        slots[i] = slot
        seen.counts[slot] += 1
        most = max(most, seen.counts[slot])
    for i in range(grams):
        if seen.counts[slots[i]] == most:
            return (ends[i + n] - ends[i] + n - 1) * most, most
    return 0, 0


@numba.njit(nogil=True)
def repeated_ngrams(sums: Any, ends: Any, words: Any, n: Any, seen: Seen) -> Any:
    """Characters in n-grams that were met before, without spaces; after one the search goes on behind it."""
    grams = words - n + 1
    if grams <= 0:
        return 0
    mask = question(seen, grams)
    high = power(n)
    found = 0
    i = 0
    while i < grams:
        if repeats(seen, mask, sums[i + n] - sums[i] * high):
            found += ends[i + n] - ends[i]
            i += n
        else:
            i += 1
    return found
