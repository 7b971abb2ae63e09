"""What all rounds stand on: one crawl, one recipe, the bytes and the seconds of runs that nothing disturbed."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runs import command, hashes, inputs, write_recipe

from chaos.processes import Running

PAGES = 160
WORKERS = 2


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

    def start(
        self,
        out: Path,
        before: Callable[[], None] | None = None,
        ray: Mapping[str, str] | None = None,
    ) -> Running:
        """The command, always the same; `before` runs in its process first, `ray` is the environment of a cluster."""
        how = ["--workers", str(WORKERS)] if ray is None else ["--ray", ray["CLUSTER"]]
        return Running(command("run", self.recipe, "--out", out, *inputs(self.crawl), *how), ray, before)

    def learn(self) -> list[str]:
        """Run once more with WORKERS, for seconds and moments; what differs from the reference."""
        self.bytes_of = hashes(self.reference)
        out = self.folder / "learned"
        run = self.start(out)
        code = run.end()
        problems = [] if code == 0 else [f"the undisturbed run ended with {code}:\n{run.words()}"]
        self.seconds = run.seconds
        for at, event in run.events:
            self.marks.setdefault((event["event"], event.get("stage", "")), at)
        problems += self.differences(out)
        shutil.rmtree(out, ignore_errors=True)
        return problems

    def differences(self, out: Path) -> list[str]:
        """Files that are missing, too many or of other bytes (at most five are named)."""
        found, wanted = hashes(out), self.bytes_of
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
    from corpusmill.jobs.demo_pages import make_demo_crawl

    crawl = folder / "crawl"
    crawl.mkdir(parents=True)
    make_demo_crawl(crawl, PAGES)
    reference = folder / "undisturbed"
    recipe = write_recipe(folder)
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
    """Seconds of tasks whose units were done more than once, or in a later attempt than the first, by OUT/metrics."""
    total = 0.0
    for path in sorted((out / "metrics").glob("*.jsonl")):
        times: Counter[int] = Counter()
        for line in path.read_text(errors="replace").splitlines():
            try:
                value = json.loads(line)
            except ValueError:  # cut by a full disk
                continue
            share = value["seconds"] / max(1, len(value["units"]))
            for unit in value["units"]:
                total += share * (value["attempt"] - 1 + (times[unit] > 0))
                times[unit] += 1
    return total
