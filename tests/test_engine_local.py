"""The local runner under kills: every task answered once, whoever dies."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from runs import alive

from corpusmill.pipeline.documents import DOCUMENTS
from corpusmill.pipeline.engine.attempts import ATTEMPTS
from corpusmill.pipeline.engine.files import Files, Task
from corpusmill.pipeline.engine.local import LocalRunner
from corpusmill.pipeline.engine.stage import Stage, Unit
from corpusmill.pipeline.engine.task import task_of
from corpusmill.pipeline.errors import CorpusmillError, RunError
from corpusmill.pipeline.judge import Judge
from corpusmill.pipeline.rules import Cut

FOLDERS = {"documents": "text/documents/x", "verdict": "layers/verdict/x"}


def make_documents(root: Path, parts: int, rows: int = 3) -> None:
    for part in range(parts):
        task = Task(str(root), "documents", "", {}, FOLDERS, 0)
        table = pa.Table.from_pylist(
            [{"id": bytes(16), "text": "a", "source": "s", "url": str(i)} for i in range(rows)],
            schema=DOCUMENTS,
        )
        Files(task, Unit(part, 1)).write_documents(part, table)


def judge_tasks(root: Path, parts: int, column: str = "url") -> list[Task]:
    stage = Stage("verdict", Judge((("only", Cut(column, one_of=("0", "1"))),)), ("documents",))
    return [task_of(stage, root, FOLDERS, 0, [Unit(part, 1, parts=(part,))]) for part in range(parts)]


@pytest.fixture
def killer() -> Iterator[threading.Event]:
    stop = threading.Event()
    yield stop
    stop.set()


def kill_storm(runner: LocalRunner, stop: threading.Event, low: float, high: float) -> threading.Thread:
    """Kills any worker but one whose task is at its last attempt: a task that dies so often stops the run, as it should.

    On a busy machine a worker takes longer to start than the storm waits, and the same task would die again and again.
    """
    dice = random.Random(5)

    def storm() -> None:
        while not stop.wait(dice.uniform(low, high)):
            pids = [w.process.pid for w in list(runner._pool) if w.job is None or w.job.attempt < ATTEMPTS]
            if pids:
                try:
                    os.kill(dice.choice(pids), signal.SIGKILL)
                except ProcessLookupError:
                    continue

    thread = threading.Thread(target=storm, daemon=True)
    thread.start()
    return thread


def test_every_task_is_answered_once_while_busy_and_idle_workers_are_killed(
    tmp_path: Path, killer: threading.Event
) -> None:
    make_documents(tmp_path, 60)
    with LocalRunner(2) as runner:
        runner_tasks = judge_tasks(tmp_path, 60)
        thread = kill_storm(runner, killer, 0.3, 0.8)
        answers = Counter(result.unit for done in runner.run(runner_tasks) for result in done.results)
        killer.set()
        thread.join()
    assert answers == Counter(range(60))


def test_an_idle_worker_that_was_killed_costs_nothing(tmp_path: Path) -> None:
    make_documents(tmp_path, 4)
    with LocalRunner(2) as runner:
        assert len(list(runner.run(judge_tasks(tmp_path, 4)))) == 4
        for pid in runner.pids():
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
        assert len(list(runner.run(judge_tasks(tmp_path, 4)))) == 4
        assert runner.queue.lost == []


def test_a_task_that_cannot_be_done_stops_the_run_and_names_stage_and_unit(tmp_path: Path) -> None:
    make_documents(tmp_path, 2)
    tasks = judge_tasks(tmp_path, 3)  # partition 2 does not exist
    with LocalRunner(1) as runner, pytest.raises(RunError, match="stage verdict, unit 2: FileNotFoundError"):
        list(runner.run(tasks))


def test_a_runner_whose_run_failed_holds_nothing_of_it(tmp_path: Path) -> None:
    make_documents(tmp_path, 8)
    with LocalRunner(2) as runner:
        with pytest.raises(RunError):
            list(runner.run([*judge_tasks(tmp_path / "nowhere", 1), *judge_tasks(tmp_path, 8)]))
        answers = Counter(
            result.unit for done in runner.run(judge_tasks(tmp_path, 3)) for result in done.results
        )
    assert answers == Counter(range(3))


def test_our_own_errors_keep_their_class_across_the_pipe(tmp_path: Path) -> None:
    make_documents(tmp_path, 1)
    (task,) = judge_tasks(tmp_path, 1)
    broken = Task(**{**vars(task), "operation": "os:system"})
    with LocalRunner(1) as runner, pytest.raises(CorpusmillError, match="not part of corpusmill"):
        list(runner.run([broken]))


def test_a_killed_driver_leaves_no_worker_behind(tmp_path: Path) -> None:
    make_documents(tmp_path, 1)
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[2])\n"
        "from corpusmill.pipeline.engine.local import LocalRunner\n"
        "runner = LocalRunner(2); runner._spawn_limit = 9; runner._spawn(); runner._spawn()\n"
        "print(*runner.pids(), flush=True); time.sleep(60)\n"
    )
    root = str(Path(__file__).parent.parent)
    driver = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), root], stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(pids) == 2
    driver.kill()
    driver.wait()
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in pids if alive(pid)]
