"""Pages that kill, hang or bloat whoever works on them: one such page may cost one page, whatever happens beside it.

The pages carry marks; in ordinary rounds they are pages like any other. With hook/ on PYTHONPATH (see there) the marks come true.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from chaos.kills import moment, strike, wait

if TYPE_CHECKING:
    from chaos.ground import Ground
    from chaos.trial import Trial

HOOK = Path(__file__).parent / "hook"

MARKS = {
    f"{where} {what}": reason
    for where in ("extract", "measures")
    for what, reason in {"segfault": "crash:SIGSEGV", "spin": "cpu_limit", "eat": "memory"}.items()
}
"""Mark -> what its page has to fail by, in the stage that the mark names."""

MOST_BYTES = 6 << 30
"""Address space of a process of these runs: on a machine of its own, one that eats memory ends where there is none left."""

NOUNS = "river mill harbour library garden window teacher winter village market bridge letter station island".split()
KINDS = "old quiet narrow painted distant early broken famous green empty".split()
VERBS = "repaired described forgotten opened measured followed visited painted closed finished".split()


def write_pages(path: Path) -> None:
    """A WARC file with a page a mark: English prose that no rule drops and no other page is like."""
    from corpusmill.jobs.demo_warc import Exchange, exchange, warcinfo

    members = [warcinfo(path.name)]
    for number, mark in enumerate(MARKS):
        url = f"https://hostile.example/{mark.replace(' ', '-')}"
        body = f"<html><head><title>Notes</title></head><body><article>{prose(mark)}</article></body></html>"
        members += exchange(Exchange(url, body.encode()), number)
    path.write_bytes(b"".join(members))


def prose(mark: str) -> str:
    dice = Random(mark)

    def sentence() -> str:
        a, b, c = dice.sample(NOUNS, 3)
        return (
            f"The {dice.choice(KINDS)} {a} of the {b} was {dice.choice(VERBS)} in the {dice.choice(KINDS)} "
            f"{c} and it was {dice.choice(VERBS)} again after {dice.randint(2, 90)} years."
        )

    paragraphs = [" ".join(sentence() for _ in range(4)) for _ in range(6)]
    paragraphs[3] += f" Somebody wrote chaosmark {mark} on the wall of the house."
    return "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)


def environment() -> dict[str, str]:
    """The one in which marks come true."""
    paths = [str(HOOK), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def bounded() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, hard))


def reference(ground: Ground) -> tuple[Mapping[str, str], list[str]]:
    """Hashes of a run by one worker in which the marks come true, made once; and what is wrong with its rows."""
    if not ground.hostile:
        out = ground.folder / "undisturbed-hostile"
        run = ground.start(out, bounded, environment(), workers=1)
        problems = [] if run.end() == 0 else [f"the run with hostile pages ended badly:\n{run.words()}"]
        problems = problems or misjudged(ground.reference, out)
        ground.hostile, ground.hostile_problems = ground.hashes(out), problems
    return ground.hostile, ground.hostile_problems


def misjudged(plain: Path, hostile: Path) -> list[str]:
    """Rows that differ from those of a run in which the marks are mere words: each marked page has failed, all others are equal."""
    from corpusmill.pipeline.run import Run

    def rows(out: Path) -> dict[str, tuple[object, ...]]:
        table = Run(out).table(["url", "text", "failed", "stage", "reason"], kept=False)
        return {row["url"]: tuple(row.values())[1:] for row in table.to_pylist()}

    wanted, found = rows(plain), rows(hostile)
    for mark, reason in MARKS.items():
        url = f"https://hostile.example/{mark.replace(' ', '-')}"
        text, failed, *_ = wanted[url]
        if not text or failed:
            return [f"{url} is no ordinary page without the hook: {wanted[url]}"]
        in_extract = mark.startswith("extract")
        wanted[url] = (None, reason, "extract", reason) if in_extract else (text, None, "filter", reason)
    return [
        f"{url}: {found.get(url)}, wanted {wanted[url]}" for url in wanted if found.get(url) != wanted[url]
    ][:5]


def documents(trial: Trial) -> None:
    """A run over them; its driver or a worker may be killed on the way."""
    trial.environment = environment()
    trial.wanted, problems = reference(trial.ground)
    trial.problems += problems
    trial.note("pages that " + ", ".join(MARKS))
    run = trial.start(bounded)
    what = trial.dice.choice(["", "driver", "busy"])
    if what:
        when = moment(trial.ground, trial.dice)
        wait(run, when)
        strike(run, what, trial, when)
    trial.end(run, (-9, 0) if what == "driver" else (0,))
