"""A proxy without training: n-gram counts, from which the loss of any mixture on any target follows in closed form.

    tables = Tables.of({"books": documents}, {"books": sizes_bytes}, vocabulary)    # documents: arrays of token ids
    counts = tables.count(tokens)                            # one pass over a component; counts of parts add up
    screen = Screen.of(tables, [counts_of_web, counts_of_code])
    screen.losses(weights, learnt=10_000)                    # bits per byte [mixtures, targets]

A token's probability after the three before it backs off by Dirichlet smoothing (MacKay and Peto 1995):
(N·count + strength·p(token | two before)) / (N·context + strength), counts being per token of the mixture. N (`learnt`) is how many tokens
the model has learnt from. It is a knob of fidelity and not the budget: counts learn from fewer tokens than a network, so that the
order of mixtures is a network's only when N is far below what that was trained on; `calibrated` finds it from a few trained runs.
Repetition does not exist here: a component is a distribution, however small.

Memory: only n-grams that occur in a target are counted (8 bytes each, for every component), whatever the components' sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Halves = npt.NDArray[np.float32]
Hashes = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]

ORDER = 4  # the predicted token and three before it

STRENGTH = 4.0  # tokens of evidence for which the shorter context stands

CHUNK = 1 << 18  # tokens hashed at once

SIEVE_BITS = 22  # most n-grams that no target has are turned away by one look into 4 MiB

CELLS = 1 << 22  # probabilities in work at once: 16 MiB each of a few arrays


@dataclass(frozen=True)
class _Grams:
    """The n-grams of one order that occur in targets, by hash; where their first and their last n - 1 tokens stand, an order below."""

    hashes: Hashes
    sieve: npt.NDArray[np.bool_]
    context: Indices
    shorter: Indices

    def count(self, hashes: Hashes) -> Indices:
        if not len(self.hashes):
            return np.zeros(0, np.int64)
        hashes = hashes[self.sieve[_sieve_place(hashes)]]
        place = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.bincount(place[self.hashes[place] == hashes], minlength=len(self.hashes))


@dataclass(frozen=True)
class Counts:
    """How often the targets' n-grams occur in some tokens, order by order."""

    tokens: int
    orders: tuple[Indices, ...]

    def __add__(self, other: Counts) -> Counts:
        orders = tuple(a + b for a, b in zip(self.orders, other.orders, strict=True))
        return Counts(self.tokens + other.tokens, orders)


