"""Rounds on a full disk: a small tmpfs where one can be mounted, and a limit on the size of files, which needs no rights."""

from __future__ import annotations

import resource
import shutil
import subprocess
from pathlib import Path

from chaos.trial import Trial

ENOUGH = "256m"


def full(trial: Trial) -> None:
    """A disk that is full somewhere in the run, then has space again. Without the right to mount: a limit on files."""
    needed = sum(path.stat().st_size for path in trial.ground.reference.rglob("*") if path.is_file())
    size = int(needed * trial.dice.uniform(0.1, 0.9))
    trial.out.mkdir()
    if not mount(trial.out, f"size={size}"):
        trial.out.rmdir()
        return file_limit(trial)
    try:
        code = trial.end(trial.start(), (0, 1))
        mount(trial.out, f"remount,size={ENOUGH}")
        trial.note(f"disk of {size:,} bytes" + (" (was enough)" if code == 0 else ""))
        trial.end(trial.start(), (0,))
        shutil.copytree(trial.out, trial.out.with_name("copied"))
    finally:
        unmount(trial.out)
    # What is judged next is on an ordinary disk, in the same place.
    trial.out.rmdir()
    trial.out.with_name("copied").rename(trial.out)


def file_limit(trial: Trial) -> None:
    """Writes fail past a number of bytes in a file, in the driver and all its workers; then they do not."""
    size = int(2 ** trial.dice.uniform(9, 15.5))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    code = trial.end(trial.start(limit), (0, 1))
    trial.note(f"files of at most {size:,} bytes" + (" (was enough)" if code == 0 else ""))


def mount(folder: Path, options: str) -> bool:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True, check=False
    )
    return done.returncode == 0


def unmount(folder: Path) -> None:
    for options in ([], ["-l"]):
        if (
            subprocess.run(["umount", *options, str(folder)], capture_output=True, check=False).returncode
            == 0
        ):
            return
