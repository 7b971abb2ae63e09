"""How byte-level vocabularies cut text into words, as a kernel: `word_end` says where the word that begins at a byte ends.

Published vocabularies share a few regular expressions, which differ in a handful of choices: a `Shape` names these for each that is
known, and the kernel walks UTF-8 once, without going back over what it has read but for a blank or two. What is a letter, a number
or a blank is asked of `tokenizers`, whose ids are wanted: its tables are of one Unicode version, ours and Python's of others.
0.16 CPU seconds for that table, 1.1 MB; the walk alone does 125 to 150 MB/s beside other work.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.text.engines import flat_steps
from corpusmill.pipeline.text.rank_files import PATTERNS

Bytes = npt.NDArray[np.uint8]

LETTER: Final = 1
NUMBER: Final = 2
BLANK: Final = 4
LINE_END: Final = 8  # CR and LF
UPPER: Final = 16  # what o200k has in the front of a word: capitals, letters without case, marks
LOWER: Final = 32  # and in the rest of it: small letters, letters without case, marks

NO_CONTRACTIONS: Final = 0
SMALL_CONTRACTIONS: Final = 1
ANY_CONTRACTIONS: Final = 2

# Surrogates are in no text; planes 4 to 13 are free, and what is no letter, number, mark or blank needs no flag.
ASSIGNED: Final = [*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000)]

SPACE: Final = 32
APOSTROPHE: Final = 39
SLASH: Final = 47


class Shape(NamedTuple):
    """What one regular expression says about words: a tuple, because kernels take those."""

    contractions: int  # at the front of a word: none, small letters only, any case
    lead: bool  # any sign but a line end may lead a word of letters, not a blank alone
    cased: bool  # a capital behind a small letter begins a word, contractions end one
    digits: int  # the most in a word; 0 for no bound, and then a blank may lead them
    line_ends: bool  # signs take the line ends behind them, blanks are cut behind their last line end
    slashes: bool  # signs take slashes among the line ends behind them
    last_blanks: bool  # blanks that end a text are one word


_CL100K = Shape(ANY_CONTRACTIONS, True, False, 3, True, False, True)
_LLAMA = Shape(ANY_CONTRACTIONS, True, False, 3, True, False, False)
_QWEN = Shape(ANY_CONTRACTIONS, True, False, 1, True, False, False)
_GPT2 = Shape(SMALL_CONTRACTIONS, False, False, 0, False, False, False)
_O200K = Shape(NO_CONTRACTIONS, True, True, 3, True, True, False)

_GPT2_LONG = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA_WORDS = PATTERNS["cl100k"].words.replace(r"|\s+\z", "")

SHAPES = {
    PATTERNS["gpt2"].words: _GPT2,
    _GPT2_LONG: _GPT2,
    PATTERNS["cl100k"].words: _CL100K,
    _LLAMA_WORDS: _LLAMA,
    _LLAMA_WORDS.replace(r"\p{N}{1,3}", r"\p{N}"): _QWEN,
    PATTERNS["o200k"].words: _O200K,
}
"""By regular expression, to the letter: one that is merely like these may cut elsewhere."""


def shape_of(settings: dict[str, Any]) -> Shape | None:
    """The shape of a tokenizer.json's words; None when it is not one of these."""
    steps = flat_steps(settings.get("pre_tokenizer"), "pretokenizers")
    if not steps or steps[-1]["type"] != "ByteLevel" or steps[-1].get("add_prefix_space"):
        return None
    own = steps[-1].get("use_regex", True)
    if len(steps) == 1:
        return _GPT2 if own else None
    step = steps[0]
    if (
        len(steps) > 2
        or own
        or step["type"] != "Split"
        or step.get("invert")
        or step["behavior"] != "Isolated"
    ):
        return None
    return SHAPES.get(step["pattern"].get("Regex", ""))


