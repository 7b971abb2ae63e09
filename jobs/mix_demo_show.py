"""What `make mix-demo` prints of a search: what it cost, what is beyond doubt, what the verdict means, what the stream read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from corpusmill.jobs.demo_show import lines, table
from corpusmill.jobs.search_report import costs
from corpusmill.jobs.search_tables import LINES
from corpusmill.jobs.searches import READ, read_verdict
from corpusmill.jobs.stream_counts import AT_ANY, IN_WINDOW, Counted

if TYPE_CHECKING:
    from rich.console import Console

    from corpusmill.pipeline.run import Run


def spent(run: Run) -> str:
    """What proxies took, by the run's metrics."""
    by_stage = {each["stage"]: each for each in costs(run, "mix")}
    made = [
        f"{by_stage[stage]['units']} {what} took {by_stage[stage]['cpu_seconds']:,.0f} CPU s ({by_stage[stage]['cpu_seconds_a_unit']:.2f} each)"
        for stage, what in (
            ("mix.runs", "proxies of the design"),
            ("mix.runs2", "of its second round"),
            ("mix.trials", "of the verdict"),
        )
        if stage in by_stage
    ]
    return ", ".join(made)


def show_search(console: Console, run: Run) -> None:
    """The stacks, what ablation left no doubt of, and the candidates; `mix fit` prints the rest."""
    fit = READ["fit"](run, "mix")
    sure = [
        each for each in fit["effects"] if each["low"] is not None and (each["low"] > 0 or each["high"] < 0)
    ]
    stacks = [each for each in fit["table"] if each["family"] == "stack"]
    lines(console, spent(run), "", "How well the fits predict mixtures that they have not seen:")
    lines(console, *LINES["fit"]({**fit, "table": stacks, "effects": sure}), "")
    if not sure:
        lines(console, "No component was missed, or was too much, beyond doubt.", "")
    lines(console, *LINES["propose"](READ["propose"](run, "mix")))


def sentence(run: Run) -> str:
    """What the verdict means, for someone who meets one for the first time."""
    evidence = read_verdict(run, "mix")["evidence"]
    ships = f"The stream reads by {evidence['weights']}."
    return {
        "verified": f"Better than every baseline on seeds that the search had not seen, at the larger proxy. {ships}",
        "no_evidence": f"Not shown to be better than every baseline, so the best baseline ships, and that is a result. {ships}",
        "refused": f"What was proposed lowers a target that is protected. {ships}",
        "order_flips": f"One size of proxy likes it, the other does not: neither can be trusted with it. {ships}",
    }[evidence["verdict"]]


def show_counts(console: Console, counted: Sequence[Counted], count: int) -> list[str]:
    ends = [end for end in counted[0].samples if end < count] + [count]
    rows = []
    for each in counted:
        read = [
            f"{n:,} ({each.weight_ppb * end / 1e9:,.1f})" for n, end in zip(each.rows, ends, strict=False)
        ]
        rows.append(
            [each.component, f"{each.weight_ppb / 1e7:.2f} %", *read, f"{each.worst_prefix:.2f}", f"{each.worst_window:.2f}"]
        )  # fmt: skip
    headings = [f"first {end:,}" for end in ends[:-1]] + [f"all {count:,}"]
    table(console, ["component", "weight", *headings, "worst at a sample", "in a window"], rows)
    broken = [line for each in counted for line in each.broken()]
    lines(
        console,
        "Rows that were read, and in brackets what the weight says. Rows were told by their bytes; the few that two components have, by the plan.",
        *(broken or [f"every one of {count:,} samples and every window is within the bounds ({AT_ANY} and {IN_WINDOW} rows)"]),
    )  # fmt: skip
    return broken
