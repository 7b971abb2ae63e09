"""`python -m chaos`: play rounds, print a line each and a table; exit 1 when any of them differs from an undisturbed run."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from chaos.ground import WORKERS, Ground, make_ground
from chaos.rounds import Outcome, kind_of, play

ON_RAY = 0.2
"""Share of the rounds that are played on Ray."""


def main() -> int:
    options = parser().parse_args()
    # Ended from outside, it still takes its mounts, clusters and runs with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="corpusmill-chaos-", dir=options.folder))
    ground = make_ground(folder)
    problems = ground.learn()
    if problems:
        print("\n".join(problems))
        return 1
    print(f"undisturbed: {ground.seconds:.1f} s; seed {options.seed}; {folder}", flush=True)
    outcomes = list(played(ground, options))
    minutes = (time.monotonic() - started) / 60
    bad = [outcome for outcome in outcomes if outcome.problems]
    print(table(outcomes))
    print(
        f"{len(outcomes) - len(bad)} of {len(outcomes)} rounds equal, in {minutes:.0f} minutes"
        + (f": see {folder}" if bad else "")
    )
    if options.json:
        report = {
            "seed": options.seed,
            "undisturbed_s": round(ground.seconds, 2),
            "workers": WORKERS,
            "cores": os.cpu_count(),
            "minutes": round(minutes, 1),
            "rounds": [asdict(outcome) for outcome in outcomes],
        }
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if not bad:
        shutil.rmtree(folder)
    return 1 if bad else 0


def played(ground: Ground, options: argparse.Namespace) -> Iterator[Outcome]:
    """The rounds that were asked for: local ones, then those on Ray."""
    local, rays = map(range, shared_out(options.rounds, options.ray))
    if options.only is not None or options.only_ray is not None:
        local = range(options.only, options.only + 1) if options.only is not None else range(0)
        rays = range(options.only_ray, options.only_ray + 1) if options.only_ray is not None else range(0)
    for n in local:
        outcome = play(ground, options.seed, n, kind_of(options.seed, n))
        yield told(outcome, f"--seed {options.seed} --only {n}")
    if rays:
        from chaos.nodes import play_on_ray

        for outcome in play_on_ray(ground, options.seed, rays):
            yield told(outcome, f"--seed {options.seed} --only-ray {outcome.number}")


def shared_out(rounds: int, ray: int | None) -> tuple[int, int]:
    """How many rounds are played with local workers, and how many on Ray."""
    on_ray = round(ON_RAY * rounds) if ray is None else min(ray, rounds)
    return rounds - on_ray, on_ray


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    options.add_argument(
        "--rounds", type=int, default=20, help="how many, a fifth of them on Ray (default: 20)"
    )
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--ray", type=int, metavar="ROUNDS", help="as many of the rounds on Ray")
    options.add_argument("--only", type=int, metavar="ROUND", help="this local round alone")
    options.add_argument("--only-ray", type=int, metavar="ROUND", help="this round on Ray alone")
    options.add_argument("--folder", help="work below this folder (default: the temporary one)")
    options.add_argument("--json", metavar="FILE", help="write all outcomes there")
    return options


def told(outcome: Outcome, again: str) -> Outcome:
    """Print one round as it ends; `again` are the options that play it once more."""
    state = "DIFFERS" if outcome.problems else "equal"
    print(
        f"{outcome.number:3} {state:8}{outcome.kind}: {'; '.join(outcome.broken)} "
        f"({outcome.extra_s:+.1f} s, {outcome.redone_s:.1f} core-s redone)",
        flush=True,
    )
    if outcome.problems:
        print("\n".join(outcome.problems))
        print(f"    again: python -m chaos {again}", flush=True)
    return outcome


def table(outcomes: Sequence[Outcome]) -> str:
    """A line a kind, and one for all."""
    lines = [
        "s to recover: seconds of all runs of a round beyond an undisturbed one (after damage to a finished run: of the run that mends it)",
        "core-s redone: CPU of units done again and of attempts that came to nothing, by OUT/metrics; for a killed driver, of what was in work",
        "",
        f"{'':26}{'':7}{'':7}{'s to recover':>20}{'core-s redone':>20}",
        f"{'broken':26}{'rounds':>7}{'equal':>7}{'median':>10}{'most':>10}{'median':>10}{'most':>10}",
    ]
    kinds = [*dict.fromkeys(outcome.kind for outcome in outcomes), "all"]
    for kind in kinds:
        of = [outcome for outcome in outcomes if kind in ("all", outcome.kind)]
        equal = sum(not outcome.problems for outcome in of)
        extra, redone = [o.extra_s for o in of] or [0.0], [o.redone_s for o in of] or [0.0]
        lines.append(
            f"{kind:26}{len(of):7}{equal:7}{statistics.median(extra):10.1f}{max(extra):10.1f}"
            f"{statistics.median(redone):10.1f}{max(redone):10.1f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
