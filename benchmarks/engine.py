"""What the engine costs beside the work: CPU seconds of driver and workers over those of the plain function, and the driver's rate.

    python benchmarks/engine.py [--quick] [--out FOLDER]
    python benchmarks/engine.py --partitions 5000,10000,20000 [--runner local|ray]

The work is extraction of a crawl made on the spot (jobs/demo_pages.py), in partitions of 10 s (2 s with --quick). `function` calls what a
worker calls, in a loop in one process; each other way is the driver with a runner. All are processes of their own, in turns, and
have done a small run before the clock starts: what that cost is `startup`. Ray's services are apart (`ray_services`). `two_functions`
are two plain loops beside each other: what the machine alone takes for two at once. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trees import Spent, spent

from corpusmill.jobs.demo_pages import make_demo_crawl
from corpusmill.jobs.reporter import SilentReporter
from corpusmill.pipeline.engine.attempts import Done, Queue
from corpusmill.pipeline.engine.driver import Driver
from corpusmill.pipeline.engine.files import Task
from corpusmill.pipeline.engine.local import LONE_THREAD, LocalRunner, Stop
from corpusmill.pipeline.engine.place import place_of
from corpusmill.pipeline.engine.roles import Runner
from corpusmill.pipeline.engine.task import run_task
from corpusmill.pipeline.recipe import load_recipe

RECIPE = "seed: 17\nstages: [{extract: {with: trafilatura}}]\n"
PAGES = 120
"""Pages of the crawl that partitions repeat."""

WAYS = ("function", "local", "local_two", "ray", "two_functions")


class InProcess:
    """The plain function: what a worker does with a task, called in a loop."""

    workers = 1

    def __init__(self) -> None:
        self.queue = Queue()  # of attempts that failed: none here, what raises ends the run

    def run(self, tasks: Sequence[Task], stop: Stop | None = None) -> Iterator[Done]:
        for task in tasks:
            yield Done(task, run_task(task), {}, 1)


class Clock:
    """A runner that notes what the process tree had spent when it was first given work."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.workers, self.queue, self.began = runner, runner.workers, runner.queue, None

    def run(self, tasks: Sequence[Task], stop: Stop | None = None) -> Iterator[Done]:
        self.began = self.began or spent()
        return self.runner.run(tasks, stop)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument(
        "--out", type=Path, help="where to work (a folder that is made and kept); a temporary one"
    )
    parser.add_argument(
        "--partitions", help="numbers of tiny partitions, by commas: the driver's rate instead"
    )
    parser.add_argument("--runner", choices=("local", "ray"), default="local", help="with --partitions")
    parser.add_argument("--way", nargs=3, help=argparse.SUPPRESS)  # a process that main started
    given = parser.parse_args()
    os.environ.update(LONE_THREAD)
    if given.way:
        way, crawl, out = given.way
        print(json.dumps(one_way(way, Path(crawl), Path(out))))
        return
    with contextlib.ExitStack() as stack:
        folder = given.out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="engine-")))
        folder.mkdir(parents=True, exist_ok=True)
        if given.partitions:
            from partitions import rates

            result = rates(folder, [int(word) for word in given.partitions.split(",")], given.runner)
        else:
            result = overheads(folder, *((2, 2.0, 1) if given.quick else (4, 10.0, 3)))
    print(json.dumps(result))


def overheads(folder: Path, count: int, seconds: float, rounds: int) -> dict[str, Any]:
    """All ways in turns on `count` partitions of about `seconds`; medians of CPU seconds, their ratios, and whether the files are equal."""
    crawl, each = make_partitions(folder, count, seconds)
    print(f"{count} partitions of about {each:.1f} s of CPU")
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            found[way].append(
                two_functions(crawl, folder) if way == "two_functions" else start(way, crawl, folder)
            )
            print(f"  {way}: {found[way][-1]}")
    median = {way: statistics.median(one["work"] for one in runs) for way, runs in found.items() if runs[0]}
    ratio = {name: _ratio(median.get(over), median[under]) for name, over, under in RATIOS}
    one_of = {
        way: {run["files"] for run in runs if run} for way, runs in found.items() if way != "two_functions"
    }
    return {
        "benchmark": "engine",
        "ratios": ratio,
        "checks": {"files_equal": len(set().union(*one_of.values())) == 1},
        "cpu_seconds": {way: round(value, 2) for way, value in median.items()},
        "startup": {
            way: statistics.median(run["startup"] for run in runs) for way, runs in found.items() if runs[0]
        },
        "ray_services": statistics.median(run["services"] for run in found["ray"])
        if found["ray"][0]
        else None,
    }


