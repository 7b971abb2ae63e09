"""Commands that look at what was made: show, export, verify. What reads shards alone works on a core install."""

from __future__ import annotations

import argparse
from typing import Any

from corpusmill.jobs.commands.arguments import columns, count, need_pipeline, reachable
from corpusmill.jobs.cost import command as cost


def add(commands: Any) -> None:
    _add_show(commands)
    _add_export(commands)
    _add_verify(commands)


def _add_show(commands: Any) -> None:
    show = commands.add_parser("show", help="a run and its ledger, one document, a table, a shard, a cursor")
    show.add_argument(
        "path", help="OUT, a .parquet or .arrow file, OUT/shards, plan.json or a cursor's .json"
    )
    show.add_argument("--document", metavar="ID|URL", help="all that the run knows of one document")
    show.add_argument(
        "--columns",
        type=columns,
        help="comma-separated; document columns, measures, state, stage, reason, kept_id, score, cluster",
    )
    show.add_argument("--which", choices=("kept", "dropped", "all"), default="all", help="only these rows")
    show.add_argument("--reason", help="only rows that left for this reason, as the ledger names it")
    show.add_argument(
        "--failed",
        action="store_true",
        help="rows that an exception or a backstop stopped: stage, reason, url, file, offset; with --json all of them, for --replay",
    )
    show.add_argument("--rows", type=count, default=10, help="print at most so many (default: 10)")
    show.add_argument("--json", action="store_true", help="one JSON object a line")
    show.add_argument(
        "--cost", action="store_true", help="what the run used, beside its estimate if there is one"
    )
    show.add_argument(
        "--audit",
        action="store_true",
        help="of shards: how runs, fragments and rare ids are spread, the documents that stand out, what was kept out",
    )
    cost.add_price(show)
    show.set_defaults(command=command_show)


def _add_export(commands: Any) -> None:
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
        type=columns,
        default="id,url,source,text",
        help="comma-separated, any that `show --columns` takes (default: id,url,source,text)",
    )
    export.add_argument("--workers", type=count, help="processes (default: one a core)")
    export.set_defaults(command=command_export)


def _add_verify(commands: Any) -> None:
    verify = commands.add_parser("verify", help="every file against its recorded length and hash")
    verify.add_argument("path", help="OUT of a run, or OUT/shards")
    verify.add_argument(
        "--repair",
        action="store_true",
        help="make again what is broken: by the stages of the run, a block table by its shards; then verify",
    )
    verify.add_argument("--workers", type=count, help="processes of a repair (default: one a core)")
    verify.set_defaults(command=command_verify)


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

    place = reachable(options.path)
    if options.repair:
        from corpusmill.jobs.repair import repair

        for line in repair(place, options.workers):
            print(line)
    findings, checked = verify(place)
    for finding in findings:
        print(finding)
    print(f"{checked:,} files checked, {len(findings)} findings")
    return 1 if findings else 0


PIPED = (command_show,)
"""Commands that others read line by line: one that is not read to its end has done its work."""
