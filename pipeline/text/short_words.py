"""Where a word of plain ASCII ends, without a branch: what `word_end` of pretokens.py says, for 24 words in 25 of pages and sources.

A processor does not foretell what kind of word comes next, nor how long it is, and a wrong guess costs as much as all else that is
done here. So 32 bytes are looked at together: bits say which are letters, digits, blanks and signs, and kinds are chosen by masks.
Words that are longer, have other characters in or behind them, begin with an apostrophe, or lie at the end of a text are left to
`word_end`. A walk over pages and sources takes 13 to 16 ns a word, 27 by `word_end` alone.
"""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np

from corpusmill.pipeline.text.pretokens import APOSTROPHE, NO_CONTRACTIONS, Bytes, Shape
from corpusmill.pipeline.text.vectors import BYTES, between, bits_end, first_bit

NOTHING: Final = np.uint64(0)
ONE: Final = np.uint64(1)
TWO: Final = np.uint64(2)
ALL: Final = np.uint64((1 << BYTES) - 1)


@numba.njit(nogil=True, forceinline=True)
def all_if(bit: Any) -> Any:
    """All bits where the lowest of `bit` is set, else none."""
    return NOTHING - (bit & ONE)


@numba.njit(nogil=True, forceinline=True)
def run_of(bits: Any, start: Any) -> Any:
    """How many bits from `start` on are set, one after the other; never more than are left of ALL."""
    return np.uint64(first_bit(~(bits >> start)))


@numba.njit(nogil=True, forceinline=True)
def cased_run(data: Bytes, i: Any, lead: Any) -> Any:
    """Capitals, then small letters."""
    capitals = run_of(between(data, i, 0, 65, 26), lead)
    return capitals + run_of(between(data, i, 0, 97, 26), lead + capitals)


@numba.njit(nogil=True, forceinline=True)
def blanks_stop(lines: Any, run: Any, shape: Shape) -> Any:
    """How many blanks of a run that does not end its text are one word: up to its last line end, or all but the last."""
    stop = run - np.uint64(run > ONE)
    if shape.line_ends:
        line = np.uint64(bits_end(lines & ((ONE << run) - ONE)))
        return line if line else stop
    return stop


@numba.njit(nogil=True, forceinline=True)
def short_end(data: Bytes, i: Any, end: Any, shape: Shape) -> Any:
    """Where the word that begins at `i` ends; `i` where only `word_end` can tell."""
    if end - i <= BYTES or (shape.contractions != NO_CONTRACTIONS and data[i] == APOSTROPHE):
        return i
    letters, digits = between(data, i, 32, 97, 26), between(data, i, 0, 48, 10)
    lines = between(data, i, 0, 10, 1) | between(data, i, 0, 13, 1)
    spaces = between(data, i, 0, 32, 1)
    blanks = spaces | between(data, i, 0, 9, 5)
    signs = ALL ^ (letters | digits | blanks)
    led = spaces & (signs if shape.digits else signs | digits) >> ONE
    led |= (~(letters | digits | lines) if shape.lead else spaces) & letters >> ONE
    lead = led & ONE
    word, number, sign = all_if(letters >> lead), all_if(digits >> lead), all_if(signs >> lead)
    blank = ~(word | number | sign)
    run = run_of(letters & word | digits & number | signs & sign | blanks & blank, lead)
    if shape.cased:
        run = cased_run(data, i, lead) & word | run & ~word
        if word and data[i + np.int64(lead + run)] == APOSTROPHE:
            return i
    seen = lead + run
    if shape.digits:
        seen = min(seen, np.uint64(shape.digits)) if number else seen
    if shape.line_ends:
        seen += run_of(lines | between(data, i, 0, 47, 1) if shape.slashes else lines, seen) & sign
    # What is looked at goes up to the character behind the word, and all of it has to be ASCII.
    if seen == np.uint64(BYTES) or between(data, i, 0, 128, 128) & ((TWO << seen) - ONE):
        return i
    return i + np.int64(blanks_stop(lines, seen, shape) & blank | seen & ~blank)
