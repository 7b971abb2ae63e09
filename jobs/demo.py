"""`corpusmill demo`: a crawl made on the spot goes through the whole pipeline, and a trainer's side is shown on the result.

    OUT/crawl   the crawl (demo_pages.py)      OUT/run   the run of the built-in recipe `demo`

What it prints is read back from the files of the run, never remembered from making them.
"""

from __future__ import annotations

import hashlib
import io
import shlex
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from corpusmill.jobs.closing import damage_lines
from corpusmill.jobs.demo_pages import KINDS, DemoCrawl, make_demo_crawl, read_truth
from corpusmill.jobs.demo_show import console_of, lines, next_steps, plain, table, title
from corpusmill.jobs.reporter import LineReporter
from corpusmill.jobs.run import default_reporter, run_recipe
from corpusmill.pipeline.errors import RunError
from corpusmill.pipeline.ledger import KEPT
from corpusmill.pipeline.recipe import load_recipe
from corpusmill.pipeline.run import Run

if TYPE_CHECKING:
    from rich.console import Console

    from corpusmill.shards import Cursor
    from corpusmill.shards.locate import Located, Piece

BATCH = 12
"""Rows of a global batch; 1, 2, 3 and 4 ranks divide it."""
BATCHES = 40
RANKS = (1, 2, 4, 3)
"""Numbers of ranks that the stopped and resumed reading goes through."""
EXAMPLES = 8


def demo(out: Path, pages: int, workers: int | None = None) -> int:
    """Make, run and show; the same command again reuses what stands. Returns the exit code."""
    console = console_of()
    title(console, "1  A crawl, made on the spot")
    crawl = make_demo_crawl(out / "crawl", pages)
    _show_crawl(console, crawl)
    title(console, "2  The whole pipeline: corpusmill run demo")
    inputs = [f"web={crawl.folder}/crawl-*.warc.gz", f"library={crawl.dump}"]
    # On a terminal bars move; elsewhere the lines that end each stage will do.
    reporter = default_reporter() if console.is_terminal else LineReporter(log=io.StringIO())
    run = run_recipe(load_recipe("demo").with_inputs(inputs), out / "run", workers=workers, reporter=reporter)
    title(console, "3  What became of each kind of page")
    _show_outcomes(console, run, read_truth(crawl.folder))
    title(console, "4  Every dropped page says why")
    example = _show_reasons(console, run)
    title(console, "5  Shards, a component a source, and the weights between them")
    _show_mixture(console, out / "run")
    title(console, "6  A trainer reads, stops, and resumes on other numbers of ranks")
    _show_streaming(console, out / "run")
    title(console, "7  The page behind a token")
    _show_origin(console, out / "run", crawl.folder)
    title(console, "Next")
    _show_next(console, out / "run", example)
    return 0


def _short(text: str, most: int = 58) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _show_crawl(console: Console, crawl: DemoCrawl) -> None:
    console.print(
        f"{crawl.pages:,} pages: real prose of installed packages, and the spam, copies and accidents of a crawl"
    )
    for path in (*crawl.warcs, crawl.dump):
        console.print(f"  {plain(str(path))}  {path.stat().st_size / 1e3:,.0f} kB")


def _show_outcomes(console: Console, run: Run, truth: Mapping[str, str]) -> None:
    """Kinds of pages against the stage that dropped them."""
    pages = run.table(["url", "state", "stage"], kept=False)
    left = {row["url"]: "kept" if row["state"] == KEPT else row["stage"] for row in pages.to_pylist()}
    counts = Counter((kind, left.get(url, "unreadable")) for url, kind in truth.items())
    stages = ["kept", *(stage for stage, _ in run.ledger()), "unreadable"]
    columns = [stage for stage in stages if any(counts[kind, stage] for kind in KINDS)]
    headings = [stage if stage in ("kept", "unreadable") else f"left at {stage}" for stage in columns]
    figures = {kind: [counts[kind, column] for column in columns] for kind in sorted(KINDS)}
    figures["all"] = [sum(column) for column in zip(*figures.values(), strict=True)]
    rows = [[kind.replace("_", " "), sum(cells), *cells] for kind, cells in figures.items()]
    table(console, ["kind", "pages", *headings], rows)
    console.print(
        "Of two like pages the longer stays, whichever came first: so some originals left, and their copies are kept."
    )
    lines(console, *damage_lines(run))


def _show_reasons(console: Console, run: Run) -> str:
    """One page of each of the commonest reasons; returns the address of one that a filter dropped."""
    pages = run.table(["url", "stage", "reason"], kept=False).to_pylist()
    dropped = sorted((row for row in pages if row["reason"]), key=lambda row: str(row["url"]))
    first = {row["reason"]: row for row in reversed(dropped)}
    counts = Counter(row["reason"] for row in dropped)
    table(
        console,
        ["pages", "reason", "for example"],
        [[n, reason, _short(first[reason]["url"])] for reason, n in counts.most_common(EXAMPLES)],
    )
    console.print(
        "A filter's reason is the rule, what it measured and the bound that the page missed first; all measures are kept."
    )
    by_filter = [reason for reason, _ in counts.most_common() if first[reason]["stage"] == "filter"]
    return str(first[by_filter[0]]["url"])


