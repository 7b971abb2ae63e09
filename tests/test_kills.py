"""kill -9 of the driver and of workers in the middle of stages: the same command finishes, with the bytes of an undisturbed run."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from runs import alive, command, hashes, inputs

from corpusmill.jobs.reporter import LineReporter
from corpusmill.pipeline.engine.attempts import Queue
from corpusmill.pipeline.engine.driver import Driver
from corpusmill.pipeline.errors import RunError
from corpusmill.pipeline.recipe import load_recipe

STAGES = ("documents", "dedup.edges", "shard.write")
"""Three kinds of work: partitions, a set that one task joins, shards."""

OTHERS = ("ledger.extract", "filter.measures", "dedup.signatures", "dedup.clusters", "shard.scatter", "mix")


def start(recipe: Path, crawl: Path, out: Path) -> subprocess.Popen[str]:
    arguments = command("run", recipe, "--out", out, *inputs(crawl), "--workers", "2")
    return subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_for(driver: subprocess.Popen[str], event: str, stage: str) -> None:
    assert driver.stderr is not None
    seen = []
    for line in driver.stderr:
        seen.append(line)
        if line.startswith("{") and (value := json.loads(line))["stage"] == stage and value["event"] == event:
            return
    raise AssertionError(f"the run ended before {event} of {stage}:\n{''.join(seen)[-3000:]}")


def workers(driver: int) -> list[int]:
    """Child processes of the driver that are workers."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rsplit(")", 1)[1].split()[1])
            if (
                parent == driver
                and "corpusmill.pipeline.engine.worker" in (path.parent / "cmdline").read_text()
            ):
                found.append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return sorted(found)


def kill_driver(driver: subprocess.Popen[str], stage: str) -> None:
    wait_for(driver, "stage_began", stage)
    time.sleep(0.05)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()


def kill_workers(driver: subprocess.Popen[str], stage: str) -> None:
    """All of them: whichever is idle at this moment is among them."""
    wait_for(driver, "stage_began", stage)
    time.sleep(0.02)
    for pid in workers(driver.pid):
        os.kill(pid, signal.SIGKILL)


def ends_well(driver: subprocess.Popen[str]) -> None:
    assert driver.stderr is not None
    rest = driver.stderr.read()
    assert driver.wait() == 0, rest[-3000:]


def test_a_driver_killed_in_stage_after_stage(
    undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for stage in STAGES:
        kill_driver(start(recipe, crawl, out), stage)
    ends_well(start(recipe, crawl, out))
    assert hashes(out) == hashes(undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [*STAGES, *OTHERS])
def test_a_driver_killed_in_one_stage(
    stage: str, undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    kill_driver(start(recipe, crawl, out), stage)
    ends_well(start(recipe, crawl, out))
    assert hashes(out) == hashes(undisturbed)


def test_workers_busy_and_idle_killed_in_stage_after_stage(
    undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    driver = start(recipe, crawl, out)
    for stage in STAGES:
        kill_workers(driver, stage)
    ends_well(driver)
    assert hashes(out) == hashes(undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [*STAGES, *OTHERS])
def test_workers_busy_and_idle_killed_in_one_stage(
    stage: str, undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    driver = start(recipe, crawl, out)
    kill_workers(driver, stage)
    ends_well(driver)
    assert hashes(out) == hashes(undisturbed)


def stopped(driver: subprocess.Popen[str]) -> None:
    """Its run ends as one does that was interrupted."""
    assert driver.stderr is not None
    said = driver.stderr.read()
    assert driver.wait() == 130 and "goes on from here" in said and "Traceback" not in said


def test_a_second_interrupt_stops_at_once_one_alone_after_the_commits_in_flight_and_the_same_command_goes_on(
    undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    driver = start(recipe, crawl, out)
    wait_for(driver, "stage_began", "documents")
    children = workers(driver.pid)
    driver.send_signal(signal.SIGINT)
    time.sleep(0.2)  # the handler of the first has to have run, or both are one
    driver.send_signal(signal.SIGINT)
    stopped(driver)
    assert not [pid for pid in children if alive(pid)]
    driver = start(recipe, crawl, out)
    wait_for(driver, "task_done", "documents")
    driver.send_signal(signal.SIGTERM)
    stopped(driver)
    assert list((out / "text" / "documents").glob("*/_commits/*.json"))
    ends_well(start(recipe, crawl, out))
    assert hashes(out) == hashes(undisturbed)


class Overtaken:
    """A runner whose tasks fail because another driver has done all and removed what they read."""

    workers = 1

    def __init__(self, other: Path, out: Path) -> None:
        self.other, self.out = other, out
        self.queue = Queue()

    def run(self, *_: object) -> Iterator[object]:
        shutil.copytree(self.other, self.out, dirs_exist_ok=True)
        raise RunError("a file is gone")
        yield


@pytest.mark.parametrize("finished", [True, False])
def test_a_driver_that_another_overtook_takes_what_that_one_made_or_says_what_failed(
    finished: bool, undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path
) -> None:
    other, out = tmp_path / "other", tmp_path / "out"
    shutil.copytree(undisturbed, other)
    if not finished:
        for head in other.glob("text/documents/*/_manifest.json"):
            head.unlink()
    of = load_recipe(recipe).with_inputs([value for value in inputs(crawl) if value != "--input"])
    out.mkdir()
    with contextlib.nullcontext() if finished else pytest.raises(RunError, match="a file is gone"):
        Driver(out, of, Overtaken(other, out), LineReporter()).run()  # type: ignore[arg-type]
        assert hashes(out) == hashes(undisturbed)
