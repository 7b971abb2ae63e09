"""Our own engine for byte-level BPE whose words are cut by a known regular expression: GPT-2, cl100k, o200k, Llama 3, Qwen, what we train.

A text is walked once: words are cut (short_words.py, pretokens.py), AHEAD of them, then looked up among those seen (remembered.py),
and only a new one is merged (merging.py).

Pages and sources go at 48 MB/s, all checks included and beside other work on both cores, where tiktoken does 6 to 7 and fastokens 31
(benchmarks/tokenize.py). A remembered word takes 40 ns, of which 15 are for where it ends. A vocabulary takes 0.5 to 1.3 CPU seconds to
load; compiled on first use (8 CPU seconds) and kept on disk.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numba
import numpy as np

from corpusmill.pipeline.errors import ModelError
from corpusmill.pipeline.text.engines import Encoded, flat_steps
from corpusmill.pipeline.text.kernels import source_stamp
from corpusmill.pipeline.text.merging import (
    NONE,
    Merges,
    merge,
    merge_short,
    merges_of,
    scratch,
    token_slot,
)
from corpusmill.pipeline.text.pretokens import Bytes, Shape, flags_of_characters, shape_of, word_end
from corpusmill.pipeline.text.remembered import (
    CACHE_BYTES,
    LINE,
    ROW,
    ROWS,
    SPARE,
    WORD,
    Seen,
    expect,
    line_of,
    lines,
    recall,
    remember,
    word_of,
)
from corpusmill.pipeline.text.short_words import short_end

NAME = "corpusmill"

SOURCES = tuple(
    f"corpusmill.pipeline.text.{name}"
    for name in ("byte_level", "merging", "pretokens", "remembered", "short_words", "vectors")
)

AHEAD: Final = 16
"""Words that are cut before the first of them is looked up: their lines come from memory meanwhile."""


class ByteLevel:
    """A byte-level vocabulary on one thread. Raises ModelError where it is of another kind."""

    any_length = True

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
        data = np.frombuffer(bytearray().join([*parts, bytes(WORD)]), np.uint8)
        found = np.empty(size + SPARE, np.uint32)
        lengths = np.zeros(len(parts), np.int64)
        count = encoder()(data, offsets, self._flags, self._shape, self._merges, *self._seen, found, lengths)
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


@numba.njit(nogil=True, forceinline=True)
def cut(
    data: Bytes, i: Any, end: Any, flags: Bytes, shape: Shape, seen: Seen, stops: Any, hashes: Any
) -> Any:
    """Writes where up to AHEAD words from `i` on end, and their lines; how many they are."""
    found = 0
    while found < AHEAD and i < end:
        stop = short_end(data, i, end, shape)
        if stop == i:
            stop = word_end(data, i, end, flags, shape)
        line = line_of(word_of(data, i, stop - i), stop - i)
        expect(seen, line)
        stops[found], hashes[found] = stop, line
        i = stop
        found += 1
    return found


@lru_cache(maxsize=1)
def encoder() -> Any:
    """The walk over texts, compiled for a caller from Python and kept on disk."""
    stamp = source_stamp(*SOURCES)

    @numba.njit(nogil=True, cache=True)
    def encode(
        data: Bytes,
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
        held = 256
        room = scratch(held)
        stops, hashes = np.empty(AHEAD, np.int64), np.empty(AHEAD, np.uint64)
        at = 0
        for text in range(len(offsets) - 1):
            i, end = offsets[text], offsets[text + 1]
            first = at
            while i < end:
                for k in range(cut(data, i, end, flags, shape, seen, stops, hashes)):
                    stop = stops[k]
                    n = stop - i
                    word = word_of(data, i, n)
                    count = recall(seen, more, hashes[k], word, n, out, at)
                    if not count:
                        if n > held:
                            held = n
                            room = scratch(held)
                        count = spell(data, i, stop, merges, room, out, at)
                        if n <= WORD:
                            remember(seen, more, hashes[k], word, n, out, at, count)
                    at += count
                    i = stop
            lengths[text] = at - first
        return at

    return encode
