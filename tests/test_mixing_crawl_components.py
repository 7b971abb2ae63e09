"""Whoever has one crawl and nothing else gets components to weigh, the same on any number of workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from runs import corpusmill, write_recipe

from corpusmill.jobs.demo_html import SITES
from corpusmill.jobs.demo_pages import make_demo_crawl

RECIPE = """
partition_bytes: 150 KB
inputs: [{path: "CRAWL/crawl-*.warc.gz"}]
stages:
  - extract: {}
  - filter: [gopher_quality: {min_words: 30, min_alpha_words: 0.6}]
  - dedup: {near: false}
  - topics: TOPICS
  - shard: {tokenizer: {train: bpe, vocab: 1024}, sequence_length: 128, block_bytes: 1024, components: {by: [source, topic]}}
"""

LEAST = 8


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    make_demo_crawl(folder, 400)
    return folder


def components(pages: Path, out: Path, topics: str, workers: int) -> dict[str, Any]:
    """Name -> what components.json and its manifest say."""
    out.mkdir()
    recipe = write_recipe(out, RECIPE.replace("CRAWL", str(pages)).replace("TOPICS", topics))
    corpusmill("run", recipe, "--out", out / "run", "--workers", str(workers))
    said = json.loads((out / "run/shards/components.json").read_bytes())["components"]
    manifests = [json.loads(path.read_bytes()) for path in (out / "run/shards").glob("*/*/manifest.json")]
    return {each["name"]: (said[each["name"]], each) for each in manifests}


@pytest.mark.slow
def test_one_crawl_has_components_enough_by_what_its_pages_are_about(pages: Path, tmp_path: Path) -> None:
    one, two = (components(pages, tmp_path / str(n), "{count: 12}", n) for n in (1, 2))
    assert len(one) >= LEAST
    assert one == two
    for said, manifest in one.values():
        assert manifest["blocks"] >= 8 or said["values"] == {"source": "web"}  # the rest may be small
        assert said["clusters"]["mean_size"] >= 1
    # The crawl has copies of pages, word for word: some component stands for more documents than it has.
    assert max(said["clusters"]["largest"] for said, _ in one.values()) > 1


@pytest.mark.slow
def test_one_crawl_has_components_by_the_sites_that_it_is_from(pages: Path, tmp_path: Path) -> None:
    found = components(pages, tmp_path / "out", "{by: host}", 2)
    sites = {f"web.{'.'.join(site.host.split('.')[-2:])}" for site in SITES}
    assert set(found) <= {*sites, "web.rest"} and len(found) >= min(LEAST, len(sites))
