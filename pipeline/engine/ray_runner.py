"""The Ray runner: the same tasks as Ray Core tasks, over any number of nodes that see OUT.

Ray is used thinly. A task reads files, writes files and answers with a line of JSON; nothing durable lives in an actor or the object
store, so the death of a worker or a node is "run it again". Ray's own retries are off: attempts are counted here, a lost node apart
from a failure. At most twice as many tasks are in flight as there are slots, in order. A Ray task costs 2 to 4 ms; tasks are minutes.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from corpusmill.pipeline.engine.attempts import Done, Job, Queue, done_of
from corpusmill.pipeline.engine.files import Task
from corpusmill.pipeline.engine.local import LONE_THREAD, Stop
from corpusmill.pipeline.engine.place import Place, place_of
from corpusmill.pipeline.errors import RecipeError, RunError
from corpusmill.pipeline.remote import surroundings

START_TRIES = 4
"""`ray.init` gives its own node a fixed 30 s to come up, too little on a busy machine (3 of 9 starts failed at a load of 12)."""

IN_FLIGHT_PER_SLOT = 2


class RayRunner:
    """`address`: a cluster's, `auto` for the one this machine belongs to, or `local` for one that is started here and ended with the run."""

    def __init__(self, address: str, out: Place, workers: int | None = None) -> None:
        self._ray = connect(address, workers)
        self._execute = self._ray.remote(max_retries=0, num_cpus=1)(execute)
        slots = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self.workers = min(workers or slots, slots)
        self.queue = Queue()
        try:
            probe(self._ray, out)
        except BaseException:
            self._ray.shutdown()
            raise

    def __enter__(self) -> RayRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self._ray.shutdown()  # disconnects; ends a cluster only if `connect` started it

    def run(self, tasks: Sequence[Task], stop: Stop | None = None) -> Iterator[Done]:
        """Run tasks in order; yields them as they finish."""
        self.queue.waiting.extend(Job(task) for task in tasks)
        flying: dict[Any, tuple[Job, float]] = {}
        try:
            while self.queue.waiting or flying:
                if stop is not None and stop.asked:
                    self.queue.waiting.clear()
                while self.queue.waiting and len(flying) < IN_FLIGHT_PER_SLOT * self.workers:
                    job = self.queue.waiting.popleft()
                    flying[
                        self._execute.remote(json.dumps(asdict(job.task)), str(Path.cwd()), surroundings())
                    ] = (
                        job,
                        time.perf_counter(),
                    )
                ready, _ = self._ray.wait(list(flying), num_returns=1, timeout=0.5) if flying else ([], [])
                for reference in ready:
                    yield from self._receive(reference, *flying.pop(reference))
        finally:  # nothing is left unless an error or the caller ended this early; what flies ends with the driver
            self.queue.waiting.clear()
        if stop is not None and stop.asked:
            raise KeyboardInterrupt

    def _receive(self, reference: Any, job: Job, since: float) -> Iterator[Done]:
        from ray import exceptions

        lost = (
            exceptions.NodeDiedError,
            exceptions.LocalRayletDiedError,
            exceptions.ObjectLostError,
            exceptions.OwnerDiedError,
        )
        try:
            answer = json.loads(self._ray.get(reference))
        except lost as error:
            seconds = time.perf_counter() - since  # with the time that it waited for a slot
            self.queue.node_lost(job, f"its node was lost ({type(error).__name__})", seconds)
        except exceptions.RayError as error:
            seconds = time.perf_counter() - since
            self.queue.failed(job, f"its worker died ({type(error).__name__})", seconds=seconds)
        else:
            if self.queue.answered(job, answer):
                yield done_of(job, answer)


def execute(message: str, folder: str, environment: Mapping[str, str]) -> str:
    """What a Ray worker runs: one core, one task, in the folder of the call where the node has it (lists of a recipe lie there)."""
    from corpusmill.pipeline.engine.task import answer
    from corpusmill.pipeline.engine.worker import one_core

    with contextlib.suppress(OSError):
        os.chdir(folder)
    os.environ.update(LONE_THREAD | dict(environment))
    one_core()
    return answer(message)


def connect(address: str, workers: int | None = None) -> Any:
    """Ray, connected; start-up is retried, and what went wrong is said with the next step."""
    import ray

    if address not in ("auto", "local"):
        need_answer(address)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address == "local":
        options |= {"include_dashboard": False, "num_cpus": workers}
    for attempt in range(1, START_TRIES + 1):
        try:
            ray.init(address=address, **options)
            return ray
        except ConnectionError as error:
            raise RunError(
                f"no Ray cluster at {address!r}: {error}; start one with `ray start --head`, or give its address"
            ) from None
        except Exception as error:
            if attempt == START_TRIES or address != "local":
                raise RunError(
                    f"Ray did not start or answer at {address!r}: {type(error).__name__}: {error}"
                ) from None
            ray.shutdown()
            time.sleep(2 * attempt)
    raise AssertionError


def need_answer(address: str) -> None:
    """Whether something listens there: Ray itself waits minutes for a cluster that is not."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise RecipeError(f"--ray {address}: HOST:PORT of a cluster's head, auto or local is needed")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise RunError(
            f"no Ray cluster at {address}: {error.strerror or error}; start one with `ray start --head`"
        ) from None


def probe(ray: Any, out: Place) -> None:
    """Write a file in OUT and read it from every node: a folder that some node does not see would lose its work in silence."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    word = uuid.uuid4().hex
    path = out / "metrics" / f"probe-{word}"
    path.put(word.encode())
    try:
        reader = ray.remote(max_retries=3, num_cpus=0)(read_probe)
        nodes = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
        answers = {
            name: reader.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
                str(path), surroundings()
            )
            for node, name in nodes.items()
        }
        blind = [name for name, answer in answers.items() if ray.get(answer) != word]
    finally:
        path.unlink()
    if blind and out.local:
        raise RunError(
            f"{out} is not the same folder on {', '.join(sorted(blind))}: put OUT on storage that every node mounts at this path"
        )
    if blind:
        raise RunError(
            f"{out} cannot be read on {', '.join(sorted(blind))}: those nodes need the network and credentials of their own for it"
        )


def read_probe(path: str, environment: Mapping[str, str]) -> str | None:
    """The probe's word; None where it cannot be read."""
    os.environ.update(environment)
    try:
        return place_of(path).read_text()
    except OSError:
        return None
