"""Commands that make something: run, one for each stage, submit, estimate."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.jobs import submit
from corpusmill.jobs.commands.arguments import count, need_pipeline, need_share
from corpusmill.jobs.cost import command as cost

if TYPE_CHECKING:
    from corpusmill.pipeline.run import Run

STAGE_COMMANDS = {
    "extract": "inputs -> documents",
    "filter": "measures, edits and verdicts of the filter stages",
    "dedup": "exact and near duplicates, each removal verified",
    "redact": "e-mails and addresses in the text of kept documents",
    "shard": "tokenize, shuffle, pack into Arrow shards",
    "mix": "weights of the components -> mixture.yaml and plan.json (`corpusmill mix stats --help` and so on: a search step by step)",
}


HOW = {
    "run": "Every threshold is the recipe's; `corpusmill recipe NAME` prints a built-in one to begin with.",
    "extract": "Only this stage of the recipe.",
    "ablate": "All is a run in OUT: killed, it goes on where it stopped. The recipes' shard and mix stages are left out.",
    "submit": "All stages, with the driver on the cluster; submitted again, the run goes on where it stopped.",
}
ALONE = "With --input only this stage of the recipe, on those documents; without, the recipe's inputs and stages up to this one."
"""What a command of one stage does with the others of the recipe."""


def add(commands: Any) -> None:
    run_command(commands, "run", "all stages of a recipe", command_run)
    for name, about in STAGE_COMMANDS.items():
        run_command(commands, name, about, command_stage)
    submit.add_options(
        run_command(commands, "submit", "run a recipe as a job of a Ray cluster", command_submit)
    )

    estimate = commands.add_parser(
        "estimate", help="what a run will cost, from a measured sample of its inputs"
    )
    cost.add_options(estimate, count)
    estimate.set_defaults(command=command_estimate)


def run_command(
    commands: Any, name: str, about: str, command: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    run: argparse.ArgumentParser = commands.add_parser(
        name, help=about, description=f"{about[0].upper()}{about[1:]}. {HOW.get(name, ALONE)}"
    )
    run.add_argument("recipe", help="a recipe file (.yaml) or the name of a built-in one")
    if name != "submit":
        run.add_argument(
            "--ray",
            metavar="ADDRESS",
            help="on a Ray cluster: its address, auto, or local (started for this run)",
        )
    run.add_argument(
        "--out", required=True, help="folder of the run; the same command again goes on where it stopped"
    )
    run.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[SOURCE=]PATH",
        help="instead of the recipe's inputs; a path, s3:// or https:// address; wildcards in quotes",
    )
    run.add_argument("--workers", type=count, help="processes (default: one a core)")
    run.add_argument(
        "--resources",
        action="append",
        default=[],
        metavar="STAGE=NAME:AMOUNT,...",
        help="of one worker of a stage: cpus, memory, gpus, or a name of the cluster's own, like dedup=memory:4GiB",
    )
    run.add_argument(
        "--sample",
        type=float,
        metavar="F",
        help="only documents whose keyed hash is below F (0 to 1), chosen before extraction",
    )
    run.add_argument(
        "--limit", type=count, metavar="N", help="only the first N documents of the inputs in order"
    )
    run.add_argument(
        "--update", action="store_true", help="accept a changed recipe or input; what still fits is reused"
    )
    if name != "submit":
        cost.add_price(run)
        _replay_options(run)
    run.set_defaults(command=command, stage=name)
    return run


def _replay_options(run: argparse.ArgumentParser) -> None:
    either = run.add_mutually_exclusive_group()
    either.add_argument(
        "--retry-failed",
        action="store_true",
        help="try the rows again that CPU time, memory or a crash stopped, with four times the time and memory",
    )
    either.add_argument(
        "--replay",
        metavar="LIST",
        help="fail the rows of LIST untried, as the run did that `show OUT --failed --json` made it from: for the same bytes elsewhere",
    )


def command_run(options: argparse.Namespace) -> int:
    from corpusmill.pipeline.recipe import load_recipe

    need_pipeline()
    return _run(options, load_recipe(options.recipe))


def command_submit(options: argparse.Namespace) -> int:
    need_pipeline()
    return submit.command_submit(options)


def command_estimate(options: argparse.Namespace) -> int:
    need_pipeline()
    return cost.command_estimate(options)


def command_stage(options: argparse.Namespace) -> int:
    """With --input: extract and this stage alone, on those documents. Without: the recipe's own inputs, up to this stage."""
    from corpusmill.pipeline.recipe import load_recipe

    need_pipeline()
    recipe = load_recipe(options.recipe)
    if options.stage == "extract":
        recipe = recipe.only("extract")
    elif options.input:
        recipe = recipe.only(options.stage)
    else:
        recipe = recipe.up_to(options.stage)
    return _run(options, recipe)


def _run(options: argparse.Namespace, recipe: Any) -> int:
    from corpusmill.jobs.closing import closing_lines

    run = run_with(options, recipe)
    print("\n".join([*closing_lines(run), *cost.cost_lines(run, options.price_per_core_hour, write=True)]))
    return 0


def run_with(options: argparse.Namespace, recipe: Any, until: str | None = None, aside: bool = False) -> Run:
    """The recipe as the options of `run_command` say; `until` is the last stage. `aside`: stdout is for something else."""
    from corpusmill.jobs.reporter import LineReporter
    from corpusmill.jobs.run import run_recipe
    from corpusmill.pipeline.engine.replay import Replay, read_list

    if options.input:
        recipe = recipe.with_inputs(options.input)
    need_share(options.sample)
    return run_recipe(
        recipe,
        options.out,
        workers=options.workers,
        sample=options.sample,
        limit=options.limit,
        update=options.update,
        ray=options.ray,
        resources=options.resources,
        replay=read_list(Path(options.replay)) if options.replay else Replay(options.retry_failed),
        until=until,
        reporter=LineReporter(out=sys.stderr, explain=options.update) if aside else None,
    )
