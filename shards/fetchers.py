"""A few threads that bring blocks to this machine before they are needed. They end with their owner, or with the program.

A program that ends waits for what they are at: one read of a block, with the store client's own attempts.
"""

from __future__ import annotations

import atexit
import contextlib
import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from corpusmill.pipeline.errors import CorpusmillError

FETCHERS, FETCHER = 4, "corpusmill-fetch"


class Damaged(Exception):
    """Bytes that are not those their hash was taken of, where asking again does not help."""


class Threads:
    """A few threads that do jobs whose failure does not matter here: who needs the block asks for it again, and gets the error."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        threads = [
            threading.Thread(target=_work, args=(self._jobs, self._stop), name=FETCHER, daemon=True)
            for _ in range(FETCHERS)
        ]
        for thread in threads:
            thread.start()
        # Without a reference to self, so that it ends when nobody refers to it; at exit, before Arrow goes from under the threads.
        weakref.finalize(self, _end, self._jobs, self._stop, threads)
        atexit.register(_end, self._jobs, self._stop, threads, True)

    def do(self, jobs: Sequence[Callable[[], Any]]) -> None:
        for job in jobs:
            self._jobs.put(job)


def _work(jobs: queue.SimpleQueue[Callable[[], Any] | None], stop: threading.Event) -> None:
    while (job := jobs.get()) is not None:
        if not stop.is_set():
            with contextlib.suppress(CorpusmillError, OSError, Damaged):
                job()
        del job


def _end(
    jobs: queue.SimpleQueue[Callable[[], Any] | None],
    stop: threading.Event,
    threads: list[threading.Thread],
    wait: bool = False,
) -> None:
    stop.set()
    for _ in threads:
        jobs.put(None)
    if wait:
        for thread in threads:
            thread.join()
