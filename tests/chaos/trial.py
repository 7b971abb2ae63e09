"""One round in progress: its folder, its dice, what was broken, what went wrong, and how it is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

from chaos.ground import Ground, redone_seconds, unbalanced
from chaos.processes import Running


class Trial:
    """`ray`: the environment of a cluster to run on; without, local workers."""

    def __init__(self, ground: Ground, out: Path, dice: Random, ray: Mapping[str, str] | None = None) -> None:
        self.ground = ground
        self.out = out
        self.dice = dice
        self.ray = ray
        self.broken: list[str] = []
        self.problems: list[str] = []
        self.extra = -ground.seconds  # seconds of all its runs beyond those of an undisturbed one
        self.redone = 0.0  # core-seconds
        self.finished = False  # a run ended with 0 after all that was broken

    def note(self, what: str) -> None:
        self.broken.append(what)

    def start(self, before: Callable[[], None] | None = None) -> Running:
        return self.ground.start(self.out, before, self.ray)

    def end(self, run: Running, allowed: tuple[int, ...]) -> int:
        """Wait for a run's end; another exit code than those allowed, or a traceback, is a problem."""
        code = run.end()
        if not self.finished:
            self.extra += run.seconds
        self.finished = code == 0
        if code not in allowed or "Traceback" in run.words():
            self.problems.append(
                f"a run ended with {code} (allowed: {', '.join(map(str, allowed))}):\n{run.words()}"
            )
        return code

    def judge(self) -> None:
        """The same command ends with 0, and everything is as if nothing had happened."""
        self.end(self.start(), (0,))
        self.problems += self.ground.differences(self.out)
        if not self.problems:
            self.problems += unbalanced(self.out)
        self.redone += redone_seconds(self.out)
