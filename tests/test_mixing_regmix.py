"""Real proxies: what is fitted to RegMix's runs of 1M parameters orders, and picks, mixtures trained at 60M as well as it did.

The bounds are what benchmarks/regmix.py gave (docs/mixing.md), with room for other versions of the libraries. Losses are nats a token.
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
