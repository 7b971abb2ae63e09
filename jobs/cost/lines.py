"""Estimates and the comparison at a run's end as lines for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from corpusmill.jobs.cost.actual import SECONDS_AN_HOUR, Used

if TYPE_CHECKING:
    from corpusmill.jobs.cost.estimate import Estimate
    from corpusmill.jobs.cost.fit import Interval

HIDDEN_SHARE = 0.002
"""Stages below this share of the CPU seconds are one line together."""


def size_text(count: float) -> str:
    """`1.2 GB`."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} PB"


def time_text(seconds: float) -> str:
    """`45 s`, `12 min`, `7.5 h` or `12 d`."""
    if seconds < 120:
        return f"{seconds:,.1f} s"
    if seconds < 2 * SECONDS_AN_HOUR:
        return f"{seconds / 60:,.0f} min"
    return f"{seconds / SECONDS_AN_HOUR:,.1f} h" if seconds < 1e6 else f"{seconds / 86_400:,.0f} d"


def core_text(seconds: float) -> str:
    """`39.3 core-s` or `1,234 core-h`."""
    if seconds < SECONDS_AN_HOUR:
        return f"{seconds:,.1f} core-s"
    return f"{seconds / SECONDS_AN_HOUR:,.1f} core-h"


def price_text(amount: float) -> str:
    """Two decimals, and more for what is less than 1."""
    return f"{amount:,.2f}" if amount >= 1 or not amount else f"{amount:.2g}"


def _range(value: Interval, text: Any) -> str:
    return f"{text(value.expected)} ({text(value.low)} to {text(value.high)})"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def estimate_lines(made: Estimate) -> list[str]:
    """The whole of an estimate; what `--json` has and this has not are the small stages."""
    lines = [
        f"inputs: {made.partitions:,} partitions",
        *(
            f"  {group.source:<16} {group.kind:<16} {group.files:>8,} files {group.partitions:>8,} partitions  {size_text(group.size_bytes)}"
            for group in made.inputs
        ),
        f"sample: {made.sample_documents:,} documents at {made.sample_places:,} places, seed {made.seed}",
        f"documents: {_range(made.documents, _count)}",
        "kept of all documents after",
        *(
            f"  {kept.stage:<16} {'at most about ' if kept.upper_bound else ''}{_range(kept.share, _percent)}"
            for kept in made.kept
        ),
    ]
    if any(kept.upper_bound for kept in made.kept):
        lines.append(
            "  duplicates grow with the corpus: a sample holds few of them, so what dedup leaves is an upper bound"
        )
    return [
        *lines,
        *_stage_lines(made),
        *_disk_lines(made),
        *_dedup_lines(made),
        *_cost_lines(made),
        *(f"note: {note}" for note in made.notes),
    ]


def _stage_lines(made: Estimate) -> list[str]:
    lines = [f"{'stage':<24}{'units':>9}  {'CPU':<44}{'wall':>9}  disk"]
    rest = [0.0, 0.0, 0.0]
    for stage in made.stages:
        cpu = stage.cpu_seconds
        if cpu.expected < HIDDEN_SHARE * made.cpu_seconds.expected:
            rest = [rest[0] + cpu.expected, rest[1] + stage.wall_seconds, rest[2] + stage.size_bytes.expected]
            continue
        lines.append(
            f"{stage.name:<24}{stage.units:>9,}  {_range(cpu, core_text):<44}{time_text(stage.wall_seconds):>9}  "
            f"{size_text(stage.size_bytes.expected)}{' (temporary)' if stage.temporary else ''}"
        )
    if rest[1]:
        lines.append(
            f"{'all others':<24}{'':>9}  {core_text(rest[0]):<44}{time_text(rest[1]):>9}  {size_text(rest[2])}"
        )
    startup = sum(stage.startup_seconds for stage in made.stages)
    lines.append(f"every worker spends {time_text(startup)} once on imports, models and kernels")
    return lines


def _disk_lines(made: Estimate) -> list[str]:
    lines = [
        "disk: " + ", ".join(f"{area} {_range(size, size_text)}" for area, size in made.final_bytes.items())
    ]
    lines.append(f"  and up to {size_text(made.peak_temporary_bytes)} of temporary files at one time")
    lines += [
        f"shuffle {each.stage}: {size_text(each.size_bytes)} in {each.files:,} files of {each.slices:,} slices, {size_text(each.slice_bytes)} each"
        for each in made.shuffles
    ]
    lines.append(
        f"memory: {size_text(made.peak_worker_bytes)} a worker, {size_text(made.peak_driver_bytes)} the driver"
    )
    asked = made.requests
    if asked.input_gets:
        lines.append(
            f"requests to the inputs' store: {asked.input_lists:,} LIST, {asked.input_looks:,} HEAD, {asked.input_gets:,} GET"
        )
    lines.append(f"objects put, where OUT lies on a store: {asked.out_puts:,}")
    return lines


