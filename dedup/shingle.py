"""From text to words, shingles and signatures: the specification, in plain Python, and the calls of the compiled loops.

Normalisation, version 1. A code point of classes ALPHA, NUMBER or MARK (pipeline/text/chars.py) is part of a word, in simple lower
case; one of class FORMAT (soft hyphen, joiners, byte order mark) is passed over; every other one separates words. A code point of a script without spaces (NOSPACE) is a word of its own, together with the
marks that follow it. The normalised text is the words joined by one space.

A shingle is `ngram` words in a row, joined by one space; a text of fewer words is one shingle, a text without words has none.
Its hash is built from hashes of its words, so that a step to the next word costs two multiplications. `shingle_hash` is the
published form of it: `datasketch.MinHash(num_perm=k, seed=1, scheme="affine32", hashfunc=shingle_hash)` updated with the shingles
gives the signature of `sign`. From text to signature a shingle costs 18 ns at 112 hashes, of which 4 are permutations
(one core with AVX2, benchmarks/dedup.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from corpusmill.pipeline.binary import U32
from corpusmill.pipeline.text import chars

VERSION = 1
"""Version of normalisation, shingles and hashes: signatures of other versions cannot be compared."""

PIECE_BYTES = 4 << 20
"""Text that is worked on at once: the scratch space is some six times that (a longer document makes a piece of its own)."""

SLACK = 16
"""Bytes behind normalised texts: one may be written, eight may be read."""

_MASK = (1 << 64) - 1

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Signed:
    """Per document: words, shingles, xxh3-128 of the normalised text (16 bytes each), and k minima."""

    words: U32
    shingles: U32
    content: list[bytes]
    signatures: U32


def normalise(text: str) -> str:
    """The words of `text`, joined by one space."""
    return " ".join(_words(text))


def shingles(text: str, ngram: int) -> list[bytes]:
    """UTF-8 of every shingle of `text`, in order, with repeats."""
    words = _words(text)
    if not words:
        return []
    return [" ".join(words[i : i + ngram]).encode() for i in range(max(1, len(words) - ngram + 1))]


def shingle_hash(shingle: bytes) -> int:
    """The published hash of a shingle: the upper 32 bits of `shingle_hash64`."""
    return shingle_hash64(shingle) >> 32


def shingle_hash64(shingle: bytes) -> int:
    """A polynomial over the words' hashes, mixed by MurmurHash3's finalizer."""
    total = 0
    for word in shingle.split(b" "):
        total = (total * 0xA0761D6478BD642F + _word_hash(word)) & _MASK
    return _mix64(total)


def _word_hash(word: bytes) -> int:
    """Its length, then groups of eight bytes, little-endian, folded in one after the other; the last may be short."""
    h = 0x9E3779B97F4A7C15 ^ len(word)
    for start in range(0, len(word), 8):
        h = ((h ^ int.from_bytes(word[start : start + 8], "little")) * 0xD6E8FEB86659FD93) & _MASK
        h ^= h >> 32
    return _mix64(h)


def _mix64(h: int) -> int:
    h ^= h >> 33
    h = (h * 0xFF51AFD7ED558CCD) & _MASK
    h ^= h >> 33
    h = (h * 0xC4CEB9FE1A85EC53) & _MASK
    return h ^ (h >> 33)


def _words(text: str) -> list[str]:
    words: list[str] = []
    joins = False  # a word is open
    single = False  # and it is one character of a script without spaces
    for point in map(ord, text):
        kind = int(chars.CLASS[point])
        if kind & chars.FORMAT:
            continue
        if not kind & (chars.ALPHA | chars.NUMBER | chars.MARK):
            joins = False
            continue
        mark = bool(kind & chars.MARK)
        alone = bool(kind & chars.NOSPACE) and not mark
        if not joins or alone or (single and not mark):
            words.append("")
            joins, single = True, alone
        words[-1] += chr(int(chars.LOWER[point]))
    return words


def permutations(hashes: int) -> tuple[U32, U32]:
    """The odd multipliers and the increments that datasketch draws for seed 1 and scheme affine32."""
    generator = np.random.RandomState(1)  # its own generator; numpy keeps this stream frozen
    a = generator.randint(0, 1 << 31, hashes, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    b = generator.randint(0, 1 << 32, hashes, dtype=np.uint32)
    return a, b


@cache
def tables() -> tuple[Bytes, Bytes, U32]:
    """What the loops look characters up in: the ASCII bytes, the kind of every code point, the lower case of every code point."""
    kind = np.zeros(len(chars.CLASS), np.uint8)
    inside = (chars.CLASS & (chars.ALPHA | chars.NUMBER | chars.MARK)) != 0
    mark = (chars.CLASS & chars.MARK) != 0
    kind[inside] = 1
    kind[inside & ((chars.CLASS & chars.NOSPACE) != 0)] = 3
    kind[mark] = 2
    kind[(chars.CLASS & chars.FORMAT) != 0] = 4
    ascii_table = np.where(kind[:128] != 0, chars.LOWER[:128], 32).astype(np.uint8)
    return ascii_table, kind, np.ascontiguousarray(chars.LOWER, np.uint32)


def sign(texts: pa.Array | pa.ChunkedArray, ngram: int, hashes: int) -> Signed:
    """Counts, content hash and signature of every text; a text without words has the empty signature (all 2^32 - 1)."""
    from corpusmill.dedup import kernel

    count = len(texts)
    words, lengths = np.zeros(count, np.uint32), np.zeros(count, np.uint32)
    signatures = np.full((count, hashes), 0xFFFFFFFF, np.uint32)
    content: list[bytes] = []
    a, b = permutations(hashes)
    for start, data, offsets in pieces(texts):
        rows = slice(start, start + len(offsets) - 1)
        out = np.empty(2 * int(offsets[-1] - offsets[0]) + SLACK, np.uint8)
        ends = np.zeros(len(offsets), np.int64)
        kernel.sign(
            data, offsets, *tables(), ngram, a, b, out, ends, words[rows], lengths[rows], signatures[rows]
        )
        content.extend(_content(data, offsets, out, ends))
    return Signed(words, lengths, content, signatures)


def _content(data: Bytes, offsets: Offsets, out: Bytes, ends: Offsets) -> Iterator[bytes]:
    """xxh3-128 a document (a Python loop: one call each); a text without words counts by its own bytes, so "!!!" is not "???"."""
    for row in range(len(ends) - 1):
        normalised = out[ends[row] : ends[row + 1]]
        own = data[offsets[row] : offsets[row + 1]]
        yield xxhash.xxh3_128_digest(normalised.data if len(normalised) else b"\0" + own.tobytes())


def shingle_sets(texts: pa.Array | pa.ChunkedArray, ngram: int) -> tuple[Hashes, Offsets]:
    """The set of 64-bit shingle hashes of every text, sorted: values and offsets."""
    from corpusmill.dedup import kernel, set_kernel

    values, counts = [], []
    for _, data, offsets in pieces(texts):
        capacity = int(offsets[-1] - offsets[0]) // 2 + 2 * len(offsets)
        scratch = np.empty(2 * int(np.diff(offsets).max(initial=0)) + SLACK, np.uint8)
        found, ends = np.empty(capacity, np.uint64), np.zeros(len(offsets), np.int64)
        kernel.shingle_lists(data, offsets, *tables(), ngram, scratch, found, ends)
        for row in range(len(ends) - 1):  # numpy's vectorised sort of one set beats any sort of our own
            found[ends[row] : ends[row + 1]].sort()
        unique = np.zeros(len(offsets), np.int64)
        total = set_kernel.compact(found, ends, unique)
        values.append(found[:total].copy())
        counts.append(np.diff(unique))
    ends = np.concatenate([np.zeros(1, np.int64), *counts]).cumsum()
    return np.concatenate([np.empty(0, np.uint64), *values]), ends


def pieces(texts: pa.Array | pa.ChunkedArray) -> Iterator[tuple[int, Bytes, Offsets]]:
    """(first row, data, offsets) of runs of at most PIECE_BYTES of text; the bytes are those of Arrow, not copies."""
    start = 0
    for chunk in texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]:
        chunk = chunk.cast(pa.large_string())
        _, offset_buffer, data_buffer = chunk.buffers()
        if not len(chunk):
            continue
        offsets = np.frombuffer(offset_buffer, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
        data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
        row = 0
        while row < len(chunk):
            end = int(np.searchsorted(offsets, offsets[row] + PIECE_BYTES, "right")) - 1
            end = min(max(end, row + 1), len(chunk))
            yield start + row, data, offsets[row : end + 1]
            row = end
        start += len(chunk)


def warm() -> None:
    """Compile the loops, or load them from numba's cache."""
    sign(pa.array(["warm"], pa.large_string()), 5, 8)
    shingle_sets(pa.array(["warm"], pa.large_string()), 5)
