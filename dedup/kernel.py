# mypy: ignore-errors
"""Compiled loops from text to word hashes, shingles, signatures and bands.

The types are those of the numba signatures (type checkers cannot read them). All arithmetic is unsigned and wraps; what every
number means is specified in shingle.py, which holds the same in plain Python. Import this module late: loading the compiled code
from numba's cache takes about half a second, compiling it some ten.
"""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numba.types import Array, int64, uint8, uint32, uint64, void

# numba makes float64 of uint64 + int literal and checks for wrap-around of signed indexes: typed constants avoid both.
U0 = np.uint64(0)
U1 = np.uint64(1)
U2 = np.uint64(2)
U3 = np.uint64(3)
U4 = np.uint64(4)
U8 = np.uint64(8)
U32 = np.uint64(32)
U33 = np.uint64(33)
U64 = np.uint64(64)
ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
WORD_SEED = np.uint64(0x9E3779B97F4A7C15)
WORD_PRIME = np.uint64(0xD6E8FEB86659FD93)
SHINGLE_PRIME = np.uint64(0xA0761D6478BD642F)
MIX_1 = np.uint64(0xFF51AFD7ED558CCD)
MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)
SEPARATOR, LETTER, MARK, SINGLE, IGNORED = U0, U1, U2, U3, U4
SPACE_BYTE = np.uint8(32)
ASCII_END = np.uint8(128)
TILE = 1024  # shingle hashes between two rounds of permutations: 4 KiB, within the first cache

BYTES = uint8[::1]
RUNES = uint32[::1]
HASHES = uint64[::1]
OFFSETS = int64[::1]
# What Arrow maps from a file is read-only; a signature that says so takes both kinds.
DATA_IN = Array(uint8, 1, "C", readonly=True)
OFFSETS_IN = Array(int64, 1, "C", readonly=True)


@njit(uint64(uint64), nogil=True, cache=True, inline="always")
def mix64(h):
    h ^= h >> U33
    h *= MIX_1
    h ^= h >> U33
    h *= MIX_2
    return h ^ (h >> U33)


@njit(uint64(uint64, uint64), nogil=True, cache=True, inline="always")
def fold(h, group):
    h = (h ^ group) * WORD_PRIME
    return h ^ (h >> U32)


@njit(types.UniTuple(uint64, 2)(DATA_IN, uint64, uint64), nogil=True, cache=True)
def decode(data, i, end):
    """(code point, bytes) of the UTF-8 sequence at `i`; (0, 1) where it is broken, so that bad bytes separate words."""
    lead = np.uint64(data[i])
    if lead < np.uint64(0x80):
        return lead, U1
    if lead < np.uint64(0xC0):
        return U0, U1
    length = U2
    point = lead & np.uint64(0x1F)
    if lead >= np.uint64(0xF0):
        length = U4
        point = lead & np.uint64(0x07)
    elif lead >= np.uint64(0xE0):
        length = U3
        point = lead & np.uint64(0x0F)
    if i + length > end:
        return U0, U1
    j = i + U1
    while j < i + length:
        byte = np.uint64(data[j])
        if byte & np.uint64(0xC0) != np.uint64(0x80):
            return U0, U1
        point = (point << np.uint64(6)) | (byte & np.uint64(0x3F))
        j += U1
    if point >= np.uint64(0x110000):
        return U0, U1
    return point, length


@njit(uint64(uint64, BYTES, uint64), nogil=True, cache=True)
def encode(point, out, o):
    """Write `point` as UTF-8 at out[o]; returns the position behind it."""
    low = np.uint64(0x3F)
    if point < np.uint64(0x80):
        out[o] = np.uint8(point)
        return o + U1
    if point < np.uint64(0x800):
        out[o] = np.uint8(np.uint64(0xC0) | (point >> np.uint64(6)))
        out[o + U1] = np.uint8(np.uint64(0x80) | (point & low))
        return o + U2
    if point < np.uint64(0x10000):
        out[o] = np.uint8(np.uint64(0xE0) | (point >> np.uint64(12)))
        out[o + U1] = np.uint8(np.uint64(0x80) | ((point >> np.uint64(6)) & low))
        out[o + U2] = np.uint8(np.uint64(0x80) | (point & low))
        return o + U3
    out[o] = np.uint8(np.uint64(0xF0) | (point >> np.uint64(18)))
    out[o + U1] = np.uint8(np.uint64(0x80) | ((point >> np.uint64(12)) & low))
    out[o + U2] = np.uint8(np.uint64(0x80) | ((point >> np.uint64(6)) & low))
    out[o + U3] = np.uint8(np.uint64(0x80) | (point & low))
    return o + U4


