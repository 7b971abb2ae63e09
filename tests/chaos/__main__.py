"""`python -m chaos`: play rounds, print a line each and a table; exit 1 when any of them differs from an undisturbed run."""

from __future__ import annotations

import argparse
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from chaos.ground import make_ground
from chaos.rounds import Outcome, kind_of, play


def main() -> int:
    options = parser().parse_args()
    # Ended from outside, it still takes its mounts, clusters and runs with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="corpusmill-chaos-", dir=options.folder))
    ground = make_ground(folder)
    problems = ground.learn()
    if problems:
        print("\n".join(problems))
        return 1
    print(f"undisturbed: {ground.seconds:.1f} s; seed {options.seed}; {folder}", flush=True)
    numbers = range(options.rounds) if options.only is None else [options.only]
    outcomes = []
    for n in numbers:
        again = f"--seed {options.seed} --only {n}"
        outcomes.append(told(play(ground, options.seed, n, kind_of(options.seed, n)), again))
    if options.ray:
        from chaos.nodes import play_on_ray

        for outcome in play_on_ray(ground, options.seed, options.ray):
            again = f"--seed {options.seed} --rounds 0 --ray {outcome.number + 1}"
            outcomes.append(told(outcome, again))
    print(table(outcomes))
    bad = [outcome for outcome in outcomes if outcome.problems]
    print(f"{len(outcomes)} rounds, {len(bad)} differ" + (f": see {folder}" if bad else ""))
    if not bad:
        shutil.rmtree(folder)
    return 1 if bad else 0


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    options.add_argument("--rounds", type=int, default=20, help="rounds with local workers (default: 20)")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--ray", type=int, default=0, metavar="ROUNDS", help="rounds on Ray, after those")
    options.add_argument("--only", type=int, metavar="ROUND", help="this local round alone")
    options.add_argument("--folder", help="work below this folder (default: the temporary one)")
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
    """A line a kind."""
    lines = [
        "median s: seconds of all runs of a round beyond an undisturbed one (after damage to a finished run: of the run that mends it)",
        "core-s redone: of units done again by OUT/metrics, and of what a killed driver's workers had in work",
        f"{'broken':24}{'rounds':>7}{'equal':>7}{'median s':>10}{'core-s redone':>15}",
    ]
    for kind in dict.fromkeys(outcome.kind for outcome in outcomes):
        of = [outcome for outcome in outcomes if outcome.kind == kind]
        equal = sum(not outcome.problems for outcome in of)
        extra = statistics.median(outcome.extra_s for outcome in of)
        redone = statistics.median(outcome.redone_s for outcome in of)
        lines.append(f"{kind:24}{len(of):7}{equal:7}{extra:10.1f}{redone:15.1f}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
