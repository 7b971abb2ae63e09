"""What all rounds stand on: one crawl, one recipe, the bytes and the seconds of runs that nothing disturbed."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runs import RECIPE, command, hashes, inputs, write_recipe

from chaos.processes import Running

PAGES = 200
WORKERS = 2

BOUNDED = RECIPE.replace("{with: trafilatura}", "{with: trafilatura, cpu_s: 2, memory_mb: 768}")
"""A page that hangs costs two CPU seconds, not thirty."""


@dataclass
class Ground:
    """`reference` is OUT of an undisturbed run; `seconds` and `marks` (event, stage -> seconds from the start) are of one with WORKERS."""

    folder: Path
    crawl: Path
    recipe: Path
    reference: Path
    seconds: float = 0.0
    marks: dict[tuple[str, str], float] = field(default_factory=dict)
    bytes_of: dict[str, str] = field(default_factory=dict)
    hostile: dict[str, str] = field(
        default_factory=dict
    )  # the same of a run in which the marks of hostile.py come true
    hostile_problems: list[str] = field(default_factory=list)

    def start(
        self,
        out: Path | str,
        before: Callable[[], None] | None = None,
        environment: Mapping[str, str] | None = None,
        workers: int = WORKERS,
    ) -> Running:
        """The command, always the same; `before` runs in its process first. CLUSTER in the environment: on that Ray."""
        cluster = (environment or {}).get("CLUSTER")
        how = ["--ray", cluster] if cluster else ["--workers", str(workers)]
        return Running(
            command("run", self.recipe, "--out", out, *inputs(self.crawl), *how), environment, before
        )

    def hashes(self, out: Path) -> dict[str, str]:
        return hashes(out)

    def learn(self) -> list[str]:
        """Run once more with WORKERS, for seconds and moments; what differs from the reference."""
        out = self.folder / "learned"
        run = self.start(out)
        code = run.end()
        problems = [] if code == 0 else [f"the undisturbed run ended with {code}:\n{run.words()}"]
        self.remember(run.events, run.seconds)
        problems += self.differences(out)
        shutil.rmtree(out, ignore_errors=True)
        return problems

    def remember(self, events: Iterable[tuple[float, dict[str, Any]]], seconds: float) -> None:
        """The bytes of the reference, and how a run of this command went: (seconds from its start, event) and all its seconds."""
        self.bytes_of = hashes(self.reference)
        self.seconds = seconds
        for at, event in events:
            self.marks.setdefault((event["event"], event.get("stage", "")), at)

    def differences(self, out: Path, wanted: Mapping[str, str] | None = None) -> list[str]:
        """Files that are missing, too many or of other bytes (at most five are named); `wanted` is what an undisturbed run has."""
        found, wanted = hashes(out), self.bytes_of if wanted is None else wanted
        lines = [f"missing: {name}" for name in sorted(wanted.keys() - found.keys())]
        lines += [f"too many: {name}" for name in sorted(found.keys() - wanted.keys())]
        lines += [
            f"other bytes: {name}"
            for name in sorted(wanted.keys() & found.keys())
            if found[name] != wanted[name]
        ]
        return lines[:5]


def make_ground(folder: Path) -> Ground:
    """Crawl, recipe and a reference by a single worker, in a new folder."""
    from chaos import hostile
    from corpusmill.jobs.demo_pages import make_demo_crawl

    crawl = folder / "crawl"
    crawl.mkdir(parents=True)
    make_demo_crawl(crawl, PAGES)
    hostile.write_pages(crawl / "crawl-hostile.warc.gz")
    reference = folder / "undisturbed"
    recipe = write_recipe(folder, BOUNDED)
    run = Running(command("run", recipe, "--out", reference, *inputs(crawl), "--workers", "1"))
    if run.end() != 0:
        raise SystemExit(f"the run that nothing disturbs fails:\n{run.words()}")
    return Ground(folder, crawl, recipe, reference)


def unbalanced(out: Path) -> list[str]:
    """Ledger stages whose rows in are not kept + dropped + failed, or not what the stage before kept."""
    from corpusmill.pipeline.run import Run

    run = Run(out)
    before = run.manifest("documents").rows
    lines = []
    for stage, counts in run.ledger():
        left = sum(n for name, n in counts.items() if name.startswith(("dropped.", "failed.")))
        if counts["in"] != before or counts["in"] != counts["kept"] + left:
            lines.append(f"ledger of {stage} does not add up: {counts}")
        before = counts["kept"]
    return lines


def redone_seconds(out: Path) -> float:
    """CPU seconds of units that were done more than once, and of attempts that came to nothing, by OUT/metrics."""
    total = sum(line["cpu_seconds"] for line in lines_of(out / "metrics" / "run" / "lost.jsonl"))
    for path in sorted((out / "metrics").glob("*.jsonl")):
        times: Counter[tuple[str, int]] = Counter()
        for line in lines_of(path):
            share = line["cpu_seconds"] / max(1, len(line["units"]))
            for unit in line["units"]:
                total += share * (times[line.get("folder", ""), unit] > 0)
                times[line.get("folder", ""), unit] += 1
    return float(total)


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a metrics file but those that a full disk or a kill cut."""
    if not path.is_file():
        return
    for line in path.read_text(errors="replace").splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value
