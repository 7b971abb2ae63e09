"""Commands that carry tokens to and from other trainers' formats: export-tokens, import-tokens."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from corpusmill.jobs.commands.arguments import columns, count, count_or_zero, need_pipeline, span


def add(commands: Any) -> None:
    export = commands.add_parser(
        "export-tokens",
        help="shards as Megatron's .bin and .idx, Parquet, or folders of Hugging Face datasets",
    )
    export.add_argument("path", help="OUT, OUT/shards or plan.json")
    export.add_argument(
        "--to", required=True, metavar="FOLDER", help="a new folder; gets one data set a component"
    )
    export.add_argument("--format", required=True, choices=("megatron", "parquet", "hf"))
    export.add_argument(
        "--samples",
        type=span,
        metavar="N:M",
        help="rows of the plan from sample N up to M - 1, mixed as the stream mixes them, instead of whole documents",
    )
    export.add_argument("--components", type=columns, default=[], help="comma-separated (default: all)")
    export.add_argument("--text", action="store_true", help="with documents: their text beside their tokens")
    export.set_defaults(command=command_export_tokens)

    take = commands.add_parser("import-tokens", help="a Megatron .bin and .idx as shards with a plan")
    take.add_argument("prefix", help="PREFIX of PREFIX.bin and PREFIX.idx")
    take.add_argument("--to", required=True, metavar="FOLDER", help="a new folder, which a stream takes")
    take.add_argument(
        "--tokenizer", required=True, metavar="FILE", help="the tokenizer.json that the tokens were made with"
    )
    take.add_argument("--eos", help="its end-of-text token, where its name is not one of the usual")
    take.add_argument("--name", default="imported", help="of the component (default: imported)")
    take.add_argument("--sequence-length", type=count, default=2048, help="tokens of a row (default: 2048)")
    take.add_argument(
        "--packing", choices=("concat", "best_fit", "pad"), default="concat", help="default: concat"
    )
    take.add_argument(
        "--seed", type=count_or_zero, default=17, help="of the shuffle and of the plan (default: 17)"
    )
    take.set_defaults(command=command_import_tokens)


def command_export_tokens(options: argparse.Namespace) -> int:
    from corpusmill.shards.export import export_tokens

    samples = options.samples
    if options.text:
        need_pipeline()
    for made in export_tokens(
        options.path, options.to, options.format, samples, options.components, options.text
    ):
        print(f"{made.path}: {made.items:,} {'rows' if samples else 'documents'}, {made.tokens:,} tokens")
    return 0


def command_import_tokens(options: argparse.Namespace) -> int:
    need_pipeline()
    from corpusmill.shards.take_over import Sizes, import_megatron

    sizes = Sizes(options.sequence_length, options.packing, seed=options.seed)
    plan = import_megatron(
        Path(options.prefix), Path(options.to), Path(options.tokenizer), options.name, sizes, options.eos
    )
    (component,) = plan.components
    print(
        f"{options.to}: {component.rows:,} rows of {plan.sequence_length} tokens in {component.blocks:,} blocks"
    )
    return 0
