"""The local runner: one child process a worker, a pipe each, one task in flight.

No shared queue, lock or semaphore, so nothing to corrupt: a death is EOF on the dead worker's own pipe and costs its task alone.
`multiprocessing.Pool` hangs, `ProcessPoolExecutor` and loky break all futures and pebble breaks when an idle worker is killed;
this survived kill storms of all of them (start of a worker 0.05 s, 0.14 ms a task before imports).
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import corpusmill
from corpusmill.pipeline.engine.attempts import ATTEMPTS, Done, Job, Queue, done_of
from corpusmill.pipeline.engine.child import exit_name
from corpusmill.pipeline.engine.files import Task
from corpusmill.pipeline.engine.resources import local_workers, machine_memory_bytes, needs_of, words
from corpusmill.pipeline.engine.task import task_to_json
from corpusmill.pipeline.errors import RecipeError, RunError

LONE_THREAD = {
    name: "1"
    for name in (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "RAYON_NUM_THREADS",
        "NUMBA_NUM_THREADS",
    )
} | {"TOKENIZERS_PARALLELISM": "false"}


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    job: Job | None = None  # in flight
    since: float = 0.0  # when it was handed the job
    buffer: bytearray = field(default_factory=bytearray)


class Stop:
    """SIGINT and SIGTERM: the first stops after the commits in flight, the second at once."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> Stop:
        self._old = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._old[number] = signal.signal(number, self._ask)
            except ValueError:  # not the main thread: the host program owns the signals
                return self
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _ask(self, number: int, _: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


class LocalRunner:
    """`workers` child processes for as long as the run lasts; they keep models and compiled kernels between stages."""

    def __init__(
        self,
        workers: int,
        log: Path | None = None,
        resources: Mapping[str, Mapping[str, float]] | None = None,
        memory_bytes: int | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`resources` override what operations declare; `memory_bytes` of the machine (None: asked of it); `say` tells a person."""
        if workers < 1:
            raise RecipeError(f"--workers {workers}: at least 1 is needed")
        self.workers = workers
        self.queue = Queue()
        self._log = log
        self._pool: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._resources, self._say = resources or {}, say
        self._memory_bytes = machine_memory_bytes() if memory_bytes is None else memory_bytes
        self._at_once = workers  # of the stage that runs: its workers' memory may allow fewer
        self._spawned = 0
        self._spawn_limit = 0

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the children that this runner started, by pid."""
        for worker in self._pool:
            self._bury(worker)
        self._pool = []

    def pids(self) -> list[int]:
        return [worker.process.pid for worker in self._pool]

    def run(self, tasks: Sequence[Task], stop: Stop | None = None) -> Iterator[Done]:
        """Run tasks in order, at most one a worker in flight; yields them as they finish."""
        if tasks:
            self._make_room(tasks)
        self.queue.waiting.extend(Job(task) for task in tasks)
        self._spawn_limit = self._spawned + self.workers + 50
        try:
            while self.queue.waiting or any(worker.job for worker in self._pool):
                if stop is not None and stop.asked:
                    self.queue.waiting.clear()
                self._reap_idle()
                self._hand_out()
                for worker in self._ready():
                    yield from self._receive(worker)
        finally:  # nothing is left unless an error or the caller ended this early
            self.queue.waiting.clear()
            for worker in [worker for worker in self._pool if worker.job]:
                self._drop(worker)
        if stop is not None and stop.asked:
            raise KeyboardInterrupt

    def _make_room(self, tasks: Sequence[Task]) -> None:
        """As many workers as this stage's memory allows; those beyond end, since idle ones keep what they hold."""
        needs = needs_of(tasks[0], self._resources)
        self._at_once = local_workers(self.workers, needs, self._memory_bytes)
        if self._at_once < self.workers:
            self._say(
                f"{tasks[0].stage}: {self._at_once} of {self.workers} workers at once, each may take {words({'memory': needs.memory_bytes})} "
                f"of this machine's {words({'memory': self._memory_bytes})}"
            )
        for worker in self._pool[self._at_once :]:
            self._drop(worker)

    def _hand_out(self) -> None:
        waiting = self.queue.waiting
        while waiting:
            worker = next((w for w in self._pool if w.job is None), None) or self._spawn()
            if worker is None:
                return
            job = waiting.popleft()
            if job.attempt == 1:
                # A worker that dies costs a start; ATTEMPTS a unit and a few idle deaths are the most that an honest run needs.
                self._spawn_limit += ATTEMPTS * (len(job.task.units) + 1)
            try:
                assert worker.process.stdin is not None
                worker.process.stdin.write(task_to_json(job.task).encode() + b"\n")
                worker.process.stdin.flush()
                worker.job, worker.since = job, time.perf_counter()
            except (BrokenPipeError, ConnectionResetError):
                waiting.appendleft(job)  # killed while idle: the task was never started
                self._drop(worker)

    def _ready(self) -> list[_Worker]:
        return [key.data for key, _ in self._selector.select(timeout=0.5)]

    def _receive(self, worker: _Worker) -> Iterator[Done]:
        assert worker.process.stdout is not None
        piece = os.read(worker.process.stdout.fileno(), 1 << 20)
        job = worker.job
        if not piece:
            code = self._drop(worker)
            if job is not None:
                self.queue.failed(
                    job, f"its worker died ({exit_name(code)})", seconds=time.perf_counter() - worker.since
                )
            return
        worker.buffer += piece
        if not worker.buffer.endswith(b"\n"):
            return
        answer = json.loads(worker.buffer)
        worker.buffer.clear()
        worker.job = None
        assert job is not None
        if self.queue.answered(job, answer):
            yield done_of(job, answer)

    def _spawn(self) -> _Worker | None:
        if len(self._pool) >= self._at_once:
            return None
        if self._spawned >= self._spawn_limit:
            raise RunError(
                f"{self._spawned} workers were started and died: something on this machine kills them; see the log of the last stage"
            )
        self._spawned += 1
        root = str(Path(corpusmill.__file__).parent.parent)
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        if self._log is not None:
            self._log.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.nullcontext() if self._log is None else self._log.open("ab") as log:
            process = subprocess.Popen(
                # -P: the folder we were started from must not shadow modules in the worker
                [sys.executable, "-P", "-m", "corpusmill.pipeline.engine.worker", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **LONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)},
            )
        worker = _Worker(process)
        self._pool.append(worker)
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
        return worker

    def _reap_idle(self) -> None:
        for worker in [w for w in self._pool if w.job is None and w.process.poll() is not None]:
            self._drop(worker)

    def _drop(self, worker: _Worker) -> int:
        self._pool.remove(worker)
        return self._bury(worker)

    def _bury(self, worker: _Worker) -> int:
        assert worker.process.stdout is not None and worker.process.stdin is not None
        self._selector.unregister(worker.process.stdout)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.process.pid, signal.SIGKILL)  # its session: the guard child goes with it
        code = worker.process.wait()
        worker.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            worker.process.stdin.close()
        return code