def _show_mixture(console: Console, out: Path) -> None:
    """What the weights come to: the components and the share of the stream that each gets."""
    from corpusmill.shards.reader import Shards

    shards = Shards(out)
    weights = shards.plan.phases[-1].weights_ppb
    rows = []
    for reader in shards.components:
        made, name = reader.manifest, reader.component.name
        rows.append([name, made.documents, made.tokens, made.blocks, f"{weights[name] / 1e7:.2f} %"])
    table(console, ["component", "documents", "tokens", "blocks", "weight"], rows)


def _show_streaming(console: Console, out: Path) -> None:
    """A straight run, then the same batches in four legs on other numbers of ranks."""
    from corpusmill.shards import stream

    with stream(out, batch_size=BATCH) as whole:
        left = whole.batches_left
        count = BATCHES if left is None else min(BATCHES, left)
        straight = [next(whole)["tokens"] for _ in range(count)]
    tokens = sum(batch.size for batch in straight)
    console.print(
        f"{count} batches of {BATCH} rows straight through: {tokens:,} tokens, sha256 {_digest(straight)}"
    )
    pieces: list[npt.NDArray[Any]] = []
    cursor: Cursor | None = None
    for first, end, ranks in _legs(count):
        batches, cursor = _leg(out, ranks, end - first, cursor)
        pieces += batches
        on = f"{ranks} rank{'s' if ranks > 1 else ''}"
        console.print(
            f"  batches {first:2} to {end - 1:2} on {on:7}  stopped; the cursor says: plan {cursor.plan[:8]}, sample {cursor.next}"
        )
    if _digest(pieces) != _digest(straight):
        raise RunError(
            "the resumed stream is not the straight one: this is a fault of corpusmill, please report it"
        )
    console.print(f"stopped and resumed: sha256 {_digest(pieces)}, the same sequence")


def _legs(count: int) -> list[tuple[int, int, int]]:
    """(first batch, end, number of ranks) of each leg."""
    stops = [0, count // 4, count // 2, count * 3 // 4, count]
    return [
        (first, end, ranks) for (first, end), ranks in zip(pairwise(stops), RANKS, strict=True) if end > first
    ]


def _leg(out: Path, ranks: int, count: int, cursor: Cursor | None) -> tuple[list[npt.NDArray[Any]], Cursor]:
    """`count` global batches, each put together from `ranks` readers of their own, and the cursor after them."""
    from corpusmill.shards import stream

    readers = [
        stream(out, batch_size=BATCH, dp_rank=rank, dp_size=ranks, cursor=cursor) for rank in range(ranks)
    ]
    batches = [np.concatenate([next(reader)["tokens"] for reader in readers]) for _ in range(count)]
    cursors = {reader.cursor for reader in readers}
    for reader in readers:
        reader.close()
    if len(cursors) != 1:
        raise RunError(
            f"the ranks disagree about where they are: {', '.join(sorted(each.to_json() for each in cursors))}"
        )
    return batches, cursors.pop()


def _digest(batches: Sequence[npt.NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for batch in batches:
        digest.update(np.ascontiguousarray(batch).tobytes())
    return digest.hexdigest()[:16]


def _show_origin(console: Console, out: Path, crawl: Path) -> None:
    """A token of the stream, the page that it comes from, and that page's record cut out of the WARC by its offset."""
    from corpusmill.shards import locate, stream
    from corpusmill.shards.reader import Shards

    found, piece = _first_web_piece(locate(out, 0, BATCH))
    with stream(out, batch_size=BATCH) as batches:
        row = next(batches)["tokens"][found.sample]
    reader = next(each for each in Shards(out).components if each.component.name == found.component)
    text = _decode(Path(str(reader.folder)) / reader.manifest.tokenizer_file, row[piece.start : piece.end])
    assert piece.file is not None and piece.offset is not None and piece.length is not None
    with (crawl / PurePosixPath(piece.file).name).open("rb") as file:
        file.seek(piece.offset)
        record = zlib.decompress(file.read(piece.length), 31)
    target = next(line for line in record.split(b"\r\n") if line.startswith(b"WARC-Target-URI:"))
    lines(
        console,
        f"sample {found.sample}, tokens {piece.start} to {piece.end - 1}: {text[:150]!r}",
        f"  is row {found.row} of component {found.component}, block {found.block} of {found.shard}",
        f"  and token {piece.token} on of {piece.url}",
        f"  which is {piece.length:,} bytes at {piece.offset:,} of {piece.file}; the record there says",
        f"  {target.decode()}",
    )


def _first_web_piece(samples: Sequence[Located]) -> tuple[Located, Piece]:
    for sample in samples:
        for piece in sample.pieces:
            if piece.source == "web":
                return sample, piece
    raise RunError("no sample of the first batch is from the web: the demo's weights have gone wrong")


def _decode(tokenizer: Path, ids: npt.NDArray[Any]) -> str:
    from tokenizers import Tokenizer

    return str(Tokenizer.from_file(str(tokenizer)).decode(ids.tolist()))


def _show_next(console: Console, out: Path, url: str) -> None:
    run, page = shlex.quote(str(out)), shlex.quote(url)
    steps = {
        "the whole ledger": f"show {run}",
        "all that is known of one page: its text, its measures, why it was dropped": f"show {run} --document {page}",
        "the hash of every file": f"verify {run}",
        "your own crawl, WARC or WET": "run fineweb --input 'my-crawl/*.warc.gz' --out my-run",
        "a recipe of your own: change a threshold in it, run it with --update": "recipe fineweb > mine.yaml",
    }
    next_steps(console, steps)
