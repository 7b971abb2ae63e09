"""Families of regressors: each finds a truth of its own form, and none breaks on few, equal, repeated or degenerate runs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from corpusmill.mixing.families import FAMILIES, Constant, Family, chosen_families, prepared
from corpusmill.mixing.scores import spearman
from corpusmill.mixing.swarm import Floats
from corpusmill.mixing.threads import one_thread
from corpusmill.pipeline.errors import RecipeError

EVERY = list(FAMILIES)


def mixtures(count: int, components: int, seed: int = 1, strength: float = 1.0) -> Floats:
    generator = np.random.Generator(np.random.PCG64(seed))
    return generator.dirichlet(np.full(components, strength), count)


def usable(name: str) -> Family:
    family = FAMILIES[name]
    if family.package:
        pytest.importorskip(family.package)
    return family


def explained(family: Family, truth: object, runs: int, components: int = 5) -> float:
    """Share of the variance over mixtures that were not seen."""
    seen, unseen = mixtures(runs, components), mixtures(200, components, seed=2)
    with one_thread():
        found = family.fit(seen, truth(seen), seed=3).predict(unseen)  # type: ignore[operator]
    actual = truth(unseen)  # type: ignore[operator]
    return float(1 - np.mean((found - actual) ** 2) / np.var(actual))


SLOPES = np.array([-2.0, -0.5, 0.0, 0.5, 1.0])


def inverse_power(weights: Floats) -> Floats:
    return 1.2 + (weights + 0.03) ** -0.2 @ np.array([0.8, 0.0, 0.3, 0.0, 0.1])


def shared(weights: Floats) -> Floats:
    """The first two components are one text, the third is worth half of it, the last nothing."""
    first, second = (
        weights @ np.array([1.0, 1.0, 0.5, 0.0, 0.0]),
        weights @ np.array([0.0, 0.0, 0.3, 1.0, 0.0]),
    )
    return 2.0 - 0.5 * np.log(first + 0.01) - 0.2 * np.log(second + 0.01)


def exponential(weights: Floats) -> Floats:
    return 2.0 + np.exp(weights @ SLOPES)


def quadratic(weights: Floats) -> Floats:
    roots = np.sqrt(weights)
    return 3.0 - roots[:, 0] * roots[:, 1] + 0.5 * weights[:, 2] - 0.4 * roots[:, 3]


def logarithms(weights: Floats) -> Floats:
    return 3.0 - np.log(weights + 0.001) @ np.array([0.2, 0.1, 0.0, 0.0, 0.05]) + weights[:, 4]


def hill(weights: Floats) -> Floats:
    """Lowest inside, a distance from a point: none of the formulas has this form."""
    return 2.0 + 3 * ((np.sqrt(weights) - np.sqrt([0.4, 0.3, 0.1, 0.1, 0.1])) ** 2).sum(axis=1) ** 0.75


def steps(weights: Floats) -> Floats:
    return 2.0 + (weights[:, 0] < 0.2) + 0.5 * (weights[:, 1] < 0.1)


@pytest.mark.parametrize(
    ("name", "truth", "runs", "at_least"),
    [
        ("inverse_power", inverse_power, 20, 0.999),
        ("transfer", shared, 30, 0.995),
        ("exponential", exponential, 20, 0.999),
        ("quadratic", quadratic, 40, 0.99),
        ("log", logarithms, 20, 0.999),
        ("gp", hill, 60, 0.95),
        ("lightgbm", steps, 400, 0.9),
    ],
)
def test_a_family_finds_a_truth_of_its_form(name: str, truth: object, runs: int, at_least: float) -> None:
    assert explained(usable(name), truth, runs) > at_least


def test_the_exponential_law_is_monotone_along_any_line_of_mixtures() -> None:
    """Why it needs a guard: whatever it was fitted to, its best mixture is a corner."""
    seen = mixtures(40, 5)
    model = FAMILIES["exponential"].fit(seen, hill(seen))
    for start, end in zip(mixtures(20, 5, 4), mixtures(20, 5, 5), strict=True):
        along = model.predict(start + np.linspace(0, 1, 30)[:, None] * (end - start))
        changes = np.diff(along)
        assert (changes <= 1e-12).all() or (changes >= -1e-12).all()


def test_transfer_finds_duplicates_and_what_is_of_no_use() -> None:
    """Two components of one text change places for nothing, as they do for the inverse power law only if it is lucky."""
    seen, unseen = mixtures(30, 5), mixtures(100, 5, 2)
    with one_thread():
        model = FAMILIES["transfer"].fit(seen, shared(seen))
        found, swapped = model.predict(unseen), model.predict(unseen[:, [1, 0, 2, 3, 4]])
        useless = np.vstack(
            [unseen[:1] * np.array([1, 1, 1, 1, 0]) + share * np.eye(5)[4] for share in (0, 0.1)]
        )
    assert np.abs(found - swapped).max() < 0.1 * found.std()
    gone, there = model.predict(useless)
    assert abs(there - gone) < 0.02 * found.std()


@pytest.mark.parametrize("name", EVERY)
def test_the_same_runs_and_seed_give_the_same_bits(name: str) -> None:
    family, seen, unseen = usable(name), mixtures(30, 5), mixtures(50, 5, 2)
    with one_thread():
        first, second = (family.fit(seen, hill(seen), 0.01, 7).predict(unseen) for _ in range(2))
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("name", EVERY)
def test_another_unit_of_loss_scales_the_predictions(name: str) -> None:
    family, seen, unseen = usable(name), mixtures(30, 5), mixtures(50, 5, 2)
    with one_thread():
        nats = family.fit(seen, hill(seen), 0.01, 7).predict(unseen)
        bits = family.fit(seen, hill(seen) * 4 - 1, 0.04, 7).predict(
            unseen
        )  # exact in binary but for the sums
    assert bits == pytest.approx(4 * nats - 1, rel=2e-3)


@pytest.mark.parametrize("name", EVERY)
def test_few_runs_missing_components_and_constant_columns_are_no_obstacle(name: str) -> None:
    family = usable(name)
    seen = mixtures(16, 30, strength=0.1)  # fewer runs than components, many weights next to 0
    seen[:, 7] = 0.0
    seen[3] = np.eye(30)[3]
    seen /= seen.sum(axis=1, keepdims=True)
    losses = 2 + np.sqrt(seen) @ np.linspace(-1, 1, 30)
    with one_thread():
        found = family.fit(seen, losses).predict(np.vstack([seen, np.eye(30), np.full((1, 30), 1 / 30)]))
    assert np.isfinite(found).all()
    assert np.abs(found - losses.mean()).max() < 20 * np.ptp(losses)


@pytest.mark.parametrize("name", EVERY)
def test_equal_losses_are_a_constant(name: str) -> None:
    model = usable(name).fit(mixtures(20, 3), np.full(20, 2.5))
    assert model.predict(mixtures(5, 3)).tolist() == [2.5] * 5


@pytest.mark.parametrize("name", EVERY)
def test_one_component_is_a_constant_at_the_mean(name: str) -> None:
    family = replace(usable(name), least=1)
    model = family.fit(np.ones((20, 1)), np.tile([1.0, 2.0], 10))
    assert model == Constant(1.5)


@pytest.mark.parametrize("name", EVERY)
def test_too_few_mixtures_are_refused_with_the_number_that_is_needed(name: str) -> None:
    family = usable(name)
    few = np.repeat(mixtures(family.least - 1, 3), 4, axis=0)  # repeats are no mixtures
    with pytest.raises(
        RecipeError, match=f"{name}: {family.least - 1} different mixtures, it needs {family.least}"
    ):
        family.fit(few, np.arange(len(few), dtype=float))


def test_runs_of_one_mixture_are_fitted_as_their_mean() -> None:
    seen, losses = mixtures(12, 3), hill(np.hstack([mixtures(12, 3), np.zeros((12, 2))]))
    twice = np.vstack([seen, seen])
    scattered = np.concatenate([losses + 0.1, losses - 0.1])
    for name in ("quadratic", "gp", "inverse_power"):
        one = FAMILIES[name].fit(seen, losses).predict(seen)
        other = FAMILIES[name].fit(twice, scattered).predict(seen)
        assert other == pytest.approx(one, abs=1e-9), name


def test_a_mixture_counts_by_its_noise_and_its_repeats() -> None:
    seen = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    rows, mean, scale = prepared(seen, np.array([1.0, 2.0, 3.0, 5.0, 6.0]), 0.5)
    assert rows.losses * scale + mean == pytest.approx([2.0, 5.0, 6.0])
    by_first = {tuple(weights): share for weights, share in zip(rows.weights, rows.shares, strict=True)}
    # Variance of a mean of three is a third; beside a lack of fit of one run's variance: 1 / (1 + 1/3) against 1 / (1 + 1).
    assert by_first[1.0, 0.0] / by_first[0.0, 1.0] == pytest.approx(1.5)
    assert rows.shares.mean() == pytest.approx(1)
    loud = prepared(seen[2:], np.array([3.0, 5.0, 6.0]), np.array([0.1, 0.1, 1.0]))[0]
    quiet, loudest = loud.shares[loud.weights[:, 0] == 1][0], loud.shares[loud.weights[:, 0] == 0.5][0]
    assert quiet / loudest == pytest.approx((0.01 + 1) / (0.01 + 0.01))


def test_a_run_known_to_be_noisy_moves_a_fit_less() -> None:
    seen, unseen = mixtures(40, 5), mixtures(100, 5, 2)
    losses, noise = logarithms(seen), np.full(40, 0.01)
    losses[0] += 3.0
    noise[0] = 3.0
    for name in ("inverse_power", "quadratic", "log", "gp"):
        blind = FAMILIES[name].fit(seen, losses).predict(unseen)
        told = FAMILIES[name].fit(seen, losses, noise).predict(unseen)
        truth = logarithms(unseen)
        assert np.mean((told - truth) ** 2) < 0.5 * np.mean((blind - truth) ** 2), name


def test_losses_that_are_missing_are_the_callers_to_leave_out() -> None:
    with pytest.raises(ValueError, match="finite"):
        FAMILIES["log"].fit(mixtures(5, 3), np.array([1, 2, np.nan, 3, 4]))


def test_a_family_whose_package_is_not_there_says_how_to_get_it() -> None:
    absent = replace(FAMILIES["lightgbm"], package="a_package_that_nobody_has")
    assert absent.refusal(100) == "a_package_that_nobody_has is not installed (pip install 'corpusmill[mix]')"


def test_families_are_chosen_by_name() -> None:
    assert [family.name for family in chosen_families(["gp", "log"])] == ["gp", "log"]
    assert [family.name for family in chosen_families()] == EVERY
    with pytest.raises(RecipeError, match="did you mean 'quadratic'"):
        chosen_families(["quadratik"])


def test_ranks_share_ties_and_a_constant_says_nothing() -> None:
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: covariance 4.5 / sqrt(4.5 * 5).
    assert spearman(np.array([1.0, 2, 2, 3]), np.array([1.0, 2, 3, 4])) == pytest.approx(4.5 / np.sqrt(22.5))
    assert spearman(np.ones(4), np.arange(4.0)) == 0


def test_nothing_heavy_is_imported_before_a_fit() -> None:
    code = (
        "import sys, corpusmill.mixing.stage, corpusmill.mixing.fit, corpusmill.mixing.imported;"
        "sys.exit(str([name for name in ('scipy', 'sklearn', 'lightgbm', 'torch') if name in sys.modules]) + '|')"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stderr.strip() == "[]|"
