"""Proxies of other trainers: any program that reads a mixture and writes losses.

    Command("train.sh {mixture} {seed} {out}").run(view, training, weights_ppb, seed, run, out, targets)

The program is started without a shell, in OUT, in a process group of its own. What stands in braces is put in:

    {mixture}   a JSON file: `weights` by component (shares) and `weights_ppb`, `budget_tokens`, `seed`, and of each component its `folder`,
                `rows` and `first_rows` (what repetition control lets it read), and of each target its `folder`
    {plan}      a plan.json over the same shards and with the same seed, for trainers that read our stream; local shards only
    {seed}      the run's seed: model and order should both follow from it
    {out}       a folder of the run's own, empty but for these files, which goes when the losses are read
    {checkpoints}   a folder that stays, with all that an earlier attempt at the same run has left there

It ends with 0 and has written {out}/losses.json, like {"web": 0.93} or {"web": {"bits_per_byte": 0.93, "loss": 2.1, "document_bits": [...],
"document_bytes": [...]}}, or {out}/losses.csv with the columns target, bits_per_byte and, if it likes, loss. What it prints is kept in
{out}/output.log; the end of it stands in the error when it fails (mixing/losses.py reads all of this).

The group dies with the task: a watcher holds a pipe that closes when the task's process ends, however it ends.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpusmill.mixing.losses import OUTPUT, read_losses, tail
from corpusmill.mixing.proxy import Training, View, matched_rows, plan_of
from corpusmill.mixing.records import Record
from corpusmill.pipeline.engine.results import canonical
from corpusmill.pipeline.errors import RecipeError, RunError
from corpusmill.shards.layout import PLAN_FILE
from corpusmill.shards.mixture import PPB

MIXTURE = "mixture.json"
PLACES = ("mixture", "plan", "seed", "out", "checkpoints")

# Waits at a pipe: for a word that all is over, or for its end, when the task died; then the program's group (argv[1]) has to die as well.
WATCHER = """
import os, signal, sys
if not sys.stdin.buffer.read(1):
    os.killpg(int(sys.argv[1]), signal.SIGKILL)
"""


@dataclass(frozen=True)
class Command:
    """`line` is split as a shell would, and no shell sees it: name one ("sh -c '...'") to have one."""

    line: str
    name: str = ""  # tells programs of the same line apart

    def __post_init__(self) -> None:
        try:
            words = shlex.split(self.line)
            known = {place: "" for place in PLACES}
            made = [word.format(**known) for word in words]
        except (ValueError, KeyError, IndexError, AttributeError) as error:
            raise RecipeError(
                f"command {self.line!r} cannot be read ({error}); it may hold {', '.join('{' + p + '}' for p in PLACES)}, "
                "and other braces are doubled"
            ) from None
        if not made or not words[0]:
            raise RecipeError("command is empty; name a program, like 'train.sh {mixture} {seed} {out}'")

    def run(
        self,
        view: View,
        training: Training,
        weights_ppb: Mapping[str, int],
        seed: int,
        run: str,
        out: Path,
        targets: Mapping[str, str],
        checkpoints: Path | None = None,
    ) -> list[Record]:
        """What the program said of each of `targets` (their folders by name); `out` is made and must be empty. RunError when it fails or
        says too little. `checkpoints` is made if the line asks for it; None where no folder can stay."""
        out = out.absolute()  # the program starts there
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise RunError(f"run {run}: {out} is not empty; a trainer's folder is made anew for each run")
        (out / MIXTURE).write_bytes(_mixture(view, training, weights_ppb, seed, targets))
        values = {"mixture": str(out / MIXTURE), "seed": str(seed), "out": str(out)}
        words = shlex.split(self.line)
        if any("{checkpoints}" in word for word in words):
            if checkpoints is None:
                raise RecipeError(
                    f"run {run}: {{checkpoints}} needs an --out that is a folder on every node; leave it out of the command"
                )
            checkpoints.mkdir(parents=True, exist_ok=True)
            values["checkpoints"] = str(checkpoints.absolute())
        if any("{plan}" in word for word in words):
            values["plan"] = str(_linked_plan(view, training, weights_ppb, seed, out))
        execute([word.format(**values) for word in words], out, run)
        said = read_losses(out, targets, run)
        shared: dict[str, Any] = {
            "run": run,
            "components": view.names,
            "requested_ppb": tuple(weights_ppb.get(name, 0) for name in view.names),
            "seed": seed,
            "proxy": training.id(view.manifest, f"{self.name} {self.line}".strip()),
        }
        return [Record(**shared, target=target, **said[target]) for target in sorted(targets)]


def _mixture(
    view: View, training: Training, weights_ppb: Mapping[str, int], seed: int, targets: Mapping[str, str]
) -> bytes:
    first = matched_rows({manifest.name: manifest.rows for _, manifest in view.components}, training)
    return canonical(
        {
            "weights": {name: weights_ppb.get(name, 0) / PPB for name in view.names},
            "weights_ppb": {name: weights_ppb.get(name, 0) for name in view.names},
            "budget_tokens": training.budget_tokens,
            "seed": seed,
            "components": {
                manifest.name: {
                    "folder": str(view.root / folder),
                    "rows": manifest.rows,
                    "first_rows": first[manifest.name],
                }
                for folder, manifest in view.components
            },
            "targets": {name: {"folder": folder} for name, folder in targets.items()},
        }
    )


def _linked_plan(
    view: View, training: Training, weights_ppb: Mapping[str, int], seed: int, out: Path
) -> Path:
    """A plan.json with links to the shards beside it: a plan names folders below its own alone."""
    root = getattr(view.root, "path", view.root)
    if not isinstance(root, Path):
        raise RecipeError(
            f"command: {{plan}} needs shards on this machine, they are at {root}; read {{mixture}}"
        )
    folder = out / "shards"
    folder.mkdir()
    for name in sorted({folder.partition("/")[0] for folder, _ in view.components}):
        (folder / name).symlink_to((root / name).resolve(), target_is_directory=True)
    (folder / PLAN_FILE).write_bytes(plan_of(view, training, weights_ppb, seed).encode())
    return folder / PLAN_FILE


def execute(words: list[str], out: Path, run: str) -> None:
    """Runs the program to its end; its group goes whatever happens here."""
    with (out / OUTPUT).open("wb") as log:
        try:
            program = subprocess.Popen(
                words, cwd=out, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        except OSError as error:
            raise RecipeError(
                f"run {run}: {words[0]} cannot be started ({error.strerror or error})"
            ) from error
        watcher = subprocess.Popen(
            [sys.executable, "-S", "-c", WATCHER, str(program.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            # Not yet taken off the list of processes, so that its number is nobody else's when its group is ended.
            os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
        finally:
            _end_group(program.pid)  # what it left behind, too
            code = program.wait()
            watcher.communicate(b".")
    if code:
        ended = f"signal {-code}" if code < 0 else f"code {code}"
        raise RunError(f"run {run}: {shlex.join(words)} ended with {ended}; {tail(out)}")


def _end_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # all gone; of a group of zombies macOS says the latter
        return
