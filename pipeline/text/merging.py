"""Byte-pair merging of one word, as a kernel that gives the ids of `tokenizers`: the pair of lowest rank first, the leftmost of equals.

A heap holds the pairs that may merge, so that a word of a megabyte takes time in proportion to its length and its logarithm. An
entry whose letters have changed counts all the same where the pair that now stands there makes the same token: `tokenizers` has
it so, and it matters where a vocabulary has two ways to one token. Where none has, short words do without the heap.

A new word of 9 bytes takes 1.2 to 1.4 us, with all that byte_level.py does for it, beside other work.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.text.pretokens import Bytes
from corpusmill.pipeline.text.rank_files import byte_letters

Pairs = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]

MIX: Final = np.uint64(0x9E3779B97F4A7C15)
ID_BITS: Final = 21
RANK_BITS: Final = 22
RANK: Final = np.uint64((1 << RANK_BITS) - 1)
FREE: Final = np.uint64(0xFFFFFFFFFFFFFFFF)

NONE: Final = -1
"""No such pair; a symbol that has gone into its left neighbour."""


class Merges(NamedTuple):
    """A vocabulary's merges and, where a word that is a token is that token, its tokens: tables, in a tuple that kernels take."""

    letters: Numbers  # id of each byte
    pairs: Pairs  # both ids of a pair and its rank, ID_BITS each and RANK_BITS; FREE is a free slot
    beside: Numbers  # [256 * 256]: rank of two bytes
    one_way: bool  # no two pairs make one token
    made: Numbers  # by rank, the id that a pair becomes
    tokens: Bytes  # of all tokens end to end
    starts: npt.NDArray[np.int64]
    ids: Numbers
    slots: Numbers  # numbers of tokens, by the hash of their bytes; none at all where merging alone counts


def merges_of(model: dict[str, Any]) -> Merges:
    """Tables of the `model` of a tokenizer.json. KeyError where a merge, or the letter of a byte, is not in the vocabulary."""
    if max(model["vocab"].values()) >= 1 << ID_BITS or len(model["merges"]) >= 1 << RANK_BITS:
        raise ValueError("more tokens or merges than the tables have bits for")
    vocab: dict[str, int] = model["vocab"]
    letters = byte_letters()
    ranks: dict[int, int] = {}
    made = np.zeros(max(1, len(model["merges"])), np.int32)
    for rank, merge in enumerate(model["merges"]):
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        ranks[vocab[left] << ID_BITS | vocab[right]] = rank
        made[rank] = vocab[left + right]
    pairs = np.full(_slots(len(ranks)), FREE)
    fill_pairs(pairs, np.array([pair << RANK_BITS | rank for pair, rank in ranks.items()], np.uint64))
    of_bytes = np.array([vocab[letter] for letter in letters], np.int32)
    beside = np.zeros(256 * 256, np.int32)
    fill_beside(beside, of_bytes, pairs)
    byte_of = {letter: byte for byte, letter in enumerate(letters)}
    spelt = [
        (bytes(map(byte_of.__getitem__, token)), number)
        for token, number in (vocab.items() if model.get("ignore_merges") else ())
        if token and byte_of.keys() >= set(token)
    ]
    starts = np.zeros(len(spelt) + 1, np.int64)
    np.cumsum([len(token) for token, _ in spelt], out=starts[1:])
    tokens = np.frombuffer(b"".join(token for token, _ in spelt), np.uint8).copy()
    slots = np.full(_slots(len(spelt)) if spelt else 0, NONE, np.int32)
    fill_tokens(slots, tokens, starts)
    return Merges(
        of_bytes,
        pairs,
        beside,
        len(np.unique(made)) == len(made),
        made,
        tokens,
        starts,
        np.array([number for _, number in spelt], np.int32),
        slots,
    )


def _slots(count: int) -> int:
    """A power of two of which at most half are taken."""
    return 1 << max(4, (2 * count - 1).bit_length())


@numba.njit(nogil=True, cache=True)  # all that it calls is of this file
def fill_pairs(pairs: Pairs, entries: Pairs) -> None:
    for entry in entries:
        pairs[pair_slot(pairs, entry >> np.uint64(RANK_BITS))] = entry


@numba.njit(nogil=True, cache=True)  # all that it calls is of this file
def fill_beside(beside: Numbers, letters: Numbers, pairs: Pairs) -> None:
    for left in range(256):
        for right in range(256):
            beside[left << 8 | right] = rank_of(pairs, letters[left], letters[right])


@numba.njit(nogil=True, forceinline=True)
def pair_slot(pairs: Pairs, pair: Any) -> Any:
    """Where a pair is, or the free slot that it would take."""
    mask = np.uint64(len(pairs) - 1)
    mixed = pair * MIX
    slot = (mixed >> np.uint64(32)) & mask
    while pairs[slot] != FREE and pairs[slot] >> np.uint64(RANK_BITS) != pair:
        slot = (slot + np.uint64(1)) & mask
    return slot


@numba.njit(nogil=True, forceinline=True)
def rank_of(pairs: Pairs, left: Any, right: Any) -> Any:
    """Rank of the merge of two ids; NONE where they do not merge."""
    entry = pairs[pair_slot(pairs, np.uint64(left) << np.uint64(ID_BITS) | np.uint64(right))]
    return np.int64(NONE) if entry == FREE else np.int64(entry & RANK)


