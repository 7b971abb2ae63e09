"""Our own engine for byte-level BPE whose words are cut by a known regular expression: GPT-2, cl100k, o200k, Llama 3, Qwen, what we train.

A text is walked once: a word is cut (pretokens.py), looked up among those seen, and only a new one is merged (merging.py). What is
remembered lies in one table of CACHE_BYTES: a word of up to WORD bytes and its up to IDS ids fill a line of memory, and a new
word takes the place of an old one, so that memory stays what it is from the first text on, and hostile text can only cost merges.

With an empty table, beside other work on both cores: 30 MB/s with cl100k and 34 with GPT-2 on 16 MB of pages and sources, where
tiktoken does 6 and fastokens 25. A vocabulary takes 0.8 CPU seconds to load; compiled on first use (11 CPU seconds) and kept on disk.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numba
import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.errors import ModelError
from corpusmill.pipeline.text.engines import Encoded, flat_steps
from corpusmill.pipeline.text.kernels import source_stamp
from corpusmill.pipeline.text.merging import (
    MIX,
    NONE,
    Merges,
    merge,
    merge_short,
    merges_of,
    scratch,
    token_slot,
)
from corpusmill.pipeline.text.pretokens import Bytes, Shape, flags_of_characters, shape_of, word_end

NAME = "corpusmill"

SOURCES = tuple(f"corpusmill.pipeline.text.{name}" for name in ("byte_level", "merging", "pretokens"))

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
ROW: Final = 16
ROWS: Final = 1 << 15

Seen = npt.NDArray[np.uint64]

EIGHT, HALF, LOW = np.uint64(8), np.uint64(32), np.uint64(0xFFFFFFFF)


class ByteLevel:
    """A byte-level vocabulary on one thread. Raises ModelError where it is of another kind."""

    def __init__(self, content: bytes) -> None:
        self.name = own_name()
        settings = json.loads(content)
        shape = shape_of(settings)
        why = unfit(settings) or ("" if shape else "its words are cut in a way that has no kernel")
        if why or shape is None:
            raise ModelError(f"{self.name} is not for this vocabulary: {why}")
        try:
            self._merges = merges_of(settings["model"])
        except (KeyError, ValueError) as error:
            raise ModelError(f"{self.name} cannot read this vocabulary: {error!r}") from error
        self._shape: Shape = shape
        self._flags = flags_of_characters()
        self._seen = lines(CACHE_BYTES, LINE), lines(8 * ROWS * ROW, ROW)

    def encode(self, texts: Sequence[str]) -> Encoded:
        try:
            parts = [text.encode() for text in texts]
        except UnicodeEncodeError as error:
            raise ModelError(f"{self.name} cannot encode a text: {error}") from error
        offsets = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=offsets[1:])
        size = int(offsets[-1])
        eights = np.frombuffer(bytearray().join([*parts, bytes(16 - size % 8)]), np.uint64)
        found = np.empty(size, np.uint32)
        lengths = np.zeros(len(parts), np.int64)
        count = encoder()(
            eights, offsets, self._flags, self._shape, self._merges, *self._seen, found, lengths
        )
        return found[:count].copy(), lengths


def own_name() -> str:
    """The engine with a version that its source gives it."""
    return f"{NAME} {source_stamp(*SOURCES) & 0xFFFFFFFF:08x}"


def unfit(settings: dict[str, Any]) -> str:
    """What, beside the way words are cut, keeps a tokenizer.json from this engine; "" for nothing."""
    model = settings["model"]
    if model["type"] != "BPE":
        return f"it is {model['type']}"
    if flat_steps(settings.get("normalizer"), "normalizers"):
        return "it changes text first"
    if any(not token["special"] for token in settings.get("added_tokens", [])):
        return "it has tokens of its own that are found before words are cut"
    if any(
        model.get(key)
        for key in ("continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "dropout")
    ):
        return "its pieces are not those of plain byte-level BPE"
    return ""


def lines(size_bytes: int, width: int) -> Seen:
    """Free entries of so many numbers; they begin where lines of memory do."""
    numbers = size_bytes // 8
    made = np.empty(
        numbers + LINE, np.uint64
    )  # numpy asks for large pages for these, for those of `zeros` it does not
    made.fill(0)
    first = -made.ctypes.data % 64 // 8
    return made[first : first + numbers].reshape(-1, width)


@numba.njit(nogil=True, forceinline=True)
def packed(eights: Seen, start: Any, n: Any) -> Any:
    """The `n` bytes from `start` on as a number, 0 for none, at most eight of them; `eights` are the bytes of all texts, eight in each."""
    if n <= 0:
        return np.uint64(0)
    shift = np.uint64(8 * (start & 7))
    low = eights[start >> 3] >> shift
    word = low | eights[(start >> 3) + 1] << np.uint64(1) << (np.uint64(63) - shift)
    return word if n >= 8 else word & ((np.uint64(1) << np.uint64(8 * n)) - np.uint64(1))


@numba.njit(nogil=True, forceinline=True)
def word_of(eights: Seen, start: Any, n: Any) -> Any:
    """A word of at most WORD bytes as four numbers."""
    none = np.uint64(0)
    first = packed(eights, start, n)
    if n <= 8:
        return first, none, none, none
    second = packed(eights, start + 8, n - 8)
    if n <= 16:
        return first, second, none, none
    return first, second, packed(eights, start + 16, n - 16), packed(eights, start + 24, n - 24)


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
def holds(seen: Seen, s: Any, word: Any, n: Any) -> Any:
    """Whether entry `s` is that of a word."""
    return (
        seen[s, 0] == word[0]
        and seen[s, 1] == word[1]
        and seen[s, 2] == word[2]
        and seen[s, 3] == word[3]
        and seen[s, ABOUT] & np.uint64(0xFF) == np.uint64(n)
    )


@numba.njit(nogil=True, forceinline=True)
def recall(seen: Seen, more: Seen, line: Any, word: Any, n: Any, out: Any, at: Any) -> Any:
    """Writes the ids of a word to `out` from `at` on; how many they are, 0 when it is not there."""
    mask = np.uint64(len(seen) - 1)
    for way in range(WAYS):
        s = (line + np.uint64(way)) & mask
        if holds(seen, s, word, n):
            about = seen[s, ABOUT]
            out[at] = about >> HALF
            count = np.int64(about >> EIGHT & np.uint64(0xFF))
            row = np.int64(line >> np.uint64(40)) & (len(more) - 1)
            if count > IDS and more[row, 0] != s + np.uint64(1):
                return 0
            for k in range(1, count):
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


@numba.njit(nogil=True, forceinline=True)
def spell(data: Bytes, start: Any, end: Any, merges: Merges, room: Any, out: Any, at: Any) -> Any:
    """Writes the ids of a word that is new to `out` from `at` on; how many they are."""
    if len(merges.slots):
        number = merges.slots[token_slot(merges.slots, merges.tokens, merges.starts, data, start, end)]
        if number != NONE:
            out[at] = merges.ids[number]
            return 1
    if merges.one_way and end - start <= WORD:
        return merge_short(data, start, end, merges, room, out, at)
    return merge(data, start, end, merges, room, out, at)


@lru_cache(maxsize=1)
def encoder() -> Any:
    """The walk over texts, compiled for a caller from Python and kept on disk."""
    stamp = source_stamp(*SOURCES)

    @numba.njit(nogil=True, cache=True)
    def encode(
        eights: Seen,
        offsets: Any,
        flags: Bytes,
        shape: Shape,
        merges: Merges,
        seen: Seen,
        more: Seen,
        out: Any,
        lengths: Any,
    ) -> Any:
        _ = stamp
        data = eights.view(np.uint8)
        held = 256
        room = scratch(held)
        at = 0
        for text in range(len(offsets) - 1):
            i, end = offsets[text], offsets[text + 1]
            first = at
            while i < end:
                stop = word_end(data, i, end, flags, shape)
                n = stop - i
                count = 0
                if n <= WORD:
                    word = word_of(eights, i, n)
                    line = line_of(word, n)
                    count = recall(seen, more, line, word, n, out, at)
                    if not count:
                        count = spell(data, i, stop, merges, room, out, at)
                        remember(seen, more, line, word, n, out, at, count)
                else:
                    if n > held:
                        held = n
                        room = scratch(held)
                    count = spell(data, i, stop, merges, room, out, at)
                at += count
                i = stop
            lengths[text] = at - first
        return at

    return encode
