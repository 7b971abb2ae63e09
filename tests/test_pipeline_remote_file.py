"""Remote files as streams: any reads give the file's bytes, and ask for little more than they need."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_server import Site, web_server

from corpusmill.pipeline import remote_file, web
from corpusmill.pipeline.engine.inputs import find_inputs
from corpusmill.pipeline.extract import parquet
from corpusmill.pipeline.extract.jsonl import Keys
from corpusmill.pipeline.extract.rows import Tally
from corpusmill.pipeline.input import Input
from corpusmill.pipeline.remote import Access, Unreachable
from corpusmill.pipeline.remote_file import BLOCK, SMALL, Blocks, RemoteFile

DATA = bytes(range(251)) * 1000


@dataclass
class Counted:
    """A reader of bytes in memory that keeps what it was asked for."""

    data: bytes
    asked: list[tuple[int, int]] = field(default_factory=list)

    def read(self, start: int, end: int) -> bytes:
        assert 0 <= start < end <= len(self.data)
        self.asked.append((start, end))
        return self.data[start:end]

    def settle(self) -> None:
        pass


@given(
    st.lists(st.tuples(st.integers(0, len(DATA) + 9), st.integers(0, 70_000)), max_size=12),
    st.tuples(st.integers(0, len(DATA)), st.integers(0, len(DATA))),
    st.sampled_from([1000, 5000, 1 << 20]),
    st.sampled_from([10, 700]),
)
def test_any_reads_give_the_files_bytes(
    reads: list[tuple[int, int]], expected: tuple[int, int], block: int, small: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote_file, "BLOCK", block)
        patch.setattr(remote_file, "SMALL", small)
        blocks = Blocks(Counted(DATA), len(DATA))
        blocks.expect(*sorted(expected))
        stream = io.BufferedReader(blocks, 100)
        for at, size in reads:
            stream.seek(at)
            assert stream.read(size) == DATA[at : at + size]
            assert sum(len(data) for _, data in blocks.blocks) <= 2 * max(block, small, 100)


def test_an_expected_range_is_asked_for_in_whole_blocks_and_not_beyond() -> None:
    reader = Counted(bytes(3 * BLOCK))
    blocks = Blocks(reader, 3 * BLOCK)
    blocks.expect(1000, 2 * BLOCK)
    blocks.seek(1000)
    stream = io.BufferedReader(blocks, SMALL)
    while stream.tell() < 2 * BLOCK:
        stream.read(10_000)
    assert reader.asked[:2] == [(1000, 1000 + BLOCK), (1000 + BLOCK, 2 * BLOCK)]
    assert reader.asked[2:] in ([], [(2 * BLOCK, 2 * BLOCK + SMALL)])


def test_looking_over_the_end_of_a_range_and_back_asks_for_nothing_twice() -> None:
    reader = Counted(bytes(3 * BLOCK))
    blocks = Blocks(reader, 3 * BLOCK)
    blocks.expect(0, BLOCK)
    stream = io.BufferedReader(blocks, SMALL)
    for at in (0, BLOCK - 900_000, BLOCK - 500_000, 1000, BLOCK - 100_000, BLOCK - 900_000):
        stream.seek(at)
        stream.read(1 << 20)
    assert reader.asked[0] == (0, BLOCK)
    assert all(start >= BLOCK for start, _ in reader.asked[1:])
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(sorted(reader.asked)))


def test_reads_that_follow_one_another_grow_and_others_stay_small() -> None:
    reader = Counted(bytes(BLOCK))
    stream = io.BufferedReader(Blocks(reader, BLOCK), SMALL)
    for _ in range(100):
        stream.read(10_000)
    sizes = [end - start for start, end in reader.asked]
    assert sizes == [SMALL, 2 * SMALL, 4 * SMALL, 8 * SMALL, 16 * SMALL]
    reader.asked.clear()
    for at in (7_000_000, 3_000_000, 5_000_000):
        stream.seek(at)
        stream.read(8)
    assert [end - start for start, end in reader.asked] == [SMALL] * 3


def test_a_remote_file_travels_as_json() -> None:
    file = RemoteFile("s3://b/k", 7, "2024-01-01T00:00:00Z", True, Access("http://h:1", "r", True))
    assert RemoteFile.from_json(file.to_json()) == file


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    table = pa.table({"text": [f"text number {n} " * 30 for n in range(20_000)]})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=2500, compression="none")
    with web_server(tmp_path) as site:
        yield site


def test_parquet_is_read_by_its_footer_and_the_row_groups_that_are_wanted(site: Site) -> None:
    (file,) = find_inputs([Input(site.url("rows.parquet"))])
    assert parquet.groups(file.address, "text").starts == tuple(range(0, 20_001, 2500))
    site.asked.clear()
    drafts = list(parquet.drafts(file.address, 2500, 5000, "web", "rows.parquet", Keys(), Tally()))
    assert [draft.offset for draft in drafts] == list(range(2500, 5000))
    came = sum(
        asked.last - asked.first + 1
        for asked in site.asked
        if asked.first is not None and asked.last is not None
    )
    assert came < file.size_bytes / 2, "an eighth of the rows and the footer"


def test_a_server_that_fails_is_no_damage_of_the_parquet_file(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = find_inputs([Input(site.url("rows.parquet"))])
    monkeypatch.setattr(web.time, "sleep", lambda _: None)
    site.always["rows.parquet"] = "503"
    with pytest.raises(Unreachable, match="answers 503"):
        parquet.groups(file.address, "text")
    site.always, site.honest = {"rows.parquet": "503"}, {"rows.parquet": 1}
    with pytest.raises(Unreachable, match="answers 503"):
        list(parquet.drafts(file.address, 0, 20_000, "web", "rows.parquet", Keys(), Tally()))
