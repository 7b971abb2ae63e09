"""The templates for clusters: they parse, what they call exists, and the Slurm script runs, with stand-ins for Slurm's own commands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from runs import hashes, inputs

from corpusmill import __version__
from corpusmill.jobs import cli
from corpusmill.pipeline.models import models_folder

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / "jobs" / "templates"
NAMES = ("Containerfile", "cluster.yaml", "rayjob.yaml", "slurm.sh")


def text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def pinned(name: str) -> str:
    found = re.search(rf"^{name}==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert found
    return found[1]


def test_these_templates_and_no_others() -> None:
    assert tuple(sorted(path.name for path in TEMPLATES.iterdir())) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_commands_of_ours_exist_with_their_options(name: str) -> None:
    """Comments among them: that is what gets copied."""
    calls = re.findall(r"""corpusmill"? ((?:run|submit|model get) [^\n&]*)""", text(name))
    if name == "slurm.sh":
        calls += re.findall(r"sbatch slurm\.sh (\S+ --[^\n]*)", text(name))
        calls = [f"run {call}" if not call.startswith("run") else call for call in calls]
    assert calls
    for call in calls:
        words = [word for word in shlex.split(call) if word != "..."]
        if "$@" in words:
            words[words.index("$@") : words.index("$@") + 1] = ["demo", "--out", "out"]
        elif "..." in call:
            words += ["--out", "out"]
        cli.parser().parse_args(words)


@pytest.mark.ray
@pytest.mark.parametrize("name", ["cluster.yaml", "slurm.sh"])
def test_options_of_ray_start_exist(name: str) -> None:
    scripts = pytest.importorskip("ray.scripts.scripts")
    known = {option for parameter in scripts.start.params for option in parameter.opts}
    joined = (
        text(name).replace("\\\n", " ").replace("start --head --port=6379\n", "start --head --port=6379 ")
    )
    calls = re.findall(r"ray\"? start ([^\n&]*)", joined)
    assert len(calls) == 2
    for call in calls:
        for word in call.split():
            if word.startswith("--"):
                assert word.split("=")[0] in known, word


def test_the_rayjob_has_what_kuberay_wants() -> None:
    job = yaml.safe_load(text("rayjob.yaml"))
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]
    cluster = spec["rayClusterSpec"]
    assert cluster["rayVersion"] == pinned("ray") and cluster["authOptions"] == {"mode": "token"}
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    out = re.search(r"--out (\S+)", spec["entrypoint"])
    assert out
    for pod in pods:
        assert all(
            isinstance(value, str) for value in pod["rayStartParams"].values()
        )  # KubeRay refuses numbers
        (container,) = pod["template"]["spec"]["containers"]
        assert container["image"].endswith(f"/corpusmill:{__version__}")
        volumes = {volume["name"] for volume in pod["template"]["spec"]["volumes"]}
        mounts: dict[str, Any] = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert set(mounts.values()) <= volumes
        assert any(out[1].startswith(f"{path}/") for path in mounts), "a node would not see OUT"


@pytest.mark.ray
def test_the_cluster_file_is_one_that_ray_up_takes() -> None:
    util = pytest.importorskip("ray.autoscaler._private.util")
    util.validate_config(util.prepare_config(yaml.safe_load(text("cluster.yaml"))))


def test_the_containerfile_copies_and_installs_what_the_clone_has() -> None:
    lines = text("Containerfile").replace("\\\n", " ").splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    assert {step[0] for step in steps} <= {"FROM", "RUN", "COPY", "USER", "WORKDIR", "ENV"}
    assert [step[1] for step in steps if step[0] == "FROM"] == ["python:3.12-slim"]
    copied = [words[:-1] for words in (step[1].split() for step in steps if step[0] == "COPY")]
    names = {name for words in copied for name in words}
    assert all((ROOT / name).exists() for name in names)
    assert {
        "pyproject.toml",
        "corpusmill",
        *(path.name for path in (ROOT / "corpusmill").iterdir() if path.is_symlink()),
    } <= names
    install = next(step[1] for step in steps if "pip install" in step[1])
    assert "PIP_CONSTRAINT=/src/constraints.txt" in install and "/src[pipeline]" in install
    assert f"corpusmill:{__version__} " in text("Containerfile")


def test_the_slurm_script_parses() -> None:
    subprocess.run(["bash", "-n", TEMPLATES / "slurm.sh"], check=True)


STAND_INS = {
    "srun": 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"',
    "scontrol": "echo here",
    "hostname": "echo 127.0.0.1",
}


@pytest.mark.ray
@pytest.mark.slow
def test_the_slurm_script_runs_on_one_node_and_leaves_nothing(
    undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path
) -> None:
    programs, home = tmp_path / "bin", tmp_path / "home"
    programs.mkdir()
    home.mkdir()
    entry = {"corpusmill": "-m corpusmill.jobs.cli", "python": "", "ray": "-m ray.scripts.scripts"}
    scripts = {**STAND_INS, **{name: f'exec {sys.executable} {how} "$@"' for name, how in entry.items()}}
    for name, body in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    number = str(10_000_000 + os.getpid() % 10_000)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(home),
        "CORPUSMILL": str(programs),
        "SLURM_JOB_ID": number,
        "SLURM_JOB_NODELIST": "here",
        "SLURM_CPUS_PER_TASK": "2",
        "CORPUSMILL_MODELS": str(models_folder()),
    }
    arguments = [recipe, "--out", tmp_path / "out", *inputs(crawl)]
    done = subprocess.run(
        ["bash", TEMPLATES / "slurm.sh", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert hashes(tmp_path / "out") == hashes(undisturbed)
    assert not list(home.glob(".corpusmill-ray-*")) and not Path(f"/tmp/ray-{number}").exists()
