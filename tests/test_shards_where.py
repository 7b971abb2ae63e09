"""From a document to all its samples: exactly those that a look at every sample finds."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_samples import Sample, documents, small_shards, write_shards

from corpusmill.pipeline.errors import CursorError, ShardError
from corpusmill.shards import locate, where
from corpusmill.shards.hide import hide_document
from corpusmill.shards.mixture import BORDER, PPB, Mixture, Step
from corpusmill.shards.order import ComponentOrder
from corpusmill.shards.plan import Phase
from corpusmill.shards.reader import Shards
from corpusmill.shards.sidecar import Wanted

TOTAL = 700  # three epochs or so


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards")
    samples = [
        Sample("books", [documents(1, 30), documents(2, 20, longest=90)]),
        Sample("code", [documents(3, 12)], rows_per_block=3),
        Sample("web", [documents(4, 25)], rows_per_block=64),
    ]
    phases = [
        Phase(0, {"books": 500_000_000, "code": 100_000_000, "web": 400_000_000}),
        Phase(333, {"books": 200_000_000, "web": 800_000_000}, ramp=100),
    ]
    write_shards(root, samples, phases, total=TOTAL)
    return root


def test_a_look_at_every_sample_finds_what_where_says_of_every_document(shards: Path) -> None:
    seen: dict[tuple[str, str], list[tuple[int, int, int, int, int, int]]] = {}
    for sample in locate(shards, 0, TOTAL):
        for piece in sample.pieces:
            time = (sample.sample, sample.epoch, sample.row, piece.start, piece.end, piece.token)
            seen.setdefault((sample.component, piece.id), []).append(time)
    names = {id for _, id in seen}
    for id in names:
        for found in where(shards, id=id):  # ids of the samples count from 0 in each component
            document = found.document
            times = [tuple(asdict(time).values()) for time in found.times]
            assert times == seen.get((document.component, id), [])
    assert {len(where(shards, id=id)) for id in names} == {1, 2, 3}


@settings(deadline=None, max_examples=15)
@given(sample=st.integers(0, TOTAL - 1))
def test_where_of_what_locate_finds_leads_back(shards: Path, sample: int) -> None:
    (located,) = locate(shards, sample)
    for piece in located.pieces:
        assert piece.url is not None
        (found,) = where(shards, url=piece.url)
        assert any(
            (time.sample, time.start, time.end) == (sample, piece.start, piece.end) for time in found.times
        )


def test_an_address_an_id_and_any_byte_of_the_record_name_the_same_document(shards: Path) -> None:
    (by_url,) = where(shards, url="https://books.example/33")
    assert by_url in where(shards, id=(33).to_bytes(16, "big").hex())
    first, last = 33_000, 33_000 + 900 + 3 - 1  # offset and length that shard_samples gives to it
    for offset in (first, last):
        assert where(shards, warc=("books.warc.gz", offset)) == [by_url]
    with pytest.raises(ShardError, match=r"no document books\.warc\.gz:33903"):
        where(shards, warc=("books.warc.gz", last + 1))


def test_until_cuts_the_answer_and_nothing_else(shards: Path) -> None:
    (whole,) = where(shards, url="https://web.example/7")
    for until in (0, whole.times[0].sample, whole.times[0].sample + 1, 350, TOTAL):
        (cut,) = where(shards, url="https://web.example/7", until=until)
        assert cut.times == tuple(time for time in whole.times if time.sample < until)
    assert json.loads(json.dumps(asdict(whole)))["document"]["url"] == "https://web.example/7"


def test_a_plan_without_end_needs_to_be_told_how_far_to_look(tmp_path: Path) -> None:
    small_shards(tmp_path)
    with pytest.raises(CursorError, match="--until N"):
        where(tmp_path, url="https://web.example/7")
    (far,) = where(tmp_path, url="https://web.example/7", until=3000)
    assert {located.sample for time in far.times for located in locate(tmp_path, time.sample)} == {
        time.sample for time in far.times
    }


@pytest.mark.parametrize("until", [-1, TOTAL + 1])
def test_an_end_beyond_the_plans_is_refused(shards: Path, until: int) -> None:
    with pytest.raises(CursorError, match=f"plan has 0 to {TOTAL - 1}"):
        where(shards, url="https://web.example/7", until=until)


def test_more_times_than_can_be_held_are_refused_instead_of_counted_one_by_one(tmp_path: Path) -> None:
    small_shards(tmp_path)
    with pytest.raises(CursorError, match=r"look to a lower one"):
        where(tmp_path, url="https://web.example/7", until=1 << 60)


def test_a_document_that_is_not_there_or_not_named_once_is_refused(shards: Path) -> None:
    with pytest.raises(ShardError, match=r"no document https://nowhere\.example"):
        where(shards, url="https://nowhere.example")
    with pytest.raises(ShardError, match="give one of them"):
        where(shards)
    with pytest.raises(ShardError, match="give one of them"):
        where(shards, url="https://web.example/7", id="0" * 32)
    with pytest.raises(ShardError, match="32 hex digits"):
        where(shards, id="7")


def test_a_damaged_sidecar_is_named_before_an_answer_that_may_lack_something(tmp_path: Path) -> None:
    small_shards(tmp_path, total=100)
    sidecar = tmp_path / "fp" / "web" / "docs-00000.parquet"
    data = bytearray(sidecar.read_bytes())
    data[len(data) // 2] ^= 4
    sidecar.write_bytes(data)
    with pytest.raises(ShardError, match=r"web/docs-00000\.parquet is damaged"):
        where(tmp_path, url="https://books.example/3")


# The inverses


@settings(deadline=None, max_examples=40)
@given(
    block_rows=st.lists(st.integers(1, 9), min_size=1, max_size=40),
    window=st.integers(1, 50),
    epoch=st.integers(0, 10**6),
)
def test_places_are_the_inverse_of_an_epochs_order(block_rows: list[int], window: int, epoch: int) -> None:
    order = ComponentOrder("a", 3, window, np.array(block_rows))
    _, rows = order.take(epoch * order.rows, order.rows)
    assert np.array_equal(order.places(epoch, rows), np.arange(order.rows))


WEIGHTS = st.lists(
    st.lists(st.sampled_from([0, 1, 3, 50_000, 244_000, 10**6, 10**8, 3 * 10**8]), min_size=3, max_size=3),
    min_size=1,
    max_size=4,
)


@settings(deadline=None, max_examples=30)
@given(weights=WEIGHTS, length=st.integers(1, 3 * BORDER), far=st.integers(0, 10**14))
def test_the_sample_of_a_count_is_the_one_that_brings_it(
    weights: list[list[int]], length: int, far: int
) -> None:
    """The last of four components takes what the others leave."""
    mixture = Mixture([Step(i * length, (*each, PPB - sum(each))) for i, each in enumerate(weights)])
    for sample in {0, length - 1, length, 3 * length + 5, far}:
        before, after = mixture.counts(sample), mixture.counts(sample + 1)
        (component,) = (i for i in range(4) if after[i] > before[i])
        assert mixture.sample_of(component, before[component]) == sample


def test_a_count_that_never_comes_has_no_sample() -> None:
    mixture = Mixture([Step(0, (PPB // 2, PPB // 2)), Step(10, (PPB, 0))])
    assert mixture.sample_of(1, 4) is not None and mixture.sample_of(1, 5) is None


def test_a_document_of_a_plan_of_a_trillion_samples_is_found_without_walking(tmp_path: Path) -> None:
    write_shards(tmp_path, [Sample("only", [documents(1, 400)])], {"only": PPB})
    opened = Shards(tmp_path)
    (row,) = {locate(tmp_path, 10**12)[0].row}
    assert (10**12, 10**12 // opened.components[0].manifest.rows, row) in opened.order.when(
        0, np.array([row]), 10**12 - 5, 10**12 + 5
    )


@pytest.mark.parametrize(
    "named",
    [
        {"url": 5},
        {"url": "\udcff"},
        {"warc": ("\udcff", 3)},
        {"warc": ("web.warc.gz", 1 << 63)},
        {"id": b"x"},
    ],
)
def test_what_cannot_name_a_document_is_said_and_not_looked_for(shards: Path, named: dict) -> None:
    with pytest.raises(ShardError, match=r"names no document|no byte of"):
        where(shards, **named)


@pytest.mark.parametrize("sample", ["5", None, 1.5])
def test_what_is_no_samples_number_is_said(shards: Path, sample: Any) -> None:
    for ask in (
        lambda: locate(shards, sample),
        lambda: where(shards, url="https://web.example/7", until=sample or "x"),
        lambda: hide_document(shards, Wanted(url="https://web.example/7"), sample, "odd"),
    ):
        with pytest.raises(CursorError, match="a whole number is needed"):
            ask()
