"""One pass over a column of texts: every count that the Gopher and FineWeb rules need, for each text.

`count(data, offsets, ...)` reads the UTF-8 buffer of an Arrow large_string column and fills one row of integers a text; ratios and
thresholds come later, in Arrow (measures.py). Each text is decoded, cut into words once, and walked; memory is bounded by WINDOW,
beyond which a text is not read (one of 50 MB takes 0.3 s and 97 MB). 23 MB a second and core on 718 extracted pages. The kernel is
compiled on first use (12 s) and kept on disk; its key holds the source of all that it is made of, because numba alone would not
notice a change in another file.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numba
import numpy as np
import numpy.typing as npt

from corpusmill.filters.repeats import (
    Seen,
    count_newlines,
    lines,
    paragraphs,
    polynomial,
    repeated_ngrams,
    seen_table,
    top_ngram,
)
from corpusmill.pipeline.text import chars, words
from corpusmill.pipeline.text.decode import code_points, decode
from corpusmill.pipeline.text.kernels import source_stamp
from corpusmill.pipeline.text.spelling import BASIS, Codes, Cuts, Flags, Keys, look_up, mixed
from corpusmill.pipeline.text.split import SOURCES, mark

WINDOW: Final = 1 << 21  # code points; what follows them is not read, and ratios are of the window

# Columns of `count`.
CHARS, READ, NEWLINES, HASHES, ELLIPSES = 0, 1, 2, 3, 4
SHOWN_LINES, BULLET_LINES, ELLIPSIS_LINES = 5, 6, 7
LINES, TERMINAL_LINES, DUP_LINES, DUP_LINE_CHARS = 8, 9, 10, 11
PARAGRAPHS, DUP_PARAGRAPHS, DUP_PARAGRAPH_CHARS = 12, 13, 14
PIECES, WORDS, WORD_CHARS, ALPHA_WORDS = 15, 16, 17, 18
TOP = 19  # to 21: 2-, 3- and 4-grams
REPEATED = 22  # to 27: 5- to 10-grams
COLUMNS: Final = 28

SPACE, LINEBREAK, ALPHA, BARE = chars.SPACE, chars.LINEBREAK, chars.ALPHA, chars.BARE
START = np.uint32(words.START)
DOT, HASH, DASH, ELLIPSIS, BULLET, CR, LF = 46, 35, 45, 0x2026, 0x2022, 13, 10


@numba.njit(nogil=True)
def signs(code: Codes, n: Any) -> Any:
    """(`#`, `...` and `…` together); a run of dots is as many ellipses as fit in it."""
    hashes, ellipses, dots = 0, 0, 0
    for i in range(n):
        c = code[i]
        hashes += c == HASH
        ellipses += c == ELLIPSIS
        if c == DOT:
            dots += 1
            if dots == 3:
                ellipses += 1
                dots = 0
        else:
            dots = 0
    return hashes, ellipses


@numba.njit(nogil=True)
def shown_lines(code: Codes, flags: Flags, n: Any) -> Any:
    """(lines as str.splitlines has them, blank ones too; of them beginning with `•` or `-`; ending with `...` or `…`)."""
    total, bullets, ellipses = 0, 0, 0
    i = 0
    while i < n:
        first, last = -1, -1
        start = i
        while i < n and not flags[i] & LINEBREAK:
            if not flags[i] & SPACE:
                last = i
                if first < 0:
                    first = i
            i += 1
        total += 1
        if first >= 0:
            bullets += code[first] == BULLET or code[first] == DASH
            dots = last - start >= 2 and code[last] == DOT and code[last - 1] == DOT and code[last - 2] == DOT
            ellipses += code[last] == ELLIPSIS or dots
        i += 2 if i + 1 < n and code[i] == CR and code[i + 1] == LF else 1
    return total, bullets, ellipses


@numba.njit(nogil=True)
def count_words(code: Codes, flags: Flags, n: Any, hashes: Any, ends: Any) -> Any:
    """(words, of them not symbols, characters of these, with a letter); fills the hash of each word and the running length."""
    pieces, spoken, spoken_chars, letters = 0, 0, 0, 0
    ends[0] = 0
    i = 0
    while i < n:
        if flags[i] & SPACE:
            i += 1
            continue
        start = i
        hashed = BASIS
        any_of = np.uint32(0)
        all_of = np.uint32(0xFFFFFFFF)
        while True:
            hashed = mixed(hashed, code[i])
            any_of |= flags[i]
            all_of &= flags[i]
            i += 1
            if i == n or flags[i] & (SPACE | START):
                break
        hashes[pieces] = hashed
        pieces += 1
        ends[pieces] = ends[pieces - 1] + i - start
        letters += (any_of & ALPHA) != 0
        if not all_of & BARE:
            spoken += 1
            spoken_chars += i - start
    return pieces, spoken, spoken_chars, letters


@numba.njit(nogil=True)
def fold_words(code: Codes, flags: Flags, n: Any, lower: Any, hashes: Any) -> None:
    """The hash of each word in lower case."""
    pieces = 0
    i = 0
    while i < n:
        if flags[i] & SPACE:
            i += 1
            continue
        hashed = BASIS
        while True:
            hashed = mixed(hashed, lower[code[i]])
            i += 1
            if i == n or flags[i] & (SPACE | START):
                break
        hashes[pieces] = hashed
        pieces += 1


@numba.njit(nogil=True)
def stop_words(
    hashes: Any, pieces: Any, keys: Keys, entries: Cuts, lists: Cuts, met: Cuts, stamp: Any, found: Any
) -> None:
    """`found[k]` grows by the number of different words of list k among the hashes; `lists[entry]` are bits of lists."""
    for i in range(pieces):
        entry = look_up(hashes[i], keys, entries)
        if entry < 0 or met[entry] == stamp:
            continue
        met[entry] = stamp
        for k in range(len(found)):
            found[k] += (lists[entry] >> k) & 1


@numba.njit(nogil=True)
def count_ngrams(hashes: Any, ends: Any, pieces: Any, sums: Any, slots: Any, seen: Seen, row: Any) -> None:
    """Fills TOP and REPEATED. Where no n-gram comes twice no longer one does, so most texts stop early."""
    polynomial(hashes, pieces, sums)
    most = 2
    for n in range(2, 5):
        if most > 1:
            row[TOP + n - 2], most = top_ngram(sums, ends, pieces, n, slots, seen)
        elif pieces >= n:
            row[TOP + n - 2] = ends[n] + n - 1
    if most < 2:
        return
    for n in range(5, 11):
        row[REPEATED + n - 5] = repeated_ngrams(sums, ends, pieces, n, seen)
        if row[REPEATED + n - 5] == 0:
            return


@numba.njit(nogil=True)
def count_text(code: Codes, flags: Flags, n: Any, limits: Any, short: Any, seen: Seen, row: Any) -> None:
    """All counts that need no words."""
    row[READ] = n
    row[NEWLINES] = count_newlines(code, n)
    row[HASHES], row[ELLIPSES] = signs(code, n)
    row[SHOWN_LINES], row[BULLET_LINES], row[ELLIPSIS_LINES] = shown_lines(code, flags, n)
    row[LINES], row[TERMINAL_LINES], row[DUP_LINES], row[DUP_LINE_CHARS] = lines(
        code, flags, n, row[NEWLINES], limits, short, seen
    )
    row[PARAGRAPHS], row[DUP_PARAGRAPHS], row[DUP_PARAGRAPH_CHARS] = paragraphs(
        code, flags, n, row[NEWLINES], seen
    )


@lru_cache(maxsize=1)
def kernel() -> Any:
    """The compiled `count(data, offsets, table, lower, keys, cuts, limits, exact, folded, counts, short, stops)`.

    `exact` and `folded` are (keys, entries, lists) of the stop words by spelling and by lower case; `counts` [texts, COLUMNS],
    `short` [texts, limits] and `stops` [texts, lists] come zeroed and are filled.
    """
    stamp = source_stamp(
        "corpusmill.filters.kernel",
        "corpusmill.filters.repeats",
        "corpusmill.pipeline.text.decode",
        *SOURCES,
    )
    i64, u64, rows = numba.int64[::1], numba.uint64[::1], numba.int64[:, ::1]
    listed = numba.types.UniTuple(i64, 2)
    signature = numba.void(
        numba.types.Array(numba.uint8, 1, "C", readonly=True), numba.types.Array(numba.int64, 1, "C", readonly=True),
        numba.uint32[::1], numba.uint32[::1], u64, i64, i64, u64, listed, u64, listed, rows, rows, rows,
    )  # fmt: skip

    @numba.njit(signature, nogil=True, cache=True)
    def count(
        data: Any, offsets: Any, table: Any, lower: Any, keys: Any, cuts: Any, limits: Any,
        exact_keys: Any, exact: Any, folded_keys: Any, folded: Any, counts: Any, short: Any, stops: Any,
    ) -> None:  # fmt: skip
        _ = stamp
        longest = 0
        for text in range(len(offsets) - 1):
            longest = max(longest, offsets[text + 1] - offsets[text])
        longest = min(longest, WINDOW)
        code, flags = np.empty(longest, np.int32), np.empty(longest, np.uint32)
        hashes, sums = np.empty(longest, np.uint64), np.empty(longest + 1, np.uint64)
        ends, slots = np.empty(longest + 1, np.int32), np.empty(longest, np.int32)
        met_exact, met_folded = np.full(len(exact[1]), -1), np.full(len(folded[1]), -1)
        seen = seen_table(longest + 1)
        for text in range(len(offsets) - 1):
            row = counts[text]
            row[CHARS] = code_points(data, offsets[text], offsets[text + 1])
            n = decode(data, offsets[text], offsets[text + 1], table, code, flags)
            count_text(code, flags, n, limits, short[text], seen, row)
            mark(code, flags, n, keys, cuts)
            row[PIECES], row[WORDS], row[WORD_CHARS], row[ALPHA_WORDS] = count_words(
                code, flags, n, hashes, ends
            )
            pieces = row[PIECES]
            count_ngrams(hashes, ends, pieces, sums, slots, seen, row)
            if len(exact[1]):
                stop_words(hashes, pieces, exact_keys, exact[0], exact[1], met_exact, text, stops[text])
            if len(folded[1]):
                fold_words(code, flags, n, lower, hashes)
                stop_words(hashes, pieces, folded_keys, folded[0], folded[1], met_folded, text, stops[text])

    return count


def stop_table(
    entries: list[tuple[int, int]],
) -> tuple[npt.NDArray[np.uint64], tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """(hash, bits of lists) pairs as what `stop_words` reads: keys, and the entry of each slot with the bits of each entry."""
    keys, found = words.hash_table((hashed, entry) for entry, (hashed, _) in enumerate(entries))
    return keys, (found, np.array([lists for _, lists in entries], dtype=np.int64))
