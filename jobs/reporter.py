"""What a run tells people: bars on a terminal, JSON lines elsewhere, and a summary of each stage.

All figures here are for people; none enters a file of the run.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from corpusmill.pipeline.engine.attempts import Done
from corpusmill.pipeline.engine.manifest import Manifest
from corpusmill.pipeline.engine.stage import Stage
from corpusmill.pipeline.ledger import Ledger

REASONS_SHOWN = 4


class SilentReporter:
    """Says nothing: for callers that read run.json instead."""

    def stage_began(self, stage: Stage, units: int, done: int) -> None:
        pass

    def task_done(self, stage: Stage, done: Done) -> None:
        pass

    def stage_ended(
        self, stage: Stage, manifest: Manifest, seconds: float, reused: bool, why: Sequence[str]
    ) -> None:
        pass

    def warn(self, message: str) -> None:
        pass


class _Summaries:
    """Adds up the seconds of the layers of one recipe stage and words the lines that end it."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._all_reused = True

    def ended(self, stage: Stage, manifest: Manifest, seconds: float, reused: bool) -> list[str]:
        """Lines to print after this stage: none until a ledger or a set of shards closes a recipe stage."""
        self._seconds += seconds
        self._all_reused &= reused or isinstance(stage.operation, Ledger)
        if isinstance(stage.operation, Ledger):
            lines = summary_lines(stage.operation.stage, manifest.counts, self._seconds, self._all_reused)
        elif stage.operation.area == "shards":
            lines = [shard_line(stage.name, manifest, self._seconds, self._all_reused)]
        else:
            return []
        self._seconds, self._all_reused = 0.0, True
        return lines


def shard_line(name: str, manifest: Manifest, seconds: float, reused: bool) -> str:
    """Documents in, tokens and rows out, documents a second."""
    documents, tokens = manifest.counts.get("documents", 0), manifest.counts.get("tokens", 0)
    pace = "reused" if reused else f"{documents / max(seconds, 1e-9):,.0f} docs/s"
    title = name.partition(".")[0]
    return f"{title}: {documents:,} in, {tokens:,} tokens in {manifest.rows:,} rows; {seconds:.1f} s, {pace}"


def summary_lines(title: str, counts: Mapping[str, int], seconds: float, reused: bool) -> list[str]:
    """Rows in, kept, dropped and failed by reason, documents a second."""
    entered, kept = counts.get("in", 0), counts.get("kept", 0)
    share = f" ({100 * kept / entered:.1f} %)" if entered else ""
    pace = "reused" if reused else f"{entered / max(seconds, 1e-9):,.0f} docs/s"
    lines = [f"{title}: {entered:,} in, {kept:,} kept{share}; {seconds:.1f} s, {pace}"]
    for kind in ("dropped", "failed"):
        reasons = Counter(
            {name.removeprefix(f"{kind}."): n for name, n in counts.items() if name.startswith(f"{kind}.")}
        )
        if reasons:
            shown = [f"{name} {n:,}" for name, n in reasons.most_common(REASONS_SHOWN)]
            rest = sum(reasons.values()) - sum(n for _, n in reasons.most_common(REASONS_SHOWN))
            more = [f"{len(reasons) - REASONS_SHOWN} other reasons {rest:,}"] if rest else []
            lines.append(f"  {kind} {sum(reasons.values()):,}: {', '.join([*shown, *more])}")
    return lines


class LineReporter:
    """One JSON object a line on stderr for what happens, plain summary lines on stdout."""

    def __init__(self, out: TextIO | None = None, log: TextIO | None = None, explain: bool = False) -> None:
        self._out = out or sys.stdout
        self._log = log or sys.stderr
        self._explain = explain
        self._summaries = _Summaries()
        self._units = self._done = 0

    def stage_began(self, stage: Stage, units: int, done: int) -> None:
        self._units, self._done = units, done
        self._emit({"event": "stage_began", "stage": stage.name, "units": units, "done": done})

    def task_done(self, stage: Stage, done: Done) -> None:
        self._done += len(done.results)
        rows = sum(result.rows for result in done.results)
        seconds = round(done.usage.get("seconds", 0.0), 3)
        self._emit(
            {
                "event": "task_done",
                "stage": stage.name,
                "done": self._done,
                "units": self._units,
                "rows": rows,
                "seconds": seconds,
            }
        )

    def stage_ended(
        self, stage: Stage, manifest: Manifest, seconds: float, reused: bool, why: Sequence[str]
    ) -> None:
        event = {
            "event": "stage_ended",
            "stage": stage.name,
            "rows": manifest.rows,
            "seconds": round(seconds, 3),
            "reused": reused,
        }
        self._emit({**event, **({"why": list(why)} if self._explain and why else {})})
        if self._explain:
            print(explanation(stage, seconds, reused, why), file=self._out)
        for line in self._summaries.ended(stage, manifest, seconds, reused):
            print(line, file=self._out, flush=True)

    def warn(self, message: str) -> None:
        self._emit({"event": "warning", "message": message})
        print(f"warning: {message}", file=self._out, flush=True)

    def _emit(self, event: Mapping[str, Any]) -> None:
        print(json.dumps({"time": round(time.time(), 3), **event}), file=self._log, flush=True)


def explanation(stage: Stage, seconds: float, reused: bool, why: Sequence[str]) -> str:
    """`stage: reused | redone (seconds) | why`, for --update."""
    return f"  {stage.name}: {'reused' if reused else f'redone ({seconds:.2f} s)'}{' | ' + '; '.join(why) if why else ''}"


class TerminalReporter:
    """A bar a stage with rich: units done, documents a second, time left; then the summary lines."""

    def __init__(self, explain: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console()
        self._explain = explain
        self._summaries = _Summaries()
        self._rows = 0
        self._started = time.perf_counter()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[pace]}"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )
        self._progress.start()
        self._bar = self._progress.add_task("starting", total=None, pace="")

    def close(self) -> None:
        self._progress.stop()

    def stage_began(self, stage: Stage, units: int, done: int) -> None:
        self._rows, self._started = 0, time.perf_counter()
        self._progress.reset(self._bar, total=units, completed=done, description=stage.name, pace="")

    def task_done(self, stage: Stage, done: Done) -> None:
        self._rows += sum(result.rows for result in done.results)
        pace = f"{self._rows / max(time.perf_counter() - self._started, 1e-9):,.0f} docs/s"
        self._progress.update(self._bar, advance=len(done.results), pace=pace)

    def stage_ended(
        self, stage: Stage, manifest: Manifest, seconds: float, reused: bool, why: Sequence[str]
    ) -> None:
        if self._explain:
            self._console.print(explanation(stage, seconds, reused, why), highlight=False, markup=False)
        for line in self._summaries.ended(stage, manifest, seconds, reused):
            self._console.print(line, highlight=False, markup=False)

    def warn(self, message: str) -> None:
        self._console.print(f"warning: {message}", style="yellow", highlight=False, markup=False)
