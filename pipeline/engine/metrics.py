"""What a run used, in OUT/metrics: apart from the data, since it differs from run to run.

    metrics/<stage>.jsonl      a line a task: units, attempt, host, pid, seconds, CPU seconds, peak memory, folder of the stage
    metrics/run/lost.jsonl     a line an attempt that came to nothing
    metrics/run/driver.jsonl   a line a stage that was made: the driver's own seconds, CPU seconds and peak memory

A worker's CPU seconds include those of its helper processes (extract's guard does nearly all of that stage's work). Reading all
clocks costs 20 us a task.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from corpusmill.pipeline.engine.place import Where, place_of

HELPERS: set[int] = set()
"""Child processes that work for this process and are still alive; whoever starts one adds it, and takes it out when it has ended."""

FIGURES: Counter[str] = Counter()
"""What an operation counts of its own beside its result, for its task's line: figures that may differ from run to run."""


@dataclass(frozen=True)
class Lost:
    """An attempt that came to nothing. `cpu_seconds` of a worker that died are its seconds: it held a core for so long."""

    stage: str
    units: tuple[int, ...]
    why: str
    seconds: float
    cpu_seconds: float


class Meter:
    """What this process uses from now on; with `helpers` and what they use. The driver takes none: its workers count for themselves."""

    def __init__(self, helpers: bool = True) -> None:
        _forget_peak()
        FIGURES.clear()
        self._clock = cpu_seconds if helpers else time.process_time
        self._started, self._cpu = time.perf_counter(), self._clock()

    def usage(self) -> dict[str, float]:
        return {
            "seconds": time.perf_counter() - self._started,
            "cpu_seconds": max(0.0, self._clock() - self._cpu),
            "peak_rss_bytes": peak_bytes(),
            "pid": os.getpid(),
            **FIGURES,
        }


def cpu_seconds() -> float:
    """Of this process, of its children that have ended, and of its helpers."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + sum(map(_clock_of, tuple(HELPERS)))


def _clock_of(pid: int) -> float:
    """CPU seconds of another process; 0 where it has ended or the system has no such clock."""
    if sys.platform != "linux":
        return 0.0
    with contextlib.suppress(OSError):
        return time.clock_gettime((~pid << 3) | 2)  # the kernel's CPUCLOCK_SCHED of a process
    return 0.0


def _forget_peak() -> None:
    """Let the peak of this task's memory be its own, not that of an earlier one (Linux)."""
    for pid in _processes():
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Most memory that this process and its helpers held, each at its own peak."""
    peaks = [_peak_of(pid) for pid in _processes()]
    unit = 1 if sys.platform == "darwin" else 1024
    return sum(peaks) if peaks[0] else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _processes() -> list[str]:
    return ["self", *map(str, tuple(HELPERS))]


def _peak_of(pid: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def note_lost(out: Where, lost: Iterable[Lost]) -> None:
    note(out, "run/lost.jsonl", map(asdict, lost))


def note_driver(out: Where, stage: str, folder: str, usage: Mapping[str, float]) -> None:
    note(out, "run/driver.jsonl", [{"stage": stage, "folder": folder, **usage}])


def note(out: Where, name: str, values: Iterable[Mapping[str, Any]]) -> None:
    """Append lines to OUT/metrics/`name`."""
    lines = [json.dumps(value) + "\n" for value in values]
    if lines:
        (place_of(out) / "metrics" / name).append("".join(lines))


def read_lines(path: Where) -> Iterator[dict[str, Any]]:
    """The lines of a metrics file; one that a full disk or a kill cut counts for nothing, and no file is no lines."""
    try:
        data = place_of(path).read_bytes()
    except FileNotFoundError:
        return
    for line in data.decode(errors="replace").split("\n"):
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                yield value
