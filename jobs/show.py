"""`corpusmill show`: a run and its ledger, its rows or one document; any other path is one file (files.py).

What it reads of a run is its manifests, and of its layers the columns that were asked for.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from corpusmill.jobs.closing import damage_lines, funnel_lines, shard_lines
from corpusmill.jobs.files import file_lines
from corpusmill.jobs.tables import figure, plain, table_lines
from corpusmill.pipeline.engine.place import readable
from corpusmill.pipeline.engine.state import RUN
from corpusmill.pipeline.errors import InputError
from corpusmill.pipeline.registry import suggestion
from corpusmill.pipeline.rules import BOUNDS

if TYPE_CHECKING:
    from corpusmill.pipeline.run import Run

STATES = ("kept", "dropped", "failed")
"""The states of the ledger by their numbers."""


def show(options: argparse.Namespace) -> Iterator[str]:
    """Lines for `corpusmill show`."""
    place = readable(options.path)
    place.check()
    if options.audit:
        from corpusmill.jobs.audit import audit_lines

        yield from audit_lines(options.path, options.rows, options.json)
        return
    if (place / RUN).is_file():
        from corpusmill.pipeline.run import Run

        run = Run(place)
        if options.cost:
            from corpusmill.jobs.cost.command import cost_lines

            yield from cost_lines(run, options.price_per_core_hour, write=False)
        elif options.document is not None:
            yield from document_lines(run, options.document, options.json)
        elif options.failed:
            yield from failed_lines(run, options.rows, options.json)
        elif options.columns or options.reason or options.which != "all":
            yield from run_rows(
                run, options.columns, options.which, options.reason, options.rows, options.json
            )
        else:
            yield from run_lines(run, options.json)
        return
    try:
        yield from file_lines(place, options.rows, options.columns, options.json)
    except (OSError, ValueError) as error:  # gone, cut, or never what its name says
        raise InputError(f"{place} cannot be read: {error}") from None


def run_lines(run: Run, as_json: bool) -> Iterator[str]:
    """Ledger, records and layers of a run."""
    if as_json:
        stages = [{"stage": stage, **counts} for stage, counts in run.ledger()]
        yield json.dumps({"complete": run.state.complete, "records": run.records(), "ledger": stages})
        return
    yield f"{run.out}: {'complete' if run.state.complete else 'NOT complete: run the same command again'}, seed {run.state.seed}"
    yield from funnel_lines(run.ledger())
    others = {
        name: n
        for name, n in run.records().items()
        if not name.startswith(("kept", "dropped", "failed", "rows"))
    }
    if others:
        yield "counted beside rows: " + ", ".join(f"{name} {n:,}" for name, n in others.items())
    yield from damage_lines(run)
    yield from shard_lines(run)
    yield "layers in force:"
    for stage in run.state.stages:
        yield f"  {stage.name:<24} {stage.kind:<10} {stage.folder}"


def run_rows(
    run: Run, columns: list[str] | None, which: str, reason: str | None, rows: int, as_json: bool
) -> Iterator[str]:
    """The first rows of a run that fit, with columns of any layer; a reason may be written as the ledger prints it."""
    import pyarrow.compute as pc

    if reason:
        reason = known_reason(run, reason)
    names = columns or ["url", "stage", "reason"]
    asked = [*names, *(["reason"] if reason and "reason" not in names else [])]
    found: list[dict[str, Any]] = []
    for table in run.tables(asked, "dropped" if reason else which):
        if reason:
            table = table.filter(pc.equal(table["reason"], reason))
        found += table.slice(0, rows + 1 - len(found)).select(names).to_pylist()
        if len(found) > rows:
            break
    yield from table_lines(found[:rows], as_json)
    if len(found) > rows and not as_json:
        yield f"... and more: --rows {10 * rows} shows up to {10 * rows:,} of them; --json prints whole values"


def failed_lines(run: Run, rows: int, as_json: bool) -> Iterator[str]:
    """Failed rows of all layers in force, in the order of stages and partitions."""
    found = run.failures()
    if as_json:
        yield from (json.dumps(asdict(row), ensure_ascii=False) for row in found)
        return
    first = list(itertools.islice(found, rows + 1))
    names = ("stage", "reason", "url", "file", "offset")
    yield from table_lines([{name: getattr(row, name) for name in names} for row in first[:rows]], False)
    if len(first) > rows:
        yield f"... and more: --rows {10 * rows} shows up to {10 * rows:,} of them; --json prints all"


def known_reason(run: Run, wanted: str) -> str:
    """A reason of the run's ledger, named with or without the `dropped.` that stands before it there."""
    names = [name for _, counts in run.ledger() for name in counts]
    known = [name.partition(".")[2] for name in names if name.startswith(("dropped.", "failed."))]
    if wanted in known:
        return wanted
    bare = wanted.removeprefix("dropped.").removeprefix("failed.")
    if bare not in known:
        raise InputError(f"no page of {run.out} left for the reason {wanted!r}; {suggestion(bare, known)}")
    return bare


def document_lines(run: Run, wanted: str, as_json: bool) -> Iterator[str]:
    from corpusmill.pipeline.run import describe_document

    described = describe_document(run, wanted)
    if as_json:
        yield json.dumps({key: plain(value) for key, value in described.items()}, ensure_ascii=False)
        return
    first = ("id", "url", "state", "stage", "reason")
    for key in first:
        value = STATES[described[key]] if key == "state" and key in described else described.get(key)
        if value is not None:
            yield f"{key:<28} {plain(value)}"
    for line in missed_lines(run, described):
        yield f"{'missed':<28} {line}"
    for key, value in described.items():
        if value is not None and key not in first:
            text, most = str(plain(value)), 64 if isinstance(value, bytes) else 2000
            yield f"{key:<28} {text if len(text) <= most else text[:most] + ' ...'}"


def missed_lines(run: Run, described: Mapping[str, Any]) -> Iterator[str]:
    """Each bound that a page missed, with its value: the first of a filter is the page's reason there."""
    for stage in run.stages("judge"):
        hit = described.get(f"cuts_hit@{stage.name}") or 0
        for bit, (rule, cut) in enumerate(stage.own["fields"]["cuts"]):
            if hit >> bit & 1:
                value = described.get(cut["measure"])
                bounds = {name: cut[name] for name in BOUNDS if cut[name] is not None}
                wanted = ", ".join(f"{name} {figure(bound)}" for name, bound in bounds.items())
                yield f"{rule}: {cut['measure']} is {figure(value)}, wanted {wanted}"
