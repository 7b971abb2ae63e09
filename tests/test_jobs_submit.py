"""Runs as Ray jobs: equal bytes, the run's own exit code, and one clear line for whatever is missing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from runs import command, corpusmill, hashes, inputs
from s3_server import SECRETS, Bucket

import corpusmill as package
from corpusmill.jobs import cli, ship, submit
from corpusmill.jobs.commands import running
from corpusmill.jobs.head import Head, free_ports, head
from corpusmill.pipeline.errors import RecipeError, RunError


@pytest.fixture(scope="module")
def cluster() -> Iterator[Head]:
    pytest.importorskip("ray")
    with head(2) as started:
        yield started


def submitted(
    on: Head, *arguments: str | Path, folder: Path, environment: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    words = command("submit", *arguments, "--address", on.address)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, env=environment or on.environment, cwd=folder, **pipes)  # type: ignore[call-overload,no-any-return]


def ended(job: subprocess.Popen[str], expect: int) -> tuple[str, str]:
    said, errors = job.communicate(timeout=500)
    assert job.returncode == expect, f"exit {job.returncode}\n{said[-4000:]}\n{errors[-4000:]}"
    return said, errors


def until(true: Callable[[], object], seconds: float = 200) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)


def drivers(out: Path) -> list[int]:
    """Processes that are the driver of a run into `out`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if b"corpusmill.jobs.cli" in words and b"run" in words and str(out).encode() in words:
                found.append(int(path.parent.name))
    return found


PLANTED = {"AWS_SECRET_ACCESS_KEY": "planted/secret+key0123456789", "HF_TOKEN": "hf_plantedTokenAbCdEf"}


