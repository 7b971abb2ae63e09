"""A swarm's groups and noise: repeats are found, renumbered, and scatter is estimated as it was planted."""

from __future__ import annotations

import numpy as np
import pytest

from corpusmill.mixing.swarm import Swarm, in_turn, make_swarm, same_mixtures

NAMES = ("web", "books", "code")


def swarm(losses: list[float], weights: list[list[float]]) -> Swarm:
    return make_swarm(NAMES, ("prose",), np.array(weights), np.array(losses)[:, None])


A, B = [0.5, 0.3, 0.2], [0.1, 0.1, 0.8]


def test_runs_of_equal_weights_are_a_group_numbered_by_first_appearance() -> None:
    assert same_mixtures(np.array([B, A, B, A])).tolist() == [0, 1, 0, 1]
    assert same_mixtures(np.array([A, [0.5, 0.3, 0.2 + 1e-12]])).tolist() == [0, 0]
    assert in_turn(np.array([7, 3, 7, 9])).tolist() == [0, 1, 0, 2]


def test_noise_is_the_pooled_scatter_of_repeats() -> None:
    # 1, 3 and 10, 14: squared distances 1 + 1 + 4 + 4 over two degrees of freedom.
    assert swarm([1, 3, 10, 14], [A, A, B, B]).noise[0] == pytest.approx(np.sqrt(5))
    assert np.isnan(swarm([1, 2], [A, B]).noise[0])
    assert swarm([1, 2], [A, B]).run_noise(0) is None


def test_a_run_that_did_not_measure_counts_for_nothing() -> None:
    assert swarm([1, 3, np.nan], [A, A, A]).noise[0] == pytest.approx(np.sqrt(2))
    assert np.isnan(swarm([1, np.nan], [A, A]).noise[0])


def test_a_mixture_that_scatters_more_is_given_more_noise_but_drawn_towards_all() -> None:
    found = swarm([1, 3, 10, 14, 5], [A, A, B, B, [1, 0, 0]])
    noise = found.run_noise(0)
    assert noise is not None
    pooled = np.sqrt(5)
    assert np.sqrt(2) < noise[0] < pooled < noise[2] < np.sqrt(8)
    assert noise[4] == pytest.approx(pooled)  # never repeated: that of all
    assert noise[0] == noise[1]


def test_noise_is_found_as_planted() -> None:
    generator = np.random.Generator(np.random.PCG64(3))
    weights = np.repeat(generator.dirichlet(np.ones(3), 400), 3, axis=0)
    losses = weights @ [1.0, 2.0, 3.0] + generator.normal(0, 0.02, 1200)
    found = make_swarm(NAMES, ("prose",), weights, losses[:, None])
    # 800 degrees of freedom: the estimate's own standard deviation is 0.02 / sqrt(1600).
    assert abs(found.noise[0] - 0.02) < 4 * 0.02 / 40


def test_some_runs_of_a_swarm_are_a_swarm() -> None:
    part = swarm([1, 3, 10, 14], [A, A, B, B]).take([3, 0, 1])
    assert part.losses[:, 0].tolist() == [14, 1, 3]
    assert part.groups.tolist() == [0, 1, 1]
    assert part.noise[0] == pytest.approx(np.sqrt(2))


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="losses has shape"):
        make_swarm(NAMES, ("prose", "code"), np.array([A, B]), np.ones((2, 1)))
