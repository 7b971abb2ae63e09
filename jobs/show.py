"""Print a run and its ledger, one document, a table, a shard, a plan or a cursor. Shards need the core install only."""

from __future__ import annotations

import argparse
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from corpusmill.pipeline.engine.place import Place, place_of
from corpusmill.pipeline.engine.state import RECIPE, RUN
from corpusmill.pipeline.errors import InputError
from corpusmill.pipeline.registry import suggestion

if TYPE_CHECKING:
    from corpusmill.pipeline.run import Run

CELL = 60
"""Characters of a value in a printed table."""
STATES = ("kept", "dropped", "failed")
"""The states of the ledger by their numbers."""


def show(options: argparse.Namespace) -> Iterator[str]:
    """Lines for `corpusmill show`."""
    place = place_of(options.path)
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


def file_lines(path: Place, rows: int, columns: list[str] | None, as_json: bool) -> Iterator[str]:
    """A table, a shard, a plan or a cursor, by its name."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        file = pq.ParquetFile(path.random())
        _need_columns(path, file.schema_arrow, columns)
        head = next(file.iter_batches(batch_size=rows, columns=columns), None)
        yield f"{file.metadata.num_rows:,} rows, {file.metadata.num_row_groups} row groups"
        yield from table_lines(head.to_pylist() if head is not None else [], as_json)
    elif path.suffix == ".arrow":
        yield from arrow_lines(path, rows, columns, as_json)
    else:
        yield from stream_lines(path)


def _need_columns(path: Place, schema: pa.Schema, columns: list[str] | None) -> None:
    unknown = [name for name in columns or () if name not in schema.names]
    if unknown:
        raise InputError(f"{path} has no column {unknown[0]!r}; it has {', '.join(schema.names)}")


def closing_lines(run: Run) -> list[str]:
    """What a finished run ends with: the whole way in one line a stage, and where things are."""
    lines = [
        "",
        *funnel_lines(run.ledger()),
        *shard_lines(run),
        *damage_lines(run),
        "",
        f"documents and layers: {run.out}",
        f"look: corpusmill show {run.out} --which dropped --columns url,stage,reason",
    ]
    if any(name.startswith("failed.") for _, counts in run.ledger() for name in counts):
        lines.append(f"failed rows: corpusmill show {run.out} --failed")
    mixed = any(stage.own["operation"].startswith("corpusmill.mixing.") for stage in run.state.stages)
    return [*lines, *mixture_lines(run.out)] if mixed else lines


def shard_lines(run: Run) -> list[str]:
    """What sharding did with the documents that every stage kept: tokenized, empty, or kept out by the audit of tokens."""
    lines = []
    for stage in run.state.stages:
        if stage.own["operation"] == "corpusmill.shards.scatter:Scatter":
            manifest = run.manifest(stage.name)
            left = {
                name: n for name, n in manifest.counts.items() if n and name.startswith(("empty", "kept_out"))
            }
            rest = "".join(f", {n:,} {name}" for name, n in sorted(left.items()))
            lines.append(f"{stage.name.partition('.')[0]}: {manifest.rows:,} documents in shards{rest}")
    return lines


def mixture_lines(out: Place) -> list[str]:
    """The stream of a run: its plan and what each component weighs in it."""
    from corpusmill.shards.layout import PLAN_FILE
    from corpusmill.shards.plan import read_plan

    path = out / "shards" / PLAN_FILE
    plan = read_plan(path)
    rows = {component.name: component.rows for component in plan.components}
    lines = [f"stream: {path}"]
    for phase in plan.phases:
        shares = [
            f"{name} {ppb / 1e7:.2f} % (has {rows[name]:,} rows)" for name, ppb in phase.weights_ppb.items()
        ]
        lines.append(f"  from sample {phase.start:,}: {', '.join(shares)}")
    return lines


def funnel_lines(ledger: Sequence[tuple[str, Mapping[str, int]]]) -> list[str]:
    """One line a stage with all its reasons below; the sums of the ledger."""
    lines = []
    for stage, counts in ledger:
        entered, kept = counts["in"], counts["kept"]
        lines.append(
            f"{stage:<14} {entered:>10,} in {kept:>10,} kept {100 * kept / entered if entered else 0:6.1f} %"
        )
        reasons = Counter({name: n for name, n in counts.items() if name.startswith(("dropped.", "failed."))})
        lines += [
            f"{'':<16}{n:>8,}  {name}"
            for name, n in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        ]
    return lines


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


def damage_lines(run: Run, most: int = 20) -> Iterator[str]:
    """Files that were refused and places that could not be read, with their offsets."""
    lines = []
    for result in run.manifest("documents").results.values():
        refused = [kind.partition(".")[2] for kind in result.counts if kind.startswith("file_refused.")]
        lines += [f"  {result.extra['file']}: refused, {kind} files are not read" for kind in refused]
        for place in result.extra.get("damage", ()):
            lines.append(
                f"  {place['file']}: bytes {place['offset']:,} to {place['end']:,}: {place['reason']}"
            )
    if lines:
        yield "could not be read:"
        yield from lines[:most]
        if len(lines) > most:
            yield f"  ... and {len(lines) - most} more (column `extra` of the documents' _manifest.parquet)"


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
                bounds = {
                    name: cut[name]
                    for name in ("at_least", "at_most", "one_of", "none_of")
                    if cut[name] is not None
                }
                wanted = ", ".join(f"{name} {figure(bound)}" for name, bound in bounds.items())
                yield f"{rule}: {cut['measure']} is {figure(value)}, wanted {wanted}"


def figure(value: Any) -> Any:
    """A number without the `.0` of a whole one, and in as many digits as tell it from a bound."""
    return f"{value:.12g}" if isinstance(value, float) else value


def arrow_lines(path: Place, rows: int, columns: list[str] | None, as_json: bool) -> Iterator[str]:
    """An Arrow IPC file: its schema's metadata and first rows."""
    with pa.ipc.open_file(path.mapped()) as reader:
        _need_columns(path, reader.schema, columns)
        count = sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))
        yield f"{count:,} rows in {reader.num_record_batches} blocks"
        for key, value in (reader.schema.metadata or {}).items():
            yield f"  {key.decode()}: {value.decode()[:200]}"
        if reader.num_record_batches:
            head = pa.Table.from_batches([reader.get_batch(0)]).slice(0, rows)
            yield from table_lines((head.select(columns) if columns else head).to_pylist(), as_json)


