"""The demo's crawl, made on the spot: two WARC files and a JSONL dump, with the truth beside them.

    FOLDER/crawl-00000.warc.gz, crawl-00001.warc.gz   source `web`: request, response and metadata records
    FOLDER/library.jsonl.gz                           source `library`: plain texts
    FOLDER/truth.jsonl                                a line a page: url, source, kind, and `of` (the page that a copy is of)

Nothing is fetched: the prose comes from installed packages (demo_prose.py), the rest is generated (demo_plants.py). Equal
for equal arguments, packages and Python minor version (1,400 pages: 3 MB, 7 s of CPU on a busy 2-core machine; tests/test_demo_crawl.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from corpusmill.jobs import demo_plants as plants
from corpusmill.jobs.demo_html import SITES, body_of, page
from corpusmill.jobs.demo_prose import Prose, documentation, library, licences, reference
from corpusmill.jobs.demo_warc import Exchange, damaged, exchange, gzipped, warcinfo
from corpusmill.jobs.dice import Dice

SHARES = {
    "reference": 110,
    "licence": 70,
    "exact_copy": 30,
    "near_copy": 45,
    "other_language": 55,
    "spam": 35,
    "garbled": 25,
    "boilerplate": 25,
    "stub": 20,
    "personal_data": 15,
    "encoded": 16,
    "http_error": 10,
    "not_html": 8,
    "empty": 4,
    "very_long": 1,
    "damaged": 1,
    "library": 150,
}
"""Pages of a kind in a thousand, one at least; what is left is documentation."""

KINDS = ("documentation", *SHARES)


@dataclass(frozen=True)
class Page:
    """One line of the truth with what a crawler saw there (web) or the text itself (library)."""

    url: str
    source: str
    kind: str
    of: str | None = None
    seen: Exchange | None = None
    text: str = ""


@dataclass(frozen=True)
class DemoCrawl:
    """The files of a crawl that was made."""

    folder: Path
    warcs: tuple[Path, ...]
    dump: Path
    truth: Path
    pages: int


def make_demo_crawl(folder: Path, pages: int, seed: int = 17) -> DemoCrawl:
    """Write the crawl below `folder`; about `pages` pages in all."""
    folder.mkdir(parents=True, exist_ok=True)
    made = sorted(_pages(pages, seed), key=lambda one: Dice(seed, "order", one.url).below(2**64))
    web = [one for one in made if one.source == "web"]
    half = (len(web) + 1) // 2
    warcs = tuple(
        _write_warc(folder / f"crawl-{at:05d}.warc.gz", part)
        for at, part in enumerate((web[:half], web[half:]))
    )
    lines = [{"url": one.url, "text": one.text} for one in made if one.source == "library"]
    dump = folder / "library.jsonl.gz"
    dump.write_bytes(gzipped(_json_lines(lines)))
    truth = folder / "truth.jsonl"
    known = [{"url": one.url, "source": one.source, "kind": one.kind, "of": one.of} for one in made]
    truth.write_bytes(_json_lines(sorted(known, key=lambda line: str(line["url"]))))
    return DemoCrawl(folder, warcs, dump, truth, len(made))


def read_truth(crawl: Path) -> dict[str, str]:
    """URL -> kind, of a crawl's folder."""
    lines = (crawl / "truth.jsonl").read_text(encoding="utf-8").splitlines()
    return {line["url"]: line["kind"] for line in map(json.loads, lines)}


def _write_warc(path: Path, pages: list[Page]) -> Path:
    members = [warcinfo(path.name)]
    for number, one in enumerate(pages):
        assert one.seen is not None
        request, response, metadata = exchange(one.seen, number)
        members += [request, damaged(response) if one.kind == "damaged" else response, metadata]
    path.write_bytes(b"".join(members))
    return path


def _json_lines(lines: list[dict[str, str]] | list[dict[str, str | None]]) -> bytes:
    return "".join(json.dumps(line, ensure_ascii=False, sort_keys=True) + "\n" for line in lines).encode()


