"""The places of a sample: spread over all files, the same for a seed, nothing twice."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.jobs.cost.places import choose, grouped, strata_of
from corpusmill.jobs.cost.requests import Requests, requests
from corpusmill.pipeline.engine.stage import Unit
from corpusmill.pipeline.extract.places import Place


def unit(index: int, name: str, end: int, **other: object) -> Unit:
    span = {"path": name, "relative": name, "source": "web", "kind": "warc", "compression": "gzip"}
    return Unit(index, end, {"spans": [{**span, "split": True, "start": 0, "end": end} | other]})


def crawl_of(files: int, size: int = 1_000_000) -> list[Unit]:
    return [unit(i, f"{i:03d}.warc.gz", size) for i in range(files)]


def ranges(places: list[Place]) -> list[tuple[str, int, int]]:
    return [(place.span.relative, place.span.start, place.span.end) for place in places]


@given(st.integers(0, 2**63), st.integers(1, 40))
def test_places_spread_over_all_files_however_many_are_taken(seed: int, count: int) -> None:
    """Golden-ratio steps leave gaps of at most three lengths: no run of files longer than 3/count of all is without a place."""
    (stratum,) = strata_of(crawl_of(100), seed, "text")
    places = choose(stratum, count, 10_000, 10, 1e-3)
    assert len(places) == count
    hit = sorted({int(place.span.relative[:3]) for place in places})
    gaps = [b - a for a, b in zip([hit[-1] - 100, *hit], hit, strict=False)]
    assert max(gaps) <= 3 * 100 / count + 2


@given(st.integers(0, 2**63), st.integers(1, 20), st.integers(0, 20))
def test_a_larger_sample_holds_the_places_of_a_smaller_one(seed: int, few: int, more: int) -> None:
    (stratum,) = strata_of(crawl_of(7), seed, "text")
    small, large = (choose(stratum, n, 50_000, 10, 1e-3) for n in (few, few + more))
    assert ranges(large)[:few] == ranges(small)


def test_a_small_corpus_is_taken_whole_and_nothing_twice() -> None:
    (stratum,) = strata_of(crawl_of(3, size=25_000), 17, "text")
    places = ranges(choose(stratum, 50, 10_000, 10, 1e-3))
    assert sorted(places) == [
        (f"{i:03d}.warc.gz", start, min(25_000, start + 10_000))
        for i in range(3)
        for start in (0, 10_000, 20_000)
    ]


def test_seeds_choose_differently_and_sources_and_kinds_are_strata_of_their_own() -> None:
    one, other = (choose(strata_of(crawl_of(50), s, "text")[0], 5, 9_000, 9, 1e-3) for s in (1, 2))
    assert ranges(one) != ranges(other)
    units = [*crawl_of(2), unit(2, "b.jsonl", 10, kind="jsonl"), unit(3, "c.gz", 10, source="news")]
    refused = unit(4, "old.arc", 10, kind="arc")
    names = [stratum.name() for stratum in strata_of([*units, refused], 17, "text")]
    assert names == ["news/warc/gzip", "web/jsonl/gzip", "web/warc/gzip"]


def test_of_a_file_without_another_entrance_a_share_is_taken() -> None:
    units = [unit(i, f"{i}.jsonl.gz", 1_000_000, kind="jsonl", split=False) for i in range(4)]
    (stratum,) = strata_of(units, 17, "text")
    places = choose(stratum, 2, 10_000, 50, 1e-3)  # 1,000 documents a file
    assert [(place.span.start, place.span.end, place.share) for place in places] == [(0, 1_000_000, 0.05)] * 2


def test_of_parquet_a_place_is_a_row_group(tmp_path: Path) -> None:
    path = tmp_path / "dump.parquet"
    pq.write_table(pa.table({"body": ["a text"] * 1000}), path, row_group_size=250)
    units = [unit(0, str(path), 1000, kind="parquet", compression=None)]
    (stratum,) = strata_of(units, 17, "body")
    places = choose(stratum, 9, 1, 25, 1.0)
    found = sorted((place.span.start, place.span.end) for place in places)
    assert found == [(0, 250), (250, 500), (500, 750), (750, 1000)]
    assert {place.share for place in places} == {0.1}


def test_requests_are_counted_from_the_layout() -> None:
    """Two files of 20 MB in two ranges each: 2 reads of 8 MiB a range and one look at the beginning; 2 looks for each of the six."""
    halves = [(0, 10_000_000), (10_000_000, 20_000_000)]
    units = [
        unit(i, f"{i // 2}.warc.gz", halves[i % 2][1], start=halves[i % 2][0], remote={"x": 1})
        for i in range(4)
    ]
    assert requests(units, []) == Requests(input_lists=1, input_looks=12, input_gets=10, out_puts=0)
    assert requests(crawl_of(3), []) == Requests(0, 0, 0, 0)


def test_units_of_a_sample_differ_in_size() -> None:
    (stratum,) = strata_of(crawl_of(50), 17, "text")
    places = choose(stratum, 10, 9_000, 9, 1e-3)
    batches = grouped(3, places)
    assert [len(batch.places) for batch in batches] == [1, 3, 1, 3, 1, 1]
    assert [place for batch in batches for place in batch.places] == places
    assert {batch.stratum for batch in batches} == {3}