@numba.njit(nogil=True, forceinline=True)
def bytes_hash(data: Bytes, start: Any, end: Any) -> Any:
    mixed = np.uint64(end - start)
    for i in range(start, end):
        mixed = (mixed ^ np.uint64(data[i])) * MIX
        mixed ^= mixed >> np.uint64(29)
    return mixed


@numba.njit(nogil=True, forceinline=True)
def token_slot(slots: Numbers, tokens: Bytes, starts: Any, data: Bytes, start: Any, end: Any) -> Any:
    """Where the token that data[start:end] spells is, or the free slot that it would take."""
    mask = np.uint64(len(slots) - 1)
    slot = bytes_hash(data, start, end) & mask
    while slots[slot] != NONE:
        first = starts[slots[slot]]
        same = starts[slots[slot] + 1] - first == end - start
        i = 0
        while same and i < end - start:
            same = tokens[first + i] == data[start + i]
            i += 1
        if same:
            break
        slot = (slot + np.uint64(1)) & mask
    return slot


@numba.njit(nogil=True, cache=True)  # all that it calls is of this file
def fill_tokens(slots: Numbers, tokens: Bytes, starts: Any) -> None:
    for n in range(len(starts) - 1):
        slots[token_slot(slots, tokens, starts, tokens, starts[n], starts[n + 1])] = n


@numba.njit(nogil=True)
def push(heap: Pairs, size: Any, entry: Any) -> Any:
    """Puts an entry among the `size` that are there; how many there are then."""
    at = size
    while at > 0 and heap[(at - 1) >> 1] > entry:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = entry
    return size + 1


@numba.njit(nogil=True)
def pop(heap: Pairs, size: Any) -> Any:
    """Takes the lowest entry, heap[0], away; how many are left."""
    size -= 1
    last = heap[size]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= last:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = last
    return size


@numba.njit(nogil=True)
def scratch(size: Any) -> Any:
    """What merging a word of `size` bytes writes to: symbols, both neighbours of each, and the heap."""
    return np.empty(size, np.int32), np.empty((2, size), np.int32), np.empty(3 * size, np.uint64)


@numba.njit(nogil=True)
def push_pair(heap: Pairs, size: Any, pairs: Pairs, left: Any, right: Any, at: Any) -> Any:
    """Puts the merge of two ids at `at` on the heap, if there is one."""
    rank = rank_of(pairs, left, right)
    if rank == NONE:
        return size
    return push(heap, size, np.uint64(rank) << np.uint64(32) | np.uint64(at))


@numba.njit(nogil=True, forceinline=True)
def merge_short(data: Bytes, start: Any, end: Any, merges: Merges, room: Any, out: Any, at: Any) -> Any:
    """As `merge`, for a vocabulary that is `one_way`: looking at all pairs each time is faster as long as they are few."""
    symbols, links, _ = room
    letters, pairs, beside, made = merges.letters, merges.pairs, merges.beside, merges.made
    n = end - start
    last = n - 1
    ranks = links[0]
    for i in range(n):
        symbols[i] = letters[data[start + i]]
    for i in range(last):
        ranks[i] = beside[np.int64(data[start + i]) << 8 | np.int64(data[start + i + 1])]
    while last > 0:
        lowest, where = np.int32(0x7FFFFFFF), 0
        for i in range(last):
            if ranks[i] != NONE and ranks[i] < lowest:
                lowest, where = ranks[i], i
        if lowest == np.int32(0x7FFFFFFF):
            break
        token = made[lowest]
        symbols[where] = token
        for i in range(where + 1, last):
            symbols[i] = symbols[i + 1]
            ranks[i] = ranks[i + 1]
        last -= 1
        if where < last:
            ranks[where] = rank_of(pairs, token, symbols[where + 1])
        if where:
            ranks[where - 1] = rank_of(pairs, symbols[where - 1], token)
    for i in range(last + 1):
        out[at + i] = symbols[i]
    return last + 1


@numba.njit(nogil=True)
def merge(data: Bytes, start: Any, end: Any, merges: Merges, room: Any, out: Any, at: Any) -> Any:
    """Writes the ids of the word data[start:end] to `out` from `at` on; how many they are. `room` is a scratch of its size or more."""
    symbols, links, heap = room
    pairs, made = merges.pairs, merges.made
    n = end - start
    size = 0
    i: Any = 0
    for i in range(n):
        symbols[i] = merges.letters[data[start + i]]
        links[0, i] = i - 1
        links[1, i] = i + 1
        if i:
            size = push_pair(heap, size, pairs, symbols[i - 1], symbols[i], i - 1)
    while size:
        entry = heap[0]
        size = pop(heap, size)
        i = np.int64(entry & np.uint64(0xFFFFFFFF))
        right = links[1, i]
        if symbols[i] == NONE or right == n:
            continue
        rank = rank_of(pairs, symbols[i], symbols[right])
        token = made[np.int64(entry >> np.uint64(32))]
        if rank == NONE or made[rank] != token:
            continue
        symbols[i] = token
        symbols[right] = NONE
        before, after = links[0, i], links[1, right]
        links[1, i] = after
        if after < n:
            links[0, after] = i
            size = push_pair(heap, size, pairs, token, symbols[after], i)
        if before >= 0:
            size = push_pair(heap, size, pairs, symbols[before], token, before)
    count, i = 0, 0
    while i < n:
        out[at + count] = symbols[i]
        count += 1
        i = np.int64(links[1, i])
    return count
