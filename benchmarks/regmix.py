"""Fits on real proxies: RegMix's 512 runs of 1M parameters, judged on 256 mixtures that nobody fitted, at 1M and at 60M parameters.

    python benchmarks/regmix.py [--quick] [--data FOLDER]

The data (17 domains of The Pile, losses of 13 validation sets) are the CSV files of sail-sg/regmix, data/; without them every value is
null. Three ways to predict what a mixture does to a target:

    pile_cc      the loss of one set, Pile-CC
    mean_of_13   each set fitted on its own, predictions averaged
    mean_direct  one fit to the mean of the 13 losses

rho is Spearman's rank correlation over the 256 mixtures, regret the loss of the mixture predicted best minus the lowest loss, both at
60M unless said; medians over three subsets of the 512 runs (one of all). A table of every family is printed; the JSON has the stack's.
`covered` is the share of losses of single sets at 1M that lie within 1.96 of the standard deviations that the fit states.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from corpusmill.mixing.families import FAMILIES
from corpusmill.mixing.fit import Fits, fit_swarm
from corpusmill.mixing.folds import STACK
from corpusmill.mixing.imported import import_runs
from corpusmill.mixing.records import swarm_of
from corpusmill.mixing.scores import spearman
from corpusmill.mixing.swarm import Floats, Ints, Swarm, make_swarm

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "regmix"
SIZES, SUBSETS = (32, 34, 64, 128, 512), 3
PILE_CC = "the_pile_pile_cc"
DIRECT = "mean of all"
WAYS = ("pile_cc", "mean_of_13", "mean_direct")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--quick", action="store_true", help="32 and 128 runs, one subset of each: under a minute"
    )
    parser.add_argument("--data", type=Path, default=DATA)
    arguments = parser.parse_args()
    sizes, subsets = ((32, 128), 1) if arguments.quick else (SIZES, SUBSETS)
    if not arguments.data.is_dir():
        print(json.dumps({"benchmark": "regmix", "rho": None, "regret": None}))
        return
    seen, small, large = load(arguments.data)
    found: dict[str, dict[str, Any]] = {"rho": {}, "regret": {}, "covered": {}, "cpu_seconds": {}}
    print(baselines(small, large))
    for size in sizes:
        judged, covered, seconds = [], [], []
        for rows in draws(size, subsets):
            begin = time.process_time()
            fits = fit_swarm(with_mean(seen.take(rows)), 0, control=False)
            seconds.append(time.process_time() - begin)
            judged.append(judge(fits, small, large))
            covered.append(coverage(fits, small))
        medians = {
            way: {name: np.median([one[way][name] for one in judged], axis=0) for name in judged[0][way]}
            for way in WAYS
        }
        for way in WAYS:
            for name, values in medians[way].items():
                print("| {} | {} | {} | {:.3f} / {:.3f} | {:.3f} / {:.3f} |".format(size, way, name, *values))
            rho, regret = medians[way][STACK][2:]
            found["rho"][f"{way} {size} runs"] = round(float(rho), 3)
            found["regret"][f"{way} {size} runs"] = round(float(regret), 3)
        found["covered"][f"{size} runs"] = round(float(np.mean(covered)), 3)
        found["cpu_seconds"][f"{size} runs, 14 targets"] = round(float(np.median(seconds)), 1)
    print(json.dumps({"benchmark": "regmix", **found}))


def load(data: Path) -> tuple[Swarm, Swarm, Swarm]:
    """Runs to fit on; mixtures to judge by at 1M; the same at 60M."""
    pairs = ("train", "1m"), ("test", "1m"), ("test", "60m")
    seen, small, large = (
        swarm_of(import_runs(data / f"{part}_mixture_{size}.csv", data / f"{part}_pile_loss_{size}.csv"))
        for part, size in pairs
    )
    assert np.array_equal(small.weights, large.weights)
    return seen, small, large


def draws(size: int, subsets: int) -> Iterator[Ints]:
    for subset in range(subsets if size < 512 else 1):
        yield np.random.Generator(np.random.PCG64([size, subset])).permutation(512)[:size]


def with_mean(swarm: Swarm) -> Swarm:
    """With the mean over all sets as one more target."""
    losses = np.column_stack([swarm.losses, swarm.losses.mean(axis=1)])
    return make_swarm(
        swarm.components, (*swarm.targets, DIRECT), swarm.weights, losses, swarm.groups, swarm.unit
    )


def judge(fits: Fits, small: Swarm, large: Swarm) -> dict[str, dict[str, Floats]]:
    """By way and family: rho and regret at 1M, rho and regret at 60M."""
    sets = len(small.targets)
    place = small.targets.index(PILE_CC)
    found: dict[str, dict[str, Floats]] = {way: {} for way in WAYS}
    for name in (*FAMILIES, STACK):
        if any(name not in (*fit.models, STACK) for fit in fits.targets):
            continue  # not installed, or too few runs
        losses = fits.predict(small.weights, None if name == STACK else name)
        predicted = (losses[:, place], losses[:, :sets].mean(axis=1), losses[:, sets])
        for way, values in zip(WAYS, predicted, strict=True):
            actual = (
                one.losses[:, place] if way == "pile_cc" else one.losses.mean(axis=1)
                for one in (small, large)
            )
            found[way][name] = np.array([value for one in actual for value in _judged(values, one)])
    return found


def _judged(predicted: Floats, actual: Floats) -> tuple[float, float]:
    return spearman(predicted, actual), float(actual[predicted.argmin()] - actual.min())


def coverage(fits: Fits, small: Swarm) -> float:
    """Share of losses within 1.96 standard deviations of what was predicted."""
    sets = len(small.targets)
    gaps = np.abs(fits.predict(small.weights)[:, :sets] - small.losses)
    return float((gaps < 1.96 * fits.spread(small.weights)[:, :sets]).mean())


def baselines(small: Swarm, large: Swarm) -> str:
    """What a choice without a fit costs, and how well the smaller models order the larger."""
    place = large.targets.index(PILE_CC)
    lines = []
    for way, one, other in (
        ("pile_cc", small.losses[:, place], large.losses[:, place]),
        ("mean_of_13", small.losses.mean(axis=1), large.losses.mean(axis=1)),
    ):
        lines.append(
            f"{way}: a mixture drawn at random costs {other.mean() - other.min():.3f} (mean regret); "
            f"the runs at 1M themselves order those at 60M with rho {spearman(one, other):.3f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
