"""Rounds on disks that fill or turn read-only, and under limits of the system. Mounting needs rights; the limits need none."""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from chaos.kills import moment, wait
from chaos.trial import Trial

ENOUGH = "256m"


def full(trial: Trial) -> None:
    """A disk that is full somewhere in the run, then has space again. Without the right to mount: a limit on files."""
    needed = sum(path.stat().st_size for path in trial.ground.reference.rglob("*") if path.is_file())
    size = int(needed * trial.dice.uniform(0.1, 0.9))
    with small_disk(trial, f"size={size}") as mounted:
        if mounted:
            code = trial.end(trial.start(), (0, 1))
            mount(trial.out, f"remount,size={ENOUGH}")
            trial.note(f"disk of {size:,} bytes" + (" (was enough)" if code == 0 else ""))
            trial.end(trial.start(), (0,))
    if not mounted:
        file_limit(trial)


def read_only(trial: Trial) -> None:
    """A disk that turns read-only in the middle of a run, as one with errors does. Without the right to mount: few open files."""
    with small_disk(trial, f"size={ENOUGH}") as mounted:
        if mounted:
            when = moment(trial.ground, trial.dice)
            run = trial.start()
            wait(run, when)
            turned = False
            while run.running and not turned:  # refused while somebody has a file open for writing
                turned = mount(trial.out, "remount,ro")
                run.sleep(0.005)
            code = trial.end(run, (0, 1))
            mount(trial.out, "remount,rw")
            trial.note(f"read-only at {when[1]}+{when[2]:.2f}s" + (" (too late)" if code == 0 else ""))
            trial.end(trial.start(), (0,))
    if not mounted:
        open_files(trial)


def file_limit(trial: Trial) -> None:
    """Writes fail past a number of bytes in a file, in the driver and all its workers; then they do not."""
    size = int(2 ** trial.dice.uniform(9, 15.5))
    code = trial.end(trial.start(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))), (0, 1))
    trial.note(f"files of at most {size:,} bytes" + (" (was enough)" if code == 0 else ""))


def open_files(trial: Trial) -> None:
    """A process may have few files open; then as many as before."""
    most = trial.dice.randint(6, 20)
    code = trial.end(trial.start(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))), (0, 1))
    trial.note(f"at most {most} open files a process" + (" (was enough)" if code == 0 else ""))


@contextlib.contextmanager
def small_disk(trial: Trial, options: str) -> Iterator[bool]:
    """OUT on a tmpfs of its own for as long as the context lasts, then in the same place on an ordinary disk; False: no right to."""
    trial.out.mkdir()
    if not mount(trial.out, options):
        trial.out.rmdir()
        yield False
        return
    kept = trial.out.with_name("kept")
    try:
        yield True
        shutil.copytree(trial.out, kept)
    finally:
        unmount(trial.out)
    trial.out.rmdir()
    kept.rename(trial.out)


def mount(folder: Path, options: str) -> bool:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True, check=False
    )
    return done.returncode == 0


def unmount(folder: Path) -> None:
    for options in ([], ["-l"]):
        done = subprocess.run(["umount", *options, str(folder)], capture_output=True, check=False)
        if done.returncode == 0:
            return
