"""The Ray runner: the same tasks as Ray Core tasks, over any number of nodes that see OUT.

Ray is used thinly. A task reads files, writes files and answers with a line of JSON; nothing durable lives in an actor or the object
store, so the death of a worker or a node is "run it again". Ray's own retries are off: attempts are counted here, a lost node apart
from a failure. At most twice as many tasks are in flight as there are slots, in order; slots are counted again as nodes come and go, and where
an autoscaler may add some, a few tasks wait in Ray to ask for them. A Ray task costs 2 to 4 ms; tasks are minutes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from corpusmill.pipeline.engine import ray_cluster
from corpusmill.pipeline.engine.attempts import Done, Job, Queue, done_of
from corpusmill.pipeline.engine.files import Task
from corpusmill.pipeline.engine.local import Stop
from corpusmill.pipeline.engine.place import Place, place_of
from corpusmill.pipeline.engine.ray_cluster import Terms
from corpusmill.pipeline.engine.ray_connect import connect
from corpusmill.pipeline.engine.ray_metrics import StageMetrics
from corpusmill.pipeline.engine.ray_node import task_function
from corpusmill.pipeline.engine.ray_nodes import NODE_WAIT_S, SETTLE_S, Lookout, lost, need_room
from corpusmill.pipeline.engine.resources import Needs, needs_of, overridden
from corpusmill.pipeline.engine.task import load_operation, task_to_json
from corpusmill.pipeline.errors import RunError
from corpusmill.pipeline.models import MODELS, model_path

IN_FLIGHT_PER_SLOT = 2
ASKING = 4
"""Tasks that wait in Ray where an autoscaler has not started a node for them yet; it answers to what waits."""


class RayRunner:
    """`address`: a cluster's, `auto` for the one this machine belongs to, or `local` for one that is started here and ended with the run.

    `resources`: stage -> name -> amount, instead of what its operation declares. `say` is told what a person should know.
    """

    def __init__(
        self,
        address: str,
        out: Place,
        workers: int | None = None,
        resources: Mapping[str, Mapping[str, float]] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._ray = connect(address, workers, say)
        self._most, self._resources, self._say = workers, resources or {}, say
        self.queue = Queue()
        self._terms: Terms | None = None
        self._models: dict[str, Any] = {}  # name -> the driver's copy in Ray's object store
        self._seen: dict[str, Mapping[str, float]] = {}  # every node that there was
        self.lookout = Lookout(self._ray, say)
        try:
            self._terms = ray_cluster.terms_for(out)
            nodes = self.lookout.nodes
            self._seen.update(nodes.resources)
            ray_cluster.probe_nodes(self._ray, self._terms, nodes)
            self._execute = self._ray.remote(max_retries=0)(task_function())
            self._metrics = StageMetrics()
            self._foresee()
        except BaseException:
            self.close()
            raise
        cpus = nodes.slots(Needs())
        room = max(cpus, ASKING if self.lookout.growth.elastic else 1)
        self.workers = min(workers or room, room)

    def __enter__(self) -> RayRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the probe away and disconnect; ends a cluster only if `connect` started it."""
        if self._terms is not None:
            place_of(self._terms.probe).unlink()
        self.lookout.close()
        self._ray.shutdown()

    def run(self, tasks: Sequence[Task], stop: Stop | None = None) -> Iterator[Done]:
        """Run tasks in order; yields them as they finish."""
        if not tasks:
            return
        self.queue.waiting.extend(Job(task) for task in tasks)
        flying: dict[Any, tuple[Job, float]] = {}
        stage = tasks[0].stage
        room = _Room(self, stage, needs_of(tasks[0], self._resources))
        execute = self._execute.options(name=f"execute {stage}", **room.needs.options())
        fixed = (str(Path.cwd()), asdict(self._terms) if self._terms else {}, self._models_for(tasks[0]))
        self._metrics.began(stage)
        try:
            while self.queue.waiting or flying:
                if stop is not None and stop.asked:
                    self.queue.waiting.clear()
                limit = room.limit()
                while self.queue.waiting and len(flying) < limit:
                    job = self.queue.waiting.popleft()
                    reference = execute.remote(task_to_json(job.task), *fixed)
                    flying[reference] = (job, time.perf_counter())
                self._metrics.set("tasks_in_flight", len(flying))
                if not flying:
                    time.sleep(0.5)  # no node is there at the moment
                    continue
                ready, _ = self._ray.wait(list(flying), num_returns=1, timeout=0.5)
                for reference in ready:
                    yield from self._receive(reference, *flying.pop(reference))
        finally:  # nothing is left unless an error or the caller ended this early; what flies ends with the driver
            self.queue.waiting.clear()
            self._metrics.set("tasks_in_flight", 0)
        if stop is not None and stop.asked:
            raise KeyboardInterrupt

    def _receive(self, reference: Any, job: Job, since: float) -> Iterator[Done]:
        from ray import exceptions

        gone = (exceptions.NodeDiedError, exceptions.ObjectLostError, exceptions.OwnerDiedError)
        try:
            answer = json.loads(self._ray.get(reference))
        except exceptions.LocalRayletDiedError:
            raise lost("the Ray node that this driver works through has died") from None
        except gone as error:
            seconds = time.perf_counter() - since  # with the time that it waited for a slot
            self._metrics.count("tasks_lost", 1)
            self.queue.node_lost(job, f"its node was lost ({type(error).__name__})", seconds)
        except exceptions.RayError as error:
            seconds = time.perf_counter() - since
            self._metrics.count("tasks_failed", 1)
            self.queue.failed(job, f"its worker died ({type(error).__name__})", seconds=seconds)
        else:
            if "unfit" in answer and self._terms is not None:
                node = answer["unfit"]
                why = ray_cluster.different(self._terms, node["word"], node["found"])
                raise RunError(f"{node['node']}, which came to the cluster during the run, {why}")
            if self.queue.answered(job, answer):
                done = done_of(job, answer)
                self._metrics.done(done)
                yield done
            else:
                self._metrics.count("tasks_failed", 1)

    def _foresee(self) -> None:
        """Say which demands of --resources no node can meet as yet: their stages may be hours away."""
        for stage in self._resources if self.lookout.growth.told else ():
            needs = overridden(Needs(), stage, self._resources)
            try:
                need_room(stage, needs, list(self._seen.values()), self.lookout.growth)
            except RunError as error:
                self._say(f"{error}; the run will stop at that stage unless such a node has come by then")

    def _models_for(self, task: Task) -> dict[str, Any]:
        """The pinned models of an operation, each put into the object store once a run; a node fetches one when it lacks it."""
        names = [name for name in load_operation(task.operation, task.fields).models() if name in MODELS]
        for name in names:
            if name not in self._models:
                self._models[name] = self._ray.put(model_path(name).read_bytes())
        return {name: self._models[name] for name in names}


