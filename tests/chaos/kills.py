"""Rounds that kill and stop processes of a run at moments drawn from the seed."""

from __future__ import annotations

import signal
from pathlib import Path
from random import Random

from chaos.ground import Ground
from chaos.processes import Running, kill
from chaos.trial import Trial


def moment(ground: Ground, dice: Random) -> tuple[str, str, float]:
    """(event, stage, delay): any stage is as likely as any other, the delay reaches somewhat past the next event."""
    marks = sorted(ground.marks, key=lambda mark: ground.marks[mark])
    at = dice.randrange(len(marks) - 1)
    gap = ground.marks[marks[at + 1]] - ground.marks[marks[at]]
    return (*marks[at], round(dice.uniform(0, 1.2 * gap + 0.02), 3))


def wait(run: Running, when: tuple[str, str, float]) -> None:
    event, stage, delay = when
    if run.wait_for(event, stage):
        run.sleep(delay)


def strike(run: Running, what: str, trial: Trial, when: tuple[str, str, float]) -> None:
    """Kill one of `driver`, `busy`, `idle`, `guard`, or `stop` the driver by SIGTERM; written down, also when there was nobody."""
    pid = run.process.pid if what in ("driver", "stop") else run.find(what)
    hit = pid is not None and run.running and kill(pid, signal.SIGTERM if what == "stop" else signal.SIGKILL)
    name = {"driver": "driver", "stop": "SIGTERM to the driver"}.get(what, f"{what} worker")
    name = "guard of a worker" if what == "guard" else name
    trial.note(f"{name} at {when[1]}+{when[2]:.2f}s" + ("" if hit else " (nobody there)"))
    if hit and what == "driver":
        trial.driver_died(run)


def _one(what: str, trial: Trial) -> None:
    when = ("stage_began", "documents", round(trial.dice.uniform(0, 0.5), 3))
    if what != "guard":
        when = moment(trial.ground, trial.dice)
    run = trial.start()
    wait(run, when)
    strike(run, what, trial, when)
    # A stopped run says so by 130; one whose worker or guard was killed has to end well by itself.
    trial.end(run, {"driver": (-9, 0), "stop": (130, 0)}.get(what, (0,)))


def driver(trial: Trial) -> None:
    _one("driver", trial)


def busy_worker(trial: Trial) -> None:
    _one("busy", trial)


def idle_worker(trial: Trial) -> None:
    _one("idle", trial)


def guard(trial: Trial) -> None:
    _one("guard", trial)


def stopped(trial: Trial) -> None:
    _one("stop", trial)


def several(trial: Trial) -> None:
    """Two to four strikes; after one that ends the run the same command is started again and gets the next."""
    dice, run = trial.dice, trial.start()
    for _ in range(dice.randint(2, 4)):
        what = dice.choice(["driver", "busy", "idle", "stop", "guard"])
        when = moment(trial.ground, dice)
        if what == "guard":
            when = ("stage_began", "documents", round(dice.uniform(0, 0.3), 3))
        wait(run, when)
        strike(run, what, trial, when)
        if what in ("driver", "stop") or not run.running:
            trial.end(run, (-9, 130, 0))
            run = trial.start()
    trial.end(run, (0,))


def two_drivers(trial: Trial) -> None:
    """A second driver on the same OUT; sometimes one of the two is killed."""
    dice = trial.dice
    first = trial.start()
    late = round(dice.choice([0.0, dice.uniform(0, 0.8 * trial.ground.seconds)]), 2)
    first.sleep(late)
    second = trial.start()
    trial.note(f"second driver {late:.2f}s after the first")
    if dice.random() < 0.4:
        victim = dice.choice([first, second])
        when = moment(trial.ground, dice)
        wait(victim, when)
        strike(victim, "driver", trial, when)
        trial.end(victim, (-9, 0))
        trial.end(second if victim is first else first, (0,))
        return
    trial.end(first, (0,))
    trial.end(second, (0,))


def dead_writer(trial: Trial) -> None:
    """Temporary files of a writer that was killed, in stage folders and in OUT itself; then a driver is killed as well."""
    import os
    import subprocess
    import sys

    when = moment(trial.ground, trial.dice)
    run = trial.start()
    wait(run, when)
    strike(run, "driver", trial, when)
    trial.end(run, (-9, 0))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    folders = sorted(path for path in trial.out.rglob("*") if path.is_dir() and "metrics" not in path.parts)
    for folder in [trial.out, *trial.dice.sample(folders, min(3, len(folders)))]:
        name = f".tmp-{os.uname().nodename}-{gone.pid}-{trial.dice.randbytes(16).hex()}-part-00000.parquet"
        Path(folder / name).write_bytes(b"half")
    trial.note("temporary files of a dead writer")
