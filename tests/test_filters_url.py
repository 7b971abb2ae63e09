"""URL lists: hosts and what is above them, whole addresses, words at their borders."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from corpusmill.filters.url import Url, UrlMeasures, host
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.judge import Judge


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://www.Example.com/a?b#c", "www.example.com"),
        ("http://user:pass@example.com:8080/x@y", "example.com"),
        ("//example.com", "example.com"),
        ("example.com/path", "example.com"),
        ("http://example.com./", "example.com"),
        ("http://[2001:db8::1]:80/", "2001:db8::1"),
        ("http://example.com\\evil", "example.com"),
        ("http://bücher.example/", "xn--bcher-kva.example"),
        ("http://BÜCHER.example/", "xn--bcher-kva.example"),
        ("http://ü" + "a" * 99 + ".example", "ü" + "a" * 99 + ".example"),
        ("", ""),
        ("http://", ""),
        ("http://[", ""),
    ],
)
def test_hosts(url: str, expected: str) -> None:
    assert host(url) == expected


def measured(addresses: list[str | None], **lists: tuple[str, ...]) -> list[tuple[int, ...]]:
    table = UrlMeasures(**lists).measure(pa.table({"url": pa.array(addresses, pa.string())}))
    return [tuple(row.values()) for row in table.to_pylist()]


def test_a_domain_covers_the_hosts_below_it_and_no_others() -> None:
    urls = [
        "http://bad.com/",
        "http://a.b.bad.com/",
        "http://notbad.com/",
        "http://bad.com.org/",
        "http://x.org/bad.com",
    ]
    assert [row[0] for row in measured(urls, domains=("Bad.com",))] == [1, 1, 0, 0, 0]
    assert [row[0] for row in measured(["http://a.x.org", "http://x.org"], domains=("a.x.org",))] == [1, 0]
    assert measured(["http://a.x.org"], domains=("*.x.org",))[0][0] == 1


def test_a_whole_address_is_listed_as_it_is_written() -> None:
    urls = ["http://x.org/a", "http://x.org/a/", "http://x.org/A"]
    assert [row[0] for row in measured(urls, urls=("http://x.org/a",))] == [1, 0, 0]


def test_words_match_at_their_borders_in_any_case() -> None:
    """ "spice", "Egypt" and "Essex" hold listed words and are none."""
    lists = {"hard_words": ("spic", "gyp", "sex"), "soft_words": ("girls", "hot")}
    urls = [
        "http://spice.com/Egypt/essex",
        "http://x.com/SEX-gyp",
        "http://hot.x.com/girls",
        "http://x.com/hot/hot",
    ]
    assert [row[1:3] for row in measured(urls, **lists)] == [(0, 0), (2, 0), (0, 2), (0, 1)]


def test_parts_match_across_borders() -> None:
    assert [
        row[3] for row in measured(["http://x.com/bad-ho.st", "http://x.com/badge"], parts=("badhost", "bad"))
    ] == [1, 1]


def test_rows_without_a_url_are_on_no_list() -> None:
    assert measured([None, ""], domains=("bad.com",), hard_words=("a",)) == [(0, 0, 0, 0)] * 2
    assert measured([]) == []


def test_lists_come_from_files_whose_content_enters_the_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "domains.txt"
    path.write_text("# a comment\n\nbad.com\n  worse.org \n")
    operation = UrlMeasures(domains=(f"@{path}", "third.net"))
    table = pa.table({"url": ["http://bad.com", "http://a.worse.org", "http://third.net", "http://good.net"]})
    assert operation.measure(table)["url_listed"].to_pylist() == [1, 1, 1, 0]
    before = operation.models()
    path.write_text("bad.com\n")
    assert list(before) == [f"@{path}"] and operation.models() != before


def test_a_domain_matches_in_either_spelling() -> None:
    urls = pa.table(
        {"url": ["https://bücher.example/", "https://www.xn--bcher-kva.example/", "https://bucher.example/"]}
    )
    for entry in ("bücher.example", "*.xn--bcher-kva.example"):
        assert UrlMeasures(domains=(entry,)).measure(urls)["url_listed"].to_pylist() == [1, 1, 0]


def test_a_mark_at_the_start_of_a_file_and_parts_without_letters_list_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes("\ufeffbad.com\n---\n日本\n".encode())
    table = pa.table({"url": ["http://bad.com", "http://good.net"]})
    found = UrlMeasures(domains=(f"@{path}",), parts=(f"@{path}",)).measure(table)
    assert found["url_listed"].to_pylist() == found["url_parts"].to_pylist() == [1, 0]


@pytest.mark.parametrize(
    "fields",
    [
        {"parts": ("abc", "日本")},
        {"parts": ("",)},
        {"domains": ("https://bad.com",)},
        {"domains": ("bad.com/x",)},
    ],
)
def test_entries_that_could_never_match_are_refused(fields: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(RecipeError, match=r"never matches|is no domain"):
        Url(**fields)


def test_a_list_that_is_not_there_and_a_word_that_never_matches_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="cannot be read: No such file"):
        UrlMeasures(domains=(f"@{tmp_path / 'absent'}",)).models()
    with pytest.raises(RecipeError, match="'two words' is no single word"):
        Url(hard_words=("two words",))


def test_one_hard_word_or_two_soft_words_drop() -> None:
    rule = Url(hard_words=("bad",), soft_words=("hot", "girls"), domains=("listed.com",))
    urls = ["http://x.com/bad", "http://x.com/hot", "http://x.com/hot/girls", "http://listed.com", None]
    (operation,) = rule.measures()
    judge = Judge(tuple(("url", cut) for cut in rule.cuts()))
    verdict = judge.judge(operation.measure(pa.table({"url": pa.array(urls, pa.string())})))
    expected = [
        "url.url_hard_words.at_most",
        None,
        "url.url_soft_words.at_most",
        "url.url_listed.at_most",
        None,
    ]
    assert verdict["reason"].to_pylist() == expected
