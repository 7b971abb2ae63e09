"""The `estimate` command, and what a run says of its cost when it ends (and `show OUT --cost` again later)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corpusmill.jobs.cost.actual import Used
    from corpusmill.pipeline.run import Run

SUMMARY = "summary.json"


def price(text: str) -> float:
    """A price for --price-per-core-hour."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no price, like 0.04")
    return value


def add_options(command: argparse.ArgumentParser, count: Callable[[str], int]) -> None:
    """The options of `estimate`."""
    command.add_argument("recipe", help="a recipe file (.yaml) or the name of a built-in one")
    command.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[SOURCE=]PATH",
        help="instead of the recipe's inputs; wildcards in quotes",
    )
    command.add_argument(
        "--workers", type=count, help="of the run that is planned (default: one a core here)"
    )
    command.add_argument(
        "--sample-documents",
        type=count,
        default=1000,
        metavar="N",
        help="documents to measure (default: 1000)",
    )
    command.add_argument(
        "--seconds",
        type=count,
        default=300,
        metavar="S",
        help="fewer documents when they would take longer than about S seconds (default: 300)",
    )
    command.add_argument(
        "--out", help="keep it in this folder's metrics, for the end of the run there to compare with"
    )
    command.add_argument("--json", action="store_true", help="the whole estimate as JSON")
    add_price(command)


def add_price(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--price-per-core-hour", type=price, metavar="P", help="in any currency: say the cost too"
    )


def command_estimate(options: argparse.Namespace) -> int:
    from corpusmill.jobs.cost.estimate import estimate
    from corpusmill.jobs.cost.lines import estimate_lines
    from corpusmill.pipeline.engine.place import place_of
    from corpusmill.pipeline.recipe import load_recipe

    recipe = load_recipe(options.recipe)
    if options.input:
        recipe = recipe.with_inputs(options.input)
    out = None if options.out is None else place_of(options.out)
    if out is not None:
        out.check(write=True)
    made = estimate(
        recipe,
        workers=options.workers,
        documents=options.sample_documents,
        seconds=options.seconds,
        price=options.price_per_core_hour,
        out=out,
    )
    if options.json:
        sys.stdout.write(made.to_json().decode())
    else:
        print("\n".join(estimate_lines(made)))
    return 0


def cost_lines(run: Run, price_per_core_hour: float | None, write: bool) -> list[str]:
    """What the run used beside what it was estimated to; with `write` it is OUT/metrics/summary.json too."""
    from corpusmill.jobs.cost.actual import read_estimate, used
    from corpusmill.jobs.cost.lines import summary_lines

    spent = used(run)
    if write:
        value = summary(spent, price_per_core_hour)
        (run.out / "metrics" / SUMMARY).put(json.dumps(value, indent=1).encode() + b"\n")
    estimate, why_none = read_estimate(run)
    return [*summary_lines(spent, estimate, price_per_core_hour), *why_none]


def summary(spent: Used, price_per_core_hour: float | None) -> dict[str, Any]:
    """The content of summary.json: all of `Used`, its sums, and the cost where a price is known."""
    return {
        **asdict(spent),
        "core_hours": spent.core_hours,
        "price_per_core_hour": price_per_core_hour,
        "cost": None if price_per_core_hour is None else spent.cost(price_per_core_hour),
    }
