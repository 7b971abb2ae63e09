"""How far synthetic text is from natural text: what a reader of millions of documents would notice, from a sample of token ids.

    auc              chance that a classifier tells a synthetic piece from a natural one of another document: 0.5 it cannot, 1 always
    distinct         different n-grams to all n-grams of the sample, for n of 1 to 4: falls when a model says the same again
    self_repetition  share of n-grams of 4 tokens that stand in another document of the sample too

All three move with the size of a sample and the length of its texts, so both sides are cut into pieces of equal length and as many of
them; each figure stands beside that of natural text against natural text, which is the zero of its scale. The classifier is logistic
regression on hashed tokens and pairs of them, judged on documents that it has not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.errors import InputError

Tokens = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Hashes = npt.NDArray[np.uint64]

PIECE = 128  # tokens
MOST_PIECES = 2_000
LEAST_DOCUMENTS = 10  # of each side, or held-out documents say nothing
FOLDS = 5
BUCKETS = 1 << 16  # of hashed tokens and pairs
REPEATED = 4
NGRAMS = (1, 2, 3, 4)


@dataclass(frozen=True)
class Variety:
    """Of one sample: `distinct` of n-grams of 1, 2, 3 and 4 tokens, and the share of those of 4 that other documents have."""

    distinct: tuple[float, ...]
    self_repetition: float


@dataclass(frozen=True)
class Distance:
    """Of a synthetic sample from a natural one of as many `pieces`; `natural_auc` is of two halves of the natural one (0.5 is expected)."""

    pieces: int
    auc: float
    natural_auc: float
    synthetic: Variety
    natural: Variety


@dataclass(frozen=True)
class _Pieces:
    """Pieces of `PIECE` tokens, and the document of each."""

    tokens: npt.NDArray[np.uint64]  # [pieces, PIECE]
    document: npt.NDArray[np.int64]

    def taken(self, count: int) -> _Pieces:
        return _Pieces(self.tokens[:count], self.document[:count])


def distance(natural: Sequence[Tokens], synthetic: Sequence[Tokens], seed: int) -> Distance:
    """From token ids of whole documents; InputError where one side has too few that are long enough."""
    cut = [
        _pieces(side, np.random.Generator(np.random.PCG64([seed, number])))
        for number, side in enumerate((natural, synthetic))
    ]
    for name, pieces in zip(("natural", "synthetic"), cut, strict=True):
        found = len(np.unique(pieces.document))
        if found < LEAST_DOCUMENTS:
            raise InputError(
                f"the {name} text has {found} documents of {PIECE} tokens and more, {LEAST_DOCUMENTS} are needed to tell how far "
                "synthetic text is from it: give more documents"
            )
    count = min(len(cut[0].tokens), len(cut[1].tokens))
    ours, theirs = cut[0].taken(count), cut[1].taken(count)
    half = np.unique(cut[0].document)[::2]
    even = np.isin(cut[0].document, half)
    halves = [_Pieces(cut[0].tokens[side], cut[0].document[side]) for side in (even, ~even)]
    return Distance(
        count,
        auc(ours, theirs, seed),
        auc(halves[0], halves[1], seed),
        _variety(theirs),
        _variety(ours),
    )


def auc(first: _Pieces, second: _Pieces, seed: int) -> float:
    """Mean over folds of documents; two pieces of one document are never on both sides of a fold."""
    from sklearn.linear_model import LogisticRegression

    from corpusmill.mixing.threads import one_thread

    features = _features(np.concatenate([first.tokens, second.tokens]))
    label = np.repeat([0, 1], [len(first.tokens), len(second.tokens)])
    fold = np.concatenate(
        [_folds(side.document, seed + number) for number, side in enumerate((first, second))]
    )
    scores = []
    with one_thread():
        for each in range(FOLDS):
            held = fold == each
            model = LogisticRegression(C=10.0, max_iter=200).fit(features[~held], label[~held])
            scores.append(_area(model.decision_function(features[held]), label[held]))
    return float(np.mean(scores))


def _area(scores: Floats, label: npt.NDArray[np.int64]) -> float:
    """Chance that one of label 1 scores above one of label 0; ties count half."""
    from scipy.stats import rankdata

    ones = int(label.sum())
    zeros = len(label) - ones
    return float((rankdata(scores)[label == 1].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def _folds(document: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.int64]:
    """The fold of each piece by its document, dealt out in an order drawn from the seed."""
    numbers, place = np.unique(document, return_inverse=True)
    order = np.random.Generator(np.random.PCG64([seed, len(numbers)])).permutation(len(numbers))
    return np.asarray((order % FOLDS)[place])


def _features(tokens: npt.NDArray[np.uint64]) -> Any:
    """Rows of unit length: 1 for every hashed token and pair that a piece has."""
    from scipy.sparse import csr_array

    hashed = np.concatenate([_ngrams(tokens, n) for n in (1, 2)], axis=1)
    bucket = np.sort((hashed >> np.uint64(48)).astype(np.int64) % BUCKETS, axis=1)
    first = np.concatenate([np.ones((len(bucket), 1), np.bool_), bucket[:, 1:] != bucket[:, :-1]], axis=1)
    ends = np.concatenate([[0], np.cumsum(first.sum(axis=1))])
    values = np.repeat(1 / np.sqrt(first.sum(axis=1)), first.sum(axis=1))
    return csr_array((values, bucket[first], ends), shape=(len(bucket), BUCKETS))


def _variety(pieces: _Pieces) -> Variety:
    distinct = []
    for n in NGRAMS:
        hashes = _ngrams(pieces.tokens, n)
        distinct.append(len(np.unique(hashes)) / hashes.size)
    hashes = _ngrams(pieces.tokens, REPEATED)
    document = np.repeat(pieces.document, hashes.shape[1])
    return Variety(tuple(distinct), _shared(hashes.ravel(), document))


def _shared(hashes: Hashes, document: npt.NDArray[np.int64]) -> float:
    """Share of places whose n-gram another document has too."""
    _, kind = np.unique(hashes, return_inverse=True)
    least = np.full(kind.max() + 1, np.iinfo(np.int64).max)
    most = np.full(kind.max() + 1, -1)
    np.minimum.at(least, kind, document)
    np.maximum.at(most, kind, document)
    return float(np.mean((least < most)[kind]))


def _pieces(documents: Iterable[Tokens], generator: np.random.Generator) -> _Pieces:
    """At most MOST_PIECES, drawn from all whole ones, in the order of the draw."""
    tokens, numbers = [], []
    for number, document in enumerate(documents):
        whole = len(document) // PIECE
        tokens.append(np.asarray(document[: whole * PIECE], np.uint64).reshape(whole, PIECE))
        numbers.append(np.full(whole, number, np.int64))
    every = np.concatenate([np.zeros((0, PIECE), np.uint64), *tokens])
    chosen = generator.permutation(len(every))[:MOST_PIECES]
    return _Pieces(every[chosen], np.concatenate([np.zeros(0, np.int64), *numbers])[chosen])


def _ngrams(tokens: npt.NDArray[np.uint64], n: int) -> Hashes:
    """A hash of every n-gram of each row, in its place."""
    found = np.full_like(tokens[:, n - 1 :], n)
    for place in range(n):
        found = (found ^ tokens[:, place : tokens.shape[1] - n + 1 + place]) * np.uint64(0x9E3779B97F4A7C15)
        found ^= found >> np.uint64(32)
    return found * np.uint64(0xD6E8FEB86659FD93)
