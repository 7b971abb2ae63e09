"""Real proxies: what is fitted to RegMix's runs of 1M parameters orders, and picks, mixtures trained at 60M as well as it did.

The bounds are what benchmarks/regmix.py gave (docs/mixing-method.md), with room for other versions of the libraries. Losses are nats a token.
"""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from corpusmill.mixing.families import FAMILIES
from corpusmill.mixing.fit import fit_swarm
from corpusmill.mixing.folds import STACK
from corpusmill.mixing.scores import spearman
from corpusmill.mixing.swarm import Floats, Swarm, make_swarm
from corpusmill.mixing.threads import one_thread

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data" / "regmix"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data/regmix is not there")


@pytest.fixture(scope="module")
def regmix() -> ModuleType:
    """The benchmark as a module: the test asks what it asks."""
    spec = spec_from_file_location("regmix_benchmark", ROOT / "benchmarks" / "regmix.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def swarms(regmix: ModuleType) -> tuple[Swarm, Swarm, Swarm]:
    loaded: tuple[Swarm, Swarm, Swarm] = regmix.load(DATA)
    return loaded


def judged(predicted: Floats, actual: Floats) -> tuple[float, float]:
    """Rank correlation and regret."""
    return spearman(predicted, actual), float(actual[predicted.argmin()] - actual.min())


def test_the_release_is_read_whole(swarms: tuple[Swarm, Swarm, Swarm]) -> None:
    seen, small, large = swarms
    assert seen.weights.shape == (512, 17) and seen.losses.shape == (512, 13)
    assert small.losses.shape == large.losses.shape == (256, 13)
    assert seen.components[0] == "the_pile_arxiv" and "the_pile_pile_cc" in seen.targets
    assert np.isfinite(seen.losses).all()
    assert seen.weights.sum(axis=1) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "of_pile_cc", "of_mean"),
    [
        ("inverse_power", 0.92, 0.88),
        ("exponential", 0.87, 0.68),
        ("quadratic", 0.91, 0.75),
        ("log", 0.88, 0.77),
        ("gp", 0.91, 0.80),
        ("lightgbm", 0.85, 0.86),
    ],
)
def test_34_runs_of_1m_order_mixtures_at_60m(
    regmix: ModuleType, swarms: tuple[Swarm, Swarm, Swarm], name: str, of_pile_cc: float, of_mean: float
) -> None:
    if FAMILIES[name].package:
        pytest.importorskip(str(FAMILIES[name].package))
    seen, _, large = swarms
    place, found = large.targets.index(regmix.PILE_CC), []
    with one_thread():
        for rows in regmix.draws(34, 3):
            fitted = [FAMILIES[name].fit(seen.weights[rows], losses) for losses in seen.losses[rows].T]
            predicted = np.column_stack([model.predict(large.weights) for model in fitted])
            found.append(
                (
                    spearman(predicted[:, place], large.losses[:, place]),
                    spearman(predicted.mean(axis=1), large.losses.mean(axis=1)),
                )
            )
    assert (np.median(found, axis=0) > (of_pile_cc, of_mean)).all(), found


def test_the_stack_of_34_runs_picks_a_mixture_at_a_tenth_of_what_chance_costs(
    regmix: ModuleType, swarms: tuple[Swarm, Swarm, Swarm]
) -> None:
    seen, _, large = swarms
    place = large.targets.index(regmix.PILE_CC)
    actual = large.losses[:, place]
    found = []
    for rows in regmix.draws(34, 3):
        one = make_swarm(
            seen.components, ("cc",), seen.weights[rows], seen.losses[rows][:, place : place + 1]
        )
        fits = fit_swarm(one, 0, control=False)
        found.append(judged(fits.predict(large.weights)[:, 0], actual))
    rho, regret = np.median(found, axis=0)
    assert rho > 0.93
    assert regret < 0.1 * (actual.mean() - actual.min())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runs", "of_pile_cc", "of_mean", "of_direct"), [(32, 0.92, 0.89, 0.81), (512, 0.97, 0.94, 0.92)]
)
def test_the_stack_orders_mixtures_at_60m_by_each_set_and_by_their_mean(
    regmix: ModuleType,
    swarms: tuple[Swarm, Swarm, Swarm],
    runs: int,
    of_pile_cc: float,
    of_mean: float,
    of_direct: float,
) -> None:
    seen, small, large = swarms
    found: list[dict[str, Any]] = [
        regmix.judge(fit_swarm(regmix.with_mean(seen.take(rows)), 0, control=False), small, large)
        for rows in regmix.draws(runs, 3)
    ]
    medians = {way: np.median([one[way][STACK] for one in found], axis=0) for way in regmix.WAYS}
    for way, bound in (("pile_cc", of_pile_cc), ("mean_of_13", of_mean), ("mean_direct", of_direct)):
        assert medians[way][2] > bound, way
        assert medians[way][3] < 0.2 * (large.losses.mean(axis=1) - large.losses.mean(axis=1).min()).mean(), (
            way
        )
    # A set at a time is easier than their mean: the reason why targets are put together after prediction.
    assert medians["mean_of_13"][0] > medians["mean_direct"][0]
