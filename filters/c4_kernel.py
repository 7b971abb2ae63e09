"""The line rules of C4 as one kernel: it decides about each line, counts what the document cuts need, and writes what stays.

Lines are those of str.splitlines, without the white space around them. In this order a line goes because it has a word that is too long,
no terminal punctuation, too few words, the word "javascript", or a phrase of a policy notice; citations like [12] are taken out after the
first of these. Linear in the text, 33 MB a second and core on 718 extracted pages; memory is 8 bytes a character of the longest text.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numba
import numpy as np

from corpusmill.pipeline.text import chars, words
from corpusmill.pipeline.text.decode import decode
from corpusmill.pipeline.text.kernels import source_stamp
from corpusmill.pipeline.text.spelling import Codes, Cuts, Flags, Keys
from corpusmill.pipeline.text.split import SOURCES, mark

# Columns of the counts.
LINES, KEPT, LOREM, CURLY, SENTENCES = 0, 1, 2, 3, 4
COLUMNS: Final = 5

# Places of the options; -1 is off for the two bounds.
TERMINAL, CITATIONS, MIN_WORDS, MAX_LENGTH, JAVASCRIPT, POLICY = 0, 1, 2, 3, 4, 5

PHRASES = (
    "lorem ipsum",
    "javascript",
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
)
LENGTHS = np.array([len(phrase) for phrase in PHRASES], dtype=np.int64)
LETTERS = np.array([[ord(char) for char in phrase.ljust(16, "\0")] for phrase in PHRASES], dtype=np.uint32)
EDIT = np.array([ord(char) for char in "[edit]"], dtype=np.int32)
NEEDED = np.array([ord(char) for char in "[citation needed]"], dtype=np.int32)

SPACE, LINEBREAK, DIGIT, PUNCT, SENTENCE = (
    chars.SPACE,
    chars.LINEBREAK,
    chars.DIGIT,
    chars.PUNCT,
    chars.SENTENCE,
)
START = np.uint32(words.START)
OPEN, CLOSE, CURLY_OPEN, CR, LF, DOT = 91, 93, 123, 13, 10, 46


@numba.njit(nogil=True)
def spells(code: Codes, a: Any, b: Any, letters: Any) -> Any:
    """Whether code[a:b] begins with the letters."""
    if b - a < len(letters):
        return False
    for i in range(len(letters)):  # noqa: SIM110 (numba has no all())
        if code[a + i] != letters[i]:
            return False
    return True


@numba.njit(nogil=True)
def citation(code: Codes, flags: Flags, a: Any, b: Any) -> Any:
    """Length of `[]`, `[12]`, `[edit]` or `[citation needed]` at `a`, else 0."""
    if spells(code, a, b, EDIT):
        return len(EDIT)
    if spells(code, a, b, NEEDED):
        return len(NEEDED)
    end = a + 1
    while end < b and flags[end] & DIGIT:
        end += 1
    return end + 1 - a if end < b and code[end] == CLOSE else 0


@numba.njit(nogil=True)
def without_citations(code: Codes, flags: Flags, a: Any, b: Any) -> Any:
    """Closes the gaps in code[a:b]; the result is the new end."""
    to = a
    i = a
    while i < b:
        length = 0
        if code[i] == OPEN:
            length = citation(code, flags, i, b)
            if length == 0:
                # Digits without an end are no citation wherever one begins among them: keep them at one go, else "[1[1[1" is square.
                code[to], flags[to] = code[i], flags[i]
                to += 1
                i += 1
                while i < b and flags[i] & DIGIT:
                    code[to], flags[to] = code[i], flags[i]
                    to += 1
                    i += 1
                continue
        if length:
            i += length
            continue
        code[to], flags[to] = code[i], flags[i]
        to += 1
        i += 1
    return to


@numba.njit(nogil=True)
def spaced_words(flags: Flags, a: Any, b: Any) -> Any:
    """(words between white space, length of the longest)."""
    found, longest, length = 0, 0, 0
    for i in range(a, b):
        if flags[i] & SPACE:
            length = 0
            continue
        found += length == 0
        length += 1
        longest = max(longest, length)
    return found, longest


@numba.njit(nogil=True)
def ends_well(code: Codes, a: Any, b: Any) -> Any:
    """Whether code[a:b] ends in . ? ! " or ' and not in an ellipsis."""
    if a == b:
        return False
    last = code[b - 1]
    if last == DOT:
        return not (b - a > 2 and code[b - 2] == DOT and code[b - 3] == DOT)
    return last in (33, 34, 39, 63)


@numba.njit(nogil=True)
def phrases(code: Codes, a: Any, b: Any, lower: Any) -> Any:
    """Bits of the PHRASES in code[a:b], any case."""
    found = 0
    for i in range(a, b):
        first = lower[code[i]]
        for k in range(len(LENGTHS)):
            if first != LETTERS[k, 0] or found >> k & 1 or b - i < LENGTHS[k]:
                continue
            same = 1
            while same < LENGTHS[k] and lower[code[i + same]] == LETTERS[k, same]:
                same += 1
            if same == LENGTHS[k]:
                found |= 1 << k
    return found