def stream_lines(path: Place) -> Iterator[str]:
    """A plan (components, weights, phases) or a cursor."""
    if path.suffix == ".json" and path.is_file() and path.name != "plan.json":
        yield from (f"{key}: {value}" for key, value in json.loads(path.read_text(encoding="utf-8")).items())
        return
    for place in (path, path / "plan.json", path / "shards" / "plan.json"):
        if place.is_file():
            yield json.dumps(json.loads(place.read_text(encoding="utf-8")), indent=1)
            return
    if (path / RECIPE).is_file():
        raise InputError(f"{path}: no stage of this run is done yet; run the same command again to go on")
    raise InputError(
        f"{path}: nothing to show; name a run's folder, a .parquet or .arrow file, plan.json or a cursor"
    )


def plain(value: Any) -> Any:
    """A value for JSON and for people: bytes as hex, dates in ISO form."""
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, datetime) else value


def table_lines(rows: Iterable[Mapping[str, Any]], as_json: bool) -> Iterator[str]:
    """Aligned columns, one line a row; or JSON lines with whole values."""
    values = [{key: plain(value) for key, value in row.items()} for row in rows]
    if as_json:
        yield from (json.dumps(row, ensure_ascii=False, default=plain) for row in values)
        return
    if not values:
        yield "no rows"
        return
    cells = [[_cell(row[key]) for key in row] for row in values]
    names = list(values[0])
    widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(names)]
    for line in [names, *cells]:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _cell(value: Any) -> str:
    text = " ".join(str("" if value is None else value).split())
    return "".join(ch if ch.isprintable() else "\N{REPLACEMENT CHARACTER}" for ch in text)[:CELL]
