"""Whether proxies say anything: mixtures against seeds, and losses against frequencies of single tokens."""

from __future__ import annotations

import numpy as np
import pytest

from corpusmill.mixing.signals import between, need_signal, signals
from corpusmill.mixing.swarm import Swarm, make_swarm
from corpusmill.pipeline.errors import RecipeError


def swarm(by_mixture: list[float], seeds: int, noise: float, mixtures: int = 40) -> Swarm:
    """Runs of `mixtures` mixtures whose own losses lie around 2 with sd `by_mixture` a target."""
    draw = np.random.Generator(np.random.PCG64([7, seeds]))
    group = np.repeat(np.arange(mixtures), seeds)
    weights = np.column_stack([group + 1.0, mixtures - group]) / (mixtures + 1)
    own = 2 + draw.normal(size=(mixtures, len(by_mixture))) * by_mixture
    losses = own[group] + noise * draw.normal(size=(len(group), len(by_mixture)))
    names = tuple(f"t{i}" for i in range(len(by_mixture)))
    return make_swarm(("a", "b"), names, weights, losses, group)


def test_mixtures_that_differ_less_than_seeds_are_noise_and_others_are_clear() -> None:
    found = signals(swarm([0.05, 0.0], seeds=3, noise=0.01), {})
    assert [signal.says for signal in found] == ["clear", "within_noise"]
    assert found[0].noise == pytest.approx(0.01, rel=0.25) and found[0].spread == pytest.approx(0.05, rel=0.3)


def test_the_spread_of_equal_mixtures_is_none_however_many_there_are() -> None:
    """40 means of 2 seeds scatter by 0.02 / sqrt(2): that is taken off, so that about nothing is left."""
    one = swarm([0.0], seeds=2, noise=0.02)
    assert between(one.losses[:, 0], one.groups, float(one.noise[0])) < 0.01


def test_without_repeats_nobody_knows_the_noise() -> None:
    (found,) = signals(swarm([0.05], seeds=1, noise=0.01), {})
    assert found.says == "unrepeated" and np.isnan(found.noise)


def test_proxies_that_know_frequencies_alone_are_undertrained_and_refused_when_all_are() -> None:
    found = signals(swarm([0.05, 0.05], seeds=3, noise=0.01), {"t0": 1.0, "t1": 3.0})
    assert [signal.says for signal in found] == ["undertrained", "clear"]
    need_signal(found, {"t0", "t1"}, "64k on 10,000 tokens")  # one target says something
    with pytest.raises(RecipeError, match=r"64k on 10,000 tokens have not begun to learn: .* on t0"):
        need_signal(found, {"t0"}, "64k on 10,000 tokens")


def test_targets_that_some_runs_did_not_measure_are_judged_by_the_others() -> None:
    whole = swarm([0.05], seeds=2, noise=0.01)
    losses = whole.losses.copy()
    losses[:4] = np.nan
    found = signals(make_swarm(whole.components, whole.targets, whole.weights, losses, whole.groups), {})
    assert found[0].says == "clear" and np.isfinite(found[0].best)
