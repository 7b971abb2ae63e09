"""What a partition adds to the driver's memory: at its peak and between stages, in a run of many stages over tiny partitions.

    python benchmarks/driver_memory.py [--quick] [--partitions 1000,5000]

Each size is a process of its own. `peak` is the most that it held in any stage; `between` the most that was left when a stage began, after
what was free had been given back to the system (so it holds the tables of the manifests used last, and the list of inputs). The last
line is one JSON object; its ratios are bytes for each partition more (5,000 partitions: about four minutes on two cores).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from partitions import lines_of

from corpusmill.jobs.reporter import SilentReporter
from corpusmill.pipeline.engine.driver import Driver
from corpusmill.pipeline.engine.local import LONE_THREAD, LocalRunner
from corpusmill.pipeline.engine.metrics import read_lines
from corpusmill.pipeline.engine.stage import Stage

RECIPE = """seed: 17
partition_bytes: {line}
stages:
  - extract: {{}}
  - filter: [gopher_quality: {{min_words: 1}}, c4: {{}}]
  - dedup: {{}}
  - redact: {{emails: placeholder}}
"""


class Weighed(SilentReporter):
    """Notes what the process holds when a stage begins."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}

    def stage_began(self, stage: Stage, units: int, done: int) -> None:
        pa.default_memory_pool().release_unused()
        ctypes.CDLL(None).malloc_trim(0)
        self.held[stage.name] = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--partitions", help="sizes, by commas (1000,5000; 50,250 with --quick)")
    parser.add_argument("--size", nargs=2, help=argparse.SUPPRESS)  # a process that main started
    given = parser.parse_args()
    os.environ.update(LONE_THREAD)
    if given.size:
        print(json.dumps(one_size(int(given.size[0]), Path(given.size[1]))))
        return
    sizes = [
        int(word) for word in (given.partitions or ("50,250" if given.quick else "1000,5000")).split(",")
    ]
    with tempfile.TemporaryDirectory(prefix="driver-memory-") as folder:
        found = [in_a_process(size, Path(folder) / str(size)) for size in sizes]
    print(json.dumps({"benchmark": "driver_memory", "ratios": growth(found), "sizes": found}))


def in_a_process(size: int, folder: Path) -> dict[str, int]:
    line = [sys.executable, __file__, "--size", str(size), str(folder)]
    said = subprocess.run(line, check=True, stdout=subprocess.PIPE).stdout.splitlines()
    print("\n".join(f"  {each.decode()}" for each in said), flush=True)
    found: dict[str, int] = json.loads(said[-1])
    shutil.rmtree(folder)
    return found


def growth(found: list[dict[str, int]]) -> dict[str, int | None]:
    """Bytes for each partition more, between the smallest and the largest size; None for one size alone."""
    first, last = found[0], found[-1]
    more = last["partitions"] - first["partitions"]
    return {
        f"{name}_bytes": (last[name] - first[name]) // more if more else None for name in ("peak", "between")
    }


def one_size(size: int, folder: Path) -> dict[str, int]:
    recipe = lines_of(folder / "in", size, RECIPE)
    reporter = Weighed()
    with LocalRunner(2, log=folder / "workers.log") as runner:
        Driver(folder / "warm", lines_of(folder / "warm-in", 8, RECIPE), runner, SilentReporter()).run()
        Driver(folder / "run", recipe, runner, reporter).run()
    peaks = {
        line["stage"]: line["peak_rss_bytes"]
        for line in read_lines(folder / "run" / "metrics" / "run" / "driver.jsonl")
    }
    highest = max(peaks, key=lambda stage: peaks[stage])
    for stage, held in reporter.held.items():
        print(f"  {stage}: {held:,} when it began, {peaks.get(stage, 0):,} at most")
    return {
        "partitions": size,
        "stages": len(reporter.held),
        "peak": peaks[highest],
        "between": max(reporter.held.values()),
        "at_first": reporter.held["documents"],
    }


if __name__ == "__main__":
    main()
