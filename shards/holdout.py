"""What is held out of training: documents by the hash of their cluster of duplicates, in components and a plan of their own.

A share of every component goes to `holdout/<slug>`, which no plan for training names. `holdout.json`, beside plan.json, is the plan
that reads it: component after component, each row once.
"""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

from corpusmill.shards.layout import Manifest
from corpusmill.shards.mixture import PPB
from corpusmill.shards.plan import Phase, Plan, compile_plan


def held_out(name: bytes, cluster: int | None, seed: int, share: float) -> bool:
    """Whether a document is held out: by the hash of its cluster of duplicates, so that none of them is trained on; else of its id."""
    group = name if cluster is None else cluster.to_bytes(8, "little")
    return xxhash.xxh3_64_intdigest(b"holdout\0" + group, seed) < share * (1 << 64)


def in_turn(components: Sequence[tuple[str, Manifest]], seed: int) -> Plan:
    """A plan that reads one component after the other, in the order of their names, each row once: what an evaluation asks for."""
    phases, at = [], 0
    for _, manifest in sorted(components, key=lambda item: item[1].name):
        phases.append(Phase(at, {manifest.name: PPB}))
        at += manifest.rows
    return compile_plan(components, phases, seed=seed, samples=at)
