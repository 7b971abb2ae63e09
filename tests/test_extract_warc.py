from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

import pytest
import zstandard
from extract_runs import http, members, needs_samples, pages, record, sample_files
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.extract.formats import sniff
from corpusmill.pipeline.extract.source import Source
from corpusmill.pipeline.extract.warc import Damage, ManyRecords, RangeReader, Record, framing_of

CAP = 1 << 24


def read(
    data: bytes, compression: str | None, start: int = 0, end: int | None = None
) -> list[Record | Damage]:
    source = Source(io.BytesIO(data), "test")
    return list(RangeReader(framing_of(source, compression), start, source.size if end is None else end, CAP))


def read_in(
    data: bytes, compression: str | None, count: int
) -> tuple[list[Record | Damage], list[tuple[int, int]]]:
    """The items of `count` equal ranges one after the other, and (first, next) of those that hold a record."""
    source = Source(io.BytesIO(data), "test")
    items: list[Record | Damage] = []
    borders: list[tuple[int, int]] = []
    for i in range(count):
        reader = RangeReader(
            framing_of(source, compression), source.size * i // count, source.size * (i + 1) // count, CAP
        )
        items += reader
        if reader.first is not None and reader.next is not None:
            borders.append((reader.first, reader.next))
    return items, borders


def meets(borders: list[tuple[int, int]], size: int) -> bool:
    ends = [0, *(after for _, after in borders)]
    return [first for first, _ in borders] == ends[:-1] and ends[-1] == size


def offsets(items: list[Record | Damage]) -> list[int]:
    return [item.offset for item in items if isinstance(item, Record)]


def damage(items: list[Record | Damage]) -> list[tuple[int, int]]:
    return [(item.offset, item.end) for item in items if isinstance(item, Damage)]


def starts(parts: list[bytes]) -> list[int]:
    return [sum(map(len, parts[:i])) for i in range(len(parts) + 1)]


RECORDS = [record(b"software: x\r\n", "warcinfo", 0, "application/warc-fields"), *pages(7, start=1)]


@needs_samples
@pytest.mark.parametrize(
    "path",
    sample_files("*.warc.gz") + sample_files("*.warc") + sample_files("*.wet.gz"),
    ids=lambda p: Path(p).name,
)
def test_records_of_real_files_are_those_that_fastwarc_finds(path: str) -> None:
    from fastwarc.warc import ArchiveIterator

    form = sniff(path)
    with Source.open(path) as source:
        ours = [
            (item.offset, item.block_bytes, item.block, item.headers.get("warc-record-id"))
            for item in RangeReader(framing_of(source, form.compression), 0, source.size, CAP)
            if isinstance(item, Record)
        ]
    with Path(path).open("rb") as file:
        theirs = [
            (found.stream_pos, found.content_length, found.reader.read(), found.headers.get("WARC-Record-ID"))
            for found in ArchiveIterator(file, parse_http=False, quirks_mode=True, auto_decode="none")
        ]
    assert ours == theirs


@needs_samples
@pytest.mark.parametrize(
    "path", sample_files("*.warc.gz") + sample_files("*.warc"), ids=lambda p: Path(p).name
)
def test_ranges_of_real_files_add_up_to_the_whole(path: str) -> None:
    data = Path(path).read_bytes()
    compression = sniff(path).compression
    whole = read(data, compression)
    for count in range(1, 8):
        items, borders = read_in(data, compression, count)
        assert items == whole
        assert meets(borders, len(data))


@needs_samples
@pytest.mark.parametrize("path", sample_files("*.warc.gz"), ids=lambda p: Path(p).name)
def test_a_stored_slice_of_a_real_file_inflates_to_its_record(path: str) -> None:
    data = Path(path).read_bytes()
    for item in read(data, "gzip"):
        assert isinstance(item, Record)
        rest, plain = data[item.offset : item.offset + item.length], b""
        while rest:  # a record may go on in a second member
            inflater = zlib.decompressobj(31)
            plain += inflater.decompress(rest)
            rest = inflater.unused_data
        assert plain.lstrip(b"\r\n").startswith(b"WARC/")
        assert item.block in plain


@pytest.mark.parametrize("compression", [None, "gzip", "zstd"])
def test_ranges_add_up_to_the_whole_whatever_their_number(compression: str | None) -> None:
    parts = _compressed(RECORDS, compression)
    data = b"".join(parts)
    whole = read(data, compression)
    assert offsets(whole) == starts(parts)[:-1]
    assert [item.type for item in whole if isinstance(item, Record)] == ["warcinfo", *["response"] * 7]
    for count in range(1, 40):
        items, borders = read_in(data, compression, count)
        assert items == whole
        assert meets(borders, len(data))


