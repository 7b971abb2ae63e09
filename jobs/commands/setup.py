"""Commands of a first day: a built-in recipe, a model, the demo."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from corpusmill.jobs.commands.arguments import count, need_pipeline


def add(commands: Any) -> None:
    recipe = commands.add_parser("recipe", help="print a built-in recipe, to begin one's own with")
    recipe.add_argument("name", nargs="?", help="without a name: the list of them")
    recipe.set_defaults(command=command_recipe)

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
    demo.add_argument("--pages", type=count, default=1400, help="pages of the crawl (default: 1400)")
    demo.add_argument("--workers", type=count, help="processes (default: one a core)")
    demo.set_defaults(command=command_demo)


def command_recipe(options: argparse.Namespace) -> int:
    from corpusmill.pipeline.recipe import builtin_names, builtin_text

    need_pipeline()
    print(
        builtin_text(options.name) if options.name else "\n".join(builtin_names()),
        end="" if options.name else "\n",
    )
    return 0


def command_model_get(options: argparse.Namespace) -> int:
    from corpusmill.pipeline.models import get_model

    print(get_model(options.name, Path(options.source) if options.source else None))
    return 0


def command_demo(options: argparse.Namespace) -> int:
    need_pipeline()
    from corpusmill.jobs.demo import demo

    return demo(Path(options.out), options.pages, options.workers)
