"""How far off `corpusmill estimate` is: estimates from samples of several sizes beside the run that they are for.

    python benchmarks/estimates.py [--quick] [--input SOURCE=PATH ...] [--recipe fineweb] [--documents 250,1000] [--workers 2]

Without --input a crawl is made on the spot (jobs/demo_pages.py; 2,400 pages, 300 with --quick). Estimates and run take turns, each in a
process of its own, so that a machine which slows down in between is seen in all. Prints the table of docs/estimate.md; the last line
is one JSON object: `ratios` are factors (the larger over the smaller), `checks` whether the run lies within the bounds. A machine with
other work shows in the CPU seconds: run it on a quiet one (2,400 pages: about three minutes on two cores).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpusmill.jobs.cost.actual import Used, used
from corpusmill.jobs.cost.lines import size_text
from corpusmill.jobs.demo_pages import make_demo_crawl
from corpusmill.pipeline.engine.metrics import read_lines
from corpusmill.pipeline.run import Run

Text = Callable[[float], str]


@dataclass(frozen=True)
class Row:
    """One figure of a run and what an estimate said of it; `low` and `high` are None for figures without bounds."""

    key: str
    name: str
    text: Text
    actual: float
    expected: float
    low: float | None = None
    high: float | None = None

    @property
    def factor(self) -> float | None:
        """The larger over the smaller; None where one is nothing."""
        if min(self.actual, self.expected) <= 0:
            return None
        return max(self.actual, self.expected) / min(self.actual, self.expected)

    @property
    def within(self) -> bool | None:
        if self.low is None or self.high is None:
            return None
        rounding = 1e-9 * self.actual
        return self.low - rounding <= self.actual <= self.high + rounding

    def cell(self) -> str:
        bounds = (
            ""
            if self.low is None or self.high is None
            else f" ({self.text(self.low)} to {self.text(self.high)})"
        )
        factor = "" if self.factor is None else f": {self.factor:.2f}"
        return f"{self.text(self.expected)}{bounds}{factor}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument(
        "--input", action="append", metavar="SOURCE=PATH", help="instead of a crawl made on the spot"
    )
    parser.add_argument("--recipe", default="fineweb")
    parser.add_argument("--documents", help="sizes of the samples, by commas (250,1000; 60 with --quick)")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    sizes = [int(word) for word in (given.documents or ("60" if given.quick else "250,1000")).split(",")]
    with tempfile.TemporaryDirectory(prefix="estimates-") as temporary:
        folder = Path(temporary)
        sources = given.input or made_here(folder / "crawl", 300 if given.quick else 2400)
        arguments = [given.recipe, *(word for source in sources for word in ("--input", source))]
        arguments += ["--workers", str(given.workers)]
        print(json.dumps(compared(folder, arguments, sizes)))


def made_here(folder: Path, pages: int) -> list[str]:
    """The inputs of a crawl of `pages` pages."""
    make_demo_crawl(folder, pages)
    return [f"web={folder}/crawl-*.warc.gz", f"library={folder}/library.jsonl.gz"]


def compared(folder: Path, arguments: Sequence[str], sizes: Sequence[int]) -> dict[str, Any]:
    """Half of the estimates, the run, the other half; the table is printed on the way."""
    out = folder / "out"
    before = sizes[: -(-len(sizes) // 2)]
    estimates = {size: estimated(arguments, size) for size in before}
    began = time.perf_counter()
    corpusmill("run", *arguments, "--out", str(out))
    seconds = time.perf_counter() - began
    estimates.update({size: estimated(arguments, size) for size in sizes[len(before) :]})
    rows = {size: rows_of(Run(out), made, seconds) for size, made in estimates.items()}
    print("\n".join(table(rows, estimates)))
    return {
        "benchmark": "estimates",
        "ratios": {
            f"{row.key}_{size}": None if row.factor is None else round(row.factor, 3)
            for size in sizes
            for row in rows[size]
        },
        "checks": {
            f"{row.key}_{size}_within": row.within
            for size in sizes
            for row in rows[size]
            if row.within is not None
        },
    }


def corpusmill(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "corpusmill.jobs.cli", *words], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"corpusmill {words[0]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def estimated(arguments: Sequence[str], documents: int) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(
        corpusmill("estimate", *arguments, "--sample-documents", str(documents), "--json")
    )
    return made


def rows_of(run: Run, made: dict[str, Any], seconds: float) -> list[Row]:
    """Every figure that a run can be compared in."""
    spent = used(run)

    def row(key: str, name: str, text: Text, actual: float, bounds: dict[str, float]) -> Row:
        return Row(key, name, text, actual, bounds["expected"], bounds["low"], bounds["high"])

    stages = {stage["name"]: stage for stage in made["stages"]}
    extract = stages["documents"]["startup_seconds"] * min(made["workers"], stages["documents"]["tasks"])
    bounds = {name: value + extract for name, value in stages["documents"]["cpu_seconds"].items()}
    worker_peak = max(stage.peak_bytes for stage in spent.stages)
    driver = read_lines(run.out / "metrics" / "run" / "driver.jsonl")
    driver_peak = max(line["peak_rss_bytes"] for line in driver)
    return [
        row("documents", "documents", _count, spent.documents, made["documents"]),
        row("cpu", "CPU, all stages", _seconds, spent.cpu_seconds, made["cpu_seconds"]),
        row("cpu_extract", "CPU, extract", _seconds, _cpu_of(spent, "documents"), bounds),
        *(
            row(
                f"kept_{kept['stage']}",
                f"kept after {kept['stage']}" + (" (upper bound)" if kept["upper_bound"] else ""),
                _percent,
                spent.kept[kept["stage"]],
                kept["share"],
            )
            for kept in made["kept"]
        ),
        *(
            row(f"disk_{area}", f"disk, {area}", size_text, _bytes_of(spent, area), size)
            for area, size in made["final_bytes"].items()
        ),
        Row("wall", "wall time", _seconds, seconds, made["wall_seconds"]),
        Row("worker_memory", "memory of a worker", size_text, worker_peak, made["peak_worker_bytes"]),
        Row("driver_memory", "memory of the driver", size_text, driver_peak, made["peak_driver_bytes"]),
    ]


def _cpu_of(spent: Used, stage: str) -> float:
    return next(each.cpu_seconds for each in spent.stages if each.name == stage)


def _bytes_of(spent: Used, area: str) -> int:
    return sum(stage.size_bytes for stage in spent.stages if stage.area == area and not stage.temporary)


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _seconds(value: float) -> str:
    return f"{value:,.1f} s"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def table(rows: dict[int, list[Row]], estimates: dict[int, dict[str, Any]]) -> list[str]:
    """Markdown: a line a figure, a column an estimate."""
    heads = [f"estimate from {made['sample_documents']:,} documents" for made in estimates.values()]
    lines = [f"| {' | '.join(['', 'run', *heads])} |", "|---" * (len(heads) + 2) + "|"]
    for number, row in enumerate(next(iter(rows.values()))):
        cells = [rows[size][number].cell() for size in rows]
        lines.append(f"| {' | '.join([row.name, row.text(row.actual), *cells])} |")
    return lines


if __name__ == "__main__":
    main()
