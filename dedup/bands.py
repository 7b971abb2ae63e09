"""Bands of a signature: which pairs become candidates, and how surely.

A signature of k minima is cut into `bands` of `rows`; two documents are candidates when one band is equal in all its rows. At
Jaccard similarity s that happens with probability 1 - (1 - s^rows)^bands (14 bands of 8: 0.21 at 0.6, 0.57 at 0.7, 0.92 at 0.8,
1.00 at 0.9). Candidates are verified afterwards, so bands decide about recall and cost, never about false removals.
"""

from __future__ import annotations

import numpy as np

from corpusmill.pipeline.binary import U32, U64
from corpusmill.pipeline.errors import RecipeError

CURVE = (0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
"""Similarities at which `curve` is given."""


def probability(similarity: float, bands: int, rows: int) -> float:
    """How surely a pair of this similarity becomes a candidate."""
    return float(1.0 - (1.0 - similarity**rows) ** bands)


def curve(bands: int, rows: int) -> dict[str, float]:
    return {f"{s:.2f}": round(probability(s, bands, rows), 4) for s in CURVE}


def optimum(at_least: float, hashes: int) -> tuple[int, int]:
    """(bands, rows) that datasketch takes for this threshold and signature length: least sum of false positives and negatives."""
    from datasketch import MinHashLSH

    try:
        index = MinHashLSH(threshold=at_least, num_perm=hashes)
    except ValueError as error:  # at 0.99 and more its optimum is one band
        raise RecipeError(
            f"dedup: bands: auto finds nothing for at_least {at_least} and {hashes} hashes ({error}): give bands and rows"
        ) from None
    return int(index.b), int(index.r)


def band_keys(signatures: U32, bands: int, rows: int) -> U64:
    """[documents, bands] 64-bit keys of the whole tuple and the band's number.

    Not a sum: the sum of a band's minima takes so few values on large sets that unrelated documents meet by the million.
    """
    from corpusmill.dedup import kernel

    keys = np.empty((len(signatures), bands), np.uint64)
    kernel.band_keys(np.ascontiguousarray(signatures), bands, rows, keys)
    return keys