class _Room:
    """How many tasks of one stage may be in flight, by the nodes that are there."""

    def __init__(self, runner: RayRunner, stage: str, needs: Needs) -> None:
        self.runner, self.stage, self.needs = runner, stage, needs
        self._began, self._since = time.monotonic(), 0.0

    def limit(self) -> int:
        """0 while every node that could run such a task, or the head, is away; RunError when none ever could, or they stay away."""
        runner, lookout, now = self.runner, self.runner.lookout, time.monotonic()
        if not lookout.head_answers():
            return 0
        runner._seen.update(lookout.nodes.resources)
        slots = lookout.nodes.slots(self.needs)
        runner._metrics.set("slots", slots)
        slots = min(slots, runner._most or slots)
        if slots:
            runner.workers, self._since = slots, 0.0
            return IN_FLIGHT_PER_SLOT * slots
        growth = lookout.growth
        if growth.told or now - self._began > SETTLE_S:
            need_room(self.stage, self.needs, list(runner._seen.values()), growth)
        self._wait(now, growth.elastic)
        return min(ASKING, runner._most or ASKING) if growth.elastic else 0

    def _wait(self, now: float, elastic: bool) -> None:
        if not self._since:
            self._since = now
            come = ", which the autoscaler is asked for" if elastic else ""
            self.runner._say(
                f"{self.stage}: no node with {self.needs.words()} is there: waiting for one{come}"
            )
        elif not elastic and now - self._since > NODE_WAIT_S:
            raise RunError(
                f"stage {self.stage}: the nodes with {self.needs.words()} have been gone for {NODE_WAIT_S:.0f} s: "
                "start one, then the same command goes on from here"
            )
