from __future__ import annotations

import gzip
import json
import random
import zlib
from pathlib import Path

import pytest
import xxhash
import zstandard
from extract_runs import (
    Memory,
    article,
    extract,
    http,
    inputs,
    laid_out,
    members,
    needs_samples,
    pages,
    record,
    sample_files,
)

from corpusmill.pipeline.documents import DOCUMENTS, document_id
from corpusmill.pipeline.errors import InputError, RecipeError
from corpusmill.pipeline.extract.operation import Extract, tiles
from corpusmill.pipeline.registry import build

EXTRAS = [
    record(b"software: x\r\n", "warcinfo", 0, "application/warc-fields"),
    record(b"GET / HTTP/1.1\r\n\r\n", "request", 1),
    record(http(b"<p>x", status="404 Not Found"), number=2),
    record(b"a: b\r\n", "metadata", 3, "application/warc-fields"),
    record(http(b""), "revisit", 4),
    record(b"odd", "invented", 5, "text/plain"),
    record(b"Nur ein Satz.", "conversion", 6, "text/plain"),
    record(article(7).encode(), "resource", 7, "text/html"),
]


@pytest.fixture
def crawl(tmp_path: Path) -> Path:
    path = tmp_path / "crawl.warc.gz"
    path.write_bytes(b"".join(members([*EXTRAS, *pages(30, start=10)])))
    return path


def test_every_record_is_a_row_or_counted_by_type(crawl: Path) -> None:
    found = extract([crawl])
    assert found.table.schema.equals(DOCUMENTS, check_metadata=True)
    assert found.counts == {
        "record.warcinfo": 1,
        "record.request": 1,
        "record.response": 31,
        "record.metadata": 1,
        "record.revisit": 1,
        "record.unknown": 1,
        "record.conversion": 1,
        "record.resource": 1,
        "rows": 33,
        "kept": 32,
        "dropped.http_status": 1,
    }
    assert found.column("text")[1] == "Nur ein Satz."


def test_a_row_knows_where_it_comes_from(crawl: Path) -> None:
    data = crawl.read_bytes()
    found = extract([crawl])
    for row in found.table.to_pylist():
        place = row["origin"]
        assert row["id"] == document_id("web", "crawl.warc.gz", place["offset"])
        stored = zlib.decompress(data[place["offset"] : place["offset"] + place["length"]], 31)
        assert f"WARC-Record-ID: {row['record_id']}\r\n".encode() in stored
        assert f"WARC-Target-URI: {row['url']}\r\n".encode() in stored
        assert row["date"].isoformat() == "2026-03-01T12:00:00+00:00"
    first = json.loads(found.column("meta")[-1])
    assert first == {
        "charset": "utf-8",
        "charset_by": "utf-8",
        "mime": "text/html",
        "status": 200,
        "title": "Report 39",
    }


@pytest.mark.parametrize("size", [150, 700, 2_000, 5_000, 1 << 20])
def test_any_partition_size_gives_the_same_rows_in_the_same_order(crawl: Path, size: int) -> None:
    whole = extract([crawl])
    cut = extract([crawl], partition_bytes=size)
    assert cut.table.equals(whole.table)
    assert cut.counts == whole.counts
    assert cut.redone == 0


def test_text_does_not_depend_on_what_stands_around_a_page(tmp_path: Path) -> None:
    records = pages(40) + pages(5)  # some pages twice
    texts = []
    for seed in range(3):
        random.Random(seed).shuffle(records)
        path = tmp_path / f"{seed}.warc.gz"
        path.write_bytes(b"".join(members(records)))
        found = extract([path], **{"with": "trafilatura"})
        texts.append(dict(zip(found.column("url"), found.column("text"), strict=True)))
        assert None not in texts[-1].values()
    assert texts[0] == texts[1] == texts[2]


