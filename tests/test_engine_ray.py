"""The same run on Ray: equal bytes, whoever dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_heads import free_port, ray_head, ray_workers, take_node, two_nodes
from runs import command, hashes, inputs

pytestmark = pytest.mark.ray


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment to reach a head of our own with two slots."""
    with ray_head(tmp_path_factory.mktemp("ray")) as environment:
        yield environment


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


@pytest.mark.slow
def test_a_node_that_dies_costs_its_tasks_and_no_byte(
    undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path, cluster: dict[str, str]
) -> None:
    with two_nodes(cluster) as (address, nodes):
        driver = start(recipe, crawl, tmp_path / "out", {**cluster, "CLUSTER": address})
        assert driver.stderr is not None
        for line in driver.stderr:
            if line.startswith("{") and json.loads(line)["event"] == "task_done":
                break
        take_node(nodes)
        assert driver.poll() is None  # the node went in the middle of the run
        said, errors = driver.communicate(timeout=500)
        assert driver.returncode == 0, f"{said[-2000:]}\n{errors[-4000:]}"
    assert hashes(tmp_path / "out") == hashes(undisturbed)


def test_a_cluster_that_is_not_there_is_one_error(
    crawl: Path, recipe: Path, tmp_path: Path, cluster: dict[str, str]
) -> None:
    gone = {**cluster, "CLUSTER": f"127.0.0.1:{free_port()}"}
    driver = start(recipe, crawl, tmp_path / "out", gone)
    _, errors = driver.communicate(timeout=200)
    assert driver.returncode == 1
    assert gone["CLUSTER"] in errors and "Traceback" not in errors
