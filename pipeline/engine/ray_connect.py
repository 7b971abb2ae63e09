"""Reaching a Ray: one that is started for the run, or a cluster's head; tried again while it comes up, and said when it does not.

A `ray.init` that starts a Ray takes seconds on an idle machine and 40 s on one with a load of 12.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from corpusmill.pipeline.errors import RecipeError, RunError

START_TRIES = 6
"""`ray.init` gives its own node a fixed 30 s to come up, too little on a busy machine (of 9 starts 3 failed at a load of 12,
of 3 two at a load of 18)."""

PATIENCE = "RAY_gcs_rpc_server_reconnect_timeout_s"
"""Seconds after which Ray ends a process whose head is silent, at once and without a word: 60, which the run's own patience
(ray_nodes.HEAD_WAIT_S) must stay below even when the driver is busy with something else."""


def connect(address: str, workers: int | None, say: Callable[[str], None]) -> Any:
    """Ray, connected. A start that fails is tried again, as is a head that does not answer yet; `say` is told, and errors name the next step."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address == "local":
        options |= {"include_dashboard": False, "num_cpus": workers}
    else:
        os.environ.setdefault(PATIENCE, "600")  # of this process: nodes have their own
    import ray

    for attempt in range(1, START_TRIES + 1):
        try:
            if address not in ("auto", "local"):
                need_answer(address)
            with _own_sigterm():
                ray.init(address=address, **options)
            return ray
        except RecipeError:
            raise
        except Exception as error:
            ray.shutdown()
            _end_left()
            if address == "auto" or attempt == START_TRIES:
                raise _no_cluster(address, error) from None
            say(f"{_what(address, error)}: trying again in {2 * attempt} s ({attempt} of {START_TRIES - 1})")
            time.sleep(2 * attempt)
    raise AssertionError


def _end_left() -> None:
    """End what a start that failed has left running, which `ray.shutdown` knows nothing of: it would make the next start slower still."""
    import psutil  # type: ignore[import-untyped, unused-ignore]  # Ray brings it along
    import ray

    package = str(Path(ray.__file__).parent)
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if any(word.startswith(package) for word in child.cmdline()):
                child.kill()
                child.wait(10)


def _what(address: str, error: Exception) -> str:
    why = " ".join(str(error).split())
    if isinstance(error, RunError):
        return why
    if address == "local":
        return f"Ray did not start here ({type(error).__name__}: {why})"
    return f"no Ray cluster at {address!r} ({type(error).__name__}: {why})"


def _no_cluster(address: str, error: Exception) -> RunError:
    what = _what(address, error)
    if address == "local":
        return RunError(
            f"{what}, in {START_TRIES} attempts: is the machine short of memory or very busy? Without --ray nothing needs it"
        )
    return RunError(f"{what}; start one with `ray start --head`, or give its address{_token_step()}")


def _token_step() -> str:
    """`ray start` asks for a token unless told otherwise, `ray.init` sends one only when told to, and says no more than that it failed."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "token":
        return "; if it answers, it has another token: see RAY_AUTH_TOKEN_PATH"
    return "; a cluster with a token, as `ray start` makes one, needs RAY_AUTH_MODE=token here too"


def need_answer(address: str) -> None:
    """Whether something listens there: Ray itself waits minutes for a cluster that is not."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise RecipeError(f"--ray {address}: HOST:PORT of a cluster's head, auto or local is needed")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise RunError(f"no Ray cluster at {address}: {error.strerror or error}") from None


@contextlib.contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keep this process's handler: `ray.init` puts one in its place that ends the driver at once, with exit code 15 and no word."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