def test_a_warc_file_inside_a_warc_file_is_noticed_and_read_as_one(tmp_path: Path) -> None:
    inner = b"".join(members(pages(40, start=100)))
    stored = zlib.compressobj(0, wbits=31)
    outer = (
        stored.compress(record(http(inner, ["Content-Type: application/warc"]), number=50)) + stored.flush()
    )
    path = tmp_path / "a.warc.gz"
    path.write_bytes(b"".join([*members(pages(3)), outer, *members(pages(3, start=60))]))
    whole = extract([path])
    assert whole.counts["rows"] == 7
    cut = extract([path], partition_bytes=path.stat().st_size // 4 + 1)
    assert cut.redone == 4
    assert cut.table.equals(whole.table)


def test_a_plain_warc_file_inside_a_plain_one_is_noticed_too(tmp_path: Path) -> None:
    inner = b"".join(pages(40, start=100))
    path = tmp_path / "a.warc"
    path.write_bytes(
        b"".join(
            [
                *pages(3),
                record(http(inner, ["Content-Type: application/warc"]), number=50),
                *pages(3, start=60),
            ]
        )
    )
    whole = extract([path])
    assert whole.counts["rows"] == 7 and "bad_record" not in whole.counts
    cut = extract([path], partition_bytes=path.stat().st_size // 5)
    assert cut.redone > 0
    assert cut.table.equals(whole.table)


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_one_stream_for_all_records_is_one_partition_with_offsets_in_the_inflated_stream(
    tmp_path: Path, compression: str
) -> None:
    records = pages(20)
    compress = gzip.compress if compression == "gzip" else zstandard.compress
    path = tmp_path / "a.warc.gz"
    path.write_bytes(compress(b"".join(records)))
    found = extract([path], partition_bytes=500)
    assert found.partitions == 1
    assert [origin["offset"] for origin in found.column("origin")] == [
        sum(map(len, records[:i])) for i in range(20)
    ]
    assert all(json.loads(meta)["offset_in"] == "inflated" for meta in found.column("meta"))
    assert found.counts["kept"] == 20


@pytest.mark.parametrize("size", [600, 1 << 20])
def test_members_with_many_records_after_single_ones_are_read_as_one_stream(
    tmp_path: Path, size: int
) -> None:
    records = pages(20)
    path = tmp_path / "a.warc.gz"
    path.write_bytes(
        gzip.compress(records[0]) + gzip.compress(b"".join(records[1:12])) + b"".join(members(records[12:]))
    )
    found = extract([path], partition_bytes=size)
    assert found.counts["kept"] == 20 and len(set(found.column("id"))) == 20
    assert found.column("origin")[5]["offset"] == sum(map(len, records[:5]))


def test_a_cut_one_stream_file_gives_what_precedes_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    packed = gzip.compress(b"".join(pages(200)))
    path.write_bytes(packed[: len(packed) * 2 // 3])
    found = extract([path], **{"with": "resiliparse"})
    assert 100 < found.counts["kept"] < 200
    assert found.counts["bad_record"] == 2  # the stream, and the record in which it ends


def test_damage_is_listed_with_file_and_place_and_costs_one_record(tmp_path: Path) -> None:
    parts = members(pages(10))
    at = sum(map(len, parts[:4]))
    parts[4] = parts[4][:40] + bytes(20) + parts[4][60:]
    path = tmp_path / "a.warc.gz"
    path.write_bytes(b"".join(parts))
    found = extract([path])
    assert (found.counts["kept"], found.counts["bad_record"]) == (9, 1)
    (damage,) = found.damage
    assert (damage["file"], damage["offset"], damage["end"]) == ("a.warc.gz", at, at + len(parts[4]))
    assert damage["reason"].startswith("gzip")


def test_damage_is_counted_whole_but_listed_up_to_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(b"".join(part for each in members(pages(150)) for part in (each, b"junk")))
    found = extract([path], **{"with": "resiliparse"})
    assert (found.counts["kept"], found.counts["bad_record"], len(found.damage)) == (150, 150, 100)


def test_a_record_past_the_size_bound_is_dropped_without_being_held(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(b"".join(members([record(http(b"x" * 2_000_000)), *pages(1)])))
    found = extract([path], limits={"max_bytes": 1_000_000})
    assert found.column("reason") == ["too_large", None]


def test_files_of_no_use_are_ledger_lines_in_a_glob_and_errors_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.arc").write_bytes(b"filedesc://x.arc 0.0.0.0 20140301000000 text/plain 75\n")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"<html>404</html>"))
    (tmp_path / "c.warc").write_bytes(pages(1)[0])
    (tmp_path / "d.warc").write_bytes(b"")
    paths = sorted(tmp_path.iterdir())
    found = extract(paths)
    assert found.counts == {
        "file_refused.arc": 1,
        "file_refused.unknown": 1,
        "file_empty": 1,
        "record.response": 1,
        "rows": 1,
        "kept": 1,
    }
    operation = Extract().operation(17)
    for path in paths[:2]:
        with pytest.raises(InputError, match=path.name):
            operation.units(laid_out(inputs([path], named=True), 1000))


def test_a_refused_file_is_named_by_its_unit_with_a_limit_too(tmp_path: Path) -> None:
    for name in "ac":
        (tmp_path / f"{name}.jsonl").write_bytes(b'{"text": "a line"}\n')
    (tmp_path / "b.txt").write_bytes(b"neither of them")
    files = inputs(sorted(tmp_path.iterdir()))
    for limit in (None, 1, 2):
        operation = Extract().operation(17, limit=limit)
        results = [operation.run(unit, Memory()) for unit in operation.units(laid_out(files, 1000))]
        refused = [each.extra["file"] for each in results if each.counts.get("file_refused.unknown")]
        assert refused == ["b.txt"]
        assert sum(each.rows for each in results) == (limit or 2)


@pytest.mark.parametrize("limit", [1, 7, 33, 1000])
def test_limit_takes_the_first_documents_in_order(crawl: Path, tmp_path: Path, limit: int) -> None:
    second = tmp_path / "second.jsonl"
    second.write_text('{"text": "x"}\n' * 5)
    whole = extract([crawl, second], partition_bytes=1000)
    some = extract([crawl, second], partition_bytes=1000, limit=limit)
    assert some.partitions == 1
    assert some.table.equals(whole.table.slice(0, limit).combine_chunks())


def test_sample_is_a_keyed_choice_by_id(crawl: Path) -> None:
    whole = extract([crawl])
    some = extract([crawl], sample=0.4, partition_bytes=3000)
    chosen = [id for id in whole.column("id") if xxhash.xxh3_64_intdigest(id, 17) / 2**64 < 0.4]
    assert some.column("id") == chosen and 3 < len(chosen) < 25
    assert some.counts["sampled_out"] == 33 - len(chosen)
    assert extract([crawl], sample=0.4, seed=18).column("id") != chosen
    assert extract([crawl], sample=1.0).table.equals(whole.table)


def test_a_page_that_raises_or_ends_its_process_is_a_failed_row(tmp_path: Path) -> None:
    from corpusmill.pipeline.extract.operation import ExtractDocuments
    from corpusmill.pipeline.extract.page import Settings

    words = ["fine", "segfault x", "spin x", "raise x", "fine too"]
    path = tmp_path / "a.warc"
    path.write_bytes(
        b"".join(record(word.encode(), "resource", i, "text/html") for i, word in enumerate(words))
    )
    operation = ExtractDocuments(page=Settings(extractor="hostile:extract", cpu_s=0.5))
    (unit,) = operation.units(laid_out(inputs([path]), 1 << 20))
    io = Memory()
    result = operation.run(unit, io)
    assert io.partitions[0]["failed"].to_pylist() == [
        None,
        "crash:SIGSEGV",
        "cpu_limit",
        "exception:LookupError",
        None,
    ]
    assert result.counts == {
        "record.resource": 5, "rows": 5, "kept": 2, "failed.crash:SIGSEGV": 1, "failed.cpu_limit": 1, "failed.exception:LookupError": 1,
    }  # fmt: skip


@needs_samples
@pytest.mark.parametrize("size", [4_000, 20_000, 1 << 30])
def test_real_files_account_for_every_record_at_any_partition_size(size: int) -> None:
    files = sample_files()
    found = extract(files, partition_bytes=size, **{"with": "resiliparse"})
    records = sum(count for name, count in found.counts.items() if name.startswith("record."))
    rows = sum(found.counts[f"record.{kind}"] for kind in ("response", "resource", "conversion"))
    assert records == _fastwarc_records(files)
    assert rows == found.counts["rows"] == found.table.num_rows
    outcomes = sum(
        count for name, count in found.counts.items() if name.startswith(("kept", "dropped.", "failed."))
    )
    assert outcomes == rows
    assert not [name for name in found.counts if name.startswith("failed.")]
    assert len(set(found.column("id"))) == rows


def _fastwarc_records(files: list[str]) -> int:
    from fastwarc.warc import ArchiveIterator

    count = 0
    for path in files:
        if not path.endswith((".lz4", ".arc", ".arc.gz", ".wat.gz")):
            with Path(path).open("rb") as file:
                count += sum(
                    1 for _ in ArchiveIterator(file, parse_http=False, quirks_mode=True, auto_decode="none")
                )
    return count


def test_ranges_meet_or_not() -> None:
    def ranges(*pairs: tuple[int | None, int | None]) -> list[dict[str, int | None]]:
        return [{"first": first, "next": after, "end": 100} for first, after in pairs]

    assert tiles(ranges((0, 40), (40, 100)))
    assert tiles(ranges((0, 100), (None, None)))
    assert tiles(ranges((0, 40), (None, None), (40, 100)))
    assert not tiles(ranges((0, 40), (50, 100)))
    assert not tiles(ranges((0, 40), (40, 90)))
    assert not tiles(ranges((None, None), (40, 100)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"with": "beautifulsoup"}, "with"),
        ({"extractor": "resiliparse"}, "unknown key"),
        ({"mimetypes": []}, "unknown key"),
        ({"limits": {"max_bites": 5}}, "unknown key"),
        ({"with": "resiliparse", "output": "markdown"}, "no markdown"),
        ({"memory_mb": 10}, "at least 512"),
    ],
)
def test_a_recipe_mistake_is_named(fields: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        build(Extract, fields, "extract")


@pytest.mark.parametrize(("sample", "limit"), [(0.0, None), (1.5, None), (None, 0)])
def test_sample_and_limit_have_bounds(sample: float | None, limit: int | None) -> None:
    with pytest.raises(RecipeError):
        Extract().operation(17, sample, limit)
