"""By how much one mixture is better than another, with an interval: bits per byte, paired over seeds and documents.

Both vary: another seed would have said something else, and so would other documents of the same kind. Variances of both are added
(crossed random effects: what seed and document share is counted once), with degrees of freedom by Satterthwaite. Seeds are
compared pair by pair, since noise differs from mixture to mixture; a pooled variance is narrower and wrong where it does.

Why not a bootstrap: three seeds drawn from three vary too little. Simulated with 60 documents, an interval said to hold in 95 %
of cases held in 77 % with 3 seeds and 84 % with 5 where seeds matter most; this one in 94 to 96 % (98 % where neither matters).
`benchmarks/mixing.py` repeats it with real runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from corpusmill.mixing.records import Record
from corpusmill.pipeline.errors import InputError

Floats = npt.NDArray[np.float64]

LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Trials:
    """What proxies of one size said of mixtures: bits of each target's documents [mixtures, seeds, documents], nan for a run
    that is missing. All were measured on the same documents, and a seed means the same for every mixture."""

    size: str
    mixtures: tuple[str, ...]
    seeds: tuple[int, ...]
    bits: Mapping[str, Floats]
    size_bytes: Mapping[str, Floats]

    def loss(self, mixture: str, importance: Mapping[str, float]) -> float:
        """Bits per byte, mean over seeds and (by importance) over targets."""
        place = self.mixtures.index(mixture)
        total = sum(importance.values())
        parts = (
            part * np.nanmean(self.bits[target][place].sum(axis=1)) / self.size_bytes[target].sum()
            for target, part in importance.items()
            if part
        )
        return float(sum(parts)) / total

    def seeds_say_nothing(self) -> bool:
        """Whether every run is to the last digit that of another seed: a trainer that ignores its seed has made one run, however often."""
        first = {target: losses[:, :1] for target, losses in self.bits.items()}
        return len(self.seeds) > 1 and all(
            np.array_equal(losses, np.broadcast_to(first[target], losses.shape))
            for target, losses in self.bits.items()
        )


@dataclass(frozen=True)
class Gain:
    """Bits per byte that `candidate` is better than `baseline` on a target (or on all by importance: target "")."""

    candidate: str
    baseline: str
    target: str
    size: str
    gain: float
    low: float  # of the 95 % interval; infinite with fewer than two seeds
    high: float
    p: float  # of no difference, two-sided, before any correction
    seeds: int
    documents: int
    seed_error: float  # standard error that seeds give
    document_error: float  # and documents beside them


def trials_of(records: Iterable[Record], mixtures: Mapping[str, tuple[int, ...]], size: str) -> Trials:
    """Records of the mixtures named (by their parts in 10^9); a target without losses of documents counts as one document."""
    names = {ppb: name for name, ppb in mixtures.items()}
    found = {
        (names[record.requested_ppb], record.seed, record.target): record
        for record in records
        if record.requested_ppb in names
    }
    seeds = tuple(sorted({seed for _, seed, _ in found}))
    targets = sorted({target for _, _, target in found})
    bits: dict[str, Floats] = {}
    size_bytes: dict[str, Floats] = {}
    for target in targets:
        of_target = {key: _documents(record) for key, record in found.items() if key[2] == target}
        sizes = next(iter(of_target.values()))[1]
        losses = np.full((len(mixtures), len(seeds), len(sizes)), np.nan)
        for (name, seed, _), (values, other) in of_target.items():
            if not np.array_equal(sizes, other):
                raise InputError(
                    f"target {target}: the run of {name} with seed {seed} measured other documents"
                )
            losses[list(mixtures).index(name), seeds.index(seed)] = values
        bits[target], size_bytes[target] = losses, sizes
    return Trials(size, tuple(mixtures), seeds, bits, size_bytes)


def _documents(record: Record) -> tuple[Floats, Floats]:
    if len(record.document_bits):
        return record.document_bits, record.document_bytes.astype(np.float64)
    if record.bits_per_byte is None or not record.eval_bytes:
        raise InputError(
            f"run {record.run}, target {record.target}: bits per byte are not known; measure again"
        )
    return np.array([record.bits_per_byte * record.eval_bytes]), np.array([float(record.eval_bytes)])


def gain(
    trials: Trials, candidate: str, baseline: str, importance: Mapping[str, float], target: str = ""
) -> Gain:
    """On targets by their importance, or on `target` alone."""
    parts = {target: 1.0} if target else {name: part for name, part in importance.items() if part > 0}
    total = sum(parts.values())
    ours, theirs = trials.mixtures.index(candidate), trials.mixtures.index(baseline)
    saved = {name: trials.bits[name][theirs] - trials.bits[name][ours] for name in parts}
    both = np.all([np.isfinite(each).all(axis=1) for each in saved.values()], axis=0)
    seeds = int(both.sum())
    by_seed = np.zeros(seeds)
    documents = shared = 0.0  # variances
    free = freedom = 0.0
    for name, part in parts.items():
        sizes = trials.size_bytes[name]
        each = saved[name][both] * (part / total)
        by_seed += each.sum(axis=1) / sizes.sum()
        if seeds and len(sizes) > 1:
            of_documents, of_both = _document_variances(each, sizes)
            documents += of_documents
            shared += of_both
            free += of_documents**2 / (len(sizes) - 1)
            freedom += of_both**2 / max(1, (seeds - 1) * (len(sizes) - 1))
    count = sum(len(trials.size_bytes[name]) for name in parts)
    mean = float(by_seed.mean()) if seeds else math.nan
    what = (candidate, baseline, target, trials.size, mean)
    if seeds < 2:
        return Gain(*what, -math.inf, math.inf, 1.0, seeds, count, math.inf, math.sqrt(documents))
    of_seeds = float(by_seed.var(ddof=1)) / seeds
    variance = max(of_seeds + documents - shared, shared)
    squares = of_seeds**2 / (seeds - 1) + free + freedom
    half, p = _student(mean, variance, variance**2 / squares if squares else 1.0)
    beside = math.sqrt(max(documents - shared, 0.0))
    return Gain(*what, mean - half, mean + half, p, seeds, count, math.sqrt(of_seeds), beside)


def _document_variances(saved: Floats, sizes: Floats) -> tuple[float, float]:
    """Variance of the gain that documents give [seeds, documents], and the part of it in which seeds differ.

    The gain is a ratio of sums; a document's part in its variance is what it saved beyond its share by size.
    """
    seeds, count = saved.shape
    scale = count / (count - 1) / sizes.sum() ** 2
    beyond = saved - saved.sum(axis=1, keepdims=True) * (sizes / sizes.sum())
    middle = beyond.mean(axis=0)
    documents = scale * float((middle**2).sum())
    if seeds < 2:
        return documents, 0.0
    return documents, scale * float(((beyond - middle) ** 2).sum()) / ((seeds - 1) * seeds)


def _student(mean: float, variance: float, freedom: float) -> tuple[float, float]:
    """Half the interval and the p of no difference."""
    from scipy.stats import t

    error = math.sqrt(variance)
    freedom = max(freedom, 1.0)
    if (
        not error
    ):  # all seeds and documents agree to the last digit: a proxy without noise, or the same mixture
        return 0.0, 1.0 if not mean else 0.0
    return float(t.ppf(0.5 + LEVEL / 2, freedom)) * error, float(2 * t.sf(abs(mean) / error, freedom))


def holm(p: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Holm's corrected p of tests taken together (Holm 1979): none is falsely below a level oftener than that level says."""
    corrected, largest = {}, 0.0
    for place, key in enumerate(sorted(p, key=lambda key: (p[key], key))):
        largest = max(largest, min(1.0, (len(p) - place) * p[key]))
        corrected[key] = largest
    return corrected