@cache
def flags_of_characters() -> Bytes:
    """The flags of each code point, as the regular expressions of `tokenizers` see it."""
    from tokenizers import Regex
    from tokenizers.normalizers import Replace

    text = "".join(map(chr, ASSIGNED))
    flags = np.zeros(0x110000, np.uint8)
    for members, flag in (
        (r"\p{L}", LETTER),
        (r"\p{N}", NUMBER),
        (r"\s", BLANK),
        (r"\r\n", LINE_END),
        (r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", UPPER),
        (r"\p{Ll}\p{Lm}\p{Lo}\p{M}", LOWER),
    ):
        others = Replace(Regex(f"[^{members}]+"), "").normalize_str(text)
        flags[np.frombuffer(others.encode("utf-32-le"), np.uint32)] |= flag
    return flags


@numba.njit(nogil=True, forceinline=True)
def character(data: Bytes, i: Any, flags: Bytes) -> Any:
    """(flags, where the next one begins) of the character at byte `i` of well-formed UTF-8."""
    first = np.int64(data[i])
    if first < 0x80:
        return flags[first], i + 1
    if first < 0xE0:
        return flags[(first & 0x1F) << 6 | np.int64(data[i + 1]) & 0x3F], i + 2
    if first < 0xF0:
        return flags[
            (first & 0x0F) << 12 | (np.int64(data[i + 1]) & 0x3F) << 6 | np.int64(data[i + 2]) & 0x3F
        ], i + 3
    return flags[
        (first & 0x07) << 18
        | (np.int64(data[i + 1]) & 0x3F) << 12
        | (np.int64(data[i + 2]) & 0x3F) << 6
        | np.int64(data[i + 3]) & 0x3F
    ], i + 4


@numba.njit(nogil=True, forceinline=True)
def run_end(data: Bytes, i: Any, end: Any, flags: Bytes, wanted: Any) -> Any:
    """Where the run of characters ends that have one of the wanted flags."""
    while i < end:
        found, after = character(data, i, flags)
        if not found & wanted:
            break
        i = after
    return i


@numba.njit(nogil=True, forceinline=True)
def contraction_end(data: Bytes, i: Any, end: Any, any_case: bool) -> Any:
    """Behind 's 't 'm 'd 're 've 'll, whose apostrophe is at `i`; `i` where none is. The long s is one, too, when case does not count."""
    if i + 1 >= end:
        return i
    fold = 32 if any_case else 0
    first = np.int64(data[i + 1]) | fold
    if first == 115 or first == 116 or first == 109 or first == 100:
        return i + 2
    if i + 2 >= end:
        return i
    if any_case and data[i + 1] == 0xC5 and data[i + 2] == 0xBF:
        return i + 3
    second = np.int64(data[i + 2]) | fold
    if (
        (first == 114 and second == 101)
        or (first == 118 and second == 101)
        or (first == 108 and second == 108)
    ):
        return i + 3
    return i


@numba.njit(nogil=True, forceinline=True)
def small_end(data: Bytes, i: Any, end: Any, flags: Bytes) -> Any:
    """Behind [UPPER]*[LOWER]+ from `i` on; `i` where there is none."""
    last, at = i, i
    while at < end:
        found, after = character(data, at, flags)
        if not found & UPPER:
            break
        at = after
        if found & LOWER:  # caseless: the front of a word gives it up for the rest of it
            last = at
    small = run_end(data, at, end, flags, LOWER)
    return small if small > at else last


@numba.njit(nogil=True, forceinline=True)
def cased_end(data: Bytes, i: Any, end: Any, flags: Bytes, first: Any, after: Any) -> Any:
    """Behind a word that begins with capitals, if any, and its contraction; `i` where no letter or mark is."""
    leads = not first & (LETTER | NUMBER | LINE_END)
    found = i
    if leads:
        found = small_end(data, after, end, flags)
        found = found if found > after else i
    if found == i:
        found = small_end(data, i, end, flags)
    if found == i and leads:
        found = run_end(data, after, end, flags, UPPER)
        found = found if found > after else i
    if found == i:
        found = run_end(data, i, end, flags, UPPER)
    if i < found < end and data[found] == APOSTROPHE:
        return contraction_end(data, found, end, True)
    return found


@numba.njit(nogil=True, forceinline=True)
def numbers_end(data: Bytes, i: Any, end: Any, flags: Bytes, most: Any) -> Any:
    """Behind a run of at most so many numbers, 0 for no bound."""
    if not most:
        return run_end(data, i, end, flags, NUMBER)
    for _ in range(most):
        if i < end:
            found, after = character(data, i, flags)
            if not found & NUMBER:
                break
            i = after
    return i


@numba.njit(nogil=True, forceinline=True)
def blanks_end(data: Bytes, i: Any, end: Any, flags: Bytes, shape: Shape) -> Any:
    """Behind the blanks of one word: all but the last, which leads the next word, unless a line or the text ends with them."""
    at, last, line = i, i, i
    while at < end:
        found, after = character(data, at, flags)
        if not found & BLANK:
            break
        last = at
        at = after
        if found & LINE_END:
            line = at
    if shape.last_blanks and at == end:
        return at
    if shape.line_ends and line > i:
        return line
    return at if at == end or last == i else last


@numba.njit(nogil=True, forceinline=True)
def signs_end(data: Bytes, i: Any, end: Any, flags: Bytes, shape: Shape) -> Any:
    """Behind signs, which are no letter, number or blank, and the line ends that go with them; `i` where none is."""
    at = i
    while at < end:
        found, after = character(data, at, flags)
        if found & (LETTER | NUMBER | BLANK):
            break
        at = after
    if at > i and shape.line_ends:
        while at < end and (data[at] == 10 or data[at] == 13 or (shape.slashes and data[at] == SLASH)):
            at += 1
    return at


@numba.njit(nogil=True, forceinline=True)
def word_end(data: Bytes, i: Any, end: Any, flags: Bytes, shape: Shape) -> Any:
    """Where the word that begins at `i` ends; the text ends at `end`. The order of the cases is that of the alternatives."""
    first, after = character(data, i, flags)
    if shape.contractions and data[i] == APOSTROPHE:
        found = contraction_end(data, i, end, shape.contractions == ANY_CONTRACTIONS)
        if found > i:
            return found
    if shape.cased:
        found = cased_end(data, i, end, flags, first, after)
        if found > i:
            return found
    elif first & LETTER:
        return run_end(data, after, end, flags, LETTER)
    blank = data[i] == SPACE
    second = np.uint8(0)
    if after < end:
        second, _ = character(data, after, flags)
        leads = not first & (NUMBER | LINE_END) if shape.lead else blank
        if leads and not shape.cased and second & LETTER:
            return run_end(data, after, end, flags, LETTER)
    if first & NUMBER:
        return numbers_end(data, i, end, flags, shape.digits)
    if blank and not shape.digits and second & NUMBER:
        return run_end(data, after, end, flags, NUMBER)
    if blank and after < end:
        found = signs_end(data, after, end, flags, shape)
        if found > after:
            return found
    if not first & BLANK:
        return signs_end(data, i, end, flags, shape)
    return blanks_end(data, i, end, flags, shape)
