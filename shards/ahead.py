"""Batches made ahead of their use by one thread, which ends with the stream, with its program, or before it.

Small batches are made, and cross from thread to thread, in groups (1, 2, 4, ... up to half a MiB together): eight rows of 4 KiB alone cost
twice their share of 64, and a crossing costs as much as twenty rows. What is in a group does not show: an error comes
after the batches before it. How long the taker waited, and how often, is counted where it waits.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy.typing as npt

from corpusmill.pipeline.errors import CursorError

Batch = dict[str, npt.NDArray[Any]]
Make = Callable[[Sequence[int]], list[Batch]]
"""Batches from their first samples."""
Made = list[Batch] | BaseException | None
"""What crosses: batches, what ended them, or None after the last."""

GROUP_BYTES = 1 << 19

_WAIT_S = 0.1  # how soon an idle thread notices that its stream was closed


@dataclass
class Waits:
    """Seconds that a stream's user waited for batches, and how many were not ready when asked for; the first never is, and not counted."""

    seconds: float = 0.0
    starved: int = 0


def plainly(make: Make, starts: Iterable[int], waits: Waits) -> Generator[Batch, None, None]:
    """Batches when they are asked for, small ones in groups: all of their making is waiting."""
    first = True
    groups = _groups(make, starts)
    while True:
        began = time.perf_counter()
        group = next(groups, None)
        if group is None:
            return
        waits.seconds += time.perf_counter() - began
        waits.starved += not first
        first = False
        yield from group


def _groups(make: Make, starts: Iterable[int]) -> Generator[list[Batch], None, None]:
    """Batches in groups that grow to GROUP_BYTES, so that the first is there as soon as it can be."""
    left, most = iter(starts), 1
    while wanted := list(islice(left, most)):
        try:
            made = make(wanted)
        except Exception:
            if len(wanted) == 1:
                raise
            for start in wanted:  # those before the one that fails are whole
                yield make([start])
            continue
        yield made
        size = sum(array.nbytes for array in made[0].values())
        most = max(1, min(2 * most, GROUP_BYTES // max(1, size)))


def ahead(make: Make, starts: Iterable[int], count: int, waits: Waits) -> Generator[Batch, None, None]:
    """Up to `count` batches, or groups of small ones, before they are asked for. The thread starts with the first and ends with the generator."""
    made: queue.Queue[Made] = queue.Queue(count)
    stop = threading.Event()
    thread = threading.Thread(
        target=_fill, args=(make, starts, made, stop), name="corpusmill-stream", daemon=True
    )
    thread.start()
    process = os.getpid()

    def end() -> None:
        stop.set()
        thread.join()

    # An interpreter that ends under a thread inside Arrow aborts the process: such a thread ends first.
    atexit.register(end)
    try:
        began = time.perf_counter()
        item = made.get()
        waits.seconds += time.perf_counter() - began
        while item is not None:
            if isinstance(item, BaseException):
                raise item
            for batch in item:
                yield batch
                if os.getpid() != process:
                    raise CursorError(
                        "this process was forked from the one whose thread fills the stream, and would wait for it for ever: "
                        "open a stream of its own from the cursor"
                    )
            item = _next(made, waits)
    finally:
        stop.set()
        if thread is not threading.current_thread():  # a garbage collector may run anywhere
            thread.join()
            atexit.unregister(end)


def _next(made: queue.Queue[Made], waits: Waits) -> Made:
    try:
        return made.get_nowait()
    except queue.Empty:
        began = time.perf_counter()
        item = made.get()
        waits.seconds += time.perf_counter() - began
        waits.starved += item is not None
        return item


def _fill(make: Make, starts: Iterable[int], made: queue.Queue[Made], stop: threading.Event) -> None:
    def put(item: Made) -> bool:
        while not stop.is_set():
            try:
                made.put(item, timeout=_WAIT_S)
                return True
            except queue.Full:
                continue
        return False

    try:
        for group in _groups(make, starts):
            if not put(group):
                return
        put(None)
    except BaseException as error:
        put(error)  # whatever it is, the reader of the stream must see it and not wait for ever
