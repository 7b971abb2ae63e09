"""The command that compares two recipes by what small models learn from what they keep: ablate."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from corpusmill.jobs.commands.arguments import count, need_pipeline
from corpusmill.jobs.commands.running import run_command, run_with
from corpusmill.pipeline.errors import RecipeError


def add(commands: Any) -> None:
    ablate = run_command(
        commands,
        "ablate",
        "which of two recipes keeps what models learn more from: paired trainings, a verdict",
        command_ablate,
    )
    ablate.add_argument("other", metavar="recipe_b", help="the recipe to compare it with, on the same inputs")
    ablate.add_argument("--seeds", type=count, default=3, help="trainings of each recipe (default: 3)")
    ablate.add_argument(
        "--size", default="1M", help="of the models: 64k, 250k, 1M, 5M, 15M, 30M or 60M (default: 1M)"
    )
    ablate.add_argument("--tokens", type=count, help="of each training (default: 20 a parameter)")
    ablate.add_argument(
        "--budget-tokens",
        type=count,
        metavar="N",
        help="of the real run: text is repeated as often as there (default: as the training needs)",
    )
    which = ablate.add_mutually_exclusive_group()
    which.add_argument("--tokenizer", metavar="FILE", help="a vocabulary file for both")
    which.add_argument(
        "--vocab", type=count, help="entries of one trained on all that either keeps (default: 4096)"
    )
    ablate.add_argument(
        "--sequence-length", type=count, default=256, metavar="T", help="tokens (default: 256)"
    )
    ablate.add_argument(
        "--holdout",
        type=float,
        default=0.05,
        metavar="F",
        help="share of what either keeps that is measured and not trained on (default: 0.05)",
    )
    ablate.add_argument(
        "--targets",
        type=_named,
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="measure on the shards of a folder, made with --tokenizer, and not on what both keep; once or more",
    )
    ablate.add_argument(
        "--eval-tokens", type=count, default=200_000, metavar="N", help="of each target (default: 200000)"
    )
    ablate.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: cpu")
    ablate.add_argument("--json", action="store_true", help="all that was found, as JSON")


def _named(text: str) -> tuple[str, str]:
    name, equals, folder = text.partition("=")
    if not (equals and name and folder):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FOLDER")
    return name, folder if "://" in folder else str(Path(folder).absolute())  # workers may stand elsewhere


def command_ablate(options: argparse.Namespace) -> int:
    from corpusmill.jobs.ablate import ablation_lines, ablation_recipe, read_result
    from corpusmill.mixing.ablation import Ablate
    from corpusmill.pipeline.recipe import load_recipe
    from corpusmill.shards.stage import TokenizerSource

    need_pipeline()
    a, b = load_recipe(options.recipe), load_recipe(options.other)
    if options.input:
        a, b = a.with_inputs(options.input), b.with_inputs(options.input)
    targets = dict(options.targets)
    if len(targets) < len(options.targets):
        raise RecipeError("--targets: a name stands there twice")
    if options.tokenizer is not None:
        tokenizer = TokenizerSource(file=options.tokenizer)
    else:
        tokenizer = TokenizerSource(train="bpe", vocab=4096 if options.vocab is None else options.vocab)
    how = Ablate(
        tokenizer=tokenizer,
        targets=targets,
        **{
            key: getattr(options, key)
            for key in (
                "sequence_length",
                "holdout",
                "size",
                "tokens",
                "budget_tokens",
                "eval_tokens",
                "seeds",
                "device",
            )
        },
    )
    found = read_result(run_with(options, ablation_recipe(a, b, how), aside=options.json))
    print(json.dumps(found, ensure_ascii=False) if options.json else "\n".join(ablation_lines(found)))
    return 0
