"""A local worker process: reads a task a line, answers a line; `python -m corpusmill.pipeline.engine.worker PARENT_PID`.

Answers go through a private copy of stdout and fd 1 points at stderr, so that a library's print cannot corrupt them.
"""

import ctypes
import os
import signal
import sys
import threading
import time

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process when its parent dies, even inside C code that holds the GIL (Linux); elsewhere a watchdog polls.

    On Linux it fires when the *thread* that spawned us exits: spawn from a thread that lives as long as the run.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it died before the call above
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def one_core() -> None:
    """A worker is one core: libraries must not start threads of their own, or `--workers` would mean nothing."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    tasks = os.fdopen(os.dup(0), "r", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    one_core()
    from corpusmill.pipeline.engine.task import answer

    for message in tasks:
        answers.write(answer(message) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
