"""The same run on Ray: equal bytes, whoever dies."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runs import command, hashes, inputs

pytestmark = pytest.mark.ray


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A head of our own with two slots: own folder, ports and token; ended by its process group. Gives the environment to reach it."""
    folder = tmp_path_factory.mktemp("ray")
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    environment = {
        **os.environ,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    for _ in range(3):  # a node has a fixed 30 s to come up, too little on a busy machine
        port = free_port()
        head = subprocess.Popen(head_command(port, f"/tmp/cm{port}"), env=environment, start_new_session=True)
        if answers(port, head, 120):
            break
        end(head)
    else:
        pytest.fail("a Ray head did not start in three attempts")
    yield {**environment, "CLUSTER": f"127.0.0.1:{port}"}
    end(head)


def head_command(port: int, folder: str) -> list[str]:
    ray = str(Path(sys.executable).with_name("ray"))
    options = ["--include-dashboard=false", "--num-cpus=2", "--disable-usage-stats", "--block"]
    return [
        ray,
        "start",
        "--head",
        "--node-ip-address=127.0.0.1",
        f"--port={port}",
        f"--temp-dir={folder}",
        *options,
    ]


def answers(port: int, head: subprocess.Popen[bytes], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while head.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                time.sleep(5)
                return head.poll() is None
        time.sleep(0.5)
    return False


def end(head: subprocess.Popen[Any]) -> None:
    """Its whole session: raylet, GCS and workers were started in it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(head.pid, number)
        except ProcessLookupError:
            return
        time.sleep(2)
    head.wait()


def start(recipe: Path, crawl: Path, out: Path, cluster: dict[str, str]) -> subprocess.Popen[str]:
    arguments = command("run", recipe, "--out", out, *inputs(crawl), "--ray", cluster["CLUSTER"])
    return subprocess.Popen(arguments, env=cluster, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_run_on_ray_has_the_bytes_of_a_local_one(
    undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path, cluster: dict[str, str]
) -> None:
    driver = start(recipe, crawl, tmp_path / "out", cluster)
    said, errors = driver.communicate(timeout=500)
    assert driver.returncode == 0, f"{said[-2000:]}\n{errors[-4000:]}"
    assert hashes(tmp_path / "out") == hashes(undisturbed)


@pytest.mark.slow
def test_workers_and_the_driver_killed_on_ray(
    undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path, cluster: dict[str, str]
) -> None:
    out = tmp_path / "out"
    driver = start(recipe, crawl, out, cluster)
    assert driver.stderr is not None
    for line in driver.stderr:
        if line.startswith("{") and json.loads(line)["event"] == "task_done":
            break
    for pid in ray_workers():
        os.kill(pid, signal.SIGKILL)
    for line in driver.stderr:
        if (
            line.startswith("{")
            and (value := json.loads(line)).get("stage") == "filter.measures"
            and value["event"] == "stage_began"
        ):
            break
    driver.kill()
    driver.communicate()
    again = start(recipe, crawl, out, cluster)
    said, errors = again.communicate(timeout=500)
    assert again.returncode == 0, f"{said[-2000:]}\n{errors[-4000:]}"
    assert hashes(out) == hashes(undisturbed)


TWO_NODES = """
import sys
from ray.cluster_utils import Cluster
nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
second = nodes.add_node(num_cpus=1)
print(nodes.address, flush=True)
sys.stdin.readline()
nodes.remove_node(second, allow_graceful=False)
print("gone", flush=True)
sys.stdin.readline()
nodes.shutdown()
"""


@pytest.mark.slow
def test_a_node_that_dies_costs_its_tasks_and_no_byte(
    undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path, cluster: dict[str, str]
) -> None:
    nodes = subprocess.Popen(
        [sys.executable, "-c", TWO_NODES],
        env=cluster,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert nodes.stdin is not None and nodes.stdout is not None
    try:
        address = next(line.strip() for line in nodes.stdout if line.startswith("127.") or line[0].isdigit())
        driver = start(recipe, crawl, tmp_path / "out", {**cluster, "CLUSTER": address})
        assert driver.stderr is not None
        for line in driver.stderr:
            if line.startswith("{") and json.loads(line)["event"] == "task_done":
                break
        print(file=nodes.stdin, flush=True)
        assert any(line.strip() == "gone" for line in nodes.stdout)
        assert driver.poll() is None  # the node went in the middle of the run
        said, errors = driver.communicate(timeout=500)
        assert driver.returncode == 0, f"{said[-2000:]}\n{errors[-4000:]}"
        print(file=nodes.stdin, flush=True)
        nodes.wait(60)
    finally:
        end(nodes)
    assert hashes(tmp_path / "out") == hashes(undisturbed)


def ray_workers() -> list[int]:
    """Processes in which Ray runs our tasks, by the title that it gives them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::execute"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_a_cluster_that_is_not_there_is_one_error(
    crawl: Path, recipe: Path, tmp_path: Path, cluster: dict[str, str]
) -> None:
    gone = {**cluster, "CLUSTER": f"127.0.0.1:{free_port()}"}
    driver = start(recipe, crawl, tmp_path / "out", gone)
    _, errors = driver.communicate(timeout=200)
    assert driver.returncode == 1
    assert gone["CLUSTER"] in errors and "Traceback" not in errors
