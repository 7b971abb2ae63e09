from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from extract_runs import http, members, needs_samples, pages, record, sample_files

from corpusmill.pipeline.errors import InputError
from corpusmill.pipeline.extract.formats import Format, refusal, sniff

LINES = b'{"text": "one"}\n{"text": "two"}\n'
WARC = b"".join(pages(3))
WAT = record(b"x: y\r\n", "warcinfo") + record(
    b'{"Envelope": {}}', "metadata", content_type="application/json"
)
SKIPPABLE = b"\x51\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
DICTIONARY = b"\x5d\x2a\x4d\x18" + (20).to_bytes(4, "little") + zstandard.compress(b"a" * 99)[:8] + bytes(12)


def parquet_bytes() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": ["a"]}), sink)
    return bytes(sink.getvalue())


CASES = {
    "plain WARC": (WARC, Format("warc")),
    "gzip a record": (b"".join(members(pages(3))), Format("warc", "gzip")),
    "one gzip for all": (gzip.compress(WARC), Format("warc", "gzip", split=False)),
    "zstd a record": (b"".join(map(zstandard.compress, pages(3))), Format("warc", "zstd")),
    "one zstd for all": (zstandard.compress(WARC), Format("warc", "zstd", split=False)),
    "line ends first": (gzip.compress(b"\r\n" + pages(1)[0]), Format("warc", "gzip")),
    "first member damaged": (b"\x1f\x8b\x08\0" + bytes(40) + b"".join(members(pages(2))), Format("warc", "gzip")),
    "no magic at the start": (b"junk" + b"".join(members(pages(2))), Format("warc", "gzip")),
    "first letter damaged": (b"w" + WARC[1:], Format("warc")),
    "first zstd frame damaged": (bytes(4) + b"".join(map(zstandard.compress, pages(3)))[4:], Format("warc", "zstd")),
    "skippable frame first": (SKIPPABLE + b"".join(map(zstandard.compress, pages(3))), Format("warc", "zstd")),
    "damaged dictionary": (DICTIONARY + b"".join(map(zstandard.compress, pages(3))), Format("warc", "zstd")),
    "JSON Lines": (LINES, Format("jsonl")),
    "JSON Lines with BOM": (b"\xef\xbb\xbf" + LINES, Format("jsonl")),
    "JSON Lines, gzip": (gzip.compress(LINES), Format("jsonl", "gzip", split=False)),
    "JSON Lines, zstd": (zstandard.compress(LINES), Format("jsonl", "zstd", split=False)),
    "Parquet": (parquet_bytes(), Format("parquet")),
    "empty": (b"", Format("empty")),
    "ARC": (b"filedesc://x.arc 127.0.0.1 20140301000000 text/plain 75\n", Format("arc")),
    "WAT": (b"".join(members([WAT.partition(b"WARC/1.0\r\nWARC-Type: metadata")[0], record(b"{}", "metadata", content_type="application/json")])), Format("wat", "gzip")),
    "JSON array": (json.dumps([1]).encode(), Format("json")),
    "HTML": (b"<html>404</html>", Format("unknown")),
    "HTML, gzip": (gzip.compress(b"<html>404</html>"), Format("unknown", "gzip", split=False)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_format_is_told_by_the_bytes(name: str, tmp_path: Path) -> None:
    data, expected = CASES[name]
    path = tmp_path / "name-says-nothing.parquet"
    path.write_bytes(data)
    assert sniff(str(path)) == expected


def test_a_metadata_record_alone_makes_no_wat_file(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(
        b"".join(
            members(
                [record(b"fetchTimeMs: 1", "metadata", content_type="application/warc-fields"), *pages(1)]
            )
        )
    )
    assert sniff(str(path)).kind == "warc"


def test_a_file_whose_first_record_is_huge_is_sniffed_without_reading_it_all(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(b"".join(members([record(http(b"x" * 3_000_000)), *pages(1)])))
    assert sniff(str(path)) == Format("warc", "gzip")


@needs_samples
def test_real_files_are_what_their_collections_say() -> None:
    kinds = {Path(path).name: sniff(path).kind for path in sample_files()}
    refused = {name: kind for name, kind in kinds.items() if kind != "warc"}
    assert refused == {
        "chatnoir-resiliparse__warcfile.warc.lz4": "lz4",
        "warcio__bad.arc": "arc",
        "warcio__example.arc.gz": "arc",
        "whirlwind-python__whirlwind.warc.wat.gz": "wat",
    }


@pytest.mark.parametrize("kind", ["arc", "lz4", "wat", "json", "unknown"])
def test_a_refusal_names_the_file_and_what_to_do(kind: str) -> None:
    message = str(refusal("crawl/x.gz", kind))
    assert message.startswith("crawl/x.gz is ")
    assert "leave it out" in message


def test_a_missing_file_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"nowhere\.warc cannot be opened"):
        sniff("nowhere.warc")