@numba.njit(nogil=True)
def sentences(code: Codes, flags: Flags, a: Any, b: Any, keys: Keys, cuts: Cuts) -> Any:
    """Sentences of a line: one begins with the first word, and with every word after a full stop that is no punctuation itself."""
    mark(code[a:b], flags[a:b], b - a, keys, cuts)
    found = 0
    stopped = False
    i = a
    while i < b:
        if flags[i] & SPACE:
            i += 1
            continue
        start = i
        all_of = np.uint32(0xFFFFFFFF)
        while True:
            all_of &= flags[i]
            i += 1
            if i == b or flags[i] & (SPACE | START):
                break
        stop = i - start == 1 and (flags[start] & SENTENCE) != 0
        if found == 0:
            found = 1
        elif stopped and not stop and not all_of & PUNCT:
            found += 1
            stopped = False
        stopped |= stop
    return found


@numba.njit(nogil=True)
def keep_line(
    code: Codes, flags: Flags, a: Any, b: Any, lower: Any, keys: Keys, cuts: Cuts, options: Any, row: Any
) -> Any:
    """The new end of a line that stays, -1 of one that goes; counts it in `row`."""
    row[LINES] += 1
    spaced, longest = spaced_words(flags, a, b)
    if options[MAX_LENGTH] >= 0 and longest > options[MAX_LENGTH]:
        return -1
    if options[CITATIONS]:
        b = without_citations(code, flags, a, b)
    if options[TERMINAL] and not ends_well(code, a, b):
        return -1
    if spaced < options[MIN_WORDS]:
        return -1
    said = phrases(code, a, b, lower)
    row[LOREM] += said & 1
    if options[JAVASCRIPT] and said & 2:
        return -1
    curly = 0
    for i in range(a, b):
        curly |= code[i] == CURLY_OPEN
    row[CURLY] += curly
    if options[POLICY] and said >> 2:
        return -1
    row[KEPT] += 1
    row[SENTENCES] += sentences(code, flags, a, b, keys, cuts)
    return b


@numba.njit(nogil=True)
def encode(c: Any, out: Any, at: Any) -> Any:
    """Writes one code point as UTF-8; the result is the place after it."""
    if c < 0x80:
        out[at] = c
        return at + 1
    if c < 0x800:
        out[at] = 0xC0 | c >> 6
    elif c < 0x10000:
        out[at] = 0xE0 | c >> 12
        at += 1
        out[at] = 0x80 | (c >> 6 & 0x3F)
    else:
        out[at] = 0xF0 | c >> 18
        at += 1
        out[at] = 0x80 | (c >> 12 & 0x3F)
        at += 1
        out[at] = 0x80 | (c >> 6 & 0x3F)
    out[at + 1] = 0x80 | (c & 0x3F)
    return at + 2


@numba.njit(nogil=True)
def edit_text(
    code: Codes,
    flags: Flags,
    n: Any,
    lower: Any,
    keys: Keys,
    cuts: Cuts,
    options: Any,
    row: Any,
    out: Any,
    begin: Any,
) -> Any:
    """Decides about all lines and writes those that stay, newlines between them, at `begin`; no white space at either end.

    The result is the end of what was written. It is never longer than the text: every line that stays had a line break of its own.
    """
    at, end = begin, begin
    i = 0
    while i < n:
        start = i
        while i < n and not flags[i] & LINEBREAK:
            i += 1
        a, b = start, i
        i += 2 if i + 1 < n and code[i] == CR and code[i + 1] == LF else 1
        while a < b and flags[a] & SPACE:
            a += 1
        while b > a and flags[b - 1] & SPACE:
            b -= 1
        b = keep_line(code, flags, a, b, lower, keys, cuts, options, row)
        if b < 0:
            continue
        if end > begin:
            at = encode(np.int64(LF), out, at)
        for j in range(a, b):
            if end == begin and flags[j] & SPACE:
                continue
            at = encode(np.int64(code[j]), out, at)
            if not flags[j] & SPACE:
                end = at
    return end


@lru_cache(maxsize=1)
def kernel() -> Any:
    """The compiled `edit(data, offsets, table, lower, keys, cuts, options, counts, out, ends)`.

    `counts` [texts, COLUMNS] comes zeroed; text i is out[ends[i]:ends[i + 1]]; `out` is as long as what the texts take.
    """
    stamp = source_stamp(
        "corpusmill.filters.c4_kernel",
        "corpusmill.pipeline.text.decode",
        *SOURCES,
    )
    i64 = numba.int64[::1]
    signature = numba.void(
        numba.types.Array(numba.uint8, 1, "C", readonly=True), numba.types.Array(numba.int64, 1, "C", readonly=True),
        numba.uint32[::1], numba.uint32[::1], numba.uint64[::1], i64, i64, numba.int64[:, ::1], numba.uint8[::1], i64,
    )  # fmt: skip

    @numba.njit(signature, nogil=True, cache=True)
    def edit(
        data: Any, offsets: Any, table: Any, lower: Any, keys: Any, cuts: Any, options: Any, counts: Any, out: Any, ends: Any
    ) -> None:  # fmt: skip
        _ = stamp
        longest = 0
        for text in range(len(offsets) - 1):
            longest = max(longest, offsets[text + 1] - offsets[text])
        code, flags = np.empty(longest, np.int32), np.empty(longest, np.uint32)
        ends[0] = 0
        for text in range(len(offsets) - 1):
            n = decode(data, offsets[text], offsets[text + 1], table, code, flags)
            ends[text + 1] = edit_text(
                code, flags, n, lower, keys, cuts, options, counts[text], out, ends[text]
            )

    return edit
