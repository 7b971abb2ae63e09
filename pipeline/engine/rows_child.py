"""The child of guarded.py: `python -m corpusmill.pipeline.engine.rows_child PARENT_PID`, rows in on stdin, rows of a layer out on stdout.

A row can end it: past its CPU seconds, past the address space (what it takes when it is ready, and the backstop's bytes above), or by
a crash.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from corpusmill.pipeline.engine.child import bound_memory, private_pipes, read_frame, silence, write_frame
from corpusmill.pipeline.engine.guarded import from_bytes, to_bytes
from corpusmill.pipeline.engine.rowwork import Work, cpu_limit, halved, layer_schema, work_of
from corpusmill.pipeline.engine.stage import Edit, Measure
from corpusmill.pipeline.engine.task import load_operation
from corpusmill.pipeline.engine.worker import die_with_parent, one_core
from corpusmill.pipeline.errors import CorpusmillError


def address_space() -> int:
    """Bytes of this process's address space; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def reply(work: Work, schema: pa.Schema, rows: pa.Table) -> tuple[dict[str, str], pa.Table | None]:
    """What to say of a piece: its part of the layer, or that memory ran out, or an error of ours (the installation, not the row)."""
    try:
        # A panic of a Rust library is no Exception.
        return {"said": "done"}, halved(work, schema, rows, BaseException)
    except MemoryError:
        return {"said": "memory"}, None
    except CorpusmillError as error:
        return {"said": type(error).__name__, "message": str(error)}, None


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    first = read_frame(requests)
    if first is None:
        return
    hello = first[0]
    operation = load_operation(hello["operation"], hello["fields"])
    assert isinstance(operation, (Measure, Edit))
    operation.warm()
    schema = layer_schema(operation, hello["suffix"])
    work = work_of(operation, schema)
    bound_memory(address_space() + hello["memory_bytes"])
    gc.freeze()
    write_frame(answers, {"ready": os.getpid()})
    silence()
    while (request := read_frame(requests)) is not None:
        head, (data,) = request
        rows = from_bytes(data)
        pieces = [rows] if head["pieces"] == 1 else [rows.slice(row, 1) for row in range(rows.num_rows)]
        for piece in pieces:
            with cpu_limit(head["cpu_s"]):
                said, table = reply(work, schema, piece)
            write_frame(answers, said, *([] if table is None else [to_bytes(table)]))
            if table is None:
                return


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    logging.disable(logging.CRITICAL)
    one_core()
    serve(*private_pipes())


if __name__ == "__main__":
    main()
