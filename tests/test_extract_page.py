from __future__ import annotations

import gzip
import random

import pytest
from extract_runs import SENTENCES, article, http
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.extract.html import CONTROL, extractor, title
from corpusmill.pipeline.extract.limits import Limits
from corpusmill.pipeline.extract.page import Outcome, Page, Settings, process, sniff_mime, whole


def same(page: str) -> str:
    return page


def run(
    block: bytes, record: str = "response", mime: str = "application/http", settings: Settings | None = None
) -> Outcome:
    return process(Page(record, mime, block), settings or Settings(), same)


PAGE = article(1).encode()


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (http(PAGE, status="404 Not Found"), "http_status"),
        (http(b"", status="204 No Content"), "http_status"),
        (http(b""), "empty_body"),
        (http(b" \r\n"), "empty_body"),
        (http(PAGE, ["Content-Type: application/pdf"]), "mime"),
        (http(b"User-agent: *", ["Content-Type: text/plain"]), "mime"),
        (http(b"%PDF-1.4 x"), "mime"),
        (http(b"\x89PNG\r\n\x1a\n" + bytes(50), []), "mime"),
        (http(b"no markup and no type", []), "mime"),
        (
            http(gzip.compress(bytes(70_000_000)), ["Content-Type: text/html", "Content-Encoding: gzip"]),
            "bomb",
        ),
        (
            http(gzip.compress(b"x" * 17_000_000), ["Content-Type: text/html", "Content-Encoding: gzip"]),
            "too_large",
        ),
        (http(b"<p>" * 100_001), "too_many_tags"),
        (http(b"<div>" * 257), "too_deep"),
        (http(b"<p>" + b"x" * 10_000_001), "long_run"),
    ],
)
def test_a_page_without_text_says_why(block: bytes, reason: str) -> None:
    outcome = run(block)
    assert (outcome.text, outcome.reason, outcome.failed) == (None, reason, None)


def test_what_was_seen_on_the_way_is_noted() -> None:
    outcome = run(
        http(
            gzip.compress(PAGE),
            [
                "Content-Type: text/html; charset=latin1",
                "Content-Encoding: gzip",
                "Transfer-Encoding: chunked",
            ],
        )
    )
    assert outcome.text == PAGE.decode()
    assert outcome.meta == {
        "status": 200,
        "mime": "text/html",
        "transfer": "chunked_lie",
        "encoding": "gzip",
        "charset": "utf-8",
        "charset_by": "utf-8",
        "title": "Report 1",
    }


def test_a_response_without_a_type_is_taken_for_what_it_looks_like() -> None:
    outcome = run(http(PAGE, []))
    assert outcome.text is not None and outcome.meta["mime_seen"] == "text/html"


def test_a_status_or_type_that_the_recipe_accepts_passes() -> None:
    settings = Settings(statuses=(404,), mimes=("text/html", "text/plain"))
    assert run(http(PAGE, status="404 Not Found"), settings=settings).text
    assert (
        run(http(b"plain words", ["Content-Type: text/plain"], "404 x"), settings=settings).text
        == "plain words"
    )


def test_an_accepted_type_that_nothing_extracts_says_so() -> None:
    outcome = run(
        http(b"{}", ["Content-Type: application/json"]), settings=Settings(mimes=("application/json",))
    )
    assert outcome.reason == "not_extractable"


def test_resources_and_conversions_with_plain_text_are_text_as_they_stand() -> None:
    for record in ("resource", "conversion"):
        assert run("  Ein Satz.\n\nÄ".encode(), record, "text/plain").text == "  Ein Satz.\n\nÄ"


def test_a_resource_with_html_is_extracted() -> None:
    assert run(PAGE, "resource", "text/html").text == PAGE.decode()
    assert run(b"\x89PNG\r\n", "resource", "image/png").reason == "mime"


def test_a_text_that_utf_8_cannot_hold_is_mended() -> None:
    assert whole("a\ud800b\U0001f600") == "a\ufffdb\U0001f600"
    outcome = process(Page("resource", "text/html", b"<p>x"), Settings(), lambda page: "x\udfff")
    assert outcome.text == "x\ufffd"


@pytest.mark.parametrize("found", [None, "", " \n"])
def test_nothing_extracted_is_no_text(found: str | None) -> None:
    outcome = process(Page("resource", "text/html", b"<p>x"), Settings(), lambda page: found)
    assert outcome.reason == "no_text"


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=300),
    st.sampled_from(
        [
            b"",
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\nContent-Encoding: br\r\n\r\n",
        ]
    ),
)
def test_any_block_has_exactly_one_outcome(block: bytes, head: bytes) -> None:
    outcome = run(head + block)
    assert (outcome.text is None) != (outcome.reason is None)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<title> A &amp;\n B </title>", "A & B"),
        ("<title></title>", None),
        ("<div>text</div>", None),
        ('<meta property="og:title" content="Shared">', "Shared"),
        ("<title>" + "x" * 1000 + "</title>", "x" * 300),
    ],
)
def test_titles(page: str, expected: str | None) -> None:
    assert title(page) == expected