@pytest.mark.ray
def test_a_job_ends_with_the_bytes_of_a_local_run_and_knows_no_secret_of_who_submitted_it(
    undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path, cluster: Head
) -> None:
    """The recipe is a file of the caller, OUT is relative to the folder of the call."""
    job = submitted(
        *(cluster, recipe, "--out", "out", *inputs(crawl)),
        folder=tmp_path,
        environment={**cluster.environment, **PLANTED},
    )
    until(lambda: drivers(tmp_path / "out"))
    (driver, *_) = drivers(tmp_path / "out")
    theirs = Path(f"/proc/{driver}/environ").read_bytes().decode(errors="replace")
    said, errors = ended(job, 0)
    assert "extract: " in said and "submitted as raysubmit_" in errors
    assert hashes(tmp_path / "out") == hashes(undisturbed)
    token = Path(cluster.environment["RAY_AUTH_TOKEN_PATH"]).read_text()
    asked = urllib.request.Request(
        f"{cluster.address}/api/jobs/", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(asked, timeout=30) as answer:
        shown = answer.read().decode()
    assert str(tmp_path / "out") in shown  # the job is in this list, with its command and metadata
    for value in PLANTED.values():
        assert value not in theirs + said + errors + shown
        for path in (path for path in tmp_path.rglob("*") if path.is_file()):
            assert value.encode() not in path.read_bytes(), path


@pytest.mark.parametrize(
    "words",
    [
        ("--input", "web=https://me:planted-password@host/a.warc.gz"),
        ("--input", "https://host/a.warc.gz?X-Amz-Signature=planted-password"),
        ("--out", "s3://bucket/planted-password"),
    ],
)
def test_an_argument_with_a_secret_is_refused_before_the_dashboard_could_show_it(
    words: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_STORE_SECRET", "planted-password")
    given = options("demo", "--out", "out", "--address", "http://far:8265", *words)
    with pytest.raises(RecipeError, match="dashboard") as caught:
        submit.need_no_secrets(given)
    assert "planted-password" not in str(caught.value)
    submit.need_no_secrets(
        options("demo", "--out", "out", "--address", "http://far:8265", "--input", "web=s3://b/*.gz")
    )


@pytest.mark.ray
@pytest.mark.slow
def test_submitted_again_after_its_driver_died_it_goes_on(
    undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path, cluster: Head
) -> None:
    out = tmp_path / "out"
    arguments = (recipe, "--out", out, *inputs(crawl))
    said, errors = ended(submitted(cluster, *arguments, "--detach", folder=tmp_path), 0)
    assert said.startswith("raysubmit_") and len(said.split()) == 1
    assert f"ray job logs --address {cluster.address} --follow {said.strip()}" in errors
    until(lambda: list(out.glob("text/documents/*/_manifest.json")))
    killed = drivers(out)
    assert killed
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not drivers(out))
    assert hashes(out) != hashes(undisturbed)
    said, _ = ended(submitted(cluster, *arguments, folder=tmp_path), 0)
    assert [line for line in said.splitlines() if line.startswith("extract: ") and line.endswith("reused")]
    assert hashes(out) == hashes(undisturbed)


@pytest.mark.ray
@pytest.mark.slow
def test_who_stops_following_leaves_the_job_alone_and_is_told_how_to_stop_it(
    crawl: Path, recipe: Path, tmp_path: Path, cluster: Head
) -> None:
    out = tmp_path / "out"
    job = submitted(cluster, recipe, "--out", out, *inputs(crawl), folder=tmp_path)
    until(lambda: drivers(out))
    job.send_signal(signal.SIGINT)
    _, errors = ended(job, 130)
    assert f"ray job stop --address {cluster.address} raysubmit_" in errors and "Traceback" not in errors
    assert drivers(out)
    until(lambda: not drivers(out))  # it ends by itself, and whole
    corpusmill("verify", out)


@pytest.mark.ray
def test_a_run_that_fails_on_the_cluster_gives_its_exit_code_and_message(
    recipe: Path, tmp_path: Path, cluster: Head
) -> None:
    nothing = ("--input", "web=none-*.warc.gz")
    said, errors = ended(submitted(cluster, recipe, "--out", "out", *nothing, folder=tmp_path), 2)
    assert "none-*.warc.gz" in said.split("--ray auto")[-1] and "failed" in errors
    file = tmp_path / "taken"
    file.write_text("no folder")
    _, errors = ended(submitted(cluster, recipe, "--out", file, *nothing, folder=tmp_path), 2)
    assert "Traceback" not in errors


@pytest.mark.ray
def test_a_token_that_is_missing_or_wrong_is_one_line_that_never_shows_it(
    tmp_path: Path, cluster: Head
) -> None:
    right = Path(cluster.environment["RAY_AUTH_TOKEN_PATH"]).read_text()
    wrong = tmp_path / "wrong"
    wrong.write_text("0123456789abcdef" * 4)
    without = {name: value for name, value in cluster.environment.items() if not name.startswith("RAY_AUTH")}
    token = {**without, "RAY_AUTH_MODE": "token"}
    cases = {
        "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE; the file": {**without, "HOME": str(tmp_path)},
        "set RAY_AUTH_MODE=token; the file": {**without, "RAY_AUTH_TOKEN_PATH": str(wrong)},
        f"another token than {wrong}": {**token, "RAY_AUTH_TOKEN_PATH": str(wrong)},
        f"{tmp_path}/none cannot be read": {**token, "RAY_AUTH_TOKEN_PATH": f"{tmp_path}/none"},
    }
    for message, environment in cases.items():
        job = submitted(cluster, "demo", "--out", "out", folder=tmp_path, environment=environment)
        said, errors = ended(job, 1)
        assert message in errors and errors.count("corpusmill: ") == 1 and "Traceback" not in errors, errors
        assert right not in said + errors and wrong.read_text() not in said + errors


@pytest.mark.ray
@pytest.mark.slow
def test_a_shipped_checkout_is_what_the_job_and_its_tasks_import(
    undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path, cluster: Head
) -> None:
    pytest.importorskip("hatchling")
    python = tmp_path / "python"  # says where it finds the package, then is the interpreter
    where = "import corpusmill; print('found in', corpusmill.__file__)"
    python.write_text(f'#!/bin/sh\n{sys.executable} -c "{where}"\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    arguments = (recipe, "--out", "out", *inputs(crawl), "--ship", "--python", python)
    said, _ = ended(submitted(cluster, *arguments, folder=tmp_path), 0)
    found = [line for line in said.splitlines() if line.startswith("found in")]
    assert found and all("py_modules" in line for line in found), found
    assert hashes(tmp_path / "out") == hashes(undisturbed)


def test_no_cluster_and_one_that_says_nothing_are_one_error_within_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"http://127.0.0.1:{free_ports(1)[0]}"
    done = corpusmill("submit", "demo", "--out", tmp_path / "out", "--address", address, expect=1)
    assert f"no Ray cluster answers at {address}" in done.stderr and "Traceback" not in done.stderr
    monkeypatch.setattr(submit, "ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RunError, match=f"no Ray cluster answers at {address}"):
            submit.need_answer(address)


def test_a_recipe_that_cannot_be_run_is_refused_before_a_cluster_is_asked(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("stages: [{extract: {wth: trafilatura}}]")
    done = corpusmill("submit", bad, "--out", tmp_path / "out", "--address", "http://127.0.0.1:1", expect=2)
    assert "wth" in done.stderr


@pytest.mark.parametrize(
    "address", ["", "ray://head:10001", "http://", "http://head:port", "http://me:secret@head:8265"]
)
def test_an_address_is_the_url_of_a_dashboard(address: str) -> None:
    with pytest.raises(RecipeError, match="--address") as caught:
        submit.checked_address(address)
    assert "secret" not in str(caught.value)


def test_another_version_on_the_cluster_is_named(tmp_path: Path) -> None:
    def checked(version: str, *flags: str) -> str:
        words = [sys.executable, *flags, "-c", submit.CHECK, version]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == (1 if done.stderr else 0)
        return done.stderr

    assert checked(package.__version__) == ""
    assert f"the cluster has version {package.__version__}, the job was submitted by 99.0" in checked("99.0")
    assert "not installed for" in checked("99.0", "-I", "-S")


def options(*words: str) -> Namespace:
    return cli.parser().parse_args(["submit", *words])


def test_the_entrypoint_calls_run_with_the_same_options_whatever_is_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "py thon"
    write = "import json, sys; print(json.dumps(sys.argv[1:]))"
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] || exec {sys.executable} -c "{write}" "$@"\n')
    python.chmod(0o755)
    call = tmp_path / "a folder; $(exit 3)"
    call.mkdir()
    monkeypatch.chdir(call)
    (call / "my 'recipe'.yaml").write_text("{}")
    given = ("my 'recipe'.yaml", "--address", "http://far:8265", "--python", str(python), "--out", "o u't")
    more = (
        "--input",
        "web=$HOME/*.gz",
        "--workers",
        "3",
        "--sample",
        "0.5",
        "--limit",
        "7",
        "--update",
        "--resources",
        "dedup=memory:4GiB",
    )
    line = submit.entrypoint(options(*given, *more), "http://far:8265")
    sent = tmp_path / "sent"
    sent.mkdir()
    done = subprocess.run(["/bin/sh", "-c", line], cwd=sent, capture_output=True, text=True, check=True)
    words = json.loads(done.stdout)
    assert words[:2] == ["-m", "corpusmill.jobs.cli"]
    run = cli.parser().parse_args(words[2:])
    assert run.command is running.command_run and run.recipe == f"{sent}/recipe.yaml" and run.ray == "auto"
    assert run.out == str(call / "o u't") and run.input == ["web=$HOME/*.gz"]
    assert (run.workers, run.sample, run.limit, run.update) == (3, 0.5, 7, True)
    assert run.resources == ["dedup=memory:4GiB"]


def test_the_interpreter_is_this_one_on_this_machine_alone() -> None:
    for address, python in {
        "http://127.0.0.1:1": sys.executable,
        "https://ray.example:8265": "python",
    }.items():
        line = submit.entrypoint(options("demo", "--out", "out", "--address", address), address)
        assert f"exec {python} -m corpusmill.jobs.cli run demo " in line


def test_where_a_store_is_travels_with_the_job_and_its_credentials_do_not(
    bucket: Bucket, tmp_path: Path
) -> None:
    given = options("demo", "--address", "http://far:8265", "--out", bucket.url("out"))
    assert f" --out {bucket.url('out')} " in submit.entrypoint(given, "http://far:8265")
    travels = submit.runtime_environment(given, tmp_path)
    assert travels["env_vars"] == {"AWS_ENDPOINT_URL": bucket.endpoint, "AWS_REGION": "us-east-1"}
    assert not [value for value in SECRETS.values() if value in json.dumps(travels)]


def test_an_installed_package_cannot_be_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "__file__", str(tmp_path / "site-packages" / "corpusmill" / "__init__.py"))
    with pytest.raises(RecipeError, match="run it from a clone"):
        ship.checkout()
