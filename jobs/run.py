"""Run a recipe: the one function behind every command that makes something."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import corpusmill
from corpusmill.jobs.reporter import LineReporter, TerminalReporter
from corpusmill.pipeline.chain import compile_recipe
from corpusmill.pipeline.engine.driver import Driver
from corpusmill.pipeline.engine.local import LocalRunner, Stop
from corpusmill.pipeline.engine.place import Place, Where, place_of
from corpusmill.pipeline.engine.pulse import Pulse
from corpusmill.pipeline.engine.replay import Replay
from corpusmill.pipeline.engine.resources import need_no_cluster, parse_overrides
from corpusmill.pipeline.engine.roles import Reporter
from corpusmill.pipeline.engine.stage import InputFile
from corpusmill.pipeline.engine.store import can_write
from corpusmill.pipeline.recipe import Recipe
from corpusmill.pipeline.run import Run

if TYPE_CHECKING:
    from corpusmill.pipeline.engine.ray_runner import RayRunner


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_recipe(
    recipe: Recipe,
    out: Where,
    *,
    workers: int | None = None,
    sample: float | None = None,
    limit: int | None = None,
    update: bool = False,
    reporter: Reporter | None = None,
    ray: str | None = None,
    resources: Sequence[str] = (),
    replay: Replay | None = None,
    files: Sequence[InputFile] | None = None,
    until: str | None = None,
) -> Run:
    """Run `recipe` into `out`; the same call again finishes what was interrupted.

    Local workers by default (one a core); `ray` is the address of a cluster, `auto`, or `local` for one just for this run.
    `resources`: `STAGE=memory:4GiB,gpus:0.5,...` each, instead of what a worker of that stage is taken to need.
    `replay`: what to do about rows that failed before. `files`: the inputs, where they are known and need not be looked for.
    `until`: the last stage to run, by the engine's name.
    """
    needs = (
        parse_overrides(resources, [stage.name for stage in compile_recipe(recipe, sample, limit)])
        if resources
        else {}
    )
    if ray is None:
        need_no_cluster(needs)
    out = place_of(out)
    if ray is not None:
        out = out.absolute()  # nodes may have another current folder
    own = reporter or default_reporter(explain=update)
    keep_kernels_somewhere([Path(corpusmill.__file__).parent / "__pycache__", kernels_of_the_user()])
    try:
        with Pulse(out, own.warn):
            out.check(write=True)
            with Stop() as stop, _runner(out, workers, ray, needs, own.warn) as runner:
                driver = Driver(
                    out,
                    recipe,
                    runner,
                    own,
                    sample,
                    limit,
                    update,
                    stop,
                    files,
                    replay=replay or Replay(),
                    until=until,
                )
                driver.run()
    finally:
        if isinstance(own, TerminalReporter):
            own.close()
    return Run(out)


def _runner(
    out: Place,
    workers: int | None,
    ray: str | None,
    resources: Mapping[str, Mapping[str, float]],
    say: Callable[[str], None],
) -> LocalRunner | RayRunner:
    if ray is None:
        return LocalRunner(workers or cores(), log=out.log(), resources=resources, say=say)
    from corpusmill.pipeline.engine.ray_runner import RayRunner

    return RayRunner(ray, out, workers, resources, say)


def default_reporter(explain: bool = False) -> Reporter:
    """Bars on a terminal, lines elsewhere."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    return TerminalReporter(explain) if terminal else LineReporter(explain=explain)


def kernels_of_the_user() -> Path:
    """Where numba keeps compiled kernels when the package's own folder is read-only."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "numba"


def keep_kernels_somewhere(folders: Sequence[Path]) -> None:
    """Where none of the folders can be written (a container without a home), give numba one for this run, or it refuses to start.

    Private and new each time: compiled kernels are loaded as code.
    """
    if "NUMBA_CACHE_DIR" in os.environ or any(can_write(folder) for folder in folders):
        return
    folder = tempfile.mkdtemp(prefix="corpusmill-kernels-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = folder
