"""Fitting a swarm: judged on mixtures it has not seen, stacked by what that says, and refused where there is nothing to judge by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from corpusmill.mixing.families import FAMILIES
from corpusmill.mixing.fit import Fits, fit_swarm, jackknife
from corpusmill.mixing.folds import MEAN, STACK, split, stack_shares, stacked
from corpusmill.mixing.scores import score
from corpusmill.mixing.swarm import Floats, Swarm, make_swarm
from corpusmill.pipeline.errors import RecipeError

NAMES = ("web", "books", "code", "junk")
QUICK = ("inverse_power", "quadratic", "log", "gp")


def mixtures(count: int, seed: int) -> Floats:
    return np.random.Generator(np.random.PCG64(seed)).dirichlet(np.ones(len(NAMES)), count)


def prose(weights: Floats) -> Floats:
    return 1.0 + (weights[:, 0] + 2 * weights[:, 1] + 0.05) ** -0.3


def code(weights: Floats) -> Floats:
    return 0.5 + (weights[:, 2] + 0.1 * weights[:, 0] + 0.02) ** -0.4


def swarm(count: int = 24, repeats: int = 1, noise: float = 0.0, seed: int = 1) -> Swarm:
    weights = np.repeat(mixtures(count, seed), repeats, axis=0)
    losses = np.column_stack([prose(weights), code(weights)])
    losses += np.random.Generator(np.random.PCG64([seed, 5])).normal(0, noise, losses.shape)
    return make_swarm(NAMES, ("prose", "code"), weights, losses)


@pytest.fixture(scope="module")
def fits() -> Fits:
    return fit_swarm(swarm(noise=0.002), 3, QUICK)


def test_mixtures_that_no_run_saw_are_predicted(fits: Fits) -> None:
    unseen = mixtures(200, 9)
    found, actual = fits.predict(unseen), np.column_stack([prose(unseen), code(unseen)])
    assert found.shape == (200, 2)
    assert (np.mean((found - actual) ** 2, axis=0) < 0.1 * actual.var(axis=0)).all()
    assert fits.predict(unseen[0]).shape == (1, 2)  # one mixture is a row


def test_the_stack_is_a_mean_of_families_by_their_shares(fits: Fits) -> None:
    unseen = mixtures(5, 9)
    for column, fit in enumerate(fits.targets):
        assert sum(fit.shares.values()) == pytest.approx(1)
        by_hand = sum(share * fit.models[name].predict(unseen) for name, share in fit.shares.items())
        assert fits.predict(unseen)[:, column] == pytest.approx(by_hand)
        assert fits.predict(unseen, "gp")[:, column] == pytest.approx(fit.models["gp"].predict(unseen))


def test_the_total_is_the_weighted_mean_over_targets(fits: Fits) -> None:
    unseen = mixtures(7, 9)
    mean, deviation = fits.total(unseen, [3, 1])
    assert mean == pytest.approx(fits.predict(unseen) @ [0.75, 0.25])
    assert (deviation > 0).all()
    alone, own = fits.total(unseen, [1, 0])
    assert alone == pytest.approx(fits.predict(unseen)[:, 0])
    assert own == pytest.approx(fits.spread(unseen)[:, 0])


def test_a_change_of_the_total_is_its_difference_and_surer_between_mixtures_that_are_alike(
    fits: Fits,
) -> None:
    start, unseen = mixtures(1, 10)[0], mixtures(7, 9)
    near = start + 0.02 * (unseen - start)
    change, deviation = fits.total(np.vstack([start, near, unseen]), [3, 1], start)
    at, unsure = fits.total(np.vstack([start, near, unseen]), [3, 1])
    assert change == pytest.approx(at - at[0], abs=1e-12)
    assert deviation[0] == pytest.approx(0, abs=1e-9)
    assert (deviation[1:8] < 0.3 * unsure[1:8]).all()  # what is wrong with both cancels
    # Of a difference of two: no more than both deviations together.
    assert (deviation <= unsure + unsure[0] + 1e-12).all()


def test_the_spread_grows_away_from_what_was_run() -> None:
    inside = make_swarm(NAMES, ("prose",), *_near_the_middle(30))
    found = fit_swarm(inside, 3, QUICK)
    near, corners = mixtures(50, 9) * 0.2 + 0.2, np.eye(4)
    assert found.spread(near).mean() * 3 < found.spread(corners).mean()


def _near_the_middle(count: int) -> tuple[Floats, Floats]:
    weights = mixtures(count, 4) * 0.2 + 0.2
    noise = np.random.Generator(np.random.PCG64(8)).normal(0, 0.003, count)
    return weights, (prose(weights) + noise)[:, None]


def test_nothing_depends_on_the_order_of_targets_or_on_who_else_is_fitted() -> None:
    both = swarm(noise=0.01)
    alone = make_swarm(NAMES, ("code",), both.weights, both.losses[:, 1:])
    unseen = mixtures(20, 9)
    assert (
        fit_swarm(both, 3, QUICK).predict(unseen)[:, 1].tobytes()
        == fit_swarm(alone, 3, QUICK).predict(unseen)[:, 0].tobytes()
    )


def test_every_row_of_the_table_says_how_a_family_did_on_unseen_mixtures(fits: Fits) -> None:
    rows = fits.table()
    assert [(row["target"], row["family"]) for row in rows] == [
        (target, family) for target in ("prose", "code") for family in (*QUICK, STACK)
    ]
    for row in rows:
        assert row["mixtures"] == 24 and row["noise"] is None
        assert row["rho"] > 0.8 > 0.5 > row["control"]
        assert row["rmse"] > 0 and row["regret"] >= 0


def test_losses_dealt_out_at_random_are_predicted_by_nobody_and_the_stack_falls_back() -> None:
    generator = np.random.Generator(np.random.PCG64(2))
    noise = make_swarm(NAMES, ("nothing",), mixtures(60, 1), generator.normal(2, 0.1, (60, 1)))
    found = fit_swarm(noise, 3, QUICK)
    # 60 ranks without order: |rho| < 0.33 in 99 of 100; held-out means push it below 0.
    assert all(row["rho"] < 0.33 for row in found.table())
    assert np.ptp(found.predict(mixtures(100, 9))) < 0.5 * np.ptp(noise.losses)


def test_repeats_stay_together_and_tell_the_noise() -> None:
    repeated = swarm(count=40, repeats=3, noise=0.05)
    found = fit_swarm(repeated, 3, QUICK)
    for fit in found.targets:
        assert (len(fit.rows), fit.mixtures) == (120, 40)
        assert all(len(set(fit.fold[repeated.groups == mixture])) == 1 for mixture in range(40))
        assert fit.noise is not None
        # 80 degrees of freedom: the estimate's standard deviation is 0.05 / sqrt(160).
        assert abs(fit.noise - 0.05) < 4 * 0.05 / np.sqrt(160)
    # A split through repeats would find each held-out mixture among those it was fitted to.
    pure = make_swarm(NAMES, ("nothing",), repeated.weights, _of_each_mixture(repeated)[:, None])
    found = fit_swarm(pure, 3, ["gp", "quadratic"])
    assert all(row["rho"] < 0.4 for row in found.table())


def _of_each_mixture(repeated: Swarm) -> Floats:
    values = np.random.Generator(np.random.PCG64(6)).normal(0, 1, 40)
    found: Floats = values[repeated.groups]
    return found


def test_a_target_that_some_runs_did_not_measure_is_fitted_to_the_others() -> None:
    full = swarm(30)
    losses = full.losses.copy()
    losses[::3, 0] = np.nan
    found = fit_swarm(make_swarm(NAMES, full.targets, full.weights, losses), 3, QUICK)
    rest = np.arange(30) % 3 != 0
    alone = make_swarm(NAMES, ("prose",), full.weights[rest], losses[rest][:, :1])
    assert [len(fit.rows) for fit in found.targets] == [20, 30]
    unseen = mixtures(10, 9)
    assert found.predict(unseen)[:, 0] == pytest.approx(fit_swarm(alone, 3, QUICK).predict(unseen)[:, 0])


def test_three_mixtures_are_refused_however_often_they_were_run() -> None:
    with pytest.raises(RecipeError, match="target prose: 3 different mixtures were measured, a fit needs 4"):
        fit_swarm(swarm(count=3, repeats=5, noise=0.1), 3)


def test_four_mixtures_are_fitted_by_the_families_that_can_and_the_others_are_named() -> None:
    found = fit_swarm(swarm(count=4), 3)
    assert found.left_out()["exponential"] == "3 different mixtures, it needs 6"
    assert set(found.left_out()) == {"exponential", "lightgbm"}
    assert np.isfinite(found.predict(mixtures(20, 9))).all()
    assert np.isfinite(found.spread(mixtures(20, 9))).all()


def test_equal_losses_are_predicted_and_no_family_is_preferred() -> None:
    flat = make_swarm(NAMES, ("flat",), mixtures(12, 1), np.full((12, 1), 2.0))
    found = fit_swarm(flat, 3, QUICK)
    assert found.targets[0].shares == {MEAN: 1.0}
    assert found.predict(mixtures(3, 9)).tolist() == [[2.0]] * 3
    assert all(row["rho"] == row["skill"] == row["regret"] == 0 for row in found.table())


def test_a_family_that_is_not_installed_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = replace(FAMILIES["lightgbm"], name="absent", package="a_package_that_nobody_has")
    monkeypatch.setitem(FAMILIES, "absent", absent)
    found = fit_swarm(swarm(), 3, ["log", "absent"])
    assert "a_package_that_nobody_has is not installed" in found.left_out()["absent"]
    assert {row["family"] for row in found.table()} == {"log", STACK}


def test_folds_are_even_and_fewer_than_ten_mixtures_are_left_out_one_by_one() -> None:
    assert np.bincount(split(23, 1)).tolist() == [5, 5, 5, 4, 4]
    assert sorted(split(9, 1)) == list(range(9))
    assert split(23, 1).tolist() != split(23, 2).tolist()


def test_shares_are_inverse_squared_errors_of_those_that_beat_the_mean() -> None:
    actual = np.array([0.0, 1.0, 2.0, 3.0])
    predicted = {
        "good": actual + 0.1,
        "fair": actual - 0.2,
        "worse": 3 - actual,
        MEAN: np.full(4, 1.5),
    }
    assert stack_shares(predicted, actual) == pytest.approx({"good": 0.8, "fair": 0.2})
    assert stack_shares({"worse": 3 - actual, MEAN: np.full(4, 1.5)}, actual) == {MEAN: 1.0}


def test_the_stack_is_judged_by_shares_from_other_folds() -> None:
    """Each family is exact in one fold: shares from that fold itself would make the stack exact everywhere."""
    actual = np.array([0.0, 4.0, 1.0, 5.0])
    predicted = {
        "first": np.array([0.0, 4.0, 2.0, 4.0]),
        "second": np.array([1.0, 3.0, 1.0, 5.0]),
        MEAN: np.full(4, 2.5),
    }
    found = stacked(predicted, actual, np.array([0, 0, 1, 1]))
    assert found == pytest.approx([1.0, 3.0, 2.0, 4.0], abs=1e-6)


def test_scores_by_hand() -> None:
    predicted = np.array([1.0, 2.0, 3.0, 4.0])
    actual = np.array([1.5, 1.0, 3.0, 4.0])
    found = score(predicted, actual, np.full(4, 2.0), 0.1)
    assert found.rho == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert found.rmse == pytest.approx(np.sqrt(1.25 / 4))
    assert found.skill == pytest.approx(1 - 1.25 / (0.25 + 1 + 1 + 4))
    assert found.regret == 0.5  # the first is chosen, the second was best
    assert found.optimism == 0.5  # promised 1, was 1.5
    assert found.control == 0.1


def test_the_jackknife_gives_the_variance_of_a_mean() -> None:
    """Leaving out one value each, it is exactly the usual estimate: the variance over the count."""
    values = np.array([1.0, 4.0, 2.0, 7.0, 3.0])
    left_out = (values.sum() - values)[:, None] / 4
    assert jackknife(left_out) == pytest.approx([values.var(ddof=1) / 5])
