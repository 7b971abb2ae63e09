"""Dedup against its peers, in one process and in turns: ratios of CPU time, and checks against datasketch and theory.

    python benchmarks/dedup.py [--quick]

Signatures are timed from text: each peer gets the same documents and shingles them in the way its own guide shows. The last line
is one JSON object; a peer that is not installed is null. Ratios say how many times more CPU seconds the peer took (medians).
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from corpusmill.dedup import shingle
from corpusmill.dedup.bands import band_keys, probability
from corpusmill.dedup.pairs import pairs_in_runs

NGRAM, HASHES, BANDS, ROWS = 5, 112, 14, 8
BINS = np.linspace(0.5, 1.0, 11)
POINTS = 0.02  # what recall may be off by in a bin


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="under a minute")
    quick = parser.parse_args().quick
    shingle.warm()
    ratios, rates = signatures(documents(120 if quick else 1000, 1840, 1), rounds=3 if quick else 7)
    lsh, equal = candidates(2_000 if quick else 20_000)
    bins, recall = recall_by_bin(3_000 if quick else 8_000)
    for row in bins:
        print("similarity {:.2f} to {:.2f}: found {:.3f}, theory {:.3f}".format(*row))
    print(f"docs/s of one core, from text: {rates}")
    result = {
        "benchmark": "dedup",
        "ratios": {**ratios, "candidates_vs_datasketch": lsh},
        "checks": {
            "candidates_equal_datasketch": equal,
            "recall_as_theory": recall,
            "signatures_equal_datasketch": same_signatures(),
        },
    }
    print(json.dumps(result))


def documents(count: int, words: int, seed: int) -> list[str]:
    """Texts with the word lengths and punctuation of prose, their vocabulary distributed by Zipf's law."""
    generator = np.random.default_rng(seed)
    letters = np.array(list("etaoinshrdlucmfwygpbvkxqjz"))
    weights = 1 / (np.arange(26) + 3.0)
    sizes = generator.integers(1, 11, 40_000)
    stream = generator.choice(letters, sizes.sum(), p=weights / weights.sum())
    vocabulary = np.array(["".join(word) for word in np.split(stream, np.cumsum(sizes)[:-1])])
    vocabulary[::9] = np.char.add(vocabulary[::9], ",")
    vocabulary[::17] = np.char.capitalize(vocabulary[::17])
    ranks = np.minimum(generator.zipf(1.3, (count, words)) - 1, len(vocabulary) - 1)
    return [" ".join(vocabulary[row]) for row in ranks]


