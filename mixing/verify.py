"""The verdict on proposed mixtures: trained against baselines at a larger proxy, with paired seeds; else the best baseline ships.

    verified      better than every baseline, corrected for all comparisons, and no floor broken
    no_evidence   not shown to be better: nothing is wrong with that, baselines are strong
    refused       it lowers a protected target beyond its interval; the target and the component to blame are named
    order_flips   one size of proxy shows it better, another worse: it would be a guess which of them the real run follows

The rule is the same for any data: intervals by mixing/gains.py, Holm's correction over candidates times baselines at 5 %.
What a fit promised stands beside what was measured: the best of many predictions is too good (winner's curse).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from corpusmill.mixing.gains import LEVEL, Gain, Trials, gain, holm
from corpusmill.mixing.study import Floats, Target
from corpusmill.pipeline.errors import InputError

Word = Literal["verified", "no_evidence", "order_flips", "refused"]

ONE_RUN = "runs with different seeds are the same to the last digit, which makes them one run: see that the trainer uses its seed"

MOST_SEEDS = 64  # beyond which more seeds are no advice


@dataclass(frozen=True, eq=False)
class Blame:
    """Who is to blame when a target gets worse: weights [m] of each mixture and, if known, how much a target's loss rises per
    unit of each component's weight [m] (mixing/propose.py: `effects`)."""

    components: tuple[str, ...]
    weights: Mapping[str, Floats]
    effects: Mapping[str, Floats]

    def named(self, candidate: str, baseline: str, target: str) -> str:
        """The one whose change of weight raises the loss most, and that change; without effects, the one that gained most weight."""
        change = self.weights[candidate] - self.weights[baseline]
        place = int(np.argmax(change * self.effects.get(target, np.ones(len(change)))))
        return f"{self.components[place]} ({change[place]:+.3f} of the weight)"


@dataclass(frozen=True)
class Judged:
    candidate: str
    verdict: Word
    reason: str
    corrected: Mapping[str, float]  # baseline -> p, corrected