@pytest.mark.parametrize(
    ("body", "mime"),
    [
        (b"<!DOCTYPE HTML>", "text/html"),
        (b"\xef\xbb\xbf\n<html>", "text/html"),
        (b"<?xml version='1.0'?><html>", "text/html"),
        (b"<?xml?><rss>", None),
        (b"GIF89a", "image/gif"),
        (b"words", None),
    ],
)
def test_bytes_show_their_type(body: bytes, mime: str | None) -> None:
    assert sniff_mime(body) == mime


EXTRACTORS = ["trafilatura", "trafilatura-fast", "trafilatura-precision", "resiliparse"]


@pytest.mark.parametrize("name", EXTRACTORS)
def test_a_page_gives_the_same_text_however_often_and_after_whatever_pages(name: str) -> None:
    extract = extractor(name, "text")
    everything = [article(number, 4) for number in range(12)] + [article(3, 4)] * 11
    first = {page: extractor(name, "text")(page) for page in everything[:12]}
    order = list(everything)
    random.Random(5).shuffle(order)
    for page in order:
        assert extract(page) == first[page]
    for text in first.values():
        assert text is not None and all(sentence.strip() in text for sentence in SENTENCES)


@pytest.mark.parametrize("name", EXTRACTORS)
def test_the_main_text_is_found_and_navigation_is_not(name: str) -> None:
    page = article(1, 4).replace(
        "<body>", "<body><nav><a href='/'>Home</a> <a href='/n'>Newsletter</a></nav>"
    )
    text = extractor(name, "text")(page)
    assert text is not None
    assert SENTENCES[1].strip() in text and "Newsletter" not in text


@pytest.mark.parametrize("name", ["trafilatura", "trafilatura-fast"])
def test_trafilatura_is_used_as_it_comes(name: str) -> None:
    import trafilatura

    page = article(2, 4)
    plain = trafilatura.extract(page, include_comments=False, fast=name.endswith("fast"))
    assert extractor(name, "text")(page) == plain


@pytest.mark.parametrize("name", ["trafilatura", "trafilatura-fast"])
def test_paragraphs_of_a_short_article_come_once(name: str) -> None:
    paragraphs = [
        "The first paragraph has about eighty characters, which is short for an article.",
        "The second paragraph is as short as the first one and must appear exactly once.",
    ]
    page = f"<html><body><article><h1>Short</h1><p>{paragraphs[0]}</p><p>{paragraphs[1]}</p></article></body></html>"
    text = extractor(name, "text")(page)
    assert text is not None
    assert [text.count(paragraph) for paragraph in paragraphs] == [1, 1]


NOTICE = "<p>We value your privacy and use cookies to store information on your device. Accept all or manage options.</p>"


@pytest.mark.parametrize("name", ["trafilatura", "trafilatura-fast", "trafilatura-precision"])
@pytest.mark.parametrize("attributes", ["", "class='consent'", "id='cookie-banner'"])
@pytest.mark.parametrize("first", [True, False])
def test_an_article_in_an_aside_is_taken_and_the_cookie_notice_is_not(
    name: str, attributes: str, first: bool
) -> None:
    story = "".join(f"<p>{sentence}</p>" for sentence in SENTENCES)
    notice, aside = f"<div {attributes}>{NOTICE * 2}</div>", f"<aside><h1>Ferry</h1>{story}</aside>"
    page = f"<html><body>{notice + aside if first else aside + notice}</body></html>"
    text = extractor(name, "text")(page)
    assert text is not None
    assert all(sentence.strip() in text for sentence in SENTENCES) and "privacy" not in text


def test_a_page_about_cookies_keeps_its_text() -> None:
    body = "".join(f"<p>Cookie law, part {part}: {SENTENCES[part % 4]}</p>" for part in range(6))
    page = f"<html><body><article>{body}</article><aside><p>{SENTENCES[0]}</p></aside></body></html>"
    text = extractor("trafilatura", "text")(page)
    assert text is not None and text.count("Cookie law") == 6


def test_markdown_keeps_headings() -> None:
    text = extractor("trafilatura", "markdown")(article(1, 4))
    assert text is not None and "# Report 1" in text


@pytest.mark.parametrize("name", EXTRACTORS)
def test_a_page_without_title_or_structure_is_no_error(name: str) -> None:
    extractor(name, "text")("<div>text</div>")


@pytest.mark.parametrize("name", EXTRACTORS)
@pytest.mark.parametrize(
    "reference", ["&#1;", "&#x1;", "&#X1f;", "&#00031;", "&#12;", "&#xB;", "&#65535;", "&#xFFFE;"]
)
def test_a_reference_to_a_control_character_is_a_space(name: str, reference: str) -> None:
    extract = extractor(name, "text")
    assert extract(article(1).replace("part 1", f"part{reference}1")) == extract(article(1))


@pytest.mark.parametrize(
    "reference", ["&#9;", "&#10;", "&#111;", "&#x1f4;", "&#x10ffff;", "&amp;#1;", "&#65;", "&#0065533;"]
)
def test_other_references_are_left_to_the_extractor(reference: str) -> None:
    assert CONTROL.sub("", reference) == reference


def test_a_table_of_300_000_rows_is_dropped_at_once() -> None:
    rows = b"<tr><td>1</td></tr>" * 300_000
    assert run(http(b"<table>" + rows + b"</table>")).reason == "too_many_tags"


def test_limits_are_the_recipes() -> None:
    tight = Settings(limits=Limits(max_bytes=10))
    assert run(http(PAGE), settings=tight).reason == "too_large"
