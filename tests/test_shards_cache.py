"""A cache that is too small for a stream says so, and how large it has to be; one of that size fetches hardly a block twice."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from shard_samples import Sample, documents, write_shards
from web_server import Site, web_server

from corpusmill.shards import stream
from corpusmill.shards.cache import Cache, least_bytes
from corpusmill.shards.reader import Shards

WINDOW = 4


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """Three components of over 60 blocks each, of which 480 samples read none twice."""
    root = tmp_path / "web" / "shards"
    samples = [Sample(name, [documents(seed, 60, 3000)], rows_per_block=3) for seed, name in enumerate("abc")]
    weights = {"a": 400_000_000, "b": 300_000_000, "c": 300_000_000}
    write_shards(root, samples, weights, length=256, window=WINDOW, total=480)
    return root


@pytest.fixture
def site(local: Path) -> Iterator[Site]:
    with web_server(local.parent) as site:
        yield site


def needed(local: Path) -> int:
    return least_bytes([reader.blocks["length"] for reader in Shards(local).components], WINDOW)


def read(site: Site, cache: Cache) -> tuple[int, int]:
    """(blocks fetched, how many there were among them)."""
    with stream(site.url("shards"), 8, cache=cache) as batches:
        for _ in batches:
            pass
        fetched = batches.stats().fetched_blocks
    asked = [(part.path, part.first) for part in site.asked if "part-" in part.path and part.last]
    return fetched, len(set(asked))


def test_a_cache_too_small_for_a_stream_says_once_how_large_it_has_to_be(
    site: Site, local: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    least = needed(local)
    fetched, blocks = read(site, Cache(tmp_path / "small", least // 4))
    assert fetched > 2 * blocks
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert f"holds {least // 4} bytes" in record.getMessage()
    assert f"Cache(FOLDER, {least})" in record.getMessage()


def test_a_cache_of_the_size_that_is_named_hardly_fetches_a_block_twice(
    site: Site, local: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fetched, blocks = read(site, Cache(tmp_path / "enough", needed(local)))
    assert 100 < blocks <= fetched < 1.25 * blocks
    assert not caplog.records


def test_what_a_cache_needs_is_two_windows_of_each_component_and_never_more_than_all_blocks() -> None:
    assert least_bytes([np.full(100, 10), np.full(50, 8)], 4) == 2 * (4 + 4) * 10
    assert least_bytes([np.full(100, 10), np.full(3, 8)], 4) == 2 * (4 + 3) * 10
    assert least_bytes([np.full(5, 10), np.full(3, 8)], 4) == 5 * 10 + 3 * 8


def test_shards_on_this_machine_need_no_cache(local: Path, caplog: pytest.LogCaptureFixture) -> None:
    with stream(local, 8, cache=Cache(local / "unused", 1)) as batches:
        next(batches)
    assert not caplog.records
