"""A child process that works for this one and may die of its work: its start, frames over its pipes, and who is to blame for a death.

Extract sends it pages, the engine rows that have crashed a worker. Wall-clock time decides nothing, so a loaded machine gives the same
rows. A frame costs 0.15 ms for a page of 14 kB.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from typing import Any, BinaryIO

from corpusmill.pipeline.engine import metrics
from corpusmill.pipeline.errors import RunError

CRASHES = 3
"""Deaths of the child over one row before the row is at fault."""

KILLS = 10
"""The same for SIGKILL, which no row sends: it comes from outside, or from a system out of memory."""


class ChildDied(Exception):
    """`code` is the child's return code: minus the signal that ended it."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def blame(deaths: Counter[int]) -> str | None:
    """What the row in work has failed by, after deaths with these return codes; None when it is to be tried again."""
    if deaths[-signal.SIGPROF]:
        return "cpu_limit"
    kills = deaths[-signal.SIGKILL]
    if kills < KILLS and deaths.total() - kills < CRASHES:
        return None
    others = {code: n for code, n in deaths.items() if code != -signal.SIGKILL or kills >= KILLS}
    return f"crash:{exit_name(max(others, key=lambda code: (others[code], code)))}"


def exit_name(code: int) -> str:
    """The signal's name, or `exit code N`."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def write_frame(stream: BinaryIO, head: dict[str, Any], *payloads: bytes | memoryview) -> None:
    """Length, JSON head with the payloads' lengths, payloads."""
    data = json.dumps({**head, "sizes": [len(payload) for payload in payloads]}).encode()
    stream.write(len(data).to_bytes(4, "little") + data)
    for payload in payloads:
        stream.write(payload)
    stream.flush()


def read_frame(stream: BinaryIO) -> tuple[dict[str, Any], list[bytes]] | None:
    """None when the other side has ended, even inside a frame."""
    size = stream.read(4)
    data = stream.read(int.from_bytes(size, "little")) if len(size) == 4 else b""
    if not data or len(data) < int.from_bytes(size, "little"):
        return None
    head: dict[str, Any] = json.loads(data)
    payloads = [stream.read(each) for each in head["sizes"]]
    return (head, payloads) if [*map(len, payloads)] == head["sizes"] else None


class Child:
    """One process at a time, of `python -m MODULE`. Use it from one thread; `close` it, or let it end with this process."""

    def __init__(self, module: str, hello: dict[str, Any], what: str) -> None:
        self.module = module
        self.hello = hello  # the first frame, which makes it ready
        self.what = what  # in words, for the message when it cannot start
        self.child: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        """The process, warm; RunError when it cannot start."""
        if self.child is None:
            self.child = self._start()
        return self.child

    def close(self) -> None:
        """End the process and wait for it."""
        if self.child is not None:
            with contextlib.suppress(OSError):
                self.child.kill()
            self._reap()

    def ask(self, head: dict[str, Any], *payloads: bytes | memoryview) -> None:
        """Send a request; ChildDied when it ended before it had read all."""
        requests, _ = _pipes(self.start())
        try:
            write_frame(requests, head, *payloads)
        except OSError:
            raise ChildDied(self._reap()) from None

    def answer(self) -> tuple[dict[str, Any], list[bytes]]:
        """The next answer; ChildDied when there is none."""
        frame = read_frame(_pipes(self.start())[1])
        if frame is None:
            raise ChildDied(self._reap())
        return frame

    def _start(self) -> subprocess.Popen[bytes]:
        """A warm process; RunError with its last words when it cannot start. One that is killed from outside is replaced."""
        # String hashes are fixed, so that no library's set order can reach a text.
        environment = {
            **os.environ,
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        code = 0
        for _ in range(KILLS):
            with tempfile.TemporaryFile() as words:
                child = subprocess.Popen(
                    # -P: the folder we were started from must not shadow modules in the child
                    [sys.executable, "-P", "-m", self.module, str(os.getpid())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=words,
                    env=environment,
                )
                metrics.HELPERS.add(child.pid)
                requests, answers = _pipes(child)
                with contextlib.suppress(OSError):
                    write_frame(requests, self.hello)
                if read_frame(answers) is not None:
                    return child
                self.child = child
                code = self._reap()
                words.seek(0)
                last = words.read().decode("utf-8", "replace").strip()[-2000:]
            if code != -signal.SIGKILL:
                break
        raise RunError(
            f"{self.what} cannot start (exit code {code}): {last or 'no message'}; "
            "check the installation with: pip install 'corpusmill[pipeline]'"
        )

    def _reap(self) -> int:
        """Wait for the process, close its pipes, forget it; its return code."""
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


def _pipes(child: subprocess.Popen[bytes]) -> tuple[BinaryIO, BinaryIO]:
    assert child.stdin is not None and child.stdout is not None
    return child.stdin, child.stdout  # type: ignore[return-value]


def private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """In the child: requests and answers. fd 1 points at stderr from here on, so that a library's print cannot corrupt an answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    return requests, answers


def silence() -> None:
    """In the child, once it is ready: what libraries write from here on is nobody's."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.dup2(2, 1)


def bound_memory(size_bytes: int) -> None:
    """In the child: address space of this process; no core files."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (size_bytes, size_bytes))
