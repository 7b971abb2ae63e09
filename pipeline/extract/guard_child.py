"""The process that extracts: `python -m corpusmill.pipeline.extract.guard_child PARENT_PID`, pages in on stdin, outcomes out on stdout.

A page can end it: past its CPU seconds (a kernel timer whose default action works inside C code too), past the address space, or
by a crash. The answer to each page is flushed before the next begins, so the first unanswered page is the one in work.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from corpusmill.pipeline.engine.child import bound_memory, private_pipes, read_frame, silence, write_frame
from corpusmill.pipeline.engine.worker import die_with_parent
from corpusmill.pipeline.extract.limits import Limits
from corpusmill.pipeline.extract.page import Outcome, Page, Settings, process

WARM_UP = b"<html><head><title>t</title></head><body><article><p>One sentence that says little.</p></article></body></html>"


def settings_from_json(value: dict[str, Any]) -> Settings:
    """Settings as `dataclasses.asdict` wrote them, after JSON made lists of the tuples."""
    fields: dict[str, Any] = {
        name: tuple(each) if isinstance(each, list) else each for name, each in value.items()
    }
    return Settings(**{**fields, "limits": Limits(**fields["limits"])})


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
    bound_memory(settings.memory_mb << 20)
    gc.freeze()
    write_frame(answers, {"ready": os.getpid()})
    silence()
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
    logging.disable(logging.CRITICAL)
    serve(*private_pipes())


if __name__ == "__main__":
    main()
