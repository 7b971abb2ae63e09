"""Rounds that damage a finished run's files, or those of one that was killed on the way: cut, flipped or deleted."""

from __future__ import annotations

import shutil
from pathlib import Path

from runs import corpusmill

from chaos.kills import moment, strike, wait
from chaos.trial import Trial

UNTOUCHED = ("metrics", "recipe.yaml", "run.json", "mixture.yaml")
"""Not intermediates or manifests: metrics say nothing about bytes, the others are asked for or written anew."""


def victims(out: Path, reference: Path, spent: bool = False) -> list[Path]:
    """Files of stages and shards that both have: what other runs may read; with `spent` those of temporary stages, too."""
    return [
        path
        for path in sorted(out.rglob("*"))
        if path.is_file()
        and path.relative_to(out).parts[0] not in UNTOUCHED
        and path.name != "_spent"
        and path.stat().st_size
        and not path.name.startswith(".tmp-")
        and (spent or "_commits" in path.parts or (reference / path.relative_to(out)).is_file())
    ]


def finished(trial: Trial) -> None:
    shutil.copytree(trial.ground.reference, trial.out)
    trial.extra = 0.0  # seconds count from the damage: all that the finishing run takes


def unfinished(trial: Trial) -> None:
    """A run that was killed on the way, or a finished one."""
    if trial.dice.random() < 0.5:
        return finished(trial)
    killed(trial)


def killed(trial: Trial) -> None:
    when = moment(trial.ground, trial.dice)
    run = trial.start()
    wait(run, when)
    strike(run, "driver", trial, when)
    trial.end(run, (-9, 0))


def draw(trial: Trial, spent: bool = False) -> list[Path]:
    """One to three files, a manifest or commit as likely as data."""
    files = victims(trial.out, trial.ground.reference, spent)
    heads = [path for path in files if path.name.startswith("_manifest") or "_commits" in path.parts]
    data = [path for path in files if path not in heads]
    chosen = {
        trial.dice.choice(trial.dice.choice([kind for kind in (heads, data) if kind])) for _ in range(3)
    }
    return sorted(chosen)[: trial.dice.randint(1, 3)] if files else []


def cut(trial: Trial) -> None:
    unfinished(trial)
    for path in draw(trial):
        size = trial.dice.randrange(path.stat().st_size)
        path.write_bytes(path.read_bytes()[:size])
        trial.note(f"{path.relative_to(trial.out)} cut to {size:,} bytes")


def deleted(trial: Trial) -> None:
    unfinished(trial)
    for path in draw(trial):
        path.unlink()
        trial.note(f"{path.relative_to(trial.out)} deleted")


def flipped(trial: Trial) -> None:
    """One bit each: `corpusmill verify` has to name the files; deleting them is the cure."""
    finished(trial)
    chosen = draw(trial)
    flip(trial, chosen)
    verify_and_delete(trial, chosen)


def flipped_on_the_way(trial: Trial) -> None:
    """One bit each in a run that was killed: the same command makes again what it still reads, and lets nothing wrong flow on.

    What nobody reads any more stays as it is until `corpusmill verify` names it.
    """
    killed(trial)
    chosen = draw(trial, spent=True)
    flip(trial, chosen)
    trial.end(trial.start(), (0,))
    found = trial.ground.hashes(trial.out)
    wrong = {name for name, value in trial.wanted.items() if found.get(name) != value}
    left = [path for path in chosen if str(path.relative_to(trial.out)) in wrong]
    others = wrong - {str(path.relative_to(trial.out)) for path in left}
    if others:
        trial.problems.append(f"what was flipped flowed into {', '.join(sorted(others)[:5])}")
    if left:
        trial.note(f"{len(left)} of them read by nobody, named by verify")
        verify_and_delete(trial, left)


def flip(trial: Trial, chosen: list[Path]) -> None:
    for path in chosen:
        data, bit = bytearray(path.read_bytes()), trial.dice.randrange(8 * path.stat().st_size)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        trial.note(f"{path.relative_to(trial.out)} bit {bit} flipped")


def verify_and_delete(trial: Trial, chosen: list[Path]) -> None:
    said = corpusmill("verify", trial.out, expect=1).stdout
    for path in chosen:
        # A manifest is named by its folder, all else by its own name.
        name = path.parent.name if path.name.startswith("_manifest") else path.name
        if name not in said:
            trial.problems.append(f"verify did not find {path.relative_to(trial.out)}:\n{said}")
        path.unlink()
