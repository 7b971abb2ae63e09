"""The driver's rate and memory: a run over N tiny partitions, one a task, whose workers have next to nothing to do.

A partition is a line of JSON Lines, four a file; the stages are documents and their ledger. The driver ends once, as by a kill, when all commits of
the second stage stand, and takes it up from them. Started by `engine.py --partitions`; each size is a process of its own, so that its
peak memory is its own. `driver_ms` is CPU of the driver for a partition and stage, `resume_ms` of the one that takes up from commits,
`reuse_ms` of one that finds all manifests; `peak_bytes` is what a partition adds to the driver's peak memory.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine import runner_of
from trees import Spent, spent

from corpusmill.jobs.reporter import SilentReporter
from corpusmill.pipeline.engine import layout
from corpusmill.pipeline.engine.attempts import Done
from corpusmill.pipeline.engine.driver import Driver
from corpusmill.pipeline.engine.files import Task
from corpusmill.pipeline.engine.local import Stop
from corpusmill.pipeline.engine.metrics import read_lines
from corpusmill.pipeline.engine.roles import Runner
from corpusmill.pipeline.recipe import Recipe, load_recipe

RECIPE = """seed: 17
partition_bytes: {line}
stages: [{{extract: {{with: resiliparse}}}}]
"""
LINE = '{"text": "Line %08d has words, so that there is something to count."}\n'


class Killed(Exception):
    """Raised where a driver is to end."""


class EndsWith:
    """A runner whose driver ends, as by a kill, when all tasks of the named stage are in: their commits stand, no manifest does."""

    def __init__(self, runner: Runner, stage: str) -> None:
        self.runner, self.workers, self.queue, self.stage = runner, runner.workers, runner.queue, stage

    def run(self, tasks: Sequence[Task], stop: Stop | None = None) -> Iterator[Done]:
        last = None
        for last in self.runner.run(tasks, stop):
            yield last
        if last is not None and last.task.stage == self.stage:
            raise Killed


def rates(folder: Path, sizes: Sequence[int], runner: str) -> dict[str, Any]:
    """A run a size; what a partition costs, and what each more adds."""
    found = []
    for size in sizes:
        out = folder / f"tiny-{size}"
        shutil.rmtree(out, ignore_errors=True)
        line = [sys.executable, __file__, runner, str(size), str(out)]
        found.append(
            json.loads(subprocess.run(line, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
        )
        print(f"  {found[-1]}", flush=True)
        shutil.rmtree(out)
    first, last = found[0], found[-1]
    more = last["partitions"] - first["partitions"]
    slope = (last["peak_rss"] - first["peak_rss"]) // more if more else None
    return {"benchmark": "engine", "runner": runner, "peak_bytes": slope, "sizes": found}


def one_size(runner: str, size: int, out: Path) -> dict[str, Any]:
    layout.TASK_SECONDS = 0.0  # a task a partition
    recipe = lines_of(out / "in", size)
    with runner_of("local_two" if runner == "local" else "ray_two", out) as made:
        assert made is not None, "Ray is not installed"
        Driver(out / "warm", lines_of(out / "warm-in", 8), made, SilentReporter()).run()
        base = peak_of(out / "warm")

        def drive(with_runner: Runner) -> Driver:
            driver = Driver(out / "run", recipe, with_runner, SilentReporter())
            driver.run()
            return driver

        def killed() -> None:
            try:
                drive(EndsWith(made, "ledger.extract"))
            except Killed:
                return
            raise AssertionError("the driver was to end")

        began = time.perf_counter()
        first, _ = _clocked(killed)
        ended = time.perf_counter()
        second, driver = _clocked(lambda: drive(made))
        stages = len(driver.stages)
        third, _ = _clocked(lambda: drive(made))
        return {
            "partitions": size,
            "driver_ms": _ms(first.driver, size * stages),
            "workers_ms": _ms(first.workers, size * stages),
            "services_ms": _ms(first.services, size * stages),
            "resume_ms": _ms(second.driver, size),
            "reuse_ms": _ms(third.driver, size * stages),
            "tasks_a_second": round(size * stages / (ended - began)),
            "manifest_bytes": _manifests(out / "run") // size // stages,
            "base_rss": base,
            "peak_rss": peak_of(out / "run"),
        }


def lines_of(folder: Path, size: int, stages: str = RECIPE) -> Recipe:
    """`size` lines, four a file (a WARC file of a large crawl has about four partitions), and the recipe that makes each a partition."""
    folder.mkdir(parents=True)
    for start in range(0, size, 4):
        lines = "".join(LINE % number for number in range(start, min(size, start + 4)))
        (folder / f"{start:08d}.jsonl").write_text(lines)
    recipe = folder / "recipe.yaml"
    recipe.write_text(stages.format(line=len(LINE % 0)))
    return load_recipe(str(recipe)).with_inputs([f"tiny={folder}/*.jsonl"])


def _clocked(work: Callable[[], Any]) -> tuple[Spent, Any]:
    """What it spent; the driver's is its own process alone, without the guard that extract starts once to see that it can."""
    began, own = spent(), time.process_time()
    result = work()
    return replace(spent() - began, driver=time.process_time() - own), result


def peak_of(run: Path) -> int:
    """The driver's most memory in any stage of a run, as it noted it."""
    return max(line["peak_rss_bytes"] for line in read_lines(run / "metrics" / "run" / "driver.jsonl"))


def _ms(seconds: float, times: int) -> float:
    return round(1000 * seconds / times, 3)


def _manifests(out: Path) -> int:
    return sum(path.stat().st_size for path in out.rglob("_manifest.parquet"))


if __name__ == "__main__":
    name, count, place = sys.argv[1:]
    os.environ["PYTHONUNBUFFERED"] = "1"
    print(json.dumps(one_size(name, int(count), Path(place))))
