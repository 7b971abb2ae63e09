"""Ray clusters of our own for tests: own folder, ports and token, each in a session of its own and ended by it."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def ray_head(folder: Path) -> Iterator[dict[str, str]]:
    """A head with two slots; gives the environment to reach it, its address as CLUSTER. Raises RuntimeError when none starts."""
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
        raise RuntimeError("a Ray head did not start in three attempts")
    try:
        yield {**environment, "CLUSTER": f"127.0.0.1:{port}"}
    finally:
        end(head)


@contextlib.contextmanager
def two_nodes(environment: Mapping[str, str]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A cluster of two nodes: (address, process); a line to its stdin takes the second node away, and `gone` comes back."""
    nodes = subprocess.Popen(
        [sys.executable, "-c", TWO_NODES],
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert nodes.stdout is not None
        yield next(line.strip() for line in nodes.stdout if line[0].isdigit()), nodes
    finally:
        assert nodes.stdin is not None
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            nodes.stdin.close()  # the end of its input: it shuts down in good order
            nodes.wait(60)
        end(nodes)


def take_node(nodes: subprocess.Popen[str]) -> None:
    """Kill the second node and wait until it is gone."""
    assert nodes.stdin is not None and nodes.stdout is not None
    print(file=nodes.stdin, flush=True)
    assert any(line.strip() == "gone" for line in nodes.stdout)


def head_command(port: int, folder: str) -> list[str]:
    ray = str(Path(sys.executable).with_name("ray"))
    options = ["--include-dashboard=false", "--num-cpus=2", "--disable-usage-stats", "--block"]
    place = ["--node-ip-address=127.0.0.1", f"--port={port}", f"--temp-dir={folder}"]
    return [ray, "start", "--head", *place, *options]


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
