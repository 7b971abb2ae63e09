"""The process that extracts: `python -m corpusmill.pipeline.extract.guard_child PARENT_PID`, pages in on stdin, outcomes out on stdout.

A page can end it: past its CPU seconds (a kernel timer whose default action works inside C code too), past the address space, or
by a crash. The answer to each page is flushed before the next begins, so the first unanswered page is the one in work.
Answers go through a private copy of stdout; fd 1 points at stderr, and a library's print cannot corrupt them.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from corpusmill.pipeline.engine.worker import die_with_parent
from corpusmill.pipeline.extract.limits import Limits
from corpusmill.pipeline.extract.page import Outcome, Page, Settings, process

WARM_UP = b"<html><head><title>t</title></head><body><article><p>One sentence that says little.</p></article></body></html>"


def write_frame(stream: BinaryIO, head: dict[str, Any], *payloads: bytes) -> None:
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


def settings_from_json(value: dict[str, Any]) -> Settings:
    """Settings as `dataclasses.asdict` wrote them, after JSON made lists of the tuples."""
    fields: dict[str, Any] = {
        name: tuple(each) if isinstance(each, list) else each for name, each in value.items()
    }
    return Settings(**{**fields, "limits": Limits(**fields["limits"])})


def bound_memory(megabytes: int) -> None:
    """Address space of this process; no core files."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


def outcome_of(page: Page, settings: Settings, extract: Callable[[str], str | None]) -> Outcome:
    """`process`, with what it raises as a failed row."""
    try:
        return process(page, settings, extract)
    except MemoryError:
        return Outcome(failed="memory")
    except BaseException as error:  # a panic of a Rust library is no Exception
        return Outcome(failed=f"exception:{type(error).__name__}")


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    first = read_frame(requests)
    if first is None:
        return
    settings = settings_from_json(first[0]["settings"])
    from corpusmill.pipeline.extract.html import extractor

    extract = extractor(settings.extractor, settings.output)
    extract(WARM_UP.decode())
    bound_memory(settings.memory_mb)
    gc.freeze()
    write_frame(answers, {"ready": os.getpid()})
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what libraries write from here on is nobody's
    os.dup2(2, 1)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    while (request := read_frame(requests)) is not None:
        head, blocks = request
        for (record, mime), block in zip(head["pages"], blocks, strict=True):
            signal.setitimer(signal.ITIMER_PROF, settings.cpu_s)
            outcome = outcome_of(Page(record, mime, block), settings, extract)
            signal.setitimer(signal.ITIMER_PROF, 0)
            text = None if outcome.text is None else outcome.text.encode()
            # What a failed allocation left behind is unknown: begin afresh.
            spent = outcome.failed == "memory"
            answer = {"reason": outcome.reason, "failed": outcome.failed, "meta": outcome.meta, "last": spent}
            write_frame(answers, answer, *([] if text is None else [text]))
            if spent:
                return


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    logging.disable(logging.CRITICAL)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    serve(requests, answers)


if __name__ == "__main__":
    main()
