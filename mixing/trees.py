"""Boosted trees on weights (LightGBM, as RegMix fits): no form at all, so it needs about 8 runs a component.

It is constant between the weights that were seen: its best mixture is any point of a flat piece. One thread and deterministic sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from corpusmill.mixing.families import Model, Rows
from corpusmill.mixing.swarm import Floats


@dataclass(frozen=True, eq=False)
class Trees:
    booster: Any

    def predict(self, weights: Floats) -> Floats:
        return np.asarray(self.booster.predict(weights, num_threads=1), np.float64)


def boosted(rows: Rows, seed: int) -> Model:
    import lightgbm

    settings = {
        "objective": "regression",
        "learning_rate": 0.05,
        "num_leaves": 8,
        "min_data_in_leaf": max(3, len(rows.losses) // 50),
        "feature_fraction": 0.7,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "seed": seed % 2**31,
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    data = lightgbm.Dataset(rows.weights, rows.losses, weight=rows.shares)
    return Trees(lightgbm.train(settings, data, num_boost_round=300))
