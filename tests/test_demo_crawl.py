"""The demo's crawl: the same twice, every kind there, a WARC that others can read, and pages that extract to their text."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zlib
from collections import Counter
from pathlib import Path

import pytest

from corpusmill.jobs.demo_html import SITES, body_of, page
from corpusmill.jobs.demo_pages import KINDS, SHARES, DemoCrawl, make_demo_crawl, read_truth
from corpusmill.jobs.demo_plants import near_copy
from corpusmill.jobs.demo_prose import CHAPTER_WORDS, documentation, library, sentences
from corpusmill.jobs.demo_warc import Exchange, damaged, exchange
from corpusmill.jobs.dice import Dice

PAGES = 120


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> DemoCrawl:
    return make_demo_crawl(tmp_path_factory.mktemp("crawl"), PAGES)


def members(data: bytes) -> list[tuple[int, bytes | None]]:
    """(offset, inflated bytes) of each gzip member; None for the damaged one, which ends where the next magic starts."""
    found: list[tuple[int, bytes | None]] = []
    at = 0
    while at < len(data):
        unpack = zlib.decompressobj(31)
        try:
            inflated = unpack.decompress(data[at:])
            assert unpack.eof
            found.append((at, inflated))
            at = len(data) - len(unpack.unused_data)
        except zlib.error:
            found.append((at, None))
            at = data.index(b"\x1f\x8b\x08\x00", at + 4)
    return found


def test_the_same_crawl_in_another_process_and_folder(crawl: DemoCrawl, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from corpusmill.jobs.demo_pages import make_demo_crawl;"
        f"make_demo_crawl(Path(sys.argv[1]), {PAGES})"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        check=True,
        env={"PYTHONHASHSEED": "77", "TZ": "Asia/Tokyo"},
    )
    names = sorted(path.name for path in crawl.folder.iterdir())
    assert names == sorted(path.name for path in tmp_path.iterdir())
    assert all((crawl.folder / name).read_bytes() == (tmp_path / name).read_bytes() for name in names)


def test_another_seed_gives_another_crawl(crawl: DemoCrawl, tmp_path: Path) -> None:
    other = make_demo_crawl(tmp_path, PAGES, seed=18)
    assert other.warcs[0].read_bytes() != crawl.warcs[0].read_bytes()


def test_every_kind_is_there_with_its_share(crawl: DemoCrawl) -> None:
    kinds = Counter(read_truth(crawl.folder).values())
    assert set(kinds) == set(KINDS)
    assert {kind: kinds[kind] for kind in SHARES} == {
        kind: max(1, PAGES * share // 1000) for kind, share in SHARES.items()
    }
    assert kinds.total() == crawl.pages == PAGES


def test_every_url_is_in_the_files_once(crawl: DemoCrawl) -> None:
    urls = [json.loads(line)["url"] for line in gzip.decompress(crawl.dump.read_bytes()).splitlines()]
    types: Counter[str] = Counter()
    broken = 0
    for path in crawl.warcs:
        for _, record in members(path.read_bytes()):
            if record is None:
                broken += 1
                continue
            head = dict(
                line.split(": ", 1) for line in record.split(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
            )
            types[head["WARC-Type"]] += 1
            if head["WARC-Type"] == "metadata":
                urls.append(head["WARC-Target-URI"])
    assert sorted(urls) == sorted(read_truth(crawl.folder))
    web = len(urls) - SHARES["library"] * PAGES // 1000
    assert broken == 1
    assert types == {"warcinfo": 2, "request": web, "response": web - 1, "metadata": web}


def test_fastwarc_reads_the_offsets_that_the_members_start_at(crawl: DemoCrawl) -> None:
    warc = pytest.importorskip("fastwarc.warc")
    for path in crawl.warcs:
        expected = [at for at, record in members(path.read_bytes())]
        seen = []
        try:
            for record in warc.ArchiveIterator(str(path), verify_digests=True):
                seen.append(record.stream_pos)
        except OSError:  # the damaged member: what is read up to there must agree
            assert None in [record for _, record in members(path.read_bytes())]
        assert seen == expected[: len(seen)]
        assert len(seen) > 10


def test_a_damaged_member_keeps_its_length_and_loses_its_content() -> None:
    member = exchange(Exchange("https://a.example/", b"x" * 3000 + bytes(range(256)) * 8), 1)[1]
    broken = damaged(member)
    assert len(broken) == len(member)
    with pytest.raises(zlib.error):
        zlib.decompress(broken, 31)


def test_a_page_of_every_site_extracts_to_its_text() -> None:
    trafilatura = pytest.importorskip("trafilatura")
    prose = documentation(40)[-1]
    words = prose.text.split()
    for site in SITES:
        text = (
            trafilatura.extract(
                page(site, prose.title, body_of(prose.text), Dice(1, site.host)), include_comments=False
            )
            or ""
        )
        found = set(text.split())
        assert sum(word in found for word in words) > 0.9 * len(words), site.host
        assert "Accept all" not in text
        assert "newsletter" not in text


def test_no_prose_is_used_twice_and_each_chapter_is_long_enough() -> None:
    texts = [*documentation(100), *library(30)]
    assert len({one.text for one in texts}) == len({one.name for one in texts}) == 130
    assert min(len(one.text.split()) for one in texts) >= CHAPTER_WORDS


def test_sentences_are_kept_and_tables_code_and_titles_are_not() -> None:
    first = "A paragraph of :class:`Thing` and ``code`` that ends as a sentence should."
    other = "a : array_like\n    Input array, one of the parameters of this function.\n\n>>> print('One two three four five six seven eight.')"
    assert sentences(
        f"A title\n=======\n\n{first}\n\n{other}\n\nToo short.\n\nNo full stop behind these words that otherwise are fine"
    ) == ["A paragraph of Thing and code that ends as a sentence should."]


def test_headings_lists_code_and_markup_become_html() -> None:
    text = (
        "Title\n=====\nFirst `line` of ``x < 1``.\n\n- one\n- two\n  goes on\n\n"
        ">>> 1 + 1\n2\n\n## Next [link](http://x.example)\n\n:class:`Thing` ends."
    )
    assert body_of(text) == (
        "<h2>Title</h2>\n<p>First `line` of <code>x &lt; 1</code>.</p>\n<ul><li>one</li><li>two goes on</li></ul>\n"
        "<pre>&gt;&gt;&gt; 1 + 1\n2</pre>\n<h2>Next link</h2>\n\n<p>Thing ends.</p>"
    )


def test_a_near_copy_shares_most_shingles_with_its_original() -> None:
    words = [f"word{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}x" for i in range(600)]
    text = " ".join(words)
    copy = near_copy(text, Dice(3, "copy"))

    def shingles(text: str) -> set[tuple[str, ...]]:
        split = text.split()
        return {tuple(split[i : i + 5]) for i in range(len(split) - 4)}

    assert copy != text
    a, b = shingles(text), shingles(copy)
    assert len(a & b) / len(a | b) > 0.8


def test_dice_give_what_their_keys_say_and_nothing_else() -> None:
    assert [Dice(1, "a").below(1000) for _ in range(3)] == [Dice(1, "a").below(1000)] * 3
    first = Dice(1, "a")
    assert len({first.below(10**9) for _ in range(50)}) == 50
    assert sorted(Dice(2).some(range(10), 10)) == list(range(10))
    assert Dice(2).some("ab", 5) in (["a", "b"], ["b", "a"])