@intrinsic
def load64(typing, array, index):
    """Eight bytes of an array as a little-endian number, wherever they lie; the caller sees to it that they are there."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.gep(data, [arguments[1]])
        return builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()), align=1)

    return uint64(array, index), generate


@njit(
    types.UniTuple(uint64, 2)(DATA_IN, uint64, uint64, BYTES, BYTES, RUNES, BYTES, uint64, HASHES),
    nogil=True,
    cache=True,
)
def split(data, start, end, ascii_table, kinds, lower, out, o, ends):
    """Write the normalised text behind out[o] and where each word ends to `ends`; returns (words, position behind the text).

    `kinds` holds what a code point does (SEPARATOR, LETTER, MARK, SINGLE, IGNORED); `ascii_table` the lower case of an ASCII
    letter or digit, a space for other ASCII. A space is written when a word ends, so the last one is taken back.
    """
    first = o
    count = U0
    state = SEPARATOR  # or LETTER: in a spaced word, SINGLE: in a word of one character and its marks
    i = start
    while i < end:
        byte = data[i]
        if byte < ASCII_END and state != SINGLE:
            # No branch depends on where words end, which no processor foretells: it costs more than all the rest.
            low = ascii_table[byte]
            inside = np.uint64(low != SPACE_BYTE)
            out[o] = low
            ends[count] = o
            count += state & (inside ^ U1)
            o += inside | state
            state = inside
            i += U1
            continue
        point, length = decode(data, i, end)
        i += length
        kind = np.uint64(kinds[point])
        if kind == IGNORED:
            continue
        joins = kind == MARK or (kind == LETTER and state == LETTER)
        if state != SEPARATOR and not joins:
            ends[count] = o
            count += U1
            out[o] = SPACE_BYTE
            o += U1
            state = SEPARATOR
        if kind != SEPARATOR:
            if state == SEPARATOR:
                state = SINGLE if kind == SINGLE else LETTER
            o = encode(np.uint64(lower[point]), out, o)
    if state != SEPARATOR:
        ends[count] = o
        count += U1
    elif o > first:
        o -= U1
    return count, o


@njit(
    types.UniTuple(uint64, 2)(DATA_IN, uint64, uint64, BYTES, BYTES, RUNES, BYTES, uint64, HASHES),
    nogil=True,
    cache=True,
)
def words_of(data, start, end, ascii_table, kinds, lower, out, o, hashes):
    """As `split`, with the hash of each word; up to 8 bytes behind the text are read."""
    count, behind = split(data, start, end, ascii_table, kinds, lower, out, o, hashes)
    w = U0
    while w < count:
        stop = hashes[w]
        size = stop - o
        h = WORD_SEED ^ size
        while size > U8:
            h = fold(h, load64(out, o))
            o += U8
            size -= U8
        h = fold(h, load64(out, o) & (ALL_BITS >> (U64 - (size << U3))))
        hashes[w] = mix64(h)
        o = stop + U1
        w += U1
    return count, behind


@njit(uint64(HASHES, uint64, uint64), nogil=True, cache=True)
def shingles_of(hashes, words, ngram):
    """Replace word hashes by shingle hashes in place; returns how many (one when there are fewer words than `ngram`)."""
    if words == U0:
        return U0
    window = min(words, ngram)
    power = U1
    total = U0
    i = U0
    while i < window:
        total = total * SHINGLE_PRIME + hashes[i]
        if i > U0:
            power *= SHINGLE_PRIME
        i += U1
    leaving = hashes[U0]
    hashes[U0] = mix64(total)
    count = U1
    while i < words:
        total = (total - leaving * power) * SHINGLE_PRIME + hashes[i]
        leaving = hashes[count]
        hashes[count] = mix64(total)
        count += U1
        i += U1
    return count


@njit(uint32(uint64), nogil=True, cache=True, inline="always")
def premix(h):
    """The 32 high bits of a shingle hash through MurmurHash3's 32-bit finalizer: what the affine32 permutations are applied to."""
    x = np.uint32(h >> U32)
    x = np.uint32(x ^ (x >> np.uint32(16)))
    x = np.uint32(x * np.uint32(0x85EBCA6B))
    x = np.uint32(x ^ (x >> np.uint32(13)))
    x = np.uint32(x * np.uint32(0xC2B2AE35))
    return np.uint32(x ^ (x >> np.uint32(16)))


