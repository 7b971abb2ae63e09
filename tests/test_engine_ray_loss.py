"""A Ray that is lost, late or still growing: what the run says, how it ends, and that the same command gives the same bytes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from ray_heads import end, free_port, head_command, ray_head, token_environment
from runs import command, corpusmill, hashes, inputs, write_recipe

pytestmark = pytest.mark.ray


class Driver:
    """A run on Ray in a process of its own, and what it says."""

    def __init__(self, said: Path, words: list[str], environment: Mapping[str, str]) -> None:
        self.said = said
        with said.open("w") as file:
            self.process = subprocess.Popen(
                words, env=dict(environment), stdout=file, stderr=file, start_new_session=True
            )

    def words(self) -> str:
        return self.said.read_text()

    def until(self, text: str, seconds: float = 240) -> None:
        """Wait until it has said so."""
        deadline = time.monotonic() + seconds
        while text not in self.words():
            assert self.process.poll() is None and time.monotonic() < deadline, self.words()[-4000:]
            time.sleep(0.1)

    def end(self, seconds: float = 500) -> int:
        return self.process.wait(seconds)


RECIPE = """
partition_bytes: 60 KB
stages:
  - extract: {with: resiliparse}
  - filter: [gopher_quality: {min_words: 30, min_alpha_words: 0.6}]
"""


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe of few stages: what is tried here is the same in every stage, and a start of Ray costs enough."""
    return write_recipe(tmp_path_factory.mktemp("few"), RECIPE)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, few: Path, crawl: Path) -> Path:
    """OUT of a local run of it."""
    out = tmp_path_factory.mktemp("few-undisturbed") / "out"
    corpusmill("run", few, "--out", out, *inputs(crawl), "--workers", "1")
    return out


@pytest.fixture
def run_on(crawl: Path, few: Path, tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    """Start the run on a Ray; what still runs at the end of the test is killed."""
    drivers: list[Driver] = []

    def start(address: str, environment: Mapping[str, str], *more: str) -> Driver:
        words = command("run", few, "--out", tmp_path / "out", *inputs(crawl), "--ray", address, *more)
        drivers.append(Driver(tmp_path / f"said-{len(drivers)}", words, environment))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.process.kill()
        driver.process.wait()


def processes_of(session: int, name: str) -> list[int]:
    """Processes of a session that run this program."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            program = (path / "cmdline").read_bytes().split(b"\0")[0].decode()
            if os.getsid(int(path.name)) == session and Path(program).name == name:
                found.append(int(path.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("what", ["head", "gcs_server", "raylet"])
def test_a_driver_whose_head_dies_says_so_and_the_same_command_goes_on_with_another(
    what: str, run_on: Callable[..., Driver], undisturbed: Path, tmp_path: Path
) -> None:
    (tmp_path / "first").mkdir()
    with ray_head(tmp_path / "first") as environment:
        driver = run_on(environment["CLUSTER"], environment)
        driver.until("task_done")
        head = int(environment["HEAD"])
        if what == "head":
            os.killpg(head, signal.SIGKILL)
        else:
            for pid in processes_of(head, what):
                os.kill(pid, signal.SIGKILL)
        assert driver.end(150) == 1, driver.words()[-4000:]
    last = driver.words().splitlines()[-1]
    assert (
        last.startswith("corpusmill: the ") and "Ray" in last and "the same command goes on from here" in last
    )
    assert "Traceback" not in driver.words()
    (tmp_path / "second").mkdir()
    with ray_head(tmp_path / "second") as environment:
        again = run_on(environment["CLUSTER"], environment)
        assert again.end() == 0, again.words()[-4000:]
    assert hashes(tmp_path / "out") == hashes(undisturbed)


@pytest.mark.slow
def test_a_head_that_is_silent_for_a_while_is_waited_for(
    run_on: Callable[..., Driver], undisturbed: Path, tmp_path: Path
) -> None:
    with ray_head(tmp_path) as environment:
        driver = run_on(environment["CLUSTER"], environment)
        driver.until("task_done")
        (gcs,) = processes_of(int(environment["HEAD"]), "gcs_server")
        os.kill(gcs, signal.SIGSTOP)
        try:
            driver.until("does not answer: waiting")
        finally:
            os.kill(gcs, signal.SIGCONT)
        assert driver.end() == 0, driver.words()[-4000:]
    assert "answers again" in driver.words()
    assert hashes(tmp_path / "out") == hashes(undisturbed)


@pytest.mark.slow
def test_a_head_that_comes_up_after_the_driver_is_found_by_another_try(
    run_on: Callable[..., Driver], undisturbed: Path, tmp_path: Path
) -> None:
    environment, port = token_environment(tmp_path), free_port()
    driver = run_on(f"127.0.0.1:{port}", environment)
    driver.until(f"no Ray cluster at 127.0.0.1:{port}: Connection refused: trying again")
    head = subprocess.Popen(
        head_command(port, f"/tmp/cm{port}"),
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert driver.end() == 0, driver.words()[-4000:]
    finally:
        end(head)
    assert hashes(tmp_path / "out") == hashes(undisturbed)


@pytest.mark.slow
def test_a_ray_whose_start_fails_is_started_again(
    run_on: Callable[..., Driver], undisturbed: Path, tmp_path: Path
) -> None:
    """The first raylet that the driver starts is killed as soon as it is there."""
    driver = run_on("local", token_environment(tmp_path), "--workers", "2")
    while not (raylets := processes_of(driver.process.pid, "raylet")):
        assert driver.process.poll() is None, driver.words()[-4000:]
        time.sleep(0.01)
    os.kill(raylets[0], signal.SIGKILL)
    driver.until("Ray did not start here (")
    driver.until("trying again in 2 s (1 of 5)")
    driver.until('"stage_began", "stage": "documents"')
    assert len(processes_of(driver.process.pid, "gcs_server")) == 1  # what earlier starts had left is gone
    assert driver.end() == 0, driver.words()[-4000:]
    assert hashes(tmp_path / "out") == hashes(undisturbed)


KINDS = {
    "small": {
        "resources": {"CPU": 1},
        "node_config": {},
        "min_workers": 0,
        "max_workers": 2,
    }
}


@pytest.mark.slow
def test_nodes_that_an_autoscaler_adds_are_waited_for_and_used_and_may_leave(
    run_on: Callable[..., Driver], undisturbed: Path, tmp_path: Path
) -> None:
    """The head has no slot, so every task waits for a node that is asked for. Memory is not: this provider's nodes cannot declare any."""
    no_memory = [
        word for stage in ("extract", "ledger", "filter") for word in ("--resources", f"{stage}=memory:0")
    ]
    with ray_head(tmp_path, KINDS) as environment:
        head = int(environment["HEAD"])
        assert len(processes_of(head, "raylet")) == 1
        driver = run_on(environment["CLUSTER"], environment, *no_memory)
        driver.until(
            "documents: no node with 1 CPU is there: waiting for one, which the autoscaler is asked for"
        )
        driver.until("task_done")
        assert len(processes_of(head, "raylet")) > 1
        assert driver.end() == 0, driver.words()[-4000:]
        assert hashes(tmp_path / "out") == hashes(undisturbed)
        deadline = time.monotonic() + 120
        while len(processes_of(head, "raylet")) > 1:  # the nodes have nothing to do
            assert time.monotonic() < deadline
            time.sleep(1)
