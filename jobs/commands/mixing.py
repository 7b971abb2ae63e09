"""Commands of a search for weights, step by step: each runs the recipe up to its stage and prints what came of it.

`corpusmill mix RECIPE` stays what it is (all of it); `corpusmill mix stats RECIPE` and so on are commands of their own, whose names have two words.
`mix import`, `mix fit FOLDER` and `mix propose FOLDER` work on runs that other trainers made, in a folder without a recipe.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corpusmill.jobs.commands.arguments import need_pipeline
from corpusmill.jobs.commands.running import run_command, run_with
from corpusmill.pipeline.errors import RecipeError

STEPS = {
    "stats": "components and targets: tokens, shares, what each may weigh",
    "design": "which proxies will be trained, and why each",
    "run": "train the proxies of the design",
    "fit": "how losses follow from weights, and what leaving out and boosting did",
    "propose": "candidates beside the baselines, with epochs and expected losses",
    "verify": "train candidates and baselines at larger proxies; the verdict",
}
"""What each verb does; its stage stands in jobs/searches.py."""

APART = ("auto", "check", "export", "import", "apply", "report")

VERBS = (*STEPS, *APART)


def joined(arguments: Sequence[str]) -> list[str]:
    """`mix stats ...` as one command; a recipe of that name is `./stats` or `stats.yaml`."""
    first = list(arguments[:2])
    if len(first) == 2 and first[0] == "mix" and first[1] in VERBS:
        return [" ".join(first), *arguments[2:]]
    if first[:1] == ["mix"] and len(arguments) > 2 and not any(it.startswith("-") for it in arguments[1:3]):
        # `mix RECIPE` takes one name: the first of two was to be a verb. Otherwise the recipe would be called unknown.
        print(f"corpusmill mix: no verb {arguments[1]!a}; there are {', '.join(VERBS)}", file=sys.stderr)
        raise SystemExit(2)
    return list(arguments)


def add(commands: Any) -> None:
    for verb, about in STEPS.items():
        step = run_command(commands, f"mix {verb}", about, command_step)
        step.add_argument("--json", action="store_true", help="what is stored, as JSON")
        step.set_defaults(verb=verb)
        if verb in ("fit", "propose"):
            step.description = f"{step.description} With a folder that `mix import` made in place of the recipe: of those runs; no --out then."
            _optional(step, "--out")
            step.set_defaults(out=None)
    _add_whole(commands)
    _add_files(commands)


def _add_whole(commands: Any) -> None:
    """Those that run all of a search."""
    apply = run_command(
        commands,
        "mix apply",
        "all of the search: the verdict's weights into mixture.yaml and the plan",
        command_step,
    )
    apply.set_defaults(verb="apply", json=False)

    report = run_command(
        commands, "mix report", "all of the search on one page, and as JSON: OUT/reports", command_report
    )
    report.add_argument("--json", action="store_true", help="the JSON to stdout as well")

    auto = run_command(
        commands,
        "mix auto",
        "all of the search, with proxies, runs and seeds chosen by what they may take",
        command_auto,
    )
    auto.add_argument(
        "--budget",
        required=True,
        metavar="TIME",
        help="of one worker, for all proxies together, like 2h or 90m: two workers end in about half of it",
    )


def _add_files(commands: Any) -> None:
    """Those that run nothing."""
    check = commands.add_parser(
        "mix check", help="what a mixture file asks of the shards of a run: epochs, limits, names"
    )
    check.add_argument("file", help="a mixture file (corpusmill/mixture/v1)")
    check.add_argument("--out", required=True, help="the run whose shards it is to weigh")
    check.set_defaults(command=command_check)

    give = commands.add_parser(
        "mix export", help="a mixture file for trainers that mix by themselves, a file a phase"
    )
    give.add_argument("file", help="a mixture file (corpusmill/mixture/v1)")
    give.add_argument("--out", required=True, help="the run whose shards it weighs")
    give.add_argument("--format", required=True, choices=("megatron", "olmo-core", "olmix"))
    give.add_argument("--to", required=True, metavar="FOLDER", help="a new folder")
    give.add_argument(
        "--data",
        default="",
        metavar="FOLDER",
        help="where `export-tokens --format megatron` wrote, as the trainer will find it (olmix needs none)",
    )
    give.set_defaults(command=command_export)

    bring = commands.add_parser(
        "mix import", help="runs of another trainer, as CSV, into a folder for `mix fit`"
    )
    bring.add_argument("file", help="one long file, or the file of weights")
    bring.add_argument("losses", nargs="?", help="the file of losses, where they stand apart")
    bring.add_argument("--to", required=True, metavar="FOLDER", help="where runs.parquet is written")
    bring.add_argument(
        "--unit",
        choices=("loss", "bits_per_byte"),
        default="loss",
        help="of losses in a file of their own (default: loss)",
    )
    bring.set_defaults(command=command_import)


def _optional(parser: argparse.ArgumentParser, option: str) -> None:
    for action in parser._actions:
        if option in action.option_strings:
            action.required = False


def command_step(options: argparse.Namespace) -> int:
    from corpusmill.jobs import search_tables, searches, studies
    from corpusmill.pipeline.recipe import load_recipe

    need_pipeline()
    folder = Path(options.recipe)
    if options.verb in ("fit", "propose") and folder.is_dir():
        found = studies.fit_folder(folder) if options.verb == "fit" else studies.propose_folder(folder)
        _print(options, found, search_tables.LINES[options.verb](found))
        return 0
    if options.out is None:
        raise RecipeError(
            f"mix {options.verb} of a recipe needs --out FOLDER; without a recipe give a folder of `mix import`"
        )
    recipe = load_recipe(options.recipe)
    name = searches.search_stage(recipe)
    if options.verb == "apply":
        run = run_with(options, recipe)
        print("\n".join(search_tables.applied_lines(run, name)))
        return 0
    run = run_with(options, recipe, until=searches.stage_of(recipe, options.verb), aside=options.json)
    found = searches.READ[options.verb](run, name)
    _print(options, found, search_tables.LINES[options.verb](found))
    return 0


def command_report(options: argparse.Namespace) -> int:
    from corpusmill.jobs import searches
    from corpusmill.jobs.search_page import write_report
    from corpusmill.pipeline.recipe import load_recipe

    need_pipeline()
    recipe = load_recipe(options.recipe)
    name = searches.search_stage(recipe)
    report, places = write_report(run_with(options, recipe, aside=options.json), name)
    said = [
        ": ".join(filter(None, (each["kind"], each["about"], each["text"]))) for each in report["warnings"]
    ]
    _print(options, report, [*said, f"written: {', '.join(map(str, places))}"])
    return 0


def command_auto(options: argparse.Namespace) -> int:
    from corpusmill.jobs import auto, search_tables, searches
    from corpusmill.pipeline.chain import compile_recipe
    from corpusmill.pipeline.engine.place import place_of
    from corpusmill.pipeline.engine.resources import parse_overrides
    from corpusmill.pipeline.recipe import Recipe, load_recipe
    from corpusmill.pipeline.run import Run

    need_pipeline()
    recipe = load_recipe(options.recipe)
    budget_s = auto.seconds_of(options.budget)
    parse_overrides(options.resources, [stage.name for stage in compile_recipe(recipe)])

    def run(recipe: Recipe, until: str | None = None, update: bool = False) -> Run:
        resources = auto.resources_for(recipe, options.resources)
        asked = argparse.Namespace(**{**vars(options), "update": update, "resources": resources})
        return run_with(asked, recipe, until=until)

    def say(line: str) -> None:
        print(line, flush=True)

    found = auto.search_within(recipe, budget_s, place_of(options.out), run, options.update, say)
    print("\n".join(search_tables.applied_lines(found, searches.search_stage(recipe))))
    return 0


def _print(options: argparse.Namespace, found: Any, lines: Sequence[str]) -> None:
    print(json.dumps(found, ensure_ascii=False) if options.json else "\n".join(lines))


def command_check(options: argparse.Namespace) -> int:
    from corpusmill.jobs.mixtures import checked_lines

    need_pipeline()
    lines, wrong = checked_lines(Path(options.file), options.out)
    print("\n".join(lines))
    return 1 if wrong else 0


def command_export(options: argparse.Namespace) -> int:
    from corpusmill.jobs.mixtures import export_mixture

    need_pipeline()
    if not options.data and options.format != "olmix":
        raise RecipeError(
            f"mix export --format {options.format} needs --data FOLDER: where `corpusmill export-tokens --format megatron` wrote"
        )
    lines = export_mixture(Path(options.file), options.out, options.to, options.data, options.format)
    print("\n".join(lines))
    return 0


def command_import(options: argparse.Namespace) -> int:
    from corpusmill.jobs import studies

    need_pipeline()
    losses = None if options.losses is None else Path(options.losses)
    print(studies.import_into(Path(options.file), losses, Path(options.to), options.unit))
    return 0
