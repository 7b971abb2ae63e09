"""What a worker of a stage takes of its machine: cores, memory, GPUs, resources with names of a cluster's own.

An operation declares memory and GPUs (stage.py); `--resources STAGE=memory:4GiB,gpus:0.5` says otherwise for one run. No fingerprint knows of
it: it decides how many workers run at once, and never a byte. The libraries alone take 380 MB (the largest peak of any stage on small runs).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.registry import suggestion

MACHINE_SHARE = 0.9
"""Of the machine's memory for workers: the driver and the system need some as well."""

UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30}
FIRST_STAGE = {"extract": "documents"}  # the engine's name of the stage that makes the documents


@dataclass(frozen=True)
class Needs:
    """Of one worker. `custom` are resources that a Ray cluster's nodes were started with (`ray start --resources`)."""

    cpus: float = 1.0
    memory_bytes: int = 0
    gpus: float = 0.0
    custom: Mapping[str, float] = field(default_factory=dict)

    def amounts(self) -> dict[str, float]:
        """By the names that Ray gives them on a node; what is not needed is left out."""
        named = {"CPU": self.cpus, "memory": float(self.memory_bytes), "GPU": self.gpus, **self.custom}
        return {name: amount for name, amount in named.items() if amount}

    def options(self) -> dict[str, Any]:
        """The arguments of a Ray task."""
        return {
            "num_cpus": self.cpus,
            "memory": self.memory_bytes or None,
            "num_gpus": self.gpus,
            "resources": dict(self.custom),
        }

    def words(self) -> str:
        return words(self.amounts())


def words(amounts: Mapping[str, float]) -> str:
    """`2 CPU, 1.5 GiB memory` of amounts by Ray's names."""
    shown = [
        f"{amount / 2**30:.2f} GiB memory" if name == "memory" else f"{amount:g} {name}"
        for name, amount in amounts.items()
    ]
    return ", ".join(shown) or "nothing"


def fits(node: Mapping[str, float], needs: Needs) -> int:
    """Workers that a node can run at once."""
    return min(int(node.get(name, 0.0) / amount + 1e-9) for name, amount in needs.amounts().items())


def needs_of(task: Any, overrides: Mapping[str, Mapping[str, float]]) -> Needs:
    """Of a stage's tasks, all of which say the same: Ray keeps a queue and workers for each different demand."""
    return overridden(Needs(memory_bytes=task.memory_bytes, gpus=task.gpus), task.stage, overrides)


def overridden(needs: Needs, stage: str, overrides: Mapping[str, Mapping[str, float]]) -> Needs:
    """The override of the stage itself, else of the recipe's stage that it belongs to."""
    given = overrides.get(stage, overrides.get(stage.partition(".")[0], {}))
    custom = {name: amount for name, amount in given.items() if name not in ("cpus", "memory", "gpus")}
    return replace(
        needs,
        cpus=given.get("cpus", needs.cpus),
        memory_bytes=int(given.get("memory", needs.memory_bytes)),
        gpus=given.get("gpus", needs.gpus),
        custom={**needs.custom, **custom},
    )


def parse_overrides(texts: Sequence[str], stages: Sequence[str]) -> dict[str, dict[str, float]]:
    """`STAGE=NAME:AMOUNT,...` each; `stages` are the names of the engine. RecipeError names what is wrong."""
    known = {*stages, *(stage.partition(".")[0] for stage in stages), *FIRST_STAGE}
    found: dict[str, dict[str, float]] = {}
    for text in texts:
        stage, _, pairs = text.partition("=")
        if stage not in known:
            raise RecipeError(
                f"--resources {text}: the recipe has no stage {stage!r}; {suggestion(stage, known)}"
            )
        for pair in pairs.split(","):
            name, _, amount = pair.partition(":")
            found.setdefault(FIRST_STAGE.get(stage, stage), {})[name] = _amount(text, name, amount)
    return found


def need_no_cluster(overrides: Mapping[str, Mapping[str, float]]) -> None:
    """RecipeError for what only Ray counts: without it a worker is one core, and GPUs and a cluster's names would be promised and not kept."""
    for stage, given in overrides.items():
        others = sorted(given.keys() - {"memory"})
        if others:
            name = next((mine for mine, theirs in FIRST_STAGE.items() if theirs == stage), stage)
            raise RecipeError(
                f"--resources {name}: {', '.join(others)} can be asked of a Ray cluster only: add --ray (`--ray local` starts one here), "
                "or ask for memory alone, which bounds the number of local workers"
            )


def _amount(text: str, name: str, amount: str) -> float:
    given = re.fullmatch(r"(\d+(?:\.\d+)?) ?([a-zA-Z]*)", amount)
    unit = UNITS.get(given[2].lower()) if given else None
    if (
        not re.fullmatch(r"\w+", name)
        or given is None
        or unit is None
        or (unit != 1 and name != "memory")
        or (name == "cpus" and not float(given[1]))
    ):
        raise RecipeError(
            f"--resources {text}: STAGE=NAME:AMOUNT,... is needed, with cpus (above 0), memory (like 4GiB), gpus or a resource of the cluster"
        )
    return float(given[1]) * unit


def machine_memory_bytes() -> int:
    """What this process may use of its machine: the memory, or the limit of the container it runs in."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # no such control group, or "max"
            continue
    return min(limits)


def local_workers(asked: int, needs: Needs, memory_bytes: int) -> int:
    """How many of `asked` workers the machine has memory for; one at least."""
    if not needs.memory_bytes:
        return asked
    return max(1, min(asked, int(memory_bytes * MACHINE_SHARE) // needs.memory_bytes))
