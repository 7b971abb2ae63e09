"""Which round breaks what: a function of seed and number alone, so that one round can be played again."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from chaos import damage, disks, hostile, kills, stores, surroundings
from chaos.ground import Ground
from chaos.trial import Trial

KINDS: dict[str, Callable[[Trial], None]] = {
    "driver killed": kills.driver,
    "busy worker killed": kills.busy_worker,
    "idle worker killed": kills.idle_worker,
    "guard killed": kills.guard,
    "SIGTERM": kills.stopped,
    "several of these": kills.several,
    "two drivers": kills.two_drivers,
    "dead writer's files": kills.dead_writer,
    "hostile pages": hostile.documents,
    "disk full": disks.full,
    "disk read-only": disks.read_only,
    "file size limit": disks.file_limit,
    "open files limit": disks.open_files,
    "failing store": stores.failing,
    "slow store": stores.slow,
    "files cut": damage.cut,
    "files deleted": damage.deleted,
    "bits flipped": damage.flipped,
    "bits flipped on the way": damage.flipped_on_the_way,
    "other surroundings": surroundings.others,
}


@dataclass(frozen=True)
class Outcome:
    """`problems` is empty when the round ended as if nothing had happened."""

    number: int
    kind: str
    broken: list[str]
    problems: list[str]
    extra_s: float
    redone_s: float


def kind_of(seed: int, number: int) -> str:
    """Every kind once in each run of len(KINDS) rounds, in an order of its own."""
    turn, place = divmod(number, len(KINDS))
    names = list(KINDS)
    Random(f"{seed}:turn {turn}").shuffle(names)
    return names[place]


def play(
    ground: Ground,
    seed: int,
    number: int,
    kind: str | None = None,
    environment: Mapping[str, str] | None = None,
    kinds: Mapping[str, Callable[[Trial], None]] = KINDS,
) -> Outcome:
    """Break, lift, run the same command, compare; the folder goes when all is well."""
    name = kind or kind_of(seed, number)
    folder = ground.folder / f"round-{number}-{time.monotonic_ns()}"
    folder.mkdir()
    trial = Trial(ground, folder / "out", Random(f"{seed}:{number}:{name}"), environment)
    try:
        kinds[name](trial)
        trial.judge()
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        trial.problems.append(f"{type(error).__name__}: {error}")
    if not trial.problems:
        shutil.rmtree(folder)
    return Outcome(number, name, trial.broken, trial.problems, trial.extra, trial.redone)
