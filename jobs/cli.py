"""The command line: one function a command, each about a screen. Thresholds are the recipe's, never options.

argparse and late imports: commands about shards (show, verify, locate) work on a core install; the others end with the exact
pip line when the `pipeline` extra is missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill import __version__
from corpusmill.jobs import submit
from corpusmill.jobs.cost import command as cost
from corpusmill.pipeline.errors import CorpusmillError, RecipeError
from corpusmill.pipeline.remote import redacted

if TYPE_CHECKING:
    from corpusmill.pipeline.engine.place import Place

STAGE_COMMANDS = {
    "extract": "inputs -> documents",
    "filter": "measures, edits and verdicts of the filter stages",
    "dedup": "exact and near duplicates, each removal verified",
    "redact": "e-mails and addresses in the text of kept documents",
    "shard": "tokenize, shuffle, pack into Arrow shards",
    "mix": "weights of the components -> mixture.yaml and plan.json",
}


HOW = {
    "run": "Every threshold is the recipe's; `corpusmill recipe NAME` prints a built-in one to begin with.",
    "extract": "Only this stage of the recipe.",
    "submit": "All stages, with the driver on the cluster; submitted again, the run goes on where it stopped.",
}
ALONE = "With --input only this stage of the recipe, on those documents; without, the recipe's inputs and stages up to this one."
"""What a command of one stage does with the others of the recipe."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 a run that failed or damage found, 2 a wrong call, recipe, input or model, 130 interrupted."""
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="warning: %(message)s", stream=sys.stderr)
    try:
        code: int = options.command(options)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except CorpusmillError as error:
        print(f"corpusmill: {redacted(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("corpusmill: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    except (
        BrokenPipeError
    ):  # `corpusmill show ... | head`; a run that ends because nobody listens is not done
        _no_more_output()
        return 0 if options.command in (command_show, command_locate) else 1
    except OSError as error:  # a full disk, a folder that may not be read or written
        where = f"{error.filename}: " if error.filename else ""
        print(f"corpusmill: {where}{redacted(str(error.strerror or error))}", file=sys.stderr)
        return 1


def _no_more_output() -> None:
    """What is still buffered goes nowhere, so that the interpreter does not stumble over the closed pipe at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def _columns(text: str) -> list[str]:
    """Names between commas, each once."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError("at least one name is needed")
    return list(dict.fromkeys(names))


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="corpusmill", description="Raw web crawls in; verified, shuffled, resumable token shards out."
    )
    top.add_argument("--version", action="version", version=f"corpusmill {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _run_command(commands, "run", "all stages of a recipe", command_run)
    for name, about in STAGE_COMMANDS.items():
        _run_command(commands, name, about, command_stage)
    submit.add_options(
        _run_command(commands, "submit", "run a recipe as a job of a Ray cluster", command_submit)
    )

    estimate = commands.add_parser(
        "estimate", help="what a run will cost, from a measured sample of its inputs"
    )
    cost.add_options(estimate, _count)
    estimate.set_defaults(command=command_estimate)

    recipe = commands.add_parser("recipe", help="print a built-in recipe, to begin one's own with")
    recipe.add_argument("name", nargs="?", help="without a name: the list of them")
    recipe.set_defaults(command=command_recipe)

    show = commands.add_parser("show", help="a run and its ledger, one document, a table, a shard, a cursor")
    show.add_argument(
        "path", help="OUT, a .parquet or .arrow file, OUT/shards, plan.json or a cursor's .json"
    )
    show.add_argument("--document", metavar="ID|URL", help="all that the run knows of one document")
    show.add_argument(
        "--columns",
        type=_columns,
        help="comma-separated; document columns, measures, state, stage, reason, kept_id, score, cluster",
    )
    show.add_argument("--which", choices=("kept", "dropped", "all"), default="all", help="only these rows")
    show.add_argument("--reason", help="only rows that left for this reason, as the ledger names it")
    show.add_argument(
        "--failed",
        action="store_true",
        help="rows that an exception or a backstop stopped: stage, reason, url, file, offset; with --json all of them, for --replay",
    )
    show.add_argument("--rows", type=_count, default=10, help="print at most so many (default: 10)")
    show.add_argument("--json", action="store_true", help="one JSON object a line")
    show.add_argument(
        "--cost", action="store_true", help="what the run used, beside its estimate if there is one"
    )
    cost.add_price(show)
    show.set_defaults(command=command_show)

    export = commands.add_parser("export", help="documents with edits applied, to jsonl.zst or Parquet")
    export.add_argument("out", help="OUT of a run")
    export.add_argument(
        "--to", required=True, metavar="FOLDER", help="a new folder; gets one file a partition"
    )
    export.add_argument(
        "--format", choices=("jsonl.zst", "parquet"), default="jsonl.zst", help="default: jsonl.zst"
    )
    export.add_argument(
        "--which", choices=("kept", "dropped", "all"), default="kept", help="only these rows (default: kept)"
    )
    export.add_argument(
        "--columns",
        type=_columns,
        default="id,url,source,text",
        help="comma-separated, any that `show --columns` takes (default: id,url,source,text)",
    )
    export.add_argument("--workers", type=_count, help="processes (default: one a core)")
    export.set_defaults(command=command_export)

    verify = commands.add_parser("verify", help="every file against its recorded length and hash")
    verify.add_argument("path", help="OUT of a run, or OUT/shards")
    verify.set_defaults(command=command_verify)

    locate = commands.add_parser("locate", help="the pages behind samples of a stream")
    locate.add_argument("path", help="OUT, OUT/shards or plan.json")
    locate.add_argument(
        "--at", required=True, metavar="N[:M]", help="a sample's position in the global order, or a range"
    )
    locate.add_argument("--json", action="store_true", help="one JSON object a line")
    locate.set_defaults(command=command_locate)

    model = commands.add_parser("model", help="model files")
    model_commands = model.add_subparsers(required=True, metavar="get")
    get = model_commands.add_parser("get", help="fetch a pinned model into the cache; offline afterwards")
    get.add_argument("name", help="lid.176")
    get.add_argument("--from", dest="source", metavar="FILE", help="take it from a file instead")
    get.set_defaults(command=command_model_get)

    demo = commands.add_parser(
        "demo", help="a crawl made on the spot becomes tokens, with the reasons for every dropped page"
    )
    demo.add_argument("--out", default="demo-out", help="folder of the crawl and its run (default: demo-out)")
    demo.add_argument("--pages", type=_count, default=1400, help="pages of the crawl (default: 1400)")
    demo.add_argument("--workers", type=_count, help="processes (default: one a core)")
    demo.set_defaults(command=command_demo)
    return top


def _run_command(
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
    run.add_argument("--workers", type=_count, help="processes (default: one a core)")
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
        "--limit", type=_count, metavar="N", help="only the first N documents of the inputs in order"
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


def need_pipeline() -> None:
    """One line that says what to install, instead of a traceback."""
    missing = [name for name in ("pydantic", "yaml", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        raise RecipeError(
            f"this command needs the pipeline extra ({', '.join(missing)} missing): pip install 'corpusmill[pipeline]'"
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


def command_recipe(options: argparse.Namespace) -> int:
    from corpusmill.pipeline.recipe import builtin_names, builtin_text

    need_pipeline()
    print(
        builtin_text(options.name) if options.name else "\n".join(builtin_names()),
        end="" if options.name else "\n",
    )
    return 0


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
    from corpusmill.jobs.run import run_recipe
    from corpusmill.pipeline.engine.replay import Replay, read_list

    if options.input:
        recipe = recipe.with_inputs(options.input)
    if options.sample is not None and not 0 < options.sample <= 1:
        raise RecipeError(f"--sample {options.sample}: a share above 0 and up to 1 is needed")
    run = run_recipe(
        recipe,
        options.out,
        workers=options.workers,
        sample=options.sample,
        limit=options.limit,
        update=options.update,
        ray=options.ray,
        resources=options.resources,
        replay=read_list(Path(options.replay)) if options.replay else Replay(options.retry_failed),
    )
    from corpusmill.jobs.show import closing_lines

    print("\n".join([*closing_lines(run), *cost.cost_lines(run, options.price_per_core_hour, write=True)]))
    return 0


def reachable(path: str) -> Place:
    """A place to read: what is wrong with a bucket or its credentials is said at once."""
    from corpusmill.pipeline.engine.place import place_of

    place = place_of(path)
    place.check()
    return place


def command_show(options: argparse.Namespace) -> int:
    from corpusmill.jobs.show import show

    for line in show(options):
        print(line)
    return 0


def command_export(options: argparse.Namespace) -> int:
    need_pipeline()
    from corpusmill.jobs.export import export

    print(
        export(
            reachable(options.out),
            options.to,
            options.columns,
            options.which,
            options.format,
            options.workers,
        )
    )
    return 0


def command_verify(options: argparse.Namespace) -> int:
    from corpusmill.jobs.verify import verify

    findings, checked = verify(reachable(options.path))
    for finding in findings:
        print(finding)
    print(f"{checked:,} files checked, {len(findings)} findings")
    return 1 if findings else 0


def command_locate(options: argparse.Namespace) -> int:
    from corpusmill.jobs.show import locate_lines

    first, colon, last = options.at.partition(":")
    if not first.isdecimal() or (colon and not last.isdecimal()):
        raise RecipeError(f"--at {options.at}: a sample number N or a range N:M is needed")
    for line in locate_lines(options.path, int(first), int(last) if colon else None, options.json):
        print(line)
    return 0


def command_model_get(options: argparse.Namespace) -> int:
    from corpusmill.pipeline.models import get_model

    print(get_model(options.name, Path(options.source) if options.source else None))
    return 0


def command_demo(options: argparse.Namespace) -> int:
    need_pipeline()
    from corpusmill.jobs.demo import demo

    return demo(Path(options.out), options.pages, options.workers)


if __name__ == "__main__":
    sys.exit(main())
