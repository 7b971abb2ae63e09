"""The ablation table: what leaving a component out, and boosting it, does to each target.

A change is against the prior with the same seed on the same documents. Its interval adds what two runs scatter by their seeds
(from repeated mixtures) and what other documents of the kind would have said; where nothing was repeated it is of documents alone
and said to be so by `seeds: false`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from corpusmill.mixing.grouped import parts_of, share
from corpusmill.mixing.records import Record
from corpusmill.mixing.study import Design
from corpusmill.mixing.swarm import Floats, Swarm

Z = 1.959964  # of a normal distribution's middle 95 %


@dataclass(frozen=True)
class Effect:
    """`change` of a target's loss (above 0: worse) when `component` (of many, a group of them: mixing/grouped.py) goes from weight `before` to `after`, with a 95 % interval."""

    component: str
    way: str  # "without" or "more"
    target: str
    before: float
    after: float
    change: float
    low: float | None  # None: one document and no repeats say nothing of it
    high: float | None
    seeds: bool


def effects_of(design: Design, records: Sequence[Record], swarm: Swarm) -> list[Effect]:
    """A row a component, way and target, as the design has them."""
    said = {(record.run, record.target): record for record in records}
    prior = design.runs[0]
    noise = dict(zip(swarm.targets, swarm.noise.tolist(), strict=True))
    parts = {part.name: part for part in parts_of(design.components)}
    found = []
    for run in design.runs:
        if run.role not in ("without", "more"):
            continue
        component = run.name.removeprefix(f"{run.role} ")
        for target in swarm.targets:
            ours, theirs = said.get((run.name, target)), said.get((prior.name, target))
            if ours is None or theirs is None:
                continue
            change, documents = _change(ours, theirs)
            seeds = 2 * noise[target] ** 2 if np.isfinite(noise[target]) else 0.0
            known = seeds > 0 or documents is not None
            reach = Z * float(np.sqrt(seeds + (documents or 0.0)))
            found.append(
                Effect(
                    component,
                    run.role,
                    target,
                    share(prior.weights(), parts[component]),
                    share(run.weights(), parts[component]),
                    change,
                    change - reach if known else None,
                    change + reach if known else None,
                    seeds > 0,
                )
            )
    return found


def _change(ours: Record, theirs: Record) -> tuple[float, float | None]:
    """Difference of losses, and its variance over documents where they are known one by one."""
    if ours.bits_per_byte is None or theirs.bits_per_byte is None:
        return float(ours.loss or 0.0) - float(theirs.loss or 0.0), None
    change = ours.bits_per_byte - theirs.bits_per_byte
    count = len(ours.document_bits)
    if count < 2 or not np.array_equal(ours.document_bytes, theirs.document_bytes):
        return change, None
    sizes: Floats = ours.document_bytes.astype(np.float64)
    # Of a ratio of sums: what each document differs by, beyond its share of the whole difference.
    beyond = ours.document_bits - theirs.document_bits - change * sizes
    return change, float(count * beyond.var(ddof=1) / sizes.sum() ** 2)
