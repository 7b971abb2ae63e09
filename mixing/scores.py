"""How predictions of held-out mixtures did: order, error, the choice they would have made, and what they promised too much."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from corpusmill.mixing.swarm import Floats


@dataclass(frozen=True)
class Score:
    """All on mixtures that the models had not seen; losses in the unit of the swarm."""

    rho: float  # Spearman's rank correlation; 0 if predictions or losses are all equal
    rmse: float
    skill: float  # 1 - squared error / that of predicting the mean: at or below 0 it knows nothing
    regret: float  # loss of the mixture that is predicted best, minus the lowest loss (regret@1)
    optimism: float  # loss minus prediction, mean over the tenth predicted best: what is promised too much
    control: float | None  # rho of the same on losses dealt out to the wrong mixtures: not knowledge


def score(predicted: Floats, actual: Floats, mean: Floats, control: float | None = None) -> Score:
    """Of predictions [n] against what was measured [n]; `mean` is what a guess of the mean would have said."""
    order = np.argsort(predicted, kind="stable")
    best = order[: max(1, len(order) // 10)]
    error, guess = float(np.mean((predicted - actual) ** 2)), float(np.mean((mean - actual) ** 2))
    return Score(
        rho=spearman(predicted, actual),
        rmse=float(np.sqrt(error)),
        skill=1 - error / guess if guess > 0 else 0.0,
        regret=float(actual[order[0]] - actual.min()),
        control=control,
        optimism=float(np.mean(actual[best] - predicted[best])),
    )


def spearman(one: Floats, other: Floats) -> float:
    """Ties share their mean rank; 0 where a side is constant, and says nothing."""
    from scipy.stats import rankdata

    ranks = rankdata(one), rankdata(other)
    if min(np.ptp(side) for side in ranks) == 0:
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])
