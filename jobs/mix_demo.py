"""`make mix-demo`: from one crawl to weights with a verdict, and the stream that reads by them, in minutes.

    OUT/crawl    the crawl of `make demo`, junk that a filter lets through, and a small set that says what is wanted
    OUT/run      the run; OUT/shards.yaml, look.yaml and search.yaml are its recipe as it grows
    OUT/wanted   the small set, tokenized by the run's own tokenizer

Components are topics of the crawl; mixtures are looked at by n-gram counts first, then by small decoders (without torch by counts alone, on
whose word nothing ships). At the end all rows of the stream are counted by component and held against the weights. The verdict is what it is.
106 decoders for 12 components took 806 CPU s on 2 busy cores, the rest about 100; without decoders a crawl of 160 pages takes 33 CPU s.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from corpusmill.jobs import mix_demo_recipe as recipes
from corpusmill.jobs.demo_pages import make_demo_crawl
from corpusmill.jobs.demo_show import console_of, lines, next_steps, table, title
from corpusmill.jobs.mix_demo_progress import ProxyLines
from corpusmill.jobs.mix_demo_show import sentence, show_counts, show_search, spent
from corpusmill.jobs.mix_demo_targets import Held, held_out, importance
from corpusmill.jobs.mix_demo_texts import write_texts
from corpusmill.jobs.run import cores, default_reporter, run_recipe
from corpusmill.jobs.search_page import write_report
from corpusmill.jobs.search_tables import LINES
from corpusmill.jobs.searches import READ, read_verdict
from corpusmill.jobs.stream_counts import count_stream
from corpusmill.pipeline.errors import CorpusmillError
from corpusmill.pipeline.recipe import load_recipe
from corpusmill.shards.mixture import BORDER
from corpusmill.shards.plan_file import read_plan

if TYPE_CHECKING:
    from rich.console import Console

    from corpusmill.pipeline.run import Run

SCREEN = "{{kind: screen, learnt: {}}}"
DECODER = "{{kind: decoder, size: {}, tokens: {}}}"

LOOK = recipes.Sizes(SCREEN.format(4000), (SCREEN.format(8000), SCREEN.format(16000)), 120, 5, 8000)
TRAINED = recipes.Sizes(
    DECODER.format("64k", 80_000),
    (DECODER.format("64k", 160_000), DECODER.format("250k", 160_000)),
    40,
    5,
    8000,
)
"""A first look at many mixtures, and the search: about 40 trained at the smallest size, the best against baselines at two larger ones."""

RUNS_EACH, RUNS_MORE = 3, 6
"""Runs that a design needs: two a component for the ablation table and one for the fit, and the baselines."""

WANTED = "wanted"
WANTED_WEIGHT = 2.0
GENERATED = ("generated",)
JUNK = ("scrambled", *GENERATED)
OVERLAP = 0.1  # of a target's tokens that may stand in a component: the search's own limit

WINDOWS = (64, 1000, BORDER)
BATCH = 16


@dataclass(frozen=True)
class Demo:
    """Where, how large, and by whom."""

    out: Path
    pages: int
    documents: int  # of scrambled and of generated text each
    wanted: int  # documents of what is wanted
    topics: int
    workers: int
    look: recipes.Sizes
    search: recipes.Sizes | None  # None: the look is all there is


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mix-demo", description="Mixture weights by ablation, on the spot.")
    parser.add_argument("--out", type=Path, default=Path("demo-out/mix"))
    parser.add_argument("--pages", type=int, default=1400)
    parser.add_argument("--topics", type=int, default=8)
    parser.add_argument("--mixtures", type=int, default=LOOK.runs, help="of the first look (default: 120)")
    parser.add_argument("--workers", type=int, default=cores())
    parser.add_argument("--screen", action="store_true", help="train nothing: n-gram counts alone")
    options = parser.parse_args(arguments)
    trained = None if options.screen or find_spec("torch") is None else TRAINED
    part = max(1, options.pages // 10)
    demo = Demo(
        out=options.out,
        pages=options.pages,
        documents=part,
        wanted=2 * part // 3,
        topics=options.topics,
        workers=options.workers,
        look=replace(LOOK, runs=options.mixtures),
        search=trained,
    )
    try:
        return mix_demo(demo)
    except CorpusmillError as error:
        print(f"mix-demo: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("mix-demo: stopped; the same command goes on from here", file=sys.stderr)
        return 130


def mix_demo(demo: Demo) -> int:
    """Make, search, show and count; the same again goes on where it was. 1 when the stream is not what its weights say."""
    console = console_of()
    title(console, "1  A crawl with junk in it, and a small set that says what is wanted")
    crawl = make_demo_crawl(demo.out / "crawl", demo.pages)
    texts = write_texts(demo.out / "crawl", demo.documents, demo.wanted)
    _show_inputs(console, demo, texts)
    title(console, "2  One crawl becomes components: its topics")
    sources = {
        "web": f"{crawl.folder}/crawl-*.warc.gz",
        "library": str(crawl.dump),
        **{name: str(texts[name]) for name in JUNK},
    }
    written = recipes.base("make mix-demo: change it and run it again", sources, GENERATED, demo.topics)
    run = _run(demo, "shards", written)
    title(console, "3  Targets: what is wanted, and held-out pages that stand nowhere else")
    targets = _targets(console, demo, run, texts[WANTED])
    title(console, "4  A first look: many mixtures by n-gram counts")
    components = len(read_plan(_plan(run)).components)

    def search(sizes: recipes.Sizes) -> str:
        runs = max(sizes.runs, RUNS_EACH * components + RUNS_MORE)
        return written + recipes.search(replace(sizes, runs=runs), targets)

    run = _run(demo, "look", search(demo.look), until="mix.propose" if demo.search else None)
    lines(console, *LINES["stats"](READ["stats"](run, "mix")), "", spent(run))
    lines(console, *LINES["propose"](READ["propose"](run, "mix")))
    if demo.search:
        title(console, f"5  The search: decoders of {demo.search.proxy}")
        run = _run(demo, "search", search(demo.search))
    else:
        title(console, "5  No decoders here: counts are all the evidence, and on their word nothing ships")
        if find_spec("torch") is None:
            lines(console, "With torch the search goes on: pip install 'corpusmill[train]'")
    show_search(console, run)
    title(console, "6  The verdict")
    lines(console, *LINES["verify"](read_verdict(run, "mix")), "", sentence(run))
    _, (_, page) = write_report(run, "mix")
    lines(console, f"The whole search on one page, with what speaks against it: {page}")
    title(console, "7  What the stream really reads")
    counted, count = count_stream(Path(str(run.out)), BATCH, (*WINDOWS, 1 << 62))
    broken = show_counts(console, counted, count)
    title(console, "Next")
    _show_next(console, demo)
    return 1 if broken else 0


def _run(demo: Demo, name: str, text: str, until: str | None = None) -> Run:
    """A recipe that is kept beside the run; `--update` takes what still fits from the one before."""
    path = demo.out / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    reporter = default_reporter() if sys.stdout.isatty() else ProxyLines(log=io.StringIO())
    return run_recipe(
        load_recipe(str(path)),
        demo.out / "run",
        workers=demo.workers,
        update=True,
        reporter=reporter,
        until=until,
    )


def _plan(run: Run, name: str = "plan.json") -> Path:
    return Path(str(run.out)) / "shards" / name


def _show_inputs(console: Console, demo: Demo, texts: Mapping[str, Path]) -> None:
    about = {
        "web, library": f"{demo.pages:,} pages of the demo's crawl: prose, licences, spam, copies",
        "scrambled": f"{demo.documents} pages of real words in no order",
        "generated": f"{demo.documents} pages by a model of word pairs; tagged, so it may have 15 % at most",
        WANTED: f"{demo.wanted} chapters about learning from data, by a package that was not crawled: they are only measured on",
    }
    lines(console, *(f"  {name:<14} {text}" for name, text in about.items()))


def _targets(console: Console, demo: Demo, run: Run, wanted: Path) -> dict[str, dict[str, object]]:
    """Name -> options of the search."""
    shards = _plan(run).parent
    training, held = (
        {each.name: run.out / "shards" / each.folder for each in read_plan(_plan(run, file)).components}
        for file in ("plan.json", "holdout.json")
    )
    small = run_recipe(
        load_recipe(_wanted_recipe(demo, wanted, shards / next(iter(training.values())).parent.name)),
        demo.out / WANTED,
        workers=demo.workers,
        update=True,
        reporter=ProxyLines(out=io.StringIO(), log=io.StringIO()),
    )
    (component,) = read_plan(_plan(small)).components
    path = _plan(small).parent / component.folder
    found = held_out(
        {**held, WANTED: small.out / "shards" / component.folder}, training, demo.look.eval_tokens
    )
    found = sorted(found, key=lambda each: (each.name != WANTED, each.name))
    weights = {each.name: _weight(each) for each in found}
    rows = [
        [each.name, each.documents, f"{each.share:.1%}", each.component, f"{weights[each.name]:g}"]
        for each in found
    ]
    table(console, ["held out", "documents", "stands elsewhere", "most of it in", "importance"], rows)
    lines(
        console,
        f"Of {OVERLAP:.0%} on a search refuses a target: its mixture would be rewarded for what it copies. Those of importance 0 are left out here.",
    )
    used: dict[str, dict[str, object]] = {
        name: {"weight": weight} for name, weight in weights.items() if weight
    }
    used[WANTED]["path"] = str(path)
    return used


def _weight(held: Held) -> float:
    if held.name == WANTED:
        return WANTED_WEIGHT
    return importance(held.name, JUNK) if held.usable(OVERLAP) else 0.0


def _wanted_recipe(demo: Demo, wanted: Path, folder: Path) -> str:
    path = demo.out / f"{WANTED}.yaml"
    path.write_text(recipes.WANTED.format(path=wanted, tokenizer=folder / "tokenizer.json"), encoding="utf-8")
    return str(path)


def _show_next(console: Console, demo: Demo) -> None:
    recipe = quote(str(demo.out / ("search.yaml" if demo.search else "look.yaml")))
    run = quote(str(demo.out / "run"))
    next_steps(
        console,
        {
            "the whole search as JSON": f"mix report {recipe} --out {run} --json",
            "what leaving out and boosting each component did": f"mix fit {recipe} --out {run}",
            "the mixture file, and whether its limits hold": f"mix check {run}/mixture.yaml --out {run}",
            "change targets or limits in the recipe and go on from what still fits": f"mix verify {recipe} --out {run} --update",
        },
    )


if __name__ == "__main__":
    sys.exit(main())