def _compressed(records: list[bytes], compression: str | None) -> list[bytes]:
    if compression == "gzip":
        return members(records)
    return [zstandard.compress(each) for each in records] if compression == "zstd" else list(records)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([None, "gzip", "zstd"]),
    st.integers(1, 9),
    st.lists(st.tuples(st.integers(0, 10**6), st.binary(min_size=1, max_size=40)), max_size=3),
)
def test_damage_never_hides_a_byte_or_depends_on_the_ranges(
    compression: str | None, count: int, hits: list[tuple[int, bytes]]
) -> None:
    data = bytearray(b"".join(_compressed(RECORDS, compression)))
    for place, junk in hits:
        at = place % len(data)
        data[at : at + len(junk)] = junk[: len(data) - at]
    whole = read(bytes(data), compression)
    covered = sorted((item.offset, _end(item)) for item in whole)
    position = 0
    for offset, end in covered:  # every byte is in a record, in damage, or a line end between records
        assert not bytes(data[position:offset]).strip(b"\r\n")
        position = max(position, end)
    assert not bytes(data[position:]).strip(b"\r\n")
    items, borders = read_in(bytes(data), compression, count)
    assert not meets(borders, len(data)) or items == whole


def _end(item: Record | Damage) -> int:
    return item.end if isinstance(item, Damage) else item.offset + item.length


def test_a_damaged_member_costs_itself_alone() -> None:
    parts = members(RECORDS)
    at = starts(parts)
    parts[3] = parts[3][:60] + bytes(30) + parts[3][90:]
    items = read(b"".join(parts), "gzip")
    assert offsets(items) == [at[i] for i in (0, 1, 2, 4, 5, 6, 7)]
    assert damage(items) == [(at[3], at[4])]


def test_a_wrong_checksum_is_damage() -> None:
    parts = members(RECORDS)
    at = starts(parts)
    parts[2] = parts[2][:-8] + bytes(4) + parts[2][-4:]
    assert damage(read(b"".join(parts), "gzip")) == [(at[2], at[3])]


def test_junk_between_members_is_reported_and_passed_over() -> None:
    parts = members(RECORDS)
    at = starts(parts)
    items = read(b"".join(parts[:4]) + bytes(4096) + b"".join(parts[4:]), "gzip")
    assert len(offsets(items)) == 8
    assert damage(items) == [(at[4], at[4] + 4096)]


@pytest.mark.parametrize("left", [1, 5, 40, 300, -8, -1])
def test_a_cut_last_member_is_reported_wherever_the_cut_is(left: int) -> None:
    parts = members(RECORDS)
    at = starts(parts)
    data = b"".join(parts)
    data = data[: at[7] + left] if left > 0 else data[:left]
    items = read(data, "gzip")
    assert offsets(items) == at[:7]
    assert damage(items) == [(at[7], len(data))]


def test_a_cut_plain_file_is_reported() -> None:
    at = starts(RECORDS)
    data = b"".join(RECORDS)[:-300]
    items = read(data, None)
    assert offsets(items) == at[:7]
    assert items[-1] == Damage(at[7], len(data), "truncated")


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("length", ["9000", "-4", "99999999999999999999999", "many", ""])
def test_a_wrong_length_does_not_swallow_the_next_records(compression: str | None, length: str) -> None:
    records = [*RECORDS[:3], record(http(b"<p>short</p>"), number=99, length=length), *RECORDS[3:]]
    parts = _compressed(records, compression)
    at = starts(parts)
    items = read(b"".join(parts), compression)
    assert offsets(items) == [at[i] for i in range(len(records)) if i != 3]
    assert damage(items) == [(at[3], at[4])]


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_record_longer_than_it_says_is_a_row_and_its_rest_is_reported(compression: str | None) -> None:
    records = [*RECORDS[:3], record(http(b"<p>0123456789</p>"), number=99, length=60), *RECORDS[3:]]
    items = read(b"".join(_compressed(records, compression)), compression)
    assert len(offsets(items)) == 9
    assert len(damage(items)) == 1


@pytest.mark.parametrize("compression", [None, "gzip", "zstd"])
def test_a_member_without_a_record_is_reported(compression: str | None) -> None:
    records = [*RECORDS[:2], b"WARX/1.0\r\nnot: a record\r\n\r\n" + b"x" * 500 + b"\r\n\r\n", *RECORDS[2:]]
    parts = _compressed(records, compression)
    at = starts(parts)
    items = read(b"".join(parts), compression)
    assert len(offsets(items)) == 8
    assert [begin for begin, _ in damage(items)] == [at[2]]