RATIOS = (
    ("ray_vs_function", "ray", "function"),
    ("local_vs_function", "local", "function"),
    ("two_workers_cpu_vs_one", "local_two", "local"),
    ("two_functions_cpu_vs_one", "two_functions", "function"),
)


def _ratio(over: float | None, under: float) -> float | None:
    return None if over is None else round(over / under, 3)


def make_partitions(folder: Path, count: int, seconds: float) -> tuple[Path, float]:
    """`count` WARC files of about `seconds` each for the plain function, by repeating a small crawl, and a small one to warm up on."""
    made = make_demo_crawl(folder / "pages", PAGES)
    pages = made.warcs[0].read_bytes()
    crawl = folder / "crawl"
    (crawl / "warm").mkdir(parents=True, exist_ok=True)
    for number in range(8):
        (crawl / "warm" / f"{number}.warc.gz").write_bytes(pages)
    (crawl / "work").mkdir(exist_ok=True)
    (crawl / "work" / "0.warc.gz").write_bytes(pages * 4)
    each = start("function", crawl, folder)["work"] / 4
    times = max(1, round(seconds / each))
    for number in range(count):
        (crawl / "work" / f"{number}.warc.gz").write_bytes(pages * times)
    return crawl, each * times


def start(way: str, crawl: Path, folder: Path) -> dict[str, Any]:
    """A way in a process of its own: CPU seconds of the work, before it (`startup`) and of Ray's services; {} without Ray."""
    return _finish(_begin(way, crawl, folder / "out"), way)


def two_functions(crawl: Path, folder: Path) -> dict[str, Any]:
    """Two plain loops at once, each over all the work; the mean of the two."""
    pair = [_begin("function", crawl, folder / name) for name in ("out", "out-2")]
    both = [_finish(each, "function") for each in pair]
    return {name: (both[0][name] + both[1][name]) / 2 for name in ("work", "startup")}


def _begin(way: str, crawl: Path, out: Path) -> subprocess.Popen[bytes]:
    shutil.rmtree(out, ignore_errors=True)
    line = [sys.executable, __file__, "--way", way, str(crawl), str(out)]
    return subprocess.Popen(line, stdout=subprocess.PIPE)


def _finish(process: subprocess.Popen[bytes], way: str) -> dict[str, Any]:
    said, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{way} failed with exit code {process.returncode}")
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def one_way(way: str, crawl: Path, out: Path) -> dict[str, Any]:
    """Warm up on the small files, then do the work; the clock runs from the first task on to the end of the run."""
    out.mkdir(parents=True)
    with runner_of(way, out) as runner:
        if runner is None:
            return {}
        for name in ("warm", "work"):
            clock = Clock(runner)
            recipe = out / f"{name}.yaml"
            recipe.write_text(RECIPE)
            began = time.perf_counter()
            made = load_recipe(str(recipe)).with_inputs([f"web={crawl / name}/*.warc.gz"])
            Driver(out / name, made, clock, SilentReporter()).run()
        assert clock.began is not None
        took: Spent = spent() - clock.began
        return {
            "work": round(took.work, 2),
            "driver": round(took.driver, 2),
            "services": round(took.services, 2),
            "startup": round(clock.began.work, 2),
            "seconds": round(time.perf_counter() - began, 2),
            "files": digest(out / "work"),
        }


@contextlib.contextmanager
def runner_of(way: str, out: Path) -> Iterator[Runner | None]:
    """The runner by name; None for Ray where it is not installed."""
    if way == "function":
        yield InProcess()
    elif way.startswith("local"):
        with LocalRunner(2 if way == "local_two" else 1, log=out / "workers.log") as runner:
            yield runner
    else:
        try:
            from corpusmill.pipeline.engine.ray_runner import RayRunner

            runner = RayRunner("local", place_of(out), 2 if way == "ray_two" else 1)
        except ImportError:
            yield None
            return
        with runner:
            yield runner


def digest(out: Path) -> str:
    """Of all files of a run but the metrics."""
    paths = sorted(
        path for path in out.rglob("*") if path.is_file() and "metrics" not in path.relative_to(out).parts
    )
    whole = hashlib.sha256()
    for path in paths:
        whole.update(f"{path.relative_to(out)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()[:16]


if __name__ == "__main__":
    main()
