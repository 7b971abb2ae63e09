from __future__ import annotations

import gzip
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.extract.http import (
    Bomb,
    Response,
    content_decoded,
    dechunk,
    media_type,
    parse_response,
    transfer_decoded,
)

PAGE = b"<html><body>" + b"A sentence about nothing much. " * 40 + b"</body></html>"
LIMIT = 1 << 20


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@pytest.mark.parametrize("line_end", [b"\r\n", b"\n"])
def test_a_response_splits_into_status_headers_and_body(line_end: bytes) -> None:
    block = line_end.join(
        [
            b"HTTP/1.1 404 Not Found",
            b"Content-Type: text/html;",
            b"  charset=utf-8",
            b"X: M\xfcller",
            b"",
            b"body\r\n\r\nmore",
        ]
    )
    response = parse_response(block)
    assert response.status == 404
    assert response.headers == {"content-type": "text/html; charset=utf-8", "x": "Müller"}
    assert response.body == b"body\r\n\r\nmore"


def test_a_block_that_is_no_response_is_all_body() -> None:
    assert parse_response(b"<html>") == Response(None, {}, b"<html>")


def test_a_response_without_headers_has_a_body() -> None:
    assert parse_response(b"HTTP/1.0 200 OK\r\n\r\n<p>x").body == b"<p>x"


@given(st.binary(min_size=1, max_size=300), st.integers(1, 100))
def test_chunks_join_to_the_body_that_was_cut(body: bytes, size: int) -> None:
    assert dechunk(chunked(body, size)) == (body, True)


@given(st.binary(min_size=20, max_size=300), st.integers(1, 100))
def test_a_cut_chunked_body_gives_what_is_there(body: bytes, size: int) -> None:
    stream = chunked(body, size)[: len(body) // 2]
    found = dechunk(stream)
    assert found is None or (body.startswith(found[0]) and not found[1])


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"transfer-encoding": "chunked"}, chunked(PAGE, 100), (PAGE, "chunked")),
        ({"transfer-encoding": "chunked"}, PAGE, (PAGE, "chunked_lie")),
        ({"transfer-encoding": "chunked"}, chunked(PAGE, 100)[:500], None),
        ({}, chunked(PAGE, 100), (PAGE, "chunked_unsaid")),
        ({}, PAGE, (PAGE, None)),
        ({}, b"5 apples\r\nand pears", (b"5 apples\r\nand pears", None)),
    ],
)
def test_bytes_decide_whether_a_body_is_chunked(
    headers: dict[str, str], body: bytes, expected: tuple[bytes, str | None] | None
) -> None:
    decoded, note = transfer_decoded(Response(200, headers, body))
    if expected is None:
        assert note == "chunked_cut" and PAGE.startswith(decoded) and len(decoded) > 400
    else:
        assert (decoded, note) == expected


RAW = zlib.compressobj(wbits=-15)
ENCODED = {
    "gzip": gzip.compress(PAGE),
    "zlib": zlib.compress(PAGE),
    "raw": RAW.compress(PAGE) + RAW.flush(),
    "br": brotli.compress(PAGE),
    "zstd": zstandard.compress(PAGE),
}


@pytest.mark.parametrize(
    ("said", "stored", "note"),
    [
        ("gzip", "gzip", "gzip"),
        ("", "gzip", "gzip"),
        ("br", "gzip", "gzip"),
        ("deflate", "zlib", "deflate"),
        ("deflate", "raw", "deflate"),
        ("br", "br", "br"),
        ("zstd", "zstd", "zstd"),
        ("", "zstd", "zstd"),
    ],
)
def test_bytes_decide_over_the_content_encoding(said: str, stored: str, note: str) -> None:
    assert content_decoded(ENCODED[stored], said, LIMIT) == (PAGE, note)


@pytest.mark.parametrize("said", ["gzip", "deflate", "br", "zstd"])
def test_a_body_that_is_not_encoded_as_said_is_taken_as_it_is(said: str) -> None:
    assert content_decoded(PAGE, said, LIMIT) == (PAGE, f"{said}_lie")


def test_two_encodings_are_undone() -> None:
    assert content_decoded(gzip.compress(gzip.compress(PAGE)), "gzip", LIMIT) == (PAGE, "gzip+gzip")
    assert content_decoded(brotli.compress(gzip.compress(PAGE)), "gzip, br", LIMIT) == (PAGE, "br+gzip")


@pytest.mark.parametrize("stored", ["gzip", "zlib", "zstd", "br"])
def test_a_cut_body_gives_what_precedes_the_cut(stored: str) -> None:
    long = b"".join(b"%d squared is %d. " % (i, i * i) for i in range(20_000))
    encode = {
        "gzip": gzip.compress,
        "zlib": zlib.compress,
        "zstd": zstandard.compress,
        "br": brotli.compress,
    }[stored]
    said = {"zlib": "deflate"}.get(stored, stored)
    decoded, _ = content_decoded(encode(long)[:-2000], said, LIMIT)
    assert long.startswith(decoded) and len(decoded) > len(long) // 2


@pytest.mark.parametrize("stored", ["gzip", "zlib", "zstd", "br"])
def test_a_bomb_is_stopped_at_its_bound(stored: str) -> None:
    zeros = bytes(50_000_000)
    encode = {
        "gzip": gzip.compress,
        "zlib": zlib.compress,
        "zstd": zstandard.compress,
        "br": lambda data: brotli.compress(data, quality=1),
    }[stored]
    said = {"zlib": "deflate"}.get(stored, stored)
    with pytest.raises(Bomb):
        content_decoded(encode(zeros), said, LIMIT)


@given(st.binary(max_size=400), st.sampled_from(["", "gzip", "deflate", "br", "zstd", "gzip, br", "x"]))
def test_any_bytes_decode_to_something(body: bytes, said: str) -> None:
    for magic in (b"", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"):
        content_decoded(magic + body, said, LIMIT)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text/html; charset=UTF-8", ("text/html", "UTF-8")),
        ('Text/HTML;charset="koi8-r"', ("text/html", "koi8-r")),
        ("text/html", ("text/html", None)),
        ("", ("", None)),
    ],
)
def test_a_content_type_has_a_type_and_a_charset(value: str, expected: tuple[str, str | None]) -> None:
    assert media_type(value) == expected
