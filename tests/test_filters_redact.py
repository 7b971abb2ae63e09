"""Redaction: what is hidden, what is left, and that the choice of placeholder depends on seed and value alone."""

from __future__ import annotations

import ipaddress

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpusmill.filters.redact import EMAILS, IPV4, IPV6, Redact, Redaction
from corpusmill.pipeline.chain import Chain
from corpusmill.pipeline.engine.stage import SetOperation

EVERYTHING = Redaction(ipv6=True)


def shape(text: str, operation: Redaction = EVERYTHING) -> str:
    """The redacted text with every placeholder as <mail> or <ip>."""
    text = operation.redacted(text)
    for placeholders, sign in ((EMAILS, "<mail>"), (IPV4 + IPV6, "<ip>")):
        for placeholder in sorted(placeholders, key=len, reverse=True):
            text = text.replace(placeholder, sign)
    return text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("write to anna.b@mail.example-site.co.uk.", "write to <mail>."),
        ("<a@b.org>, mailto:c+d@e.net?x 'f@g.com'", "<<mail>>, mailto:<mail>?x '<mail>'"),
        ("anna@host.de, bob@host.de", "<mail>, <mail>"),
        ("a@b.cc@d.ee", "<mail>@d.ee"),
        ("ünä.x@b.com", "ünä.<mail>"),
        ("first..last@b.com ..x@b.com", "first..<mail> ..<mail>"),
        ("user@[8.8.8.8]", "<mail>"),
        ("no: a@b @b.com a.@b.com user@ user@-x.com user@x_y.com a @ b.com", None),
        ("react@16.8.0 and lodash@4.17.21", None),
    ],
)
def test_emails(text: str, expected: str | None) -> None:
    assert shape(text) == (expected or text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from 8.8.8.8 and (151.101.1.140):80, 203.0.112.9.", "from <ip> and (<ip>):80, <ip>."),
        ("http://93.184.216.34/path 1.1.1.1-9.9.9.9", "http://<ip>/path <ip>-<ip>"),
        (
            "10.1.2.3 192.168.0.1 127.0.0.1 172.16.0.1 169.254.1.1 100.64.0.1 0.1.2.3 224.0.0.1 255.255.255.255",
            None,
        ),
        (
            "v8.8.8.8 version 8.8.8.8 Version: 8.8.8.8 ver. 8.8.8.8 v. 8.8.8.8 firmware 8.8.8.8 Chrome/8.8.8.8",
            None,
        ),
        ("8.8.8.8.8 1.8.8.8.8.8 8.8.8 8.8.8.256 8.8.8.08 x8.8.8.8 8.8.8.8-beta 8.8.8.8a 1234.8.8.8", None),
        ("172.15.0.1 172.32.0.1 100.128.0.1 11.0.0.1", "<ip> <ip> <ip> <ip>"),
        ("2a00:1450:4001:81b::200e, [2606:4700::1111]:443", "<ip>, [<ip>]:443"),
        ("::ffff:8.8.8.8 2606:4700::8.8.8.8", "::ffff:<ip> 2606:4700::<ip>"),
        ("fe80::1 ::1 fc00::1 2001:db8::5 12:30:45 a::b std::vector 00:1a:2b:3c:4d:5e", None),
    ],
)
def test_addresses(text: str, expected: str | None) -> None:
    assert shape(text) == (expected or text)


def test_each_kind_can_be_kept() -> None:
    text = "a@b.com 8.8.8.8 2a00:1450::1"
    assert Redaction(emails=False, ips=False).edit(pa.table({"text": [text]})).to_pylist() == [None]
    assert shape(text, Redaction(emails=True, ips=False)) == "<mail> 8.8.8.8 2a00:1450::1"
    assert shape(text, Redaction(emails=False)) == "a@b.com <ip> 2a00:1450::1"
    assert shape(text, Redaction(emails=False, ips=False, ipv6=True)) == "a@b.com 8.8.8.8 <ip>"


def test_a_value_has_the_same_placeholder_in_every_text_and_in_any_case() -> None:
    texts = ["x anna@site.de", "Anna@Site.de y", "bob@site.de", "z anna@site.de anna@site.de"]
    redacted = [Redaction(seed=3).redacted(text) for text in texts]
    name = redacted[0].removeprefix("x ")
    assert name in EMAILS
    assert redacted[1] == f"{name} y" and redacted[3] == f"z {name} {name}"


def test_seeds_and_values_spread_over_all_placeholders() -> None:
    for placeholders in (EMAILS, IPV4, IPV6):
        assert {Redaction(seed=seed).pick("value", placeholders) for seed in range(100)} == set(placeholders)
        assert {Redaction().pick(str(value), placeholders) for value in range(100)} == set(placeholders)


def test_placeholders_are_reserved_and_stay_as_they_are() -> None:
    for address in IPV4 + IPV6:
        assert not ipaddress.ip_address(address).is_global
    assert all(name.rpartition("@")[2] in ("example.com", "example.org", "example.net") for name in EMAILS)
    text = " ".join(EMAILS + IPV4 + IPV6)
    assert EVERYTHING.redacted(text) == text


PIECES = st.sampled_from(
    [
        "a@b.com",
        "x.y@z.org",
        "8.8.8.8",
        "v",
        "1.",
        "@",
        ".",
        ":",
        "2a00::1",
        "::",
        "_",
        " ",
        "é",
        "-",
        "b.cc",
        "version ",
        "/",
        "[",
    ]
)


@settings(deadline=None)
@example("2606:4700::@b.co")
@example("x.y@z.org_x.y@z.org")
@example("a@b.coma@b.com@a@b.com")
@given(st.lists(PIECES, max_size=15).map("".join))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = EVERYTHING.redacted(text)
    assert EVERYTHING.redacted(once) == once


@settings(deadline=None)
@given(st.lists(st.lists(PIECES, max_size=6).map("".join) | st.none(), max_size=8), st.data())
def test_the_column_is_edited_row_by_row_and_null_where_nothing_changed(
    texts: list[str | None], data: st.DataObject
) -> None:
    expected = [
        None if text is None or EVERYTHING.redacted(text) == text else EVERYTHING.redacted(text)
        for text in texts
    ]
    cut = data.draw(st.integers(0, len(texts)))
    column = pa.array(texts, data.draw(st.sampled_from([pa.string(), pa.large_string()])))
    edited = EVERYTHING.edit(pa.table({"text": pa.chunked_array([column[:cut], column[cut:]], column.type)}))
    assert edited.type == pa.large_string() and edited.to_pylist() == expected


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "unit", ["a", "@", "a@", "a.", "@a.", "1.", "8.8.8.8", ":", "a:", "@a", "-", "@" + "a" * 62 + "."]
)
def test_hostile_texts_of_half_a_million_characters_take_linear_time(unit: str) -> None:
    text = unit * (500_000 // len(unit))
    assert len(EVERYTHING.redacted(text)) > 100_000


def test_the_stage_edits_kept_rows_with_the_seed_of_the_recipe_and_closes_in_the_ledger() -> None:
    chain = Chain(seed=5)
    chain.set("documents", SetOperation())
    chain.verdict(stage="extract")
    Redact(ips="keep").extend(chain, "redact")
    edit, ledger = chain.stages[-2:]
    assert (edit.name, edit.ledger) == ("redact", "ledger.extract")
    assert edit.operation == Redaction(emails=True, ips=False, ipv6=False, seed=5)
    assert (ledger.name, ledger.reads) == ("ledger.redact", ("documents", "ledger.extract", "redact"))