def signatures(texts: list[str], rounds: int) -> tuple[dict[str, float | None], dict[str, int]]:
    """CPU time of text -> signature, ours and the peers' in turns."""
    column = pa.array(texts, pa.large_string())
    few = texts[: max(4, len(texts) // 20)]  # what datatrove gets; its time is scaled to all
    ways: dict[str, Callable[[], Any] | None] = {
        "ours": lambda: shingle.sign(column, NGRAM, HASHES),
        "datasketch": _datasketch(texts, None),
        "datasketch_xxh32": _datasketch(texts, xxhash.xxh32_intdigest),
        "rensa": _rensa(texts),
        "daft": _daft(texts),
        "datatrove": _datatrove(few),
    }
    seconds: dict[str, list[float]] = {name: [] for name, way in ways.items() if way}
    for _ in range(rounds):
        for name, way in ways.items():
            if way:
                seconds[name].append(_cpu(way))
    median = {name: statistics.median(values) for name, values in seconds.items()}
    if "datatrove" in median:
        median["datatrove"] *= len(texts) / len(few)
    ratios = {
        f"signatures_vs_{name}": _ratio(median.get(name), median["ours"]) for name in ways if name != "ours"
    }
    return ratios, {name: round(len(texts) / value) for name, value in median.items()}


def _ratio(peer: float | None, ours: float) -> float | None:
    return None if peer is None else round(peer / ours, 1)


def _cpu(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _spelled(text: str) -> list[bytes]:
    words = re.findall(r"\w+", text.lower())
    return [" ".join(words[i : i + NGRAM]).encode() for i in range(max(1, len(words) - NGRAM + 1))]


def _datasketch(texts: list[str], hashfunc: Callable[[bytes], int] | None) -> Callable[[], Any]:
    from datasketch import MinHash

    return lambda: MinHash.bulk(map(_spelled, texts), num_perm=HASHES, hashfunc=hashfunc)


def _installed(name: str) -> Any:
    """A peer's module, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _rensa(texts: list[str]) -> Callable[[], Any] | None:
    rensa = _installed("rensa")
    if rensa is None:
        return None

    def run() -> None:
        for text in texts:
            words = re.findall(r"\w+", text.lower())
            sketch = rensa.RMinHash(num_perm=HASHES, seed=1)
            sketch.update([" ".join(words[i : i + NGRAM]) for i in range(max(1, len(words) - NGRAM + 1))])
            sketch.digest()

    return run


def _daft(texts: list[str]) -> Callable[[], Any] | None:
    daft = _installed("daft")
    if daft is None:
        return None
    frame = daft.from_pydict({"text": texts}).collect()
    sketch = (
        daft.functions.minhash
        if hasattr(daft.functions, "minhash")
        else (lambda column, **k: column.minhash(**k))
    )
    column = sketch(daft.col("text"), num_hashes=HASHES, ngram_size=NGRAM, seed=1, hash_function="xxhash64")
    return lambda: frame.select(column).collect()


def _datatrove(texts: list[str]) -> Callable[[], Any] | None:
    minhash = _installed("datatrove.pipeline.dedup.minhash")
    if minhash is None:
        return None
    step = minhash.MinhashDedupSignature(
        output_folder="/tmp",
        config=minhash.MinhashConfig(n_grams=NGRAM, num_buckets=BANDS, hashes_per_bucket=ROWS),
    )
    return lambda: [step.get_signature(step.get_shingles(text)) for text in texts]


def candidates(count: int) -> tuple[float, bool]:
    """CPU time of signatures -> candidate pairs against datasketch's index, and whether the pairs are the same."""
    from datasketch import MinHash, MinHashLSH

    marks = planted_signatures(count, 7)
    sketches = [MinHash(hashvalues=row, scheme="affine32") for row in marks]

    def theirs() -> set[tuple[int, int]]:
        index = MinHashLSH(num_perm=HASHES, params=(BANDS, ROWS))
        for position, sketch in enumerate(sketches):
            index.insert(position, sketch)
        found = (
            (position, other) for position, sketch in enumerate(sketches) for other in index.query(sketch)
        )
        return {(a, b) for a, b in found if a < b}

    def ours() -> set[tuple[int, int]]:
        return set(zip(*(pairs.tolist() for pairs in our_pairs(marks)), strict=True))

    ratio = statistics.median(_cpu(theirs) / max(_cpu(lambda: our_pairs(marks)), 1e-4) for _ in range(3))
    return round(ratio, 1), theirs() == ours()


def our_pairs(marks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    numbers = np.repeat(np.arange(len(marks), dtype=np.uint64), BANDS)
    found = pairs_in_runs(
        band_keys(marks, BANDS, ROWS).reshape(-1), numbers, [numbers], len(marks), len(marks)
    )
    return found.first, found.second


def planted_signatures(count: int, seed: int) -> np.ndarray:
    """A quarter of the documents are copies of others in which 0 to 40 % of the minima changed."""
    generator = np.random.default_rng(seed)
    marks = generator.integers(0, 1 << 32, (count, HASHES), dtype=np.uint32)
    copies = np.arange(count - count // 4, count)
    changed = generator.random((len(copies), HASHES)) < generator.random((len(copies), 1)) * 0.4
    marks[copies] = np.where(changed, marks[copies], marks[generator.integers(0, copies[0], len(copies))])
    return marks


def recall_by_bin(pairs: int) -> tuple[list[tuple[float, float, float, float]], bool]:
    """Pairs of texts of known similarity: how many become candidates, against 1 - (1 - s^rows)^bands, in ten bins."""
    generator = np.random.default_rng(23)
    total = 2 * (200 - NGRAM + 1)
    rows, fine = [], True
    for low, high in pairwise(BINS):
        aimed = generator.uniform(low, high, pairs)
        shared = np.minimum(np.round(aimed * total / (1 + aimed)).astype(int), total // 2)
        truth = shared / (total - shared)
        words = generator.integers(0, 1 << 40, (pairs, 200))
        others = np.where(
            np.arange(200) < (shared + NGRAM - 1)[:, None],
            words,
            generator.integers(0, 1 << 40, (pairs, 200)),
        )
        left, right = (band_keys(_signed(table), BANDS, ROWS) for table in (words, others))
        found = float((left == right).any(axis=1).mean())
        theory = float(np.mean([probability(s, BANDS, ROWS) for s in truth]))
        fine &= abs(found - theory) <= POINTS
        rows.append((float(low), float(high), found, theory))
    return rows, bool(fine)


def _signed(words: np.ndarray) -> np.ndarray:
    texts = pa.array([" ".join(map(hex, row)) for row in words.tolist()], pa.large_string())
    return shingle.sign(texts, NGRAM, HASHES).signatures


def same_signatures() -> bool:
    """Ours are what datasketch makes of the shingles with the published hash."""
    from datasketch import MinHash

    texts = documents(20, 150, 5)
    signed = shingle.sign(pa.array(texts, pa.large_string()), NGRAM, HASHES).signatures
    sketches = MinHash.bulk(
        (shingle.shingles(text, NGRAM) for text in texts),
        num_perm=HASHES,
        seed=1,
        scheme="affine32",
        hashfunc=shingle.shingle_hash,
    )
    return all(np.array_equal(row, sketch.hashvalues) for row, sketch in zip(signed, sketches, strict=True))


if __name__ == "__main__":
    main()
