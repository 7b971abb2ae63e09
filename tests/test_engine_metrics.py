"""What a run used is written down as it was used: helpers' work too, and what failed attempts cost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from runs import inputs

from corpusmill.jobs.reporter import SilentReporter
from corpusmill.pipeline.engine import metrics
from corpusmill.pipeline.engine.attempts import Done, Job, Queue
from corpusmill.pipeline.engine.driver import Driver
from corpusmill.pipeline.engine.files import Task
from corpusmill.pipeline.engine.local import LocalRunner
from corpusmill.pipeline.engine.manifest import read_manifest
from corpusmill.pipeline.engine.stage import Stage
from corpusmill.pipeline.recipe import load_recipe
from corpusmill.pipeline.run import Run

BUSY = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell no CPU clock of another process")
def test_the_cpu_seconds_of_a_helper_count_while_it_lives_and_once_it_has_ended() -> None:
    meter, alone = metrics.Meter(), metrics.Meter(helpers=False)
    helper = subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    metrics.HELPERS.add(helper.pid)
    assert helper.stdout is not None
    helper.stdout.readline()
    alive = meter.usage()["cpu_seconds"]
    helper.communicate(b"\n")
    metrics.HELPERS.discard(helper.pid)
    ended = meter.usage()["cpu_seconds"]
    assert 0.3 <= alive <= ended
    assert alone.usage()["cpu_seconds"] < 0.3


def test_lines_that_were_cut_and_files_that_are_not_there_count_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    assert list(metrics.read_lines(path)) == []
    path.write_text('{"seconds": 1}\n{"seco')
    assert list(metrics.read_lines(path)) == [{"seconds": 1}]


def test_an_attempt_that_raised_reports_what_it_used_and_one_that_died_its_wall_time() -> None:
    job = Job(Task("", "dedup.edges", "", {}, {}, 17, units=({"index": 4},)))
    error = {"type": "ValueError", "ours": "", "message": "no", "traceback": ""}
    queue = Queue()
    assert not queue.answered(job, {"error": error, "usage": {"seconds": 9.0, "cpu_seconds": 2.0}})
    queue.failed(job, "its worker died", seconds=3.0)
    queue.node_lost(job, "its node was lost", seconds=5.0)
    lost = queue.take_lost()
    assert [(each.stage, each.units, each.cpu_seconds) for each in lost] == [
        ("dedup.edges", (4,), 2.0),
        ("dedup.edges", (4,), 3.0),
        ("dedup.edges", (4,), 5.0),
    ]
    assert queue.take_lost() == []


class KillOnce(SilentReporter):
    """Kills a worker of the runner after the first task of extract, so that one of the tasks in work comes to nothing."""

    def __init__(self, runner: LocalRunner) -> None:
        self.runner = runner
        self.killed: list[int] = []

    def task_done(self, stage: Stage, done: Done) -> None:
        busy = [worker.process.pid for worker in self.runner._pool if worker.job is not None]
        if not self.killed and busy and stage.name == "documents":
            os.kill(busy[0], signal.SIGKILL)
            self.killed.append(busy[0])


def test_what_a_killed_worker_had_in_work_is_written_as_lost(
    crawl: Path, recipe: Path, tmp_path: Path, language_model: Path
) -> None:
    small = load_recipe(str(recipe)).only("extract").with_inputs(inputs(crawl)[1::2])
    out = tmp_path / "out"
    with LocalRunner(2) as runner:
        reporter = KillOnce(runner)
        Driver(out, small, runner, reporter).run()
    assert reporter.killed
    (line,) = metrics.read_lines(out / "metrics" / "run" / "lost.jsonl")
    assert line["stage"] == "documents" and "SIGKILL" in line["why"]
    assert line["cpu_seconds"] == line["seconds"] > 0
    stages = [line["stage"] for line in metrics.read_lines(out / "metrics" / "run" / "driver.jsonl")]
    assert stages == ["documents", "ledger.extract"]


def test_a_run_that_nothing_disturbed_lost_nothing_and_each_line_says_which_folder_it_made(
    undisturbed: Path,
) -> None:
    assert not (undisturbed / "metrics" / "run" / "lost.jsonl").exists()
    state = Run(undisturbed).state
    for stage in state.stages:
        lines = list(metrics.read_lines(undisturbed / "metrics" / f"{stage.name}.jsonl"))
        made = read_manifest(undisturbed / stage.folder)
        assert made is not None
        # A stage without units (scatter files that need no merge) has no task to note.
        assert {line["folder"] for line in lines} == ({stage.folder} if made.results else set())