def _pages(pages: int, seed: int) -> Iterator[Page]:
    count = {kind: max(1, pages * share // 1000) for kind, share in SHARES.items()}
    articles = max(8, pages - sum(count.values()))
    own = count["personal_data"] + count["encoded"] + count["damaged"]
    prose = documentation(articles + own)
    # What other kinds are made of comes first: where prose is short, there is less documentation and no kind is missing.
    spare, prose = iter(prose[:own]), prose[own:]
    good = [_article(one, "documentation", seed) for one in prose]
    yield from good
    for one in reference(count["reference"]):
        yield _article(one, "reference", seed)
    for one in licences(count["licence"]):
        yield _article(one, "licence", seed)
    for one in library(count["library"]):
        yield Page(f"https://library.example/{one.name}", "library", "library", text=one.text)
    yield from _copies(prose, good, count, seed)
    for one in islice(spare, count["personal_data"]):
        yield _article(
            one, "personal_data", seed, plants.with_personal_data(one.text, Dice(seed, "person", one.name))
        )
    for one in islice(spare, count["damaged"]):
        yield _article(one, "damaged", seed)
    for way, one in enumerate(islice(spare, count["encoded"])):
        yield _encoded(one, way, seed)
    yield from _generated(prose, count, seed)


def _article(prose: Prose, kind: str, seed: int, text: str | None = None) -> Page:
    """The text, or `text` in its place, as a page of the site that its name leads to."""
    dice = Dice(seed, "page", prose.name)
    site = dice.choose(SITES)
    url = f"https://{site.host}/{'' if kind == 'documentation' else kind + '/'}{prose.name}"
    seen = Exchange(
        url, page(site, prose.title, body_of(prose.text if text is None else text), dice).encode()
    )
    return Page(url, "web", kind, seen=seen)


def _copies(prose: list[Prose], good: list[Page], count: dict[str, int], seed: int) -> Iterator[Page]:
    """Articles under another address, word for word or edited, mostly on another site."""
    exact, near = count["exact_copy"], count["near_copy"]
    originals = Dice(seed, "copies").some(list(zip(prose, good, strict=True)), exact + near)
    for at, (text, original) in enumerate(originals):
        kind = "exact_copy" if at < exact else "near_copy"
        dice = Dice(seed, kind, text.name)
        copy = text.text if kind == "exact_copy" else plants.near_copy(text.text, dice)
        site = dice.choose(SITES)
        url = f"https://{site.host}/reprints/{kind}/{text.name}"
        yield Page(
            url,
            "web",
            kind,
            original.url,
            Exchange(url, page(site, text.title, body_of(copy), dice).encode()),
        )


def _encoded(prose: Prose, way: int, seed: int) -> Page:
    dice = Dice(seed, "encoded", prose.name)
    site = dice.choose(SITES)
    url = f"https://{site.host}/encoded/{prose.name}"
    body = body_of(prose.text + "\n\n" + plants.ACCENTS)
    seen = plants.encoded(
        url, lambda charset: page(site, prose.title, body, Dice(seed, "encoded", url), charset), way
    )
    return Page(url, "web", "encoded", seen=seen)


def _generated(prose: list[Prose], count: dict[str, int], seed: int) -> Iterator[Page]:
    """Pages that nobody wrote; every one is keyed by its kind and number."""
    bodies: dict[str, Callable[[Dice], str]] = {
        "other_language": lambda dice: body_of(plants.other_language(dice)),
        "spam": plants.spam,
        "garbled": plants.garbled,
        "boilerplate": lambda dice: body_of(plants.boilerplate(dice)),
        "stub": lambda dice: body_of(plants.stub(dice)),
        "very_long": lambda dice: body_of("\n\n".join(one.text for one in dice.some(prose, 60))),
    }
    answers: dict[str, Callable[[str, Dice], Exchange]] = {
        "http_error": plants.http_error,
        "not_html": plants.not_html,
        "empty": lambda url, dice: Exchange(url, b""),
    }
    for kind in (*bodies, *answers):
        for number in range(count[kind]):
            dice = Dice(seed, kind, number)
            site = dice.choose(SITES)
            url = f"https://{site.host}/{kind.replace('_', '-')}/{number}"
            if kind in bodies:
                seen = Exchange(url, page(site, f"Page {number}", bodies[kind](dice), dice).encode())
            else:
                seen = answers[kind](url, dice)
            yield Page(url, "web", kind, seen=seen)
