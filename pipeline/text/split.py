"""The splitter of words.py as numba kernels: `mark` sets START at the first character of every word of a text.

`code` holds code points, `flags` their flags from words.table(). All is one walk over the text, linear for any input: a piece is
stripped from both ends by moving two borders, and look-ups in the table of exceptions are bounded by words.LONGEST.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numba
import numpy as np

from corpusmill.pipeline.text import chars, words
from corpusmill.pipeline.text.address import address
from corpusmill.pipeline.text.kernels import source_stamp
from corpusmill.pipeline.text.spelling import (
    BASIS,
    LONGEST,
    START,
    Codes,
    Cuts,
    Flags,
    Keys,
    exception,
    look_up,
    mark_packed,
    mixed,
    spans,
)

SOURCES = tuple(
    f"corpusmill.pipeline.text.{name}" for name in ("split", "spelling", "address", "words", "chars")
)
"""Modules whose source a kernel that splits is made of: for source_stamp."""

SPACE, ALPHA, MARK, NOSPACE, UPPER = chars.SPACE, chars.ALPHA, chars.MARK, chars.NOSPACE, chars.UPPER
OPENS, CLOSES, QUOTE, BEFORE_STOP, CURRENCY = (
    words.OPENS,
    words.CLOSES,
    words.QUOTE,
    words.BEFORE_STOP,
    words.CURRENCY,
)
FIGURE, LETTER, SMALL, INSIDE = words.FIGURE, words.LETTER, words.SMALL, words.INSIDE
ICON = chars.ICON
DOT, ELLIPSIS, PLUS, MINUS, STAR, CARET, COMMA, COLON = 46, 0x2026, 43, 45, 42, 94, 44, 58
LESS, EQUALS, GREATER, SLASH, DOLLAR, DEGREE, TILDE = 60, 61, 62, 47, 36, 0xB0, 126
EN_DASH, EM_DASH, APOSTROPHE, RAISED_COMMA = 0x2013, 0x2014, 39, 0x2019


@numba.njit(nogil=True)
def opening(code: Codes, flags: Flags, a: int, b: int) -> int:
    """Characters to cut off at the front of code[a:b]."""
    c = code[a]
    if flags[a] & OPENS:
        return 1
    if c == PLUS:
        return 0 if a + 1 < b and flags[a + 1] & FIGURE else 1
    if c == DOT:
        end = a + 1
        while end < b and code[end] == DOT:
            end += 1
        return end - a if end - a > 1 else 0
    if (c == 65 or c == 67) and a + 1 < b and code[a + 1] == DOLLAR:  # A$ and C$
        return 2
    if c == 85 and a + 2 < b and code[a + 1] == 83 and code[a + 2] == DOLLAR:  # US$
        return 3
    return 0


@numba.njit(nogil=True)
def stops(code: Codes, flags: Flags, a: int, b: int) -> int:
    """Full stops to cut off at the end of code[a:b], which ends with one."""
    start = b - 1
    while start > a and code[start - 1] == DOT:
        start -= 1
    if b - start > 1:
        return b - start
    if start > a and flags[start - 1] & BEFORE_STOP:
        return 1
    if (
        start - 2 >= a
        and flags[start - 1] & UPPER
        and (flags[start - 2] & UPPER or code[start - 2] == DEGREE)
    ):
        return 1
    return 0


@numba.njit(nogil=True)
def amount(code: Codes, flags: Flags, a: int, b: int, keys: Keys, cuts: Cuts) -> int:
    """Length of a currency or a unit at the end of code[a:b] that a digit stands before, else 0."""
    start = b
    while start > a and b - start < LONGEST and not flags[start - 1] & FIGURE:
        start -= 1
    if start in (a, b) or not flags[start - 1] & FIGURE:
        return 0
    if flags[b - 1] & CURRENCY:
        dollars = code[b - 1] == DOLLAR and (
            (b - start == 2 and (code[start] == 65 or code[start] == 67))
            or (b - start == 3 and code[start] == 85 and code[start + 1] == 83)
        )
        return b - start if b - start == 1 or dollars else 0
    hashed = mixed(BASIS, 48)
    for i in range(start, b):
        hashed = mixed(hashed, code[i])
    return b - start if look_up(hashed, keys, cuts) == 0 else 0


@numba.njit(nogil=True)
def closing(code: Codes, flags: Flags, a: int, b: int, keys: Keys, cuts: Cuts) -> Any:
    """Characters to cut off at the end of code[a:b]."""
    c = code[b - 1]
    if flags[b - 1] & CLOSES:
        return 2 if c == ELLIPSIS and b - a > 1 and code[b - 2] == ELLIPSIS else 1
    if c == DOT:
        return stops(code, flags, a, b)
    if (
        (c == 115 or c == 83) and b - a > 1 and (code[b - 2] == APOSTROPHE or code[b - 2] == RAISED_COMMA)
    ):  # 's
        return 2
    if c == PLUS:
        return 1 if b - a > 1 and flags[b - 2] & FIGURE else 0
    return amount(code, flags, a, b, keys, cuts)


@numba.njit(nogil=True)
def cut_inside(code: Codes, flags: Flags, a: int, b: int, i: int) -> int:
    """Length of the separator that begins at `i` inside code[a:b], 0 if there is none."""
    c = code[i]
    if c == ELLIPSIS or flags[i] & ICON:
        return 1
    before = flags[i - 1] if i > a else np.uint32(0)
    after = flags[i + 1] if i + 1 < b else np.uint32(0)
    if c == DOT:
        end = i + 1
        while end < b and code[end] == DOT:
            end += 1
        if end - i > 1:
            return end - i
        return 1 if before & (SMALL | QUOTE) and after & (UPPER | QUOTE) else 0
    if (
        c in (PLUS, MINUS, STAR, CARET)
        and before & FIGURE
        and (after & FIGURE or (i + 1 < b and code[i + 1] == MINUS))
    ):
        return 1
    if c == COMMA:
        return 1 if before & LETTER and after & LETTER else 0
    if not before & (LETTER | FIGURE):
        return 0
    if c in (COLON, LESS, GREATER, EQUALS, SLASH):
        return 1 if after & LETTER else 0
    if c in (MINUS, EN_DASH, EM_DASH, TILDE):
        if after & LETTER:
            return 1
        longest = 3 if c == MINUS else (2 if c == EM_DASH else 1)
        end = i + 1
        while end < b and code[end] == c and end - i < longest:
            end += 1
            if end < b and flags[end] & LETTER:
                return end - i
    return 0


@numba.njit(nogil=True)
def mark_core(code: Codes, flags: Flags, a: int, b: int, letters: bool, keys: Keys, cuts: Cuts) -> None:
    """Marks the words of a piece whose ends are stripped; `letters` says that it holds nothing else."""
    flags[a] |= START
    packed = exception(code, a, b, keys, cuts)
    if packed:
        mark_packed(flags, a, b, packed)
        return
    if letters:
        return
    begins = False
    for i in range(a, b):
        begins |= (flags[i] & INSIDE) != 0
    if not begins or address(code, flags, a, b):
        return
    i = a
    while i < b:
        length = cut_inside(code, flags, a, b, i) if flags[i] & INSIDE else 0
        if length:
            flags[i] |= START
            i += length
            if i < b:
                flags[i] |= START
        else:
            i += 1


@numba.njit(nogil=True)
def mark_piece(code: Codes, flags: Flags, a: int, b: int, keys: Keys, cuts: Cuts) -> None:
    """Marks the words of code[a:b], which has no white space."""
    whole, end = a, b
    while a < b and not exception(code, a, b, keys, cuts):
        front = opening(code, flags, a, b)
        if front:
            flags[a] |= START
            a += front
            if a == b or exception(code, a, b, keys, cuts):
                break
        back = closing(code, flags, a, b, keys, cuts)
        if back:
            b -= back
            flags[b] |= START
        if not front and not back:
            break
    if a < b:
        mark_core(code, flags, a, b, False, keys, cuts)
    join_exceptions(code, flags, whole, end, keys, cuts)


@numba.njit(nogil=True)
def join_exceptions(code: Codes, flags: Flags, a: int, b: int, keys: Keys, cuts: Cuts) -> None:
    """Neighbouring words of code[a:b] that spell an exception become its words: the `:` and `)` of "done:)" are one again."""
    i = a
    while i < b:
        end = i
        packed = 0
        hashed = BASIS
        words_in = 0
        letters = True
        j = i
        while j < b and j - i < LONGEST:
            hashed = mixed(hashed, code[j])
            letters &= (flags[j] & LETTER) != 0
            j += 1
            if j == b or flags[j] & START:
                words_in += 1
                value = look_up(hashed, keys, cuts) if words_in > 1 and not letters else -1
                if value > 0 and spans(value) == j - i:
                    packed, end = value, j
        if packed:
            mark_packed(flags, i, end, packed)
            i = end
        else:
            i += 1
            while i < b and not flags[i] & START:
                i += 1


@numba.njit(nogil=True)
def mark_spaceless(flags: Flags, a: int, b: int) -> None:
    """In scripts without spaces every letter begins a word, and so does what follows such letters; marks stay on their letter."""
    inside = False
    for i in range(a, b):
        if flags[i] & NOSPACE:
            if not flags[i] & MARK or not inside:
                flags[i] |= START
            inside = True
        elif inside and not flags[i] & MARK:
            flags[i] |= START
            inside = False


@numba.njit(nogil=True)
def mark(code: Codes, flags: Flags, n: int, keys: Keys, cuts: Cuts) -> None:
    """Sets START in flags[:n] at the first character of every word of the text code[:n]."""
    i = 0
    while i < n:
        if flags[i] & SPACE:
            i += 1
            continue
        start = i
        all_of = np.uint32(0xFFFFFFFF)
        any_of = np.uint32(0)
        while i < n and not flags[i] & SPACE:
            all_of &= flags[i]
            any_of |= flags[i]
            i += 1
        if all_of & ALPHA:
            mark_core(code, flags, start, i, True, keys, cuts)
        else:
            mark_piece(code, flags, start, i, keys, cuts)
        if any_of & NOSPACE:
            mark_spaceless(flags, start, i)


@lru_cache(maxsize=1)
def splitter() -> Any:
    """`mark` compiled for a caller from Python, kept on disk."""
    stamp = source_stamp(*SOURCES)
    signature = numba.void(
        numba.int32[::1], numba.uint32[::1], numba.int64, numba.uint64[::1], numba.int64[::1]
    )

    @numba.njit(signature, nogil=True, cache=True)
    def split(code: Codes, flags: Flags, n: Any, keys: Keys, cuts: Cuts) -> None:
        _ = stamp
        mark(code, flags, n, keys, cuts)

    return split
