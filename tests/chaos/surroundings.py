"""Rounds in which the same command is given under other circumstances: another locale, time zone, umask, folder, hash seed, other clocks."""

from __future__ import annotations

import os
import time

from chaos.damage import killed
from chaos.trial import Trial

CHOICES = {
    "LC_ALL": ["C", "POSIX", "C.UTF-8", "tr_TR.UTF-8"],
    "TZ": ["Pacific/Kiritimati", "America/St_Johns", "UTC", "<-27>+27"],
    "PYTHONHASHSEED": ["0", "1", "4294967295"],
    "COLUMNS": ["1", "400"],
    "PYTHONUTF8": ["0", "1"],
}

YEARS_S = 10 * 365 * 86_400


def others(trial: Trial) -> None:
    """A run is killed; the clock seems to have jumped by years either way; the next run has other surroundings."""
    killed(trial)
    for path in sorted([*trial.out.rglob("*"), *trial.ground.crawl.iterdir()]):
        at = time.time() + trial.dice.uniform(-YEARS_S, YEARS_S)
        os.utime(path, (at, at))
    chosen = {name: trial.dice.choice(values) for name, values in CHOICES.items()}
    elsewhere = trial.out.with_name("elsewhere")
    elsewhere.mkdir()
    umask = trial.dice.choice([0o000, 0o027, 0o077])

    def move() -> None:
        os.umask(umask)
        os.chdir(elsewhere)

    trial.environment = {**os.environ, **chosen, "TMPDIR": str(elsewhere)}
    trial.end(trial.start(move), (0,))
    trial.note(", ".join(f"{name}={value}" for name, value in chosen.items()) + f", umask {umask:03o}")
    trial.environment = None
