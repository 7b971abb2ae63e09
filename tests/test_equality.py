"""One run, five ways: the bytes do not know which. `pytest -m slow -s tests/test_equality.py` prints the table (`make equal`)."""

from __future__ import annotations

import hashlib
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from ray_heads import ray_head, take_node, two_nodes
from runs import command, hashes, inputs

from corpusmill.jobs.head import head

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.mark.timeout(1800)
def test_five_ways_to_run_a_recipe_give_one_sha256(
    crawl: Path, recipe: Path, tmp_path: Path, language_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    (tmp_path / "ray").mkdir()

    def run(out: Path, *more: str, environment: Mapping[str, str] | None = None) -> None:
        words = command("run", recipe, "--out", out, *inputs(crawl), *more)
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-4000:]

    def on_ray(out: Path) -> None:
        with ray_head(tmp_path / "ray") as environment:
            run(out, "--ray", environment["CLUSTER"], environment=environment)

    def as_job(out: Path) -> None:
        with head(2) as started:
            words = command("submit", recipe, "--address", started.address, "--out", out, *inputs(crawl))
            done = subprocess.run(words, env=started.environment, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stderr[-4000:]

    def with_a_node_killed(out: Path) -> None:
        with ray_head(tmp_path / "ray") as environment, two_nodes(environment) as (address, nodes):
            words = command("run", recipe, "--out", out, *inputs(crawl), "--ray", address)
            with (tmp_path / "said").open("w") as said:
                driver = subprocess.Popen(words, env=environment, stdout=said, stderr=said)
            while "task_done" not in (tmp_path / "said").read_text():
                assert driver.poll() is None
                time.sleep(0.2)
            take_node(nodes)
            assert driver.poll() is None  # the node went in the middle of the run
            assert driver.wait(600) == 0, (tmp_path / "said").read_text()[-4000:]

    ways: dict[str, Callable[[Path], None]] = {
        "local, 1 worker": lambda out: run(out, "--workers", "1"),
        "local, 2 workers": lambda out: run(out, "--workers", "2"),
        "Ray, 2 workers": on_ray,
        "a submitted job": as_job,
        "Ray, two nodes, one killed": with_a_node_killed,
    }
    found = {}
    for name, way in ways.items():
        out, began = tmp_path / name.replace(" ", "-"), time.perf_counter()
        way(out)
        files = hashes(out)
        whole = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
        found[name] = files
        with capsys.disabled():
            seconds = time.perf_counter() - began
            print(
                f"\n{name:<28} {len(files):>4} files   sha256 of all {whole[:16]}   {seconds:5.0f} s", end=""
            )
    reference = found["local, 1 worker"]
    assert len(reference) > 50
    assert all(files == reference for files in found.values())
