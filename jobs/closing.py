"""What a run ends with, and `corpusmill show OUT` prints again: the way of its documents, what could not be read, the mixture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from corpusmill.jobs.export import COMPARISON
from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.engine.silence import barren_files, nothing_kept

if TYPE_CHECKING:
    from corpusmill.pipeline.run import Run


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
    last = {stage.own["operation"] for stage in run.state.stages[-1:]}
    mixed = "corpusmill.mixing.stage:WriteMixture" in last
    lost = nothing_kept(run.ledger(), run.out)
    if COMPARISON in last:
        from corpusmill.jobs.ablate import ablation_lines, read_result

        lines += ["", *ablation_lines(read_result(run))]
    return [*lines, *(mixture_lines(run.out) if mixed else []), *([f"warning: {lost}"] if lost else [])]


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


def damage_lines(run: Run, most: int = 20) -> Iterator[str]:
    """Files that were refused and places that could not be read, with their offsets; files that gave no document."""
    results = run.manifest("documents").results
    barren = [f"  {one}" for one in barren_files(results) if not one.refused]
    yield from _shown("gave no document:", barren, most)
    lines = []
    for result in results.values():
        refused = [kind.partition(".")[2] for kind in result.counts if kind.startswith("file_refused.")]
        lines += [f"  {result.extra['file']}: refused, {kind} files are not read" for kind in refused]
        for place in result.extra.get("damage", ()):
            lines.append(
                f"  {place['file']}: bytes {place['offset']:,} to {place['end']:,}: {place['reason']}"
            )
    yield from _shown("could not be read:", lines, most)


def _shown(head: str, lines: Sequence[str], most: int) -> Iterator[str]:
    if lines:
        yield head
        yield from lines[:most]
        if len(lines) > most:
            yield f"  ... and {len(lines) - most} more (the documents' _manifest.parquet has all)"


def mixture_lines(out: Place) -> list[str]:
    """The stream of a run: its plan and what each component weighs in it."""
    from corpusmill.shards.layout import PLAN_FILE
    from corpusmill.shards.plan_file import read_plan

    path = out / "shards" / PLAN_FILE
    plan = read_plan(path)
    rows = {component.name: component.epoch_rows for component in plan.components}
    lines = [f"stream: {path}"]
    for phase in plan.phases:
        shares = [
            f"{name} {ppb / 1e7:.2f} % (has {rows[name]:,} rows)" for name, ppb in phase.weights_ppb.items()
        ]
        lines.append(f"  from sample {phase.start:,}: {', '.join(shares)}")
    return lines