@dataclass(frozen=True)
class Promise:
    """Of a mixture, against the best baseline: what the fit said and what was measured."""

    mixture: str
    predicted: float
    measured: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    verdict: Word
    ship: str  # a candidate that is verified, else the best baseline
    baseline: str  # the best one
    reason: str
    judged: tuple[Judged, ...]
    gains: tuple[Gain, ...]  # of every size; totals against every baseline, targets against the best
    promises: tuple[Promise, ...]

    def evidence(self) -> dict[str, Any]:
        """For the mixture file: the shipped mixture's gain, or that of the candidate that came closest."""
        totals = [each for each in self.gains if not each.target and each.baseline == self.baseline]
        last = [each for each in totals if each.size == totals[-1].size]
        shown = next(
            (each for each in last if each.candidate == self.ship), max(last, key=lambda each: each.gain)
        )
        return {
            "verdict": self.verdict,
            "weights": self.ship,
            "reason": self.reason,
            "candidate": shown.candidate,
            "baseline": self.baseline,
            "gain_bits_per_byte": _finite(shown.gain),
            "gain_interval": [_finite(shown.low), _finite(shown.high)],
            "proxy": shown.size,
            "seeds": shown.seeds,
            "documents": shown.documents,
        }

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON: infinite ends are null."""
        found: dict[str, Any] = _plain(asdict(self))
        return found


def verify(
    trials: Sequence[Trials],
    candidates: Sequence[str],
    baselines: Sequence[str],
    targets: Sequence[Target],
    blame: Blame | None = None,
    predicted: Mapping[str, float] | None = None,
) -> Verdict:
    """Trials from the smallest proxy to the largest, which decides; all have all mixtures. `predicted`: total losses of mixtures by a fit."""
    importance = _checked(trials, candidates, baselines, targets)
    largest = trials[-1]
    best = min(baselines, key=lambda name: (largest.loss(name, importance), name))
    totals = {
        (each.size, name, other): gain(each, name, other, importance)
        for each in trials
        for name in candidates
        for other in baselines
    }
    single = {
        (each.size, name, target.name): gain(each, name, best, importance, target.name)
        for each in trials
        for name in candidates
        for target in targets
    }
    # A test counts only in the direction in which it can lead to a verdict.
    p = {
        (name, other): found.p if found.gain > 0 else 1.0
        for (size, name, other), found in totals.items()
        if size == largest.size
    }
    corrected = holm(p)
    judged = []
    for name in candidates:
        own = {other: corrected[name, other] for other in baselines}
        against_best = [totals[each.size, name, best] for each in trials]
        floors = [single[largest.size, name, target.name] for target in targets]
        word, reason = (
            _broken_floor(floors, targets, blame) or _flip(against_best) or _beaten(own, against_best[-1])
        )
        if word == "verified" and largest.seeds_say_nothing():
            word, reason = "no_evidence", f"{reason}, but {ONE_RUN}"
        judged.append(Judged(name, word, reason, own))
    order = sorted(candidates, key=lambda name: -totals[largest.size, name, best].gain)
    by_name = {each.candidate: each for each in judged}
    decisive = _decisive([by_name[name] for name in order])
    ship = decisive.candidate if decisive.verdict == "verified" else best
    gains = (*totals.values(), *single.values())
    promises = _promises(
        predicted or {}, {name: totals[largest.size, name, best] for name in candidates}, best
    )
    reason = f"{decisive.candidate}: {decisive.reason}"
    return Verdict(decisive.verdict, ship, best, reason, tuple(judged), gains, promises)


def _checked(
    trials: Sequence[Trials], candidates: Sequence[str], baselines: Sequence[str], targets: Sequence[Target]
) -> dict[str, float]:
    if not trials or not candidates or not baselines:
        raise InputError("verify: it takes runs of at least one candidate and one baseline")
    for each in trials:
        for name in (*candidates, *baselines):
            if name not in each.mixtures:
                raise InputError(f"verify: there is no run of {name} at size {each.size}; run it first")
        for target in targets:
            if target.name not in each.bits:
                raise InputError(f"verify: target {target.name} was not measured at size {each.size}")
    importance = {target.name: target.weight for target in targets}
    if not sum(importance.values()) > 0:
        raise InputError("verify: no target has a weight above 0")
    return importance


def _broken_floor(
    floors: Sequence[Gain], targets: Sequence[Target], blame: Blame | None
) -> tuple[Word, str] | None:
    """The protected target that gets worse by most beyond what is allowed, if the interval leaves no doubt of it."""
    broken = [
        (found.high + allowed, found)
        for found, target in zip(floors, targets, strict=True)
        if (allowed := target.allowed) is not None and found.high < -allowed
    ]
    if not broken:
        return None
    worst = min(broken, key=lambda each: each[0])[1]
    by = f"; by {blame.named(worst.candidate, worst.baseline, worst.target)}" if blame else ""
    return "refused", (
        f"target {worst.target} gets worse by {-worst.gain:.4f} bits per byte"
        f" ({-worst.high:.4f} to {-worst.low:.4f}) than with {worst.baseline}{by}"
    )


def _flip(sizes: Sequence[Gain]) -> tuple[Word, str] | None:
    better = [each for each in sizes if each.low > 0]
    worse = [each for each in sizes if each.high < 0]
    if not better or not worse:
        return None
    return "order_flips", (
        f"better than {sizes[-1].baseline} at proxy {better[-1].size} ({better[-1].gain:+.4f} bits per byte),"
        f" worse at {worse[-1].size} ({worse[-1].gain:+.4f})"
    )


def _beaten(corrected: Mapping[str, float], against_best: Gain) -> tuple[Word, str]:
    hardest = max(corrected, key=lambda name: (corrected[name], name))
    said = (
        f"{against_best.gain:+.4f} bits per byte against {against_best.baseline}"
        f" ({against_best.low:+.4f} to {against_best.high:+.4f}, {against_best.seeds} seeds)"
    )
    if corrected[hardest] < 1 - LEVEL:
        return "verified", f"{said}; better than every baseline"
    if against_best.seeds < 2:
        return "no_evidence", f"{said}; one seed is not an experiment, give three or more"
    return "no_evidence", (
        f"{said}; not shown to be better than {hardest} (corrected p {corrected[hardest]:.2g})"
        f"{advice(against_best, len(corrected))}"
    )


def advice(found: Gain, comparisons: int) -> str:
    """What would settle a gain of this size, if it is one."""
    from scipy.stats import t

    if found.gain <= 0:
        return ""
    for seeds in range(found.seeds, MOST_SEEDS + 1):
        error = np.hypot(found.seed_error * np.sqrt(found.seeds / seeds), found.document_error)
        if found.gain > t.ppf(1 - (1 - LEVEL) / 2 / comparisons, seeds - 1) * error:
            return f"; about {seeds} seeds would settle a gain of this size" if seeds > found.seeds else ""
    few = found.document_error > found.seed_error
    return f"; more {'documents in the targets' if few else 'seeds or a longer run'} would be needed to settle it"


def _decisive(judged: Sequence[Judged]) -> Judged:
    """The one to ship, the one of the largest gain first; else the one that says most about why nothing ships."""
    words: tuple[Word, ...] = ("verified", "refused", "order_flips", "no_evidence")
    return min(judged, key=lambda each: words.index(each.verdict))


def _promises(predicted: Mapping[str, float], measured: Mapping[str, Gain], best: str) -> tuple[Promise, ...]:
    if best not in predicted:
        return ()
    return tuple(
        Promise(name, predicted[best] - predicted[name], found.gain, found.low, found.high)
        for name, found in measured.items()
        if name in predicted
    )


def _finite(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return _finite(value) if isinstance(value, float) else value