@njit(void(RUNES, int64, RUNES, RUNES, RUNES), nogil=True, cache=True)
def permute(mixed, count, a, b, signature):
    """Lower `signature` to the least a * h + b mod 2^32 of each permutation; eight hashes a load of a, b and the signature."""
    k = signature.shape[0]
    i = 0
    while i + 8 <= count:
        h0, h1, h2, h3 = mixed[i], mixed[i + 1], mixed[i + 2], mixed[i + 3]
        h4, h5, h6, h7 = mixed[i + 4], mixed[i + 5], mixed[i + 6], mixed[i + 7]
        for j in range(k):
            x = a[j]
            y = b[j]
            low = min(np.uint32(x * h0 + y), np.uint32(x * h1 + y))
            low = min(low, min(np.uint32(x * h2 + y), np.uint32(x * h3 + y)))
            low = min(low, min(np.uint32(x * h4 + y), np.uint32(x * h5 + y)))
            low = min(low, min(np.uint32(x * h6 + y), np.uint32(x * h7 + y)))
            signature[j] = min(signature[j], low)
        i += 8
    while i < count:
        h = mixed[i]
        for j in range(k):
            signature[j] = min(signature[j], np.uint32(a[j] * h + b[j]))
        i += 1


@njit(
    void(
        DATA_IN,
        OFFSETS_IN,
        BYTES,
        BYTES,
        RUNES,
        uint64,
        RUNES,
        RUNES,
        BYTES,
        OFFSETS,
        RUNES,
        RUNES,
        uint32[:, ::1],
    ),
    nogil=True,
    cache=True,
)
def sign(
    data, offsets, ascii_table, kinds, lower, ngram, a, b, out, out_offsets, words, shingles, signatures
):
    """Normalised text, word and shingle counts and signature of every document of an Arrow string column."""
    longest = 0
    for d in range(words.shape[0]):
        longest = max(longest, offsets[d + 1] - offsets[d])
    hashes = np.empty(longest // 2 + 2, np.uint64)
    tile = np.empty(TILE, np.uint32)
    o = U0
    for d in range(words.shape[0]):
        out_offsets[d] = np.int64(o)
        count, o = words_of(
            data, np.uint64(offsets[d]), np.uint64(offsets[d + 1]), ascii_table, kinds, lower, out, o, hashes
        )
        total = np.int64(shingles_of(hashes, count, ngram))
        words[d] = np.uint32(count)
        shingles[d] = np.uint32(total)
        done = 0
        while done < total:
            size = min(TILE, total - done)
            for i in range(size):
                tile[i] = premix(hashes[done + i])
            permute(tile, size, a, b, signatures[d])
            done += size
    out_offsets[words.shape[0]] = np.int64(o)


@njit(int64(DATA_IN, OFFSETS_IN, BYTES, BYTES, RUNES, uint64, BYTES, HASHES, OFFSETS), nogil=True, cache=True)
def shingle_lists(data, offsets, ascii_table, kinds, lower, ngram, scratch, out, out_offsets):
    """All 64-bit shingle hashes of every document, in order of the text; `scratch` takes one normalised text."""
    end = 0
    for d in range(offsets.shape[0] - 1):
        out_offsets[d] = end
        words, _ = words_of(
            data,
            np.uint64(offsets[d]),
            np.uint64(offsets[d + 1]),
            ascii_table,
            kinds,
            lower,
            scratch,
            U0,
            out[end:],
        )
        end += np.int64(shingles_of(out[end:], words, ngram))
    out_offsets[offsets.shape[0] - 1] = end
    return end


@njit(void(uint32[:, ::1], int64, int64, uint64[:, ::1]), nogil=True, cache=True)
def band_keys(signatures, bands, rows, keys):
    """A 64-bit key of all the values of each band and of its number."""
    for d in range(signatures.shape[0]):
        for band in range(bands):
            h = fold(WORD_SEED, np.uint64(band))
            for j in range(band * rows, (band + 1) * rows):
                h = fold(h, np.uint64(signatures[d, j]))
            keys[d, band] = mix64(h)
