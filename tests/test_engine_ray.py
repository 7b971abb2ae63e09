"""The same run on Ray: equal bytes, whoever dies."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from ray_heads import free_port, give_node, ray_head, ray_workers, take_node, two_nodes
from runs import command, hashes, inputs

import corpusmill
from corpusmill.pipeline.run import Run

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment to reach a head of our own with two slots."""
    with ray_head(tmp_path_factory.mktemp("ray")) as environment:
        yield environment


def start(recipe: Path, crawl: Path, out: Path, cluster: dict[str, str]) -> subprocess.Popen[str]:
    arguments = command("run", recipe, "--out", out, *inputs(crawl), "--ray", cluster["CLUSTER"])
    return subprocess.Popen(arguments, env=cluster, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory,
    crawl: Path,
    recipe: Path,
    cluster: dict[str, str],
    language_model: Path,
) -> tuple[Path, dict[str, float]]:
    """OUT of a whole run on Ray, and the largest value of each of its metrics that was scraped meanwhile."""
    out = tmp_path_factory.mktemp("on-ray") / "out"
    with (out.parent / "said").open("w") as said:
        driver = subprocess.Popen(
            command("run", recipe, "--out", out, *inputs(crawl), "--ray", cluster["CLUSTER"]),
            env=cluster,
            stdout=said,
            stderr=said,
        )
        seen: dict[str, float] = {}
        while driver.poll() is None:
            for name, value in scraped(cluster["METRICS"]).items():
                seen[name] = max(value, seen.get(name, 0.0))
            time.sleep(0.5)
    assert driver.returncode == 0, (out.parent / "said").read_text()[-4000:]
    return out, seen


def scraped(address: str) -> dict[str, float]:
    """`name stage` -> value, of our metrics in what Prometheus would read from a node."""
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    lines = re.findall(r'^ray_corpusmill_(\w+)\{.*?stage="([^"]+)".*?\} ([0-9.e+]+)$', text, re.MULTILINE)
    return {f"{name} {stage}": float(value) for name, stage, value in lines}


def test_a_driver_that_is_asked_to_stop_stops_after_what_is_in_flight(
    recipe: Path, crawl: Path, tmp_path: Path, cluster: dict[str, str], language_model: Path
) -> None:
    """As `ray job stop` and Kubernetes ask; ray.init's own handler would end it at once."""
    driver = start(recipe, crawl, tmp_path / "out", cluster)
    assert driver.stderr is not None
    for line in driver.stderr:
        if '"task_done"' in line:
            break
    driver.send_signal(signal.SIGTERM)
    _, said = driver.communicate(timeout=300)
    assert driver.returncode == 130, said[-2000:]
    assert "the same command goes on from here" in said


def test_a_run_on_ray_has_the_bytes_of_a_local_one(
    undisturbed: Path, finished: tuple[Path, dict[str, float]]
) -> None:
    assert hashes(finished[0]) == hashes(undisturbed)
    assert not list((finished[0] / "metrics").glob("probe-*"))


def test_ray_is_told_what_a_run_does(finished: tuple[Path, dict[str, float]]) -> None:
    """Stages that end seconds before the run have been told of whole: the last word of a stage is sent within a second."""
    out, seen = finished
    run = Run(out)
    manifest = run.manifest("documents")
    wrote = sum(file.size_bytes for result in manifest.results.values() for file in result.files)
    assert seen["rows_total documents"] == manifest.rows and seen["bytes_total documents"] == wrote
    assert seen["tasks_done_total documents"] >= 1 and seen["docs_per_second documents"] > 0
    assert seen["kept_total ledger.extract"] == run.manifest("ledger.extract").counts["kept"]
    assert seen["slots documents"] == 2 and 1 <= seen["tasks_in_flight documents"] <= 4


