"""Whether proxies say anything: an under-trained proxy is worse than none, since its order of mixtures looks like one.

    clear           mixtures differ by more than seeds do
    within_noise    they do not: the mixture hardly matters here, or proxies are too small or too short to show it; more seeds or tokens tell
    unrepeated      no mixture was trained twice, so that nobody knows
    undertrained    no mixture's proxy predicts the target better than its frequencies of single tokens: it has not begun to learn

`within_noise` is a finding and goes on to a verdict of no evidence. When all targets that count are under-trained, there is nothing to go on with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from corpusmill.mixing.swarm import Floats, Ints, Swarm
from corpusmill.pipeline.errors import RecipeError

Says = Literal["clear", "within_noise", "unrepeated", "undertrained"]


@dataclass(frozen=True)
class Signal:
    """Of one target, in bits per byte. `spread`: standard deviation between mixtures, seeds' part taken off; `noise`: of one run,
    nan where no mixture was repeated; `best`: of all runs; `unigram`: of token frequencies alone, nan if not known."""

    target: str
    says: Says
    spread: float
    noise: float
    best: float
    unigram: float


def signals(swarm: Swarm, unigrams: Mapping[str, float]) -> list[Signal]:
    """A line a target; `unigrams` as `Held.unigram_bits_per_byte` gives them, of as many targets as are known."""
    return [
        _signal(
            name, swarm.losses[:, place], swarm.groups, float(swarm.noise[place]), unigrams.get(name, np.nan)
        )
        for place, name in enumerate(swarm.targets)
    ]


def _signal(target: str, losses: Floats, groups: Ints, noise: float, unigram: float) -> Signal:
    spread, best = between(losses, groups, noise), float(np.nanmin(losses))
    says: Says = "clear"
    if best >= unigram:
        says = "undertrained"
    elif not np.isfinite(noise):
        says = "unrepeated"
    elif spread <= noise:
        says = "within_noise"
    return Signal(target, says, spread, noise, best, unigram)


def between(losses: Floats, groups: Ints, noise: float) -> float:
    """Standard deviation of mixtures' own losses: that of their means over seeds, less what seeds put into means."""
    there = np.isfinite(losses)
    _, group, counts = np.unique(groups[there], return_inverse=True, return_counts=True)
    if len(counts) < 2:
        return 0.0
    means = np.bincount(group, losses[there]) / counts
    by_seeds = noise**2 * float(np.mean(1 / counts)) if np.isfinite(noise) else 0.0
    return float(np.sqrt(max(0.0, float(np.var(means, ddof=1)) - by_seeds)))


def need_signal(found: Collection[Signal], counted: Collection[str], proxy: str) -> None:
    """Raises RecipeError when of the targets that count all are under-trained; `proxy` names size and budget."""
    aims = [signal for signal in found if signal.target in counted]
    if aims and all(signal.says == "undertrained" for signal in aims):
        worst = min(aims, key=lambda signal: signal.best - signal.unigram)
        raise RecipeError(
            f"proxies of {proxy} have not begun to learn: the best reaches {worst.best:.3f} bits a byte on {worst.target}, frequencies "
            f"of single tokens alone {worst.unigram:.3f}; give them more tokens, or components that have to do with the targets"
        )
