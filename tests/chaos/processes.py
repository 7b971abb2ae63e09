"""A run in a process of its own: its events as they come, its workers, and who of them is busy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PATIENCE_S = 900
"""A run that takes longer than this has hung; an undisturbed one takes seconds, ten times as many on a machine with ten times the work."""


class Running:
    """The command line at work; a thread collects what it says, so that it never waits for us."""

    def __init__(
        self,
        arguments: list[str],
        environment: Mapping[str, str] | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        self.started = time.monotonic()
        self.ended: float | None = None
        self.events: list[tuple[float, dict[str, Any]]] = []  # (seconds since the start, event)
        self.said: list[str] = []
        self._news = threading.Condition()
        self.process = subprocess.Popen(
            arguments,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(environment) if environment else None,
            preexec_fn=before,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.said.append(line)
                if line.startswith("{"):
                    self.events.append((time.monotonic() - self.started, json.loads(line)))
                self._news.notify_all()
        with self._news:
            self.ended = time.monotonic()
            self._news.notify_all()

    def wait_for(self, event: str, stage: str) -> bool:
        """Whether this event came before the run ended."""

        def there() -> bool:
            return any(e["event"] == event and e["stage"] == stage for _, e in self.events)

        with self._news:
            self._news.wait_for(lambda: self.ended is not None or there(), PATIENCE_S)
            return there() and self.ended is None

    def sleep(self, seconds: float) -> None:
        """So long, or until the run ends."""
        with self._news:
            self._news.wait_for(lambda: self.ended is not None, seconds)

    def end(self) -> int:
        """Wait for the end; the exit code. One that hangs is killed: -9."""
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(30)
        return self.process.returncode

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def seconds(self) -> float:
        """From its start to its end, or to now."""
        return (self.ended or time.monotonic()) - self.started

    def stage_in_work(self) -> str | None:
        """The stage that has begun and not ended."""
        with self._news:
            last = self.events[-1][1] if self.events else {}
        return last.get("stage") if last.get("event") in ("stage_began", "task_done") else None

    def words(self) -> str:
        """The end of what it said beside events."""
        return "".join(line for line in self.said if not line.startswith("{"))[-2000:]

    def workers(self) -> list[int]:
        return children(self.process.pid, "corpusmill.pipeline.engine.worker")

    def guards(self) -> list[int]:
        """The extracting children of its workers."""
        return [
            pid
            for worker in self.workers()
            for pid in children(worker, "corpusmill.pipeline.extract.guard_child")
        ]

    def find(self, what: str) -> int | None:
        """Wait for a `busy` worker, an `idle` one, or a `guard`; None when the run ends before there is one."""
        while self.running:
            found = self.guards() if what == "guard" else idle_or_busy(self.workers(), what == "busy")
            if found:
                return found[0]
            self.sleep(0.02)
        return None


def kill(pid: int, number: int = signal.SIGKILL) -> bool:
    """Whether there was something to kill."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def children(parent: int, module: str) -> list[int]:
    """Children of a process that run `python -m module`."""
    return [
        pid
        for pid, stat in processes()
        if stat[1] == str(parent) and module in _read(f"/proc/{pid}/cmdline") and stat[0] != "Z"
    ]


def processes() -> list[tuple[int, list[str]]]:
    """(pid, fields of /proc/PID/stat from the state on) of all processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        fields = _read(str(path / "stat")).rpartition(")")[2].split()
        if fields:
            found.append((int(path.name), fields))
    return sorted(found)


def idle_or_busy(workers: list[int], busy: bool) -> list[int]:
    """Workers whose session used the CPU within 60 ms, or did not (ticks are of 10 ms)."""
    before = _ticks(workers)
    time.sleep(0.06)
    after = _ticks(workers)
    return [pid for pid in workers if (after.get(pid, 0) > before.get(pid, 0)) == busy]


def _ticks(workers: list[int]) -> dict[int, int]:
    """CPU ticks of each worker with its guard: a worker leads a session."""
    used = dict.fromkeys(workers, 0)
    for _, stat in processes():
        if (session := int(stat[3])) in used:
            used[session] += int(stat[11]) + int(stat[12])
    return used


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
