"""One round in progress: its folder, its dice, what was broken, what went wrong, and how it is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

from chaos.ground import WORKERS, Ground, lines_of, redone_seconds, unbalanced
from chaos.processes import Running


class Trial:
    """`environment` of its runs: None is ours; one with CLUSTER runs on that Ray instead of local workers."""

    def __init__(
        self, ground: Ground, out: Path, dice: Random, environment: Mapping[str, str] | None = None
    ) -> None:
        self.ground = ground
        self.out = out
        self.address: str | Path = out  # what --out says; `out` is where the files are looked at
        self.fetch: Callable[[], None] = lambda: None  # bring them there
        self.dice = dice
        self.environment = environment
        self.wanted: Mapping[str, str] = ground.bytes_of
        self.broken: list[str] = []
        self.problems: list[str] = []
        self.extra = -ground.seconds  # seconds of all its runs beyond those of an undisturbed one
        self.redone = 0.0  # core-seconds
        self.finished = False  # a run ended with 0 after all that was broken
        self._cut_off: list[
            tuple[Path, int]
        ] = []  # metrics of the stage in work, and their lines, when a driver was killed

    def note(self, what: str) -> None:
        self.broken.append(what)

    def start(self, before: Callable[[], None] | None = None) -> Running:
        return self.ground.start(self.address, before, self.environment)

    def driver_died(self, run: Running) -> None:
        """Its workers went with it: what they had in work is done again, and is the first that the next run does."""
        stage = run.stage_in_work()
        if stage:
            path = self.out / "metrics" / f"{stage}.jsonl"
            self._cut_off.append((path, sum(1 for _ in lines_of(path))))

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
        self.fetch()
        self.problems += self.ground.differences(self.out, self.wanted)
        if not self.problems:
            self.problems += unbalanced(self.out)
        self.redone += redone_seconds(self.out)
        for path, lines in self._cut_off:
            again = list(lines_of(path))[lines : lines + WORKERS]
            self.redone += sum(line["cpu_seconds"] for line in again)