def test_a_record_may_go_on_in_the_next_member() -> None:
    first = RECORDS[1]
    parts = members([first[:400], first[400:], *RECORDS[2:]])
    items = read(b"".join(parts), "gzip")
    assert len(offsets(items)) == 7 and not damage(items)
    assert isinstance(items[0], Record)
    assert items[0].length == len(parts[0]) + len(parts[1])
    assert items[0].block == first.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n\r\n")


def test_line_ends_between_members_are_no_damage() -> None:
    data = b"\r\n".join(members(RECORDS)) + b"\r\n"
    items = read(data, "gzip")
    assert len(offsets(items)) == 8 and not damage(items)
    for count in range(2, 12):
        again, borders = read_in(data, "gzip", count)
        assert again == items and meets(borders, len(data))


def test_a_warc_file_stored_inside_a_member_fools_ranges_and_they_do_not_meet() -> None:
    inner = b"".join(members(pages(40, start=100)))
    stored = zlib.compressobj(0, wbits=31)
    outer = (
        stored.compress(record(http(inner, ["Content-Type: application/warc"]), number=50)) + stored.flush()
    )
    data = b"".join([*members(RECORDS[:2]), outer, *members(RECORDS[2:])])
    whole = read(data, "gzip")
    assert len(offsets(whole)) == 9 and not damage(whole)
    _, borders = read_in(data, "gzip", 4)
    assert not meets(borders, len(data))


def test_members_with_many_records_are_refused_in_ranges() -> None:
    data = gzip.compress(RECORDS[0]) + gzip.compress(b"".join(RECORDS[1:]))
    with pytest.raises(ManyRecords):
        read(data, "gzip")


def test_zstd_files_with_a_dictionary_are_read_from_any_frame() -> None:
    dictionary = zstandard.ZstdCompressionDict(b"".join(RECORDS)[:4000], zstandard.DICT_TYPE_RAWCONTENT)
    compress = zstandard.ZstdCompressor(dict_data=dictionary).compress
    for stored in (dictionary.as_bytes(), zstandard.compress(dictionary.as_bytes())):
        frame = (0x184D2A5D).to_bytes(4, "little") + len(stored).to_bytes(4, "little") + stored
        data = frame + b"".join(map(compress, RECORDS))
        whole = read(data, "zstd")
        assert [item.block for item in whole if isinstance(item, Record)] == [
            each.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n\r\n") for each in RECORDS
        ]
        for count in range(2, 9):
            items, borders = read_in(data, "zstd", count)
            assert items == whole and meets(borders, len(data))


def test_a_damaged_zstd_frame_costs_itself_alone() -> None:
    parts = [zstandard.ZstdCompressor(write_checksum=True).compress(each) for each in RECORDS]
    at = starts(parts)
    parts[2] = parts[2][:100] + bytes(20) + parts[2][120:]
    items = read(b"".join(parts), "zstd")
    assert offsets(items) == [at[i] for i in (0, 1, 3, 4, 5, 6, 7)]
    assert damage(items) == [(at[2], at[3])]


@pytest.mark.parametrize("before", [0, 3])
def test_a_skippable_frame_that_says_it_is_longer_than_the_file_hides_no_record(before: int) -> None:
    parts = [zstandard.compress(each) for each in RECORDS]
    parts.insert(before, b"\x50\x2a\x4d\x18" + (1 << 31).to_bytes(4, "little"))
    at = starts(parts)
    items = read(b"".join(parts), "zstd")
    assert offsets(items) == [at[i] for i in range(9) if i != before]
    assert damage(items) == [(at[before], at[before + 1])]


def test_damaged_line_ends_behind_a_bare_record_hide_no_record() -> None:
    at = starts(RECORDS)
    data = bytearray(b"".join(RECORDS))
    data[at[3] - 1] = ord("x")
    items = read(bytes(data), None)
    assert offsets(items) == at[:8]
    assert damage(items) == [(at[3] - 1, at[3])]


def test_a_block_is_kept_up_to_the_cap_and_its_size_is_known() -> None:
    data = gzip.compress(record(http(b"x" * 5_000_000)))
    source = Source(io.BytesIO(data), "test")
    (item,) = RangeReader(framing_of(source, "gzip"), 0, source.size, 1000)
    assert isinstance(item, Record)
    assert len(item.block) == 1000
    assert item.block_bytes == len(http(b"x" * 5_000_000))