@dataclass(frozen=True)
class Tables:
    """What is to be predicted: the targets' documents as n-grams.

    A document's first tokens have less before them and end at a lower order; `ends` lists, order by order, the n-grams that
    predict some token; `uses` [documents, ends] says how often each document needs each, `target_uses` the same of targets.
    """

    targets: tuple[str, ...]
    documents: tuple[int, ...]  # of each target
    size_bytes: Floats  # of each document, targets one after the other
    vocabulary: int
    grams: tuple[_Grams, ...]
    ends: tuple[Indices, ...]
    uses: Any  # scipy.sparse.csr_array
    target_uses: Floats

    @classmethod
    def of(
        cls,
        targets: Mapping[str, Sequence[npt.NDArray[Any]]],
        size_bytes: Mapping[str, Sequence[int]],
        vocabulary: int,
    ) -> Tables:
        """From token ids of whole documents and their sizes as text in bytes."""
        every = [np.asarray(document) for name in targets for document in targets[name]]
        hashed = [_hashes(document, ORDER) for document in every]
        grams: list[_Grams] = []
        for order in range(ORDER):
            grams.append(_grams(hashed, order, grams))
        ends, uses = _ends(hashed, grams)
        documents = tuple(len(targets[name]) for name in targets)
        sizes = np.array([size for name in targets for size in size_bytes[name]], np.float64)
        parts = np.split(np.arange(len(every)), np.cumsum(documents)[:-1])
        of_targets = np.array([uses[part].sum(axis=0) for part in parts], np.float64)
        return cls(tuple(targets), documents, sizes, vocabulary, tuple(grams), ends, uses, of_targets)

    def count(self, tokens: npt.NDArray[Any]) -> Counts:
        """Of a run of tokens, or of rows of them (whose ends do not meet)."""
        rows = np.atleast_2d(tokens)
        total = [np.zeros(len(grams.hashes), np.int64) for grams in self.grams]
        height = max(1, CHUNK // max(1, rows.shape[1]))
        for top in range(0, len(rows), height):
            for left in range(0, rows.shape[1], CHUNK):
                self._count(rows[top : top + height], left, total)
        return Counts(rows.size, tuple(total))

    def _count(self, rows: npt.NDArray[Any], left: int, total: list[Indices]) -> None:
        before = min(left, ORDER - 1)  # tokens of the chunk before that n-grams of this one begin with
        hashed = _hashes(rows[:, left - before : left + CHUNK], ORDER)
        for order, (grams, hashes) in enumerate(zip(self.grams, hashed, strict=True)):
            total[order] += grams.count(hashes[:, max(0, before - order) :].ravel())


@dataclass(frozen=True)
class Screen:
    """Components' rates (counts per token, [n-grams, components]) of every order: all that a mixture's loss needs."""

    tables: Tables
    rates: tuple[Halves, ...]
    strength: float = STRENGTH

    @classmethod
    def of(cls, tables: Tables, counts: Sequence[Counts], strength: float = STRENGTH) -> Screen:
        rates = tuple(
            np.column_stack([each.orders[order] / max(1, each.tokens) for each in counts]).astype(np.float32)
            for order in range(ORDER)
        )
        return cls(tables, rates, strength)

    def losses(self, weights: Floats, learnt: float) -> Floats:
        """Bits per byte of mixtures [k, m] on every target: [k, targets]."""
        first = np.cumsum((0, *self.tables.documents[:-1]))
        return self._bits(weights, learnt, self.tables.target_uses) / np.add.reduceat(
            self.tables.size_bytes, first
        )

    def document_bits(self, weights: Floats, learnt: float) -> dict[str, Floats]:
        """Bits of every document under mixtures [k, m]: target -> [k, documents]."""
        bits = self._bits(weights, learnt, self.tables.uses)
        parts = np.split(bits, np.cumsum(self.tables.documents)[:-1], axis=1)
        return dict(zip(self.tables.targets, parts, strict=True))

    def _bits(self, weights: Floats, learnt: float, uses: Any) -> Floats:
        weights = np.atleast_2d(np.asarray(weights, np.float64))
        at_once = max(1, CELLS // max(len(rates) for rates in self.rates))
        return np.concatenate(
            [
                -(uses @ np.log2(self._probabilities(weights[start : start + at_once], learnt))).T
                for start in range(0, len(weights), at_once)
            ]
        )

    def _probabilities(self, weights: Floats, learnt: float) -> Halves:
        """Of the n-grams of `ends`: [ends, k]."""
        found: list[Halves] = []
        scaled = (learnt * weights.T).astype(np.float32)
        strength = np.float32(self.strength)
        context = np.full(
            (1, len(weights)), learnt, np.float32
        )  # before the first token stands all that was learnt
        lower = np.full((1, len(weights)), 1 / self.tables.vocabulary, np.float32)
        for grams, rates, ends in zip(self.tables.grams, self.rates, self.tables.ends, strict=True):
            count = rates @ scaled
            lower = lower[grams.shorter]
            lower *= strength
            lower += count
            context = context[grams.context]
            context += strength
            lower /= context
            context = count
            found.append(lower[ends])
        return np.concatenate(found)


def calibrated(screen: Screen, weights: Floats, losses: Floats, grid: Sequence[float]) -> float:
    """The `learnt` of `grid` with which the screen orders trained mixtures [k, m] best (their losses: [k, targets], nan if none):
    by rank correlation, averaged over targets; the smallest if several do."""
    return max(grid, key=lambda learnt: (agreement(screen.losses(weights, learnt), losses), -learnt))


def agreement(said: Floats, found: Floats) -> float:
    """Rank correlation of losses [k, targets], averaged over targets with three values or more."""
    from scipy.stats import spearmanr

    each = []
    for one, other in zip(said.T, found.T, strict=True):
        both = np.isfinite(one) & np.isfinite(other)
        if both.sum() >= 3 and np.ptp(one[both]) > 0 and np.ptp(other[both]) > 0:
            each.append(float(spearmanr(one[both], other[both]).statistic))
    return float(np.mean(each)) if each else float("nan")


def _hashes(tokens: npt.NDArray[Any], orders: int) -> list[Hashes]:
    """Of each order, a hash of every n-gram along the last axis, in its place."""
    ids = tokens.astype(np.uint64) + np.uint64(1)
    found, plain = [], ids
    for order in range(orders):
        if order:
            plain = plain[..., :-1] * _STEP + ids[..., order:]
        found.append(_mixed(plain + np.uint64(order)))
    return found


_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


def _mixed(values: Hashes) -> Hashes:
    """All bits of the sum into the upper ones, by which hashes are sieved (the finish of splitmix64, one round)."""
    values = (values ^ (values >> np.uint64(30))) * _MIX
    return np.asarray(values ^ (values >> np.uint64(27)))


def _sieve_place(hashes: Hashes) -> Indices:
    return (hashes >> np.uint64(64 - SIEVE_BITS)).astype(np.int64)


def _grams(hashed: Sequence[Sequence[Hashes]], order: int, below: Sequence[_Grams]) -> _Grams:
    hashes, first = np.unique(np.concatenate([each[order] for each in hashed]), return_index=True)
    sieve = np.zeros(1 << SIEVE_BITS, np.bool_)
    sieve[_sieve_place(hashes)] = True
    if not order:
        nowhere = np.zeros(len(hashes), np.int64)
        return _Grams(hashes, sieve, nowhere, nowhere)
    # Documents with fewer tokens have no n-gram here, and one of n - 1 at most: nothing is left of it either.
    context = np.concatenate([each[order - 1][:-1] for each in hashed])[first]
    shorter = np.concatenate([each[order - 1][1:] for each in hashed])[first]
    known = below[-1].hashes
    return _Grams(hashes, sieve, np.searchsorted(known, context), np.searchsorted(known, shorter))


def _ends(hashed: Sequence[Sequence[Hashes]], grams: Sequence[_Grams]) -> tuple[tuple[Indices, ...], Any]:
    from scipy.sparse import csr_array

    rows, columns, ends, width = [], [], [], 0
    for order, of_order in enumerate(grams):
        last = (
            None if order == ORDER - 1 else 1
        )  # below the highest order only a document's first n-gram predicts
        used = [each[order][:last] for each in hashed]
        places = np.searchsorted(of_order.hashes, np.concatenate(used))
        kinds, column = np.unique(places, return_inverse=True)
        rows.append(np.repeat(np.arange(len(hashed)), [len(each) for each in used]))
        columns.append(column + width)
        ends.append(kinds)
        width += len(kinds)
    row, column = np.concatenate(rows), np.concatenate(columns)
    return tuple(ends), csr_array((np.ones(len(row)), (row, column)), shape=(len(hashed), width))
