"""What a run on Ray tells Ray's metrics, to be seen in its dashboard or scraped by Prometheus: all from the driver, tagged with the stage.

    corpusmill_rows, _kept, _failed, _bytes        of finished tasks: rows, rows kept and failed by ledgers, bytes written
    corpusmill_tasks_done, _failed, _lost          tasks; failed: attempts that raised or crashed; lost: attempts whose node went
    corpusmill_tasks_in_flight, _slots             now: handed to Ray, and workers of this stage that the cluster can run at once
    corpusmill_docs_per_second                     rows of the stage by the seconds since its first task was handed out

Ray adds its own prefix `ray_`, and to counters the suffix `_total`. It sends every 10 s (RAY_metrics_report_interval_ms).
"""

from __future__ import annotations

import time
from typing import Any

from corpusmill.pipeline.engine.attempts import Done
from corpusmill.pipeline.engine.failures import failures_of

COUNTERS = ("rows", "kept", "failed", "bytes", "tasks_done", "tasks_failed", "tasks_lost")
GAUGES = ("tasks_in_flight", "slots", "docs_per_second")


class StageMetrics:
    """Counters and gauges of one process; made once, since Ray refuses two of a name."""

    def __init__(self) -> None:
        from ray.util.metrics import Counter, Gauge

        about = "corpusmill: {} of a stage"
        made = [(Counter, name) for name in COUNTERS] + [(Gauge, name) for name in GAUGES]
        self._metrics: dict[str, Any] = {
            name: kind(f"corpusmill_{name}", about.format(name.replace("_", " ")), ("stage",))
            for kind, name in made
        }
        self._stage, self._began, self._rows = "", 0.0, 0

    def began(self, stage: str) -> None:
        self._stage, self._began, self._rows = stage, time.perf_counter(), 0

    def done(self, done: Done) -> None:
        results = done.results
        rows = sum(result.rows for result in results)
        self._rows += rows
        failed = sum(sum(failures_of(result).values()) for result in results)
        self.count("rows", rows)
        self.count("kept", sum(result.counts.get("kept", 0) for result in results))
        self.count("failed", failed)
        self.count("bytes", sum(file.size_bytes for result in results for file in result.files))
        self.count("tasks_done", 1)
        self.set("docs_per_second", self._rows / max(time.perf_counter() - self._began, 1e-9))

    def count(self, name: str, amount: int) -> None:
        if amount:  # Ray refuses to add nothing
            self._metrics[name].inc(amount, {"stage": self._stage})

    def set(self, name: str, value: float) -> None:
        self._metrics[name].set(value, {"stage": self._stage})
