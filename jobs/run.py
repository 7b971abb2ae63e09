"""Run a recipe: the one function behind every command that makes something."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from corpusmill.jobs.reporter import LineReporter, TerminalReporter
from corpusmill.pipeline.engine.driver import Driver
from corpusmill.pipeline.engine.local import LocalRunner, Stop
from corpusmill.pipeline.engine.roles import Reporter
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.recipe import Recipe
from corpusmill.pipeline.run import Run


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_recipe(
    recipe: Recipe,
    out: Path,
    *,
    workers: int | None = None,
    sample: float | None = None,
    limit: int | None = None,
    update: bool = False,
    reporter: Reporter | None = None,
) -> Run:
    """Run `recipe` into `out` with local workers (default: one a core); the same call again finishes what was interrupted."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecipeError(f"--out {out}: this folder cannot be made: {error.strerror}") from None
    own = reporter or default_reporter(explain=update)
    try:
        with Stop() as stop, LocalRunner(workers or cores(), log=_log_file(out)) as runner:
            Driver(out, recipe, runner, own, sample=sample, limit=limit, update=update, stop=stop).run()
    finally:
        if isinstance(own, TerminalReporter):
            own.close()
    return Run(out)


def default_reporter(explain: bool = False) -> Reporter:
    """Bars on a terminal, lines elsewhere."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    return TerminalReporter(explain) if terminal else LineReporter(explain=explain)


def _log_file(out: Path) -> Path:
    """What workers print goes here: OUT/metrics is where all that differs from run to run lies."""
    path = out / "metrics" / "workers.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
