"""What a Ray worker does: check once that this node is one of the run's, have its models and kernels ready, then run the task.

Models come from the driver through Ray's object store, which carries them to a node once for all its workers; they are written under a temporary
name and renamed, so no lock is needed, and their sha256 is checked as on any machine. Kernels are compiled by the first worker of a node, behind a
lock of its own, and loaded from numba's cache by the others.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from corpusmill.pipeline.engine.store import can_write, own_folder, put
from corpusmill.pipeline.errors import ModelError

SEEN: set[str] = set()
"""Models that this process has found, and operations that it has warmed."""


def task_function() -> Callable[..., str]:
    """The function that Ray workers run. Like `look_around`, its code travels: it must be able to say that corpusmill is another one."""
    from corpusmill.pipeline.engine.ray_cluster import look_around

    look = look_around()
    fit: set[str] = set()  # in the worker: words of the runs that it may work for

    def execute(message: str, folder: str, terms: dict[str, Any], models: dict[str, Any]) -> str:
        import json
        import socket

        if terms["word"] not in fit:
            word, found = look(terms)
            if word != terms["word"] or found != terms["versions"]:
                return json.dumps({"unfit": {"node": socket.gethostname(), "word": word, "found": found}})
            fit.add(terms["word"])
        from corpusmill.pipeline.engine.ray_node import run_here

        return run_here(message, folder, terms, models)

    execute.__qualname__ = "execute"  # what Ray shows, and calls its processes by
    return execute


def run_here(message: str, folder: str, terms: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    """One core, one task, in the folder of the call where the node has it (lists of a recipe lie there)."""
    from corpusmill.pipeline.engine.local import LONE_THREAD

    with contextlib.suppress(OSError):
        os.chdir(folder)
    os.environ.update(LONE_THREAD | terms["environment"])
    keep_kernels(terms["versions"])
    from corpusmill.pipeline.engine.task import answer, describe, load_operation
    from corpusmill.pipeline.engine.worker import one_core

    one_core()
    task = json.loads(message)
    try:
        for name, reference in models.items():
            place_model(name, reference)
        if task["operation"] not in SEEN:
            warm_once(
                task["operation"], load_operation(task["operation"], task["fields"]).warm, terms["versions"]
            )
    except Exception as error:
        return json.dumps({"error": describe(error)})
    return answer(message)


def place_model(name: str, reference: Any) -> None:
    """The model in this node's folder for models, from the driver's copy unless it is there."""
    from corpusmill.pipeline.models import model_path, models_folder, pinned

    if f"model {name}" in SEEN:
        return
    try:
        model_path(name)
    except ModelError:
        import ray

        model = pinned(name)
        data = ray.get(reference)
        if hashlib.sha256(data).hexdigest() != model.sha256:
            raise ModelError(
                f"the model {name} came to {os.uname().nodename} with another sha256 than it left the driver with"
            ) from None
        folder = next(filter(can_write, (models_folder(), own_folder() / "models")), None)
        if folder is None:
            raise ModelError(
                f"{os.uname().nodename}: the model {name} can be written neither to {models_folder()} nor to {own_folder()}: "
                "set CORPUSMILL_MODELS on the nodes to a folder that can be written"
            ) from None
        put(folder / f"{model.file}.NOTICE", model.notice.encode())
        put(folder / model.file, data)
        os.environ["CORPUSMILL_MODELS"] = str(folder)
        model_path(name)
    SEEN.add(f"model {name}")


def keep_kernels(versions: Mapping[str, str | None]) -> None:
    """Where the package's folder cannot be written, numba gets one a node and version; else kernels lie with the code that they were made of."""
    import corpusmill

    if "NUMBA_CACHE_DIR" not in os.environ and not can_write(
        Path(corpusmill.__file__).parent / "__pycache__"
    ):
        kept = own_folder() / "kernels" / _key(versions)
        if can_write(kept):
            os.environ["NUMBA_CACHE_DIR"] = str(kept)


def warm_once(operation: str, warm: Callable[[], None], versions: Mapping[str, str | None]) -> None:
    """Compile behind a lock: the first worker of a node does it, the others wait and then find the kernels in the cache.

    A worker that dies in between lets go of the lock, and leaves no mark.
    """
    import fcntl

    SEEN.add(operation)
    name = f"{operation.replace(':', '.')}-{_key(versions)}"
    where = hashlib.sha256(os.environ.get("NUMBA_CACHE_DIR", sys.prefix + __file__).encode()).hexdigest()[:12]
    with contextlib.ExitStack() as held:
        try:
            folder = own_folder()
            lock = held.enter_context((folder / f"warm-{name}-{where}.lock").open("a+"))
        except OSError:
            warm()  # no place for a lock: every worker for itself
            return
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        if lock.read() != "warm":
            warm()
            lock.seek(0)
            lock.write("warm")
            lock.flush()


def _key(versions: Mapping[str, str | None]) -> str:
    return "-".join(f"{name}{versions.get(name)}" for name in ("corpusmill", "numba", "python"))
