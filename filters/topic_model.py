"""Topics of a sample of texts: TF-IDF over hashed terms, and k-means on its directions (Dhillon and Modha 2001).

All sums are of sparse rows in one order and one thread, every draw comes from the seed: the same sample gives the same topics.
A topic is called by its two heaviest terms and a hash of its twenty, so a name says what it holds and holds it as long as it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from corpusmill.filters.terms import BUCKETS, Terms, terms_of

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

NONE = "none"
"""Of a text without a term that the sample knows."""

STARTS = 4
MOST_STEPS = 40
LEAST_DOCUMENTS = 5  # a topic, on average: with fewer texts there are fewer topics
COMMON = 0.4  # share of texts from which a term says nothing
NAMED, HASHED = 2, 20  # terms

BATCH = 256  # texts at once: 4 million characters at the most


@dataclass(frozen=True)
class Topic:
    name: str
    documents: int  # of the sample
    terms: tuple[str, ...]  # heaviest first


@dataclass(frozen=True, eq=False)
class TopicModel:
    """`idf` is 0 for terms that are passed over; `centroids` [topics, BUCKETS] are of unit length, in the order of `topics`."""

    topics: tuple[Topic, ...]
    idf: Floats
    centroids: Floats

    def assign(self, texts: Sequence[str]) -> list[str]:
        """The name of the nearest topic of each text."""
        names = [topic.name for topic in self.topics]
        found: list[str] = []
        for first in range(0, len(texts), BATCH):
            weights = terms_of(list(texts[first : first + BATCH])).weights()
            scores = weights @ (self.centroids * self.idf).T
            known = (weights @ (self.idf > 0)) > 0
            best = scores.argmax(axis=1) if names else np.zeros(len(known), np.int64)
            found += [names[at] if names and has else NONE for at, has in zip(best, known, strict=True)]
        return found


def fit_topics(texts: Sequence[str], count: int, seed: int) -> TopicModel:
    """At most `count` topics; fewer texts than LEAST_DOCUMENTS for each have fewer."""
    from scipy.sparse import csr_array, vstack

    batches = [terms_of(list(texts[at : at + BATCH])) for at in range(0, len(texts), BATCH)]
    counts = vstack([csr_array((0, BUCKETS)), *(terms.weights() for terms in batches)], format="csr")
    idf = _idf(counts, len(texts))
    rows = _unit(_scaled(counts, idf))
    known = np.flatnonzero(np.diff(rows.indptr))
    topics = min(count, len(known) // LEAST_DOCUMENTS or min(1, len(known)))
    if not topics:
        return TopicModel((), idf, np.zeros((0, BUCKETS)))
    best: tuple[float, Indices, Floats] | None = None
    for start in range(STARTS):
        found = _k_means(rows[known], topics, np.random.Generator(np.random.PCG64([seed, start])))
        if best is None or found[0] > best[0]:
            best = found
    assert best is not None
    _, label, centroids = best
    named = [
        (_named(centroids[each], batches), centroids[each], int(np.count_nonzero(label == each)))
        for each in range(topics)
        if np.any(label == each)
    ]
    ordered = sorted(named, key=lambda item: (-item[2], item[0]))
    return TopicModel(
        tuple(Topic(name, documents, terms) for (name, terms), _, documents in ordered),
        idf,
        np.array([centroid for _, centroid, _ in ordered]),
    )


def _idf(counts: Any, documents: int) -> Floats:
    """log(n / texts that have it); 0 for terms of a single text and of more than COMMON of all."""
    frequency = np.bincount(counts.indices, minlength=BUCKETS)
    least, most = (2 if documents >= 2 * LEAST_DOCUMENTS else 1), max(1.0, COMMON * documents)
    used = (frequency >= least) & (frequency <= most)
    return np.where(used, np.log((1 + documents) / np.maximum(frequency, 1)), 0.0)


def _scaled(counts: Any, idf: Floats) -> Any:
    from scipy.sparse import csr_array

    scaled = csr_array((counts.data * idf[counts.indices], counts.indices, counts.indptr), shape=counts.shape)
    scaled.eliminate_zeros()
    return scaled


def _unit(rows: Any) -> Any:
    from scipy.sparse import csr_array

    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    length = np.sqrt(np.bincount(row, rows.data**2, minlength=rows.shape[0]))
    return csr_array((rows.data / length[row], rows.indices, rows.indptr), shape=rows.shape)


def _k_means(rows: Any, topics: int, generator: np.random.Generator) -> tuple[float, Indices, Floats]:
    """(sum of cosines with the own centroid, topic of each row, centroids); begins as k-means++ does."""
    centroids = _first(rows, topics, generator)
    label = np.full(rows.shape[0], -1, np.int64)
    score = 0.0
    for _ in range(MOST_STEPS):
        cosines = rows @ centroids.T
        nearest = cosines.argmax(axis=1)
        score = float(cosines.max(axis=1).sum())
        if np.array_equal(nearest, label):
            break
        label = nearest
        centroids = _means(rows, label, centroids)
    return score, label, centroids


def _first(rows: Any, topics: int, generator: np.random.Generator) -> Floats:
    chosen = [int(generator.integers(rows.shape[0]))]
    far = np.full(rows.shape[0], np.inf)
    for _ in range(1, topics):
        cosine = np.asarray((rows @ rows[[chosen[-1]]].T).todense()).ravel()
        far = np.minimum(far, np.maximum(0.0, 1.0 - cosine))
        far[chosen] = 0.0
        upper = np.cumsum(far)
        at = np.searchsorted(upper, generator.random() * upper[-1], side="right")
        chosen.append(int(min(at, len(far) - 1)))
    return np.asarray(rows[chosen].todense())


def _means(rows: Any, label: Indices, before: Floats) -> Floats:
    """Directions of the sums; a topic that lost all its rows stays where it was."""
    from scipy.sparse import csr_array

    ones = csr_array((np.ones(len(label)), (label, np.arange(len(label)))), shape=(len(before), len(label)))
    sums = np.asarray((ones @ rows).todense())
    length = np.sqrt((sums**2).sum(axis=1))
    return np.where(length[:, None] > 0, sums / np.maximum(length, 1e-12)[:, None], before)


def _named(centroid: Floats, batches: Sequence[Terms]) -> tuple[str, tuple[str, ...]]:
    heaviest = np.lexsort((np.arange(BUCKETS), -centroid))[:HASHED]
    heaviest = heaviest[centroid[heaviest] > 0]
    spelt = _spellings(heaviest, batches)
    terms = tuple(spelt[int(bucket)] for bucket in heaviest)
    return (
        f"{'-'.join(terms[:NAMED])}-{xxhash.xxh3_64_hexdigest(' '.join(sorted(terms)).encode())[:6]}",
        terms,
    )


def _spellings(buckets: Indices, batches: Sequence[Terms]) -> dict[int, str]:
    """The most frequent spelling of each bucket, of equals the first in order."""
    counts: dict[int, dict[str, int]] = {int(bucket): {} for bucket in buckets}
    for terms in batches:
        for place in np.flatnonzero(np.isin(terms.bucket, buckets)).tolist():
            of_bucket = counts[int(terms.bucket[place])]
            word = terms.spelling(place)
            of_bucket[word] = of_bucket.get(word, 0) + 1
    return {bucket: min(found, key=lambda word: (-found[word], word)) for bucket, found in counts.items()}
