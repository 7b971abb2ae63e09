"""Rows in a child process: how a task that has crashed its worker finds the row that does.

A piece goes to the child whole. When the child dies of it, its rows go one by one: an answer is flushed before the next row begins, so
the first unanswered row is the one in work. A row is failed only when it ends the child alone, again and again (child.CRASHES), or
runs out of CPU time or memory alone; kills from outside fail none.
"""

from __future__ import annotations

import contextlib
from collections import Counter

import pyarrow as pa

from corpusmill.pipeline import errors
from corpusmill.pipeline.engine.child import Child, ChildDied, blame
from corpusmill.pipeline.engine.files import Task
from corpusmill.pipeline.engine.rowwork import allowance, failed_row, layer_schema
from corpusmill.pipeline.engine.stage import Edit, Measure


class RowGuard(Child):
    """Does the work of a measure or an edit in a child process."""

    def __init__(self, operation: Measure | Edit, task: Task) -> None:
        backstop = operation.backstop
        super().__init__(
            "corpusmill.pipeline.engine.rows_child",
            {
                "operation": task.operation,
                "fields": task.fields,
                "suffix": task.suffix,
                "memory_bytes": int(task.patience * backstop.memory_bytes),
            },
            f"stage {task.stage} in a process of its own",
        )
        self.backstop = backstop
        self.patience = task.patience
        self.schema = layer_schema(operation, task.suffix)

    def __enter__(self) -> RowGuard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, rows: pa.Table) -> pa.Table:
        """A row of the layer for each of `rows`, in order."""
        cpu_s = allowance(self.backstop, rows, self.patience)
        done: list[pa.Table] = []
        with contextlib.suppress(ChildDied):
            self._work(rows, cpu_s, 1, done)
        if not done:
            self._one_by_one(rows, cpu_s, done)
        return pa.concat_tables(done)

    def _one_by_one(self, rows: pa.Table, cpu_s: float, done: list[pa.Table]) -> None:
        deaths: Counter[int] = Counter()  # over the row in work, by return code
        while len(done) < rows.num_rows:
            before = len(done)
            try:
                self._work(rows.slice(before), cpu_s, rows.num_rows - before, done)
            except ChildDied as death:
                if len(done) > before:
                    deaths.clear()
                deaths[death.code] += 1
                reason = blame(deaths)
                if reason:
                    done.append(failed_row(self.schema, reason))
                    deaths.clear()

    def _work(self, rows: pa.Table, cpu_s: float, pieces: int, done: list[pa.Table]) -> None:
        """Send rows to be done in so many pieces, and take the answers until the child is out of memory (then it is replaced)."""
        self.ask({"pieces": pieces, "cpu_s": cpu_s}, to_bytes(rows))
        for _ in range(pieces):
            head, payloads = self.answer()
            if head["said"] == "done":
                done.append(from_bytes(payloads[0]))
                continue
            self.close()  # it ends; what a failed allocation left behind is unknown
            if head["said"] != "memory":
                raise getattr(errors, head["said"])(head["message"])
            if pieces == rows.num_rows:
                done.append(failed_row(self.schema, "memory"))
            return


def to_bytes(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def from_bytes(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
