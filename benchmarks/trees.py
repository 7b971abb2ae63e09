"""CPU seconds of a process and all below it, by part: driver, workers (with their guards), and Ray's own services.

Read from /proc (Linux), in steps of 10 ms: live processes, and what they have waited for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
WORKERS = ("corpusmill.pipeline.engine.worker", "ray::", "default_worker.py")


@dataclass(frozen=True)
class Spent:
    """CPU seconds by part of a tree."""

    driver: float = 0.0
    workers: float = 0.0
    services: float = 0.0

    @property
    def work(self) -> float:
        return self.driver + self.workers

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.driver - other.driver, self.workers - other.workers, self.services - other.services)


def spent(root: int | None = None) -> Spent:
    """Of this process, or of `root`, since it began. A child that is no worker counts for the driver, unless Ray started it."""
    root = root or os.getpid()
    parts = {"driver": 0.0, "workers": 0.0, "services": 0.0}
    children: dict[int, list[int]] = {}
    seconds = {}
    for pid, parent, cpu in _processes():
        children.setdefault(parent, []).append(pid)
        seconds[pid] = cpu
    waiting = [(root, "driver")]
    while waiting:
        pid, part = waiting.pop()
        parts[part] += seconds.get(pid, 0.0)
        waiting += [(child, _part(child, part)) for child in children.get(pid, ())]
    return Spent(**parts)


def _processes() -> Iterator[tuple[int, int, float]]:
    """(pid, parent, CPU seconds with those of children that ended) of all processes that can be seen."""
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                fields = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            yield int(place.name), int(fields[1]), sum(map(int, fields[11:15])) / TICK


def _part(pid: int, parent: str) -> str:
    """A worker's children are its own; Ray's services start its workers."""
    if parent == "workers":
        return parent
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return parent
    if any(word in words for word in WORKERS):
        return "workers"
    return "services" if parent == "services" or "/ray/" in words else "driver"