def test_a_run_is_read_as_a_ray_dataset_a_block_a_partition(
    finished: tuple[Path, dict[str, float]], cluster: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("fsspec")
    script = """
import sys
import pyarrow as pa
import pyarrow.parquet as pq
import ray
from corpusmill.pipeline.run import Run
ray.init(address=sys.argv[1], log_to_driver=False)
ray.data.DataContext.get_current().execution_options.preserve_order = True
for which in ("kept", "all"):
    read = Run(sys.argv[2]).to_ray_dataset(["id", "url", "words", "stage"], kept=which == "kept")
    tables = ray.get(read.to_arrow_refs())
    print(which, len(tables))
    pq.write_table(pa.concat_tables(tables), f"{sys.argv[3]}/{which}.parquet")
"""
    run = Run(finished[0])
    words = [sys.executable, "-c", script, cluster["CLUSTER"], str(finished[0]), str(tmp_path)]
    done = subprocess.run(words, env=cluster, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    parts = len(run.partitions())
    assert parts > 1 and done.stdout.split() == ["kept", str(parts), "all", str(parts)]
    for which in ("kept", "all"):
        asked = run.table(["id", "url", "words", "stage"], kept=which == "kept")
        assert pq.read_table(tmp_path / f"{which}.parquet").to_pylist() == asked.to_pylist()


def test_a_demand_that_no_node_can_meet_is_said_at_once(
    crawl: Path, recipe: Path, tmp_path: Path, cluster: dict[str, str]
) -> None:
    for demand, message in {
        "extract=memory:900TB": "a worker needs 1 CPU, 838190.32 GiB memory, and no node of the cluster has that; there are nodes with 2 CPU",
        "extract=gpus:0.5": "needs 1 CPU",
        "extract=fast_disk:1": "1 fast_disk, and no node",
        "extrat=memory:1GB": "no stage 'extrat'",
    }.items():
        words = command("run", recipe, "--out", tmp_path / "out", *inputs(crawl), "--ray", cluster["CLUSTER"])
        done = subprocess.run(
            [*words, "--resources", demand], env=cluster, capture_output=True, text=True, timeout=200
        )
        assert done.returncode == (2 if "extrat" in demand else 1), done.stderr[-3000:]
        assert message in done.stderr and "Traceback" not in done.stderr, done.stderr[-3000:]


def test_a_node_with_another_version_is_named_before_the_first_task(
    crawl: Path, recipe: Path, tmp_path: Path, cluster: dict[str, str]
) -> None:
    program = "import sys, corpusmill; corpusmill.__version__ = '99.0'; from corpusmill.jobs.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["run", recipe, "--out", tmp_path / "out", *inputs(crawl), "--ray", cluster["CLUSTER"]]
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], env=cluster, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert f"{socket.gethostname()} has corpusmill {corpusmill.__version__} (here 99.0)" in done.stderr, (
        done.stderr
    )
    assert not list((tmp_path / "out").rglob("*.parquet"))


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


@pytest.mark.slow
def test_a_node_that_goes_and_comes_back_without_models_is_waited_for_and_given_them(
    undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path, cluster: dict[str, str]
) -> None:
    """Languages are found on the second node alone, which is killed during extraction and has no model of its own."""
    out, models = tmp_path / "out", tmp_path / "models"
    second = {"resources": {"late": 1}, "env_vars": {"CORPUSMILL_MODELS": str(models)}}
    with two_nodes(cluster, **second) as (address, nodes), (tmp_path / "said").open("w") as file:
        words = command("run", recipe, "--out", out, *inputs(crawl), "--ray", address)
        driver = subprocess.Popen(
            [*words, "--resources", "filter.language=late:1"], env=cluster, stdout=file, stderr=file
        )

        def until(text: str) -> None:
            while text not in (said := (tmp_path / "said").read_text()):
                assert driver.poll() is None, said[-4000:]
                time.sleep(0.2)

        until("task_done")
        take_node(nodes)
        until("filter.language: no node with 1 CPU, 0.50 GiB memory, 1 late is there: waiting for one")
        assert not models.exists()
        give_node(nodes)
        assert driver.wait(500) == 0, (tmp_path / "said").read_text()[-4000:]
    assert [path.name for path in sorted(models.iterdir())] == ["lid.176.ftz", "lid.176.ftz.NOTICE"]
    assert hashes(out) == hashes(undisturbed)


def test_a_cluster_that_is_not_there_is_one_error(
    crawl: Path, recipe: Path, tmp_path: Path, cluster: dict[str, str]
) -> None:
    gone = {**cluster, "CLUSTER": f"127.0.0.1:{free_port()}"}
    driver = start(recipe, crawl, tmp_path / "out", gone)
    _, errors = driver.communicate(timeout=200)
    assert driver.returncode == 1
    assert gone["CLUSTER"] in errors and "Traceback" not in errors
