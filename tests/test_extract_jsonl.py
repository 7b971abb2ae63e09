from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
import zstandard
from extract_runs import Extracted, extract
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.extract import jsonl


def write(path: Path, data: bytes) -> Extracted:
    path.write_bytes(data)
    return extract([path])


def test_fields_become_columns_and_the_rest_becomes_meta(tmp_path: Path) -> None:
    line = {
        "text": "Grüße",
        "url": "https://a.example/",
        "id": 7,
        "date": "2026-03-01T12:00:00+02:00",
        "lang": "de",
        "b": {"c": [1]},
    }
    data = json.dumps(line).encode() + b"\n"
    found = write(tmp_path / "a.jsonl", data)
    (row,) = found.table.to_pylist()
    assert row["text"] == "Grüße"
    assert row["url"] == "https://a.example/"
    assert row["record_id"] == "7"
    assert row["date"] == datetime(2026, 3, 1, 10, tzinfo=UTC)
    assert row["meta"] == '{"b": {"c": [1]}, "lang": "de"}'
    assert row["origin"] == {"file": "a.jsonl", "offset": 0, "length": len(data)}
    assert row["source"] == "web"


def test_keys_are_the_recipes_and_may_lead_into_objects(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"body": "x", "metadata": {"url": "u", "k": 1}, "a.b": "n"}\n')
    found = extract([path], text_key="body", url_key="metadata.url", id_key="a.b")
    (row,) = found.table.to_pylist()
    assert (row["text"], row["url"], row["record_id"], row["meta"]) == (
        "x",
        "u",
        "n",
        '{"metadata": {"k": 1}}',
    )


def test_bad_lines_are_rows_that_failed_at_their_offset(tmp_path: Path) -> None:
    lines = [b'{"text": "a"}\n', b'{"text": \n', b'["text"]\n', b'{"text": "b"}\n', b"[" * 100_000 + b"\n"]
    found = write(tmp_path / "a.jsonl", b"".join(lines))
    assert found.column("failed") == [None, "unparsable", "unparsable", None, "unparsable"]
    assert [origin["offset"] for origin in found.column("origin")] == [
        sum(map(len, lines[:i])) for i in range(5)
    ]
    assert found.counts == {"rows": 5, "kept": 2, "failed.unparsable": 3}


def test_rows_without_text_are_dropped_as_such(tmp_path: Path) -> None:
    found = write(tmp_path / "a.jsonl", b'{}\n{"text": null}\n{"text": ""}\n{"text": " \\n"}\n{"text": 5}\n')
    assert found.column("reason") == ["no_text"] * 5


def test_the_first_line_does_not_decide_what_later_ones_may_hold(tmp_path: Path) -> None:
    found = write(tmp_path / "a.jsonl", b'{"text": null, "n": 1}\n{"text": "x", "n": "one", "more": {}}\n')
    assert found.column("text") == [None, "x"]
    assert found.column("meta") == ['{"n": 1}', '{"more": {}, "n": "one"}']


def test_invalid_utf_8_and_lone_surrogates_are_mended_and_counted(tmp_path: Path) -> None:
    found = write(tmp_path / "a.jsonl", b'{"text": "a\xff"}\n{"text": "b\\ud800", "x": "\\udfff"}\n')
    assert found.column("text") == ["a\ufffd", "b\ufffd"]
    assert found.counts["invalid_utf8"] == 1
    assert found.column("meta") == ['{"replaced": 1}', '{"x": "\ufffd"}']


def test_numbers_that_json_lacks_become_null(tmp_path: Path) -> None:
    found = write(tmp_path / "a.jsonl", b'{"text": "a", "x": NaN, "y": [1e999], "z": 1.5}\n')
    assert json.loads(found.column("meta")[0]) == {"x": None, "y": [None], "z": 1.5}


@pytest.mark.parametrize("inner", [b"NaN", b"1"])
def test_a_row_may_nest_256_levels_and_no_more(tmp_path: Path, inner: bytes) -> None:
    def line(levels: int) -> bytes:
        return b'{"text": "a", "x": ' + b"[" * (levels - 1) + inner + b"]" * (levels - 1) + b"}\n"

    data = b"".join(map(line, (256, 257, 800, 5000, 200_000))) + b'{"text": "b"}\n'
    found = write(tmp_path / "a.jsonl", data)
    assert found.column("text") == ["a", None, None, None, None, "b"]
    assert found.column("failed") == [None, *["unparsable"] * 4, None]


def test_what_is_no_url_or_id_stays_in_meta(tmp_path: Path) -> None:
    found = write(tmp_path / "a.jsonl", b'{"text": "a", "url": ["u", "v"], "id": {"n": 1}, "date": null}\n')
    assert json.loads(found.column("meta")[0]) == {"url": ["u", "v"], "id": {"n": 1}}


def test_blank_lines_are_counted_and_a_missing_last_line_end_is_fine(tmp_path: Path) -> None:
    found = write(tmp_path / "a.jsonl", b'\n{"text": "a"}\r\n  \n{"text": "b"}')
    assert found.column("text") == ["a", "b"]
    assert found.counts["blank_line"] == 2


def test_a_date_that_is_none_stays_in_meta(tmp_path: Path) -> None:
    found = write(tmp_path / "a.jsonl", b'{"text": "a", "date": "yesterday"}\n')
    assert found.column("date") == [None]
    assert found.column("meta") == ['{"date": "yesterday"}']


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_compressed_lines_have_offsets_in_the_inflated_stream(tmp_path: Path, compression: str) -> None:
    data = b"".join(b'{"text": "line %d"}\n' % number for number in range(5000))
    half = data.index(b"\n", len(data) // 2) + 5  # two members, cut inside a line
    compress = gzip.compress if compression == "gzip" else zstandard.compress
    plain = write(tmp_path / "plain", data)
    packed = write(tmp_path / "packed", compress(data[:half]) + compress(data[half:]))
    assert packed.column("text") == plain.column("text")
    offsets = [[origin["offset"] for origin in each.column("origin")] for each in (plain, packed)]
    assert offsets[0] == offsets[1]


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_cut_compressed_file_gives_its_lines_and_is_reported(tmp_path: Path, compression: str) -> None:
    data = b"".join(b'{"text": "line %d is %d"}\n' % (number, number**3) for number in range(50_000))
    compress = gzip.compress if compression == "gzip" else zstandard.compress
    packed = compress(data)
    found = write(tmp_path / "a", packed[: len(packed) // 2])
    texts = found.column("text")
    assert texts == [f"line {number} is {number**3}" for number in range(len(texts))]
    assert len(texts) > 1000
    assert found.counts["bad_record"] == 1
    (damage,) = found.damage
    assert damage["file"] == "a" and damage["offset"] <= len(data) and damage["reason"].startswith("stream")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=30), max_size=20), st.integers(1, 200))
def test_any_partition_size_gives_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], size: int
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    path.write_text(
        "{}\n" + "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts),
        encoding="utf-8",
    )
    whole, cut = extract([path]), extract([path], partition_bytes=size)
    assert cut.table.equals(whole.table)
    assert cut.counts == whole.counts
    assert cut.redone == 0


def test_a_line_past_the_limit_is_dropped_and_the_next_one_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "LINE_LIMIT", 100)
    found = write(tmp_path / "a.jsonl", b'{"text": "' + b"x" * 500 + b'"}\n{"text": "b"}\n')
    assert found.column("reason") == ["too_large", None]
    assert found.column("text") == [None, "b"]
    assert found.column("origin")[0]["length"] == 513
