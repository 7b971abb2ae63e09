"""The ledger: for every row, whether it is still kept, and if not which stage took it and why.

After each verdict a ledger layer joins the one before with that verdict, so that "kept so far" is one column to read and
rows in = kept + dropped(reason) + failed(reason) holds in every partition by construction (and `check_sum` checks it).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.engine.stage import Operation, Result, TaskIO
from corpusmill.pipeline.judge import UNMEASURED, mask

KEPT, DROPPED, FAILED = 0, 1, 2

LEDGER = pa.schema(
    [
        pa.field("state", pa.uint8(), metadata={"about": "0 kept so far, 1 dropped, 2 failed"}),
        pa.field(
            "stage",
            pa.string(),
            metadata={"about": "the stage that dropped or failed the row; null when kept"},
        ),
        pa.field("reason", pa.string(), metadata={"about": "why; null when kept"}),
    ]
)


@dataclass(frozen=True)
class Ledger(Operation):
    """`stage` is the name that the ledger shows; `verdict` its verdict layer (None: the documents, or edits that cannot drop).

    `fallible` are the layers since the last ledger that can hold failed rows.
    """

    stage: str
    before: str | None = None
    verdict: str | None = None
    fallible: tuple[str, ...] = ()

    def join(self, io: TaskIO, part: int) -> Result:
        """Write the ledger of one partition; the result has the counts `in`, `kept`, `dropped.*` and `failed.*`."""
        if self.before is None:
            documents = io.documents(part, ["reason", "failed"])
            entering = np.ones(documents.num_rows, dtype=np.bool_)
            state = np.zeros(documents.num_rows, dtype=np.uint8)
            stages: list[str | None] = [None] * documents.num_rows
            reasons: list[str | None] = [None] * documents.num_rows
            failed, reason = documents["failed"], documents["reason"]
            dropped = mask(pc.is_valid(reason))
        else:
            old = io.layer(self.before, part)
            state = old["state"].to_numpy().copy()
            entering = state == KEPT
            stages, reasons = old["stage"].to_pylist(), old["reason"].to_pylist()
            failed = _first_failure(
                [io.layer(name, part, ["failed"])["failed"] for name in self.fallible], len(state)
            )
            verdict = None if self.verdict is None else io.layer(self.verdict, part, ["kept", "reason"])
            reason = pa.nulls(len(state), pa.string()) if verdict is None else verdict["reason"]
            kept = np.ones(len(state), np.bool_) if verdict is None else mask(verdict["kept"])
            dropped = ~kept
        is_failed = entering & mask(pc.is_valid(failed))
        is_dropped = entering & dropped & ~is_failed
        state[is_failed], state[is_dropped] = FAILED, DROPPED
        counts: Counter[str] = Counter({"in": int(entering.sum()), "kept": int((state == KEPT).sum())})
        # A loop over the rows that leave here only: each gets its stage and reason, and is counted under them.
        for kind, gone, why in (("failed", is_failed, failed), ("dropped", is_dropped, reason)):
            for row in np.flatnonzero(gone).tolist():
                stages[row], reasons[row] = self.stage, why[row].as_py() or UNMEASURED
                counts[f"{kind}.{reasons[row]}"] += 1
        table = pa.table(
            [pa.array(state), pa.array(stages, pa.string()), pa.array(reasons, pa.string())], schema=LEDGER
        )
        io.write_layer(part, table)
        return io.result(rows=len(state), counts=dict(sorted(counts.items())))


def _first_failure(columns: list[pa.ChunkedArray], rows: int) -> pa.Array | pa.ChunkedArray:
    return pc.coalesce(*columns) if columns else pa.nulls(rows, pa.string())


def check_sum(result: Result) -> bool:
    """The promise: rows in = kept + dropped(reason) + failed(reason)."""
    left = sum(n for name, n in result.counts.items() if name.startswith(("dropped.", "failed.")))
    return result.counts["in"] == result.counts["kept"] + left
