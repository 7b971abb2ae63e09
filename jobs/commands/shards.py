"""Commands about shards and the stream over them: locate, where, quarantine, plan. All of them work on a core install."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from corpusmill.jobs.commands.arguments import count, count_or_zero, numbers, span
from corpusmill.pipeline.errors import CursorError

if TYPE_CHECKING:
    from corpusmill.jobs.plans import Choices
    from corpusmill.shards.plan import Plan


def add(commands: Any) -> None:
    _add_locate(commands)
    _add_where(commands)
    _add_quarantine(commands)
    _add_plan(commands)


def _add_locate(commands: Any) -> None:
    locate = commands.add_parser(
        "locate", help="the pages behind samples of a stream, the most suspicious first"
    )
    locate.add_argument("path", help="OUT, OUT/shards or plan.json")
    which = locate.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--at", type=span, metavar="N[:M]", help="a sample's position in the global order, or a range"
    )
    which.add_argument(
        "--step", type=count_or_zero, metavar="S", help="the samples of a trainer's step, counted from 0"
    )
    locate.add_argument(
        "--batch-size", type=count, metavar="B", help="samples a step of all ranks together, with --step"
    )
    locate.add_argument("--rank", type=count_or_zero, metavar="R", help="only this data-parallel rank's part")
    locate.add_argument("--ranks", type=count, metavar="K", help="data-parallel ranks, with --rank")
    locate.add_argument("--rows", type=count, default=20, help="documents to print (default: 20)")
    locate.add_argument("--json", action="store_true", help="one JSON object a document, all of them")
    locate.set_defaults(command=command_locate)


def _add_document(parser: Any) -> None:
    parser.add_argument("--doc", metavar="ID", help="a document's id, as locate prints it")
    parser.add_argument("--url", help="a document's address")
    parser.add_argument(
        "--warc", metavar="FILE:OFFSET", help="a file of the crawl and a byte in the document's record"
    )


def _add_where(commands: Any) -> None:
    where = commands.add_parser("where", help="every sample and step of a plan that holds a document")
    where.add_argument("path", help="OUT, OUT/shards or plan.json")
    _add_document(where.add_mutually_exclusive_group(required=True))
    where.add_argument(
        "--until", type=count_or_zero, metavar="N", help="look at samples below N (default: the plan's end)"
    )
    where.add_argument("--batch-size", type=count, metavar="B", help="also print steps of so many samples")
    where.add_argument("--json", action="store_true", help="one JSON object a document")
    where.set_defaults(command=command_where)


def _add_quarantine(commands: Any) -> None:
    quarantine = commands.add_parser(
        "quarantine",
        help="documents or samples whose tokens a stream no longer hands out from a sample on; nothing else moves",
    )
    quarantine.add_argument("path", help="OUT, OUT/shards or plan.json")
    what = quarantine.add_mutually_exclusive_group()
    _add_document(what)
    what.add_argument(
        "--at", type=span, metavar="N[:M]", help="the rows of these samples, whenever they come again"
    )
    what.add_argument(
        "--lift", type=count_or_zero, metavar="K", help="end entry K of the list from --from on"
    )
    what.add_argument("--list", action="store_true", help="print the list (the default)")
    quarantine.add_argument(
        "--tokens", type=span, metavar="A:B", help="only these tokens of the document or the rows"
    )
    quarantine.add_argument(
        "--from", dest="start", type=count_or_zero, metavar="N", help="first sample in which they are hidden"
    )
    quarantine.add_argument("--reason", metavar="TEXT", help="for whoever reads the list later")
    quarantine.add_argument("--json", action="store_true", help="one JSON object an entry")
    quarantine.set_defaults(command=command_quarantine)


def _add_plan(commands: Any) -> None:
    plan = commands.add_parser("plan", help="show a plan, go on otherwise from a sample, compare two")
    kinds = plan.add_subparsers(required=True, metavar="show|append|new|diff")
    show = kinds.add_parser("show", help="components, phases and epochs")
    show.add_argument("path", help="OUT, OUT/shards or plan.json")
    show.add_argument(
        "--at", type=count_or_zero, metavar="N", help="epochs before this sample (default: the plan's end)"
    )
    show.add_argument("--json", action="store_true", help="one JSON object")
    show.set_defaults(command=command_plan_show)

    append = kinds.add_parser(
        "append", help="other weights or new components from a sample on; the past stays"
    )
    append.add_argument("path", help="OUT, OUT/shards or plan.json; it is written anew")
    append.add_argument("--from", dest="start", type=count, required=True, metavar="N", help="first sample")
    append.add_argument("--ramp", type=count_or_zero, default=0, help="samples over which weights move there")
    _plan_options(append, weights_needed=True)
    append.set_defaults(command=command_plan_append)

    new = kinds.add_parser("new", help="a plan over components of several runs")
    new.add_argument("path", help="the plan.json to write; all components lie below its folder")
    new.add_argument("--seed", type=count_or_zero, default=0, help="of the order (default: 0)")
    new.add_argument("--window", type=count, default=16, help="blocks shuffled together (default: 16)")
    _plan_options(new, weights_needed=False)
    new.set_defaults(command=command_plan_new)

    diff = kinds.add_parser("diff", help="the first sample in which two plans may differ, and why")
    diff.add_argument("old", help="a plan.json")
    diff.add_argument("new", help="another")
    diff.set_defaults(command=command_plan_diff)


def _plan_options(parser: Any, weights_needed: bool) -> None:
    proportional = "" if weights_needed else " (default: proportional to rows)"
    parser.add_argument(
        "--weights",
        type=numbers,
        required=weights_needed,
        metavar="NAME=SHARE,...",
        help=f"shares that add up to 1{proportional}",
    )
    parser.add_argument(
        "--add",
        action="append",
        default=[],
        metavar="[NAME=]FOLDER",
        help="a component's folder, or a run with all of its components; NAME where the plan has the name already",
    )
    parser.add_argument(
        "--max-epochs", type=numbers, default={}, metavar="NAME=N,...", help="how often they may be read"
    )
    parser.add_argument("--samples", type=count, help="where the plan ends")
    parser.add_argument(
        "--stop", action="store_true", help="end it where the first component has been read that often"
    )


def command_locate(options: argparse.Namespace) -> int:
    from corpusmill.jobs.trace import suspect_lines
    from corpusmill.shards.suspects import suspects

    first, last = _samples(options)
    _print(suspect_lines(suspects(options.path, first, last), None if options.json else options.rows))
    return 0


def _samples(options: argparse.Namespace) -> tuple[int, int]:
    """The samples that --at, or --step with its companions, name."""
    if options.at is not None:
        if options.batch_size or options.rank is not None or options.ranks:
            raise CursorError("--batch-size, --rank and --ranks go with --step")
        first, last = options.at
        return first, last
    if options.batch_size is None or (options.rank is None) != (options.ranks is None):
        raise CursorError("--step needs --batch-size, of all ranks together; --rank and --ranks go together")
    first, rows = options.step * options.batch_size, options.batch_size
    if options.ranks:
        if options.batch_size % options.ranks or options.rank >= options.ranks:
            raise CursorError(
                f"rank {options.rank} of {options.ranks} has no part of a batch of {options.batch_size}"
            )
        rows //= options.ranks
        first += options.rank * rows
    return first, first + rows


def command_where(options: argparse.Namespace) -> int:
    from corpusmill.jobs.trace import appearance_lines, as_json
    from corpusmill.shards.where import where

    found = where(options.path, until=options.until, **_document(options))
    if options.json:
        steps = options.batch_size
        _print(as_json(asdict(each) | ({"steps": each.steps(steps)} if steps else {})) for each in found)
    else:
        _print(line for each in found for line in appearance_lines(each, options.batch_size))
    return 0


def _document(options: argparse.Namespace) -> dict[str, Any]:
    """Arguments of `Wanted`."""
    if options.warc is None:
        return {"id": options.doc, "url": options.url}
    file, colon, offset = options.warc.rpartition(":")
    if not colon or not offset.isdecimal():
        raise CursorError(f"--warc {options.warc}: FILE:OFFSET is needed, with a byte of the record")
    return {"warc": (file, int(offset))}


def command_quarantine(options: argparse.Namespace) -> int:
    from corpusmill.jobs.trace import as_json, entry_lines
    from corpusmill.shards import hide
    from corpusmill.shards.reader import Shards
    from corpusmill.shards.sidecar import Wanted

    document = any(value is not None for value in (options.doc, options.url, options.warc))
    if options.tokens is not None and not document and options.at is None:
        raise CursorError("--tokens goes with --doc, --url, --warc or --at")
    if not document and options.at is None and options.lift is None:
        if options.start is not None or options.reason is not None:
            raise CursorError(
                "--from and --reason go with --doc, --url, --warc, --at or --lift: what is to be hidden?"
            )
        found = Shards(options.path).quarantine
    else:
        if options.start is None or options.reason is None:
            raise CursorError("--from N and --reason TEXT are needed: from which sample on, and why")
        rest = (options.start, options.reason)
        if document:
            found = hide.hide_document(options.path, Wanted(**_document(options)), *rest, options.tokens)
        elif options.at is not None:
            first, last = options.at
            found = hide.hide_samples(options.path, first, last, *rest, options.tokens)
        else:
            found = hide.lift(options.path, options.lift, *rest)
    if options.json:
        _print(as_json({"entry": number} | asdict(entry)) for number, entry in enumerate(found.entries))
    else:
        _print(entry_lines(found))
    return 0


def command_plan_show(options: argparse.Namespace) -> int:
    from corpusmill.jobs.trace import plan_lines
    from corpusmill.shards.plan import MOST_SAMPLES
    from corpusmill.shards.plan_file import find_plan, read_plan

    plan = read_plan(find_plan(options.path))
    at = plan.samples if options.at is None else options.at
    end = MOST_SAMPLES if plan.samples is None else plan.samples
    if at is not None and at > end:
        raise CursorError(
            f"--at {at} is behind the plan's end, sample {end}; give that or less, or append with --samples"
        )
    if options.json:
        epochs = None if at is None else plan.epochs(at)
        print(json.dumps({"id": plan.id, **plan.content(), "epochs_before": at, "epochs": epochs}))
    else:
        _print(plan_lines(plan, at))
    return 0


def command_plan_append(options: argparse.Namespace) -> int:
    from corpusmill.jobs import plans

    return _written(plans.append(options.path, options.start, options.ramp, _choices(options)))


def command_plan_new(options: argparse.Namespace) -> int:
    from corpusmill.jobs import plans

    return _written(plans.new(options.path, options.seed, options.window, _choices(options)))


def _choices(options: argparse.Namespace) -> Choices:
    """What `_plan_options` asked for."""
    from corpusmill.jobs.plans import Choices

    exhaust = "stop" if options.stop else "repeat"
    return Choices(options.weights, options.add, options.samples, options.max_epochs, exhaust)


def _written(plan: Plan) -> int:
    from corpusmill.jobs.trace import plan_lines

    _print(plan_lines(plan, plan.samples))
    return 0


def command_plan_diff(options: argparse.Namespace) -> int:
    from corpusmill.shards.append import first_difference
    from corpusmill.shards.plan_file import find_plan, read_plan

    old, new = (read_plan(find_plan(path)) for path in (options.old, options.new))
    print(first_difference(old, new) or "they give the same samples as far as both go")
    return 0


def _print(lines: Iterator[str]) -> None:
    for line in lines:
        print(line)


PIPED = (command_locate, command_where, command_quarantine, command_plan_show)
"""Commands that others read line by line: one that is not read to its end has done its work."""
