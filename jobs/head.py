"""A Ray head of one's own on this machine, for the demo and the tests of jobs: its own folder, ports and token, dashboard on loopback.

Ray puts its own services on the machine's address whatever is asked for; the token guards them.
`ray stop` ends every Ray of a machine; this one is ended by the process group that it was started in, and nothing else is touched.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from corpusmill.pipeline.errors import RunError

START_TRIES = 3
START_S = 120.0
"""A node has a fixed 30 s to come up, too little on a busy machine: then the next try."""


@dataclass(frozen=True)
class Head:
    """`address`: of the dashboard; `environment`: what a process needs to reach it, the token's file among it."""

    address: str
    environment: dict[str, str]


@contextlib.contextmanager
def head(cpus: int) -> Iterator[Head]:
    """Start it, wait until jobs are taken, end it with everything that it started."""
    # Sockets lie below it, whose paths have 107 bytes at most.
    folder = Path(tempfile.mkdtemp(prefix="cm-ray-", dir="/tmp"))
    try:
        token = folder / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN")
        }
        environment |= {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        process, address = _start(folder, environment, cpus)
        try:
            yield Head(address, environment)
        finally:
            end(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, environment: dict[str, str], cpus: int) -> tuple[subprocess.Popen[bytes], str]:
    for attempt in range(START_TRIES):
        ports = free_ports(4)
        log = folder / f"head-{attempt}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command(ports, folder / str(attempt), cpus),
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        address = f"http://127.0.0.1:{ports[1]}"
        try:
            if _takes_jobs(address, process, environment):
                return process, address
        except BaseException:
            end(process)
            raise
        end(process)
    last = " ".join(log.read_text(errors="replace").split())[-300:]
    raise RunError(f"a local Ray did not start in {START_TRIES} attempts: {last}")


def command(ports: list[int], folder: Path, cpus: int) -> list[str]:
    return [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"),
        *("--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1", "--include-dashboard=true"),
        *(f"--port={ports[0]}", f"--dashboard-port={ports[1]}", f"--dashboard-agent-listen-port={ports[2]}"),
        *(f"--ray-client-server-port={ports[3]}", f"--temp-dir={folder}", f"--num-cpus={cpus}"),
    ]


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _takes_jobs(address: str, process: subprocess.Popen[bytes], environment: dict[str, str]) -> bool:
    """Whether the list of jobs can be had before the deadline: the dashboard answers earlier than its job service."""
    token = Path(environment["RAY_AUTH_TOKEN_PATH"]).read_text()
    question = urllib.request.Request(f"{address}/api/jobs/", headers={"Authorization": f"Bearer {token}"})
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(question, timeout=10) as answer:
                if answer.status == 200:
                    return True
        except OSError:
            pass
        time.sleep(0.5)
    return False


def end(process: subprocess.Popen[bytes]) -> None:
    """Its whole session, raylet and workers among it: first asked, then ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
    process.wait()
