"""Extraction behind a guard: one long-lived child process a worker, which a bad page may end without harm to any other page.

Pages go in batches over a pipe, at 0.15 ms a page of 14 kB (2 % beside trafilatura-fast). Wall-clock time decides nothing, so a
loaded machine gives the same rows.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import BinaryIO

from corpusmill.pipeline.engine import metrics
from corpusmill.pipeline.errors import RunError
from corpusmill.pipeline.extract.guard_child import read_frame, write_frame
from corpusmill.pipeline.extract.page import Outcome, Page, Settings

CRASHES = 3
"""Crashes of the child over one page before the page is at fault."""

KILLS = 10
"""The same for SIGKILL, which no page sends: it comes from outside, or from a system out of memory."""

PAGES_A_CHILD = 10_000
"""A child is replaced after so many pages, whatever its libraries keep (a start costs 0.5 s, these pages minutes)."""


class ChildDied(Exception):
    """`code` is the child's return code: minus the signal that ended it."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Guard:
    """Extracts pages in a child process. Use it from one thread; `close` it, or let it end with the process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.child: subprocess.Popen[bytes] | None = None
        self.served = 0

    def run(self, pages: Sequence[Page]) -> list[Outcome]:
        """An outcome a page, in order. Raises RunError when the child does not start."""
        outcomes: list[Outcome] = []
        deaths: Counter[int] = Counter()  # of the page in work, by return code
        while len(outcomes) < len(pages):
            before = len(outcomes)
            try:
                self._extract(pages[before:], outcomes)
            except ChildDied as death:
                if len(outcomes) > before:
                    deaths.clear()
                deaths[death.code] += 1
                blame = _blame(deaths)
                if blame:
                    outcomes.append(Outcome(failed=blame))
                    deaths.clear()
        return outcomes

    def start(self) -> subprocess.Popen[bytes]:
        """The child, warm; RunError when it cannot start."""
        if self.child is None or self.served >= PAGES_A_CHILD:
            self.close()
            self.child = self._start()
        return self.child

    def close(self) -> None:
        """End the child and wait for it."""
        if self.child is not None:
            with contextlib.suppress(OSError):
                self.child.kill()
            self._reap()

    def _extract(self, pages: Sequence[Page], outcomes: list[Outcome]) -> None:
        """Append outcomes until all are in, the child has said that it ends, or it dies (ChildDied)."""
        requests, answers = _pipes(self.start())
        try:
            write_frame(
                requests,
                {"pages": [(page.record, page.mime) for page in pages]},
                *(page.block for page in pages),
            )
        except OSError:  # it died before it had read all
            raise ChildDied(self._reap()) from None
        for _ in pages:
            frame = read_frame(answers)
            if frame is None:
                raise ChildDied(self._reap())
            head, payloads = frame
            text = payloads[0].decode() if payloads else None
            outcomes.append(Outcome(text, head["reason"], head["failed"], head["meta"]))
            self.served += 1
            if head["last"]:
                self.close()
                return

    def _start(self) -> subprocess.Popen[bytes]:
        """A warm child; RunError with its last words when it cannot start. One that is killed from outside is replaced."""
        # String hashes are fixed, so that no library's set order can reach a text.
        environment = {
            **os.environ,
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        self.served = 0
        code = 0
        for _ in range(KILLS):
            with tempfile.TemporaryFile() as words:
                child = subprocess.Popen(
                    # -P: the folder we were started from must not shadow modules in the child
                    [sys.executable, "-P", "-m", "corpusmill.pipeline.extract.guard_child", str(os.getpid())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=words,
                    env=environment,
                )
                metrics.HELPERS.add(child.pid)
                requests, answers = _pipes(child)
                with contextlib.suppress(OSError):
                    write_frame(requests, {"settings": asdict(self.settings)})
                if read_frame(answers) is not None:
                    return child
                self.child = child
                code = self._reap()
                words.seek(0)
                last = words.read().decode("utf-8", "replace").strip()[-2000:]
            if code != -signal.SIGKILL:
                break
        raise RunError(
            f"extraction with {self.settings.extractor} cannot start (exit code {code}): {last or 'no message'}; "
            "check the installation with: pip install 'corpusmill[pipeline]'"
        )

    def _reap(self) -> int:
        """Wait for the child, close its pipes, forget it; its return code."""
        child, self.child = self.child, None
        assert child is not None
        for pipe in (child.stdin, child.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        try:
            return child.wait()
        finally:
            metrics.HELPERS.discard(child.pid)


def _blame(deaths: Counter[int]) -> str | None:
    """What the page in work has failed by; None when it is to be tried again."""
    if deaths[-signal.SIGPROF]:
        return "cpu_limit"
    kills = deaths[-signal.SIGKILL]
    return "crash" if kills >= KILLS or deaths.total() - kills >= CRASHES else None


def _pipes(child: subprocess.Popen[bytes]) -> tuple[BinaryIO, BinaryIO]:
    assert child.stdin is not None and child.stdout is not None
    return child.stdin, child.stdout  # type: ignore[return-value]


class _Local(threading.local):
    """A guard a thread: the parent-death signal is tied to the thread that started the child."""

    guard: Guard | None = None


_local = _Local()


def guard_of(settings: Settings) -> Guard:
    """This worker's guard, kept from unit to unit; another one when the settings differ."""
    if _local.guard is None or _local.guard.settings != settings:
        if _local.guard is not None:
            _local.guard.close()
        _local.guard = Guard(settings)
        atexit.register(_local.guard.close)
    return _local.guard
