"""How long a proxy takes on this kind of machine: a few steps of its training, and a part of its measuring, by the clock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from corpusmill.mixing.proxy import Training, View

LEAST_S, LEAST_STEPS = 5.0, 2
"""A training is watched for so long, or for so many steps behind the first one, which loads and compiles."""


@dataclass(frozen=True)
class Pace:
    """Seconds of one worker: of a token that is learnt, of a token of a target that is predicted, and of what a run takes beside."""

    learn_s: float
    measure_s: float = 0.0
    beside_s: float = 0.0

    def seconds(self, tokens: int, eval_tokens: int) -> float:
        """Of a run; `eval_tokens` of all targets together."""
        return tokens * self.learn_s + eval_tokens * self.measure_s + self.beside_s


def pace(view: View, training: Training, weights_ppb: Mapping[str, int], seed: int, device: str) -> Pace:
    """Of a decoder. It learns in batches of the size that `training` has, as those of a whole run are, and is thrown away."""
    from corpusmill.mixing.proxy import plan_of
    from corpusmill.mixing.train import alone, drawn, learn, measure
    from corpusmill.shards.reader import Shards

    rows = training.batch_rows(view.manifest.sequence_length)
    at: list[float] = []

    def enough(steps: int) -> bool:
        at.append(time.perf_counter())
        return steps > LEAST_STEPS and at[-1] - at[0] > LEAST_S

    with alone(device):
        drawn(view, training, seed)  # loads torch
        started = time.perf_counter()
        shards = Shards(view.root, plan=plan_of(view, training, weights_ppb, seed))
        model = drawn(view, training, seed).to(device)
        beside = time.perf_counter() - started
        learn(model, shards, training, device, "pace", enough)
        learn_s = (at[-1] - at[0]) / max(1, (len(at) - 1) * rows * view.manifest.sequence_length)
        started = time.perf_counter()
        for held in view.targets:
            measure(model, held, device)
        tokens = sum(int(held.predicted().sum()) for held in view.targets)
        measure_s = (time.perf_counter() - started) / max(1, tokens)
    return Pace(learn_s, measure_s, beside)