def _dedup_lines(made: Estimate) -> list[str]:
    lines = []
    for curve in made.curves:
        lines.append(
            f"{curve.stage}: {curve.bands} bands of {curve.rows} rows make a pair a candidate, at Jaccard similarity"
        )
        marks = {similarity: " <- at_least" for similarity in [f"{curve.at_least:g}"]}
        lines += [
            f"  {similarity:>5}  {chance:.4f}{marks.get(similarity, '')}"
            for similarity, chance in curve.curve.items()
        ]
    return lines


def _cost_lines(made: Estimate) -> list[str]:
    wall = f"about {time_text(made.wall_seconds)} with {made.workers:,} workers"
    lines = [f"CPU: {_range(made.cpu_seconds, core_text)}; {wall}, the last tasks of each stage included"]
    if made.price_per_core_hour is not None and made.cost is not None:
        held = made.workers * made.wall_seconds / SECONDS_AN_HOUR * made.price_per_core_hour
        lines.append(
            f"cost: {_range(made.cost, price_text)} for the work, {price_text(held)} for {made.workers:,} cores held throughout"
        )
    return lines


def off_by(expected: float, actual: float) -> str:
    """`x1.12`: the larger over the smaller; `-` where one is nothing."""
    if expected <= 0 or actual <= 0:
        return "-"
    factor = max(expected, actual) / min(expected, actual)
    return f"x{factor:.2f} {'more' if actual > expected else 'less'}" if factor >= 1.005 else "x1.00"


def summary_lines(used: Used, estimate: Mapping[str, Any] | None, price: float | None) -> list[str]:
    """Core-hours a stage, kept shares and bytes, each beside its estimate where there is one; what was wasted; the cost."""
    lines = comparison_lines(used, estimate) if estimate else []
    unmeasured = sum(stage.units - stage.measured for stage in used.stages)
    lines.append(
        f"CPU: {core_text(used.cpu_seconds)} workers + {core_text(used.driver_seconds)} driver"
        f" + {core_text(used.wasted_seconds)} wasted by {used.failed_attempts:,} failed attempts"
    )
    if unmeasured:
        lines.append(
            f"  without {unmeasured:,} units that were taken over or whose driver was killed before it noted them"
        )
    if price is not None:
        lines.append(f"cost: {price_text(used.cost(price))} at {price:g} a core-hour")
    return lines


def comparison_lines(used: Used, estimate: Mapping[str, Any]) -> list[str]:
    """A table: estimate, actual, off by."""
    rows: list[Sequence[str]] = [("", "estimate", "actual", "off by")]
    known = {stage["name"]: stage for stage in estimate["stages"]}
    workers, whole = estimate["workers"], max(used.cpu_seconds, 1e-9)

    def row(name: str, expected: float, actual: float, text: Any) -> None:
        rows.append((name, text(expected), text(actual), off_by(expected, actual)))

    for stage in used.stages:
        if stage.name in known:
            guess = known[stage.name]
            starts = guess["startup_seconds"] * min(workers, max(1, guess["tasks"]))
            if stage.cpu_seconds > HIDDEN_SHARE * whole:
                row(
                    f"CPU {stage.name}",
                    guess["cpu_seconds"]["expected"] + starts,
                    stage.cpu_seconds,
                    core_text,
                )
    row("CPU", estimate["cpu_seconds"]["expected"], used.cpu_seconds, core_text)
    row("documents", estimate["documents"]["expected"], used.documents, _count)
    for kept in estimate["kept"]:
        if kept["stage"] in used.kept:
            bound = " (upper bound)" if kept["upper_bound"] else ""
            row(f"kept {kept['stage']}{bound}", kept["share"]["expected"], used.kept[kept["stage"]], _percent)
    for area, size in estimate["final_bytes"].items():
        actual = sum(s.size_bytes for s in used.stages if s.area == area and not s.temporary)
        row(f"disk {area}", size["expected"], actual, size_text)
    widths = [max(len(line[i]) for line in rows) for i in range(4)]
    return [
        f"{line[0]:<{widths[0]}}  {line[1]:>{widths[1]}}  {line[2]:>{widths[2]}}  {line[3]}".rstrip()
        for line in rows
    ]
