"""Ray clusters of our own for tests: own folder, ports and token, each in a session of its own and ended by it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

FAKE_NODES = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"

TWO_NODES = """
import json, sys
from ray.cluster_utils import Cluster
second = json.loads(sys.argv[1])
nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
other = nodes.add_node(num_cpus=1, **second)
print(nodes.address, flush=True)
for line in sys.stdin:
    if line.strip() == "give":
        other = nodes.add_node(num_cpus=1, **second)
        print("here", flush=True)
    else:
        nodes.remove_node(other, allow_graceful=False)
        print("gone", flush=True)
nodes.shutdown()
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def ray_head(
    folder: Path, kinds: Mapping[str, Any] | None = None, without: Iterable[str] = ()
) -> Iterator[dict[str, str]]:
    """A head with two slots; gives the environment to reach it, its address as CLUSTER, the process whose session it is as HEAD.

    `kinds`: of nodes that an autoscaler may add (`available_node_types` of a cluster file); the head then has no slot of its own.
    `without`: variables that its nodes do not have. Raises RuntimeError when none starts.
    """
    environment = token_environment(folder)
    for _ in range(3):  # a node has a fixed 30 s to come up, too little on a busy machine
        port, metrics = free_port(), free_port()
        log = folder / f"head-{port}.log"
        command = [*head_command(port, f"/tmp/cm{port}"), f"--metrics-export-port={metrics}"]
        ours = {**environment, "RAY_metrics_report_interval_ms": "1000"}
        if kinds is not None:
            scaled = folder / "autoscaling.yaml"
            scaled.write_text(json.dumps(autoscaling(f"127.0.0.1:{port}", kinds)))
            command += [f"--autoscaling-config={scaled}", "--num-cpus=0"]
            ours |= {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
        ours = {name: value for name, value in ours.items() if name not in without}
        with log.open("wb") as said:
            head = subprocess.Popen(command, env=ours, stdout=said, stderr=said, start_new_session=True)
        if answers(log, head, 120):
            break
        end(head)
    else:
        raise RuntimeError("a Ray head did not start in three attempts")
    try:
        yield {
            **environment,
            "CLUSTER": f"127.0.0.1:{port}",
            "HEAD": str(head.pid),
            "METRICS": f"http://127.0.0.1:{metrics}/metrics",
            "RAY_metrics_report_interval_ms": "1000",
        }
    finally:
        end(head)


def token_environment(folder: Path) -> dict[str, str]:
    """Ours, with a new token."""
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    token_at = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    return {**os.environ, **token_at, "RAY_USAGE_STATS_ENABLED": "0"}


def autoscaling(address: str, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """A cluster file by Ray's provider whose nodes are processes on this machine. `ray.cluster_utils.AutoscalingCluster` would write one,
    but it calls `ray stop`, which ends every Ray of a machine."""
    head = {"ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}}
    nodes = {"type": "external", "module": FAKE_NODES, "gcs_address": address, "disable_node_updaters": True}
    return {
        "cluster_name": "ours",
        "provider": {
            **nodes,
            "use_node_id_as_ip": True,
        },  # all have one address: without it no node is seen idle
        "available_node_types": {**head, **kinds},
        "head_node_type": "ray.head.default",
        "max_workers": 4,
        "idle_timeout_minutes": 0.2,
        "upscaling_speed": 1,
        "auth": {},
        "file_mounts": {},
        **{f"{whose}setup_commands": [] for whose in ("", "head_", "worker_")},
        **{f"{whose}_start_ray_commands": [] for whose in ("head", "worker")},
        "initialization_commands": [],
        "cluster_synced_files": [],
    }


@contextlib.contextmanager
def two_nodes(environment: Mapping[str, str], **second: Any) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A cluster of two nodes: (address, process). `second`: `resources` and `env_vars` of the second one, which can go and come."""
    nodes = subprocess.Popen(
        [sys.executable, "-c", TWO_NODES, json.dumps(second)],
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
    _tell(nodes, "take", "gone")


def give_node(nodes: subprocess.Popen[str]) -> None:
    """Start the second node again."""
    _tell(nodes, "give", "here")


def _tell(nodes: subprocess.Popen[str], word: str, answer: str) -> None:
    assert nodes.stdin is not None and nodes.stdout is not None
    print(word, file=nodes.stdin, flush=True)
    assert any(line.strip() == answer for line in nodes.stdout)


def head_command(port: int, folder: str) -> list[str]:
    ray = str(Path(sys.executable).with_name("ray"))
    options = ["--include-dashboard=false", "--num-cpus=2", "--disable-usage-stats", "--block"]
    place = ["--node-ip-address=127.0.0.1", f"--port={port}", f"--temp-dir={folder}"]
    return [ray, "start", "--head", *place, *options]


def answers(log: Path, head: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it says that it is up: its port is open long before its node is, which on a busy machine may never be."""
    deadline = time.monotonic() + seconds
    while head.poll() is None and time.monotonic() < deadline:
        if "Ray runtime started" in log.read_text(errors="replace"):
            return True
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
