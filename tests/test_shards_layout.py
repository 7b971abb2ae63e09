"""The format of shards: block tables and manifests."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import xxhash
from shard_samples import Sample, documents, write_component

from corpusmill.pipeline.errors import ShardError
from corpusmill.shards.layout import (
    Manifest,
    block_table,
    decode_manifest,
    read_blocks,
    rows_per_block,
)


@pytest.fixture
def component(tmp_path: Path) -> tuple[Path, Manifest]:
    folder, manifest = write_component(tmp_path, Sample("books", [documents(1, 30), documents(2, 20)]))
    return tmp_path / folder, manifest


def test_blocks_cover_a_shard_from_the_schema_to_the_footer(component: tuple[Path, Manifest]) -> None:
    folder, manifest = component
    data = (folder / "part-00000.arrow").read_bytes()
    blocks = block_table(folder / "part-00000.arrow", 0, 7).to_pylist()
    assert blocks == block_table(data, 0, 7).to_pylist()
    assert [block["first_row"] for block in blocks] == [7 + 4 * i for i in range(len(blocks))]
    assert sum(block["rows"] for block in blocks) == manifest.shards[0].rows
    for block, after in pairwise(blocks):
        assert after["offset"] == block["offset"] + block["length"]
    for block in blocks:
        stored = data[block["offset"] : block["offset"] + block["length"]]
        assert stored[:4] == b"\xff\xff\xff\xff"  # an Arrow message starts here
        assert xxhash.xxh3_64_intdigest(stored) == block["xxh3"]
    assert len(data) - blocks[-1]["offset"] - blocks[-1]["length"] < 4096  # mark and footer


def test_targets_of_the_blocks_are_all_tokens_but_the_first_of_each_shard(
    component: tuple[Path, Manifest],
) -> None:
    folder, manifest = component
    targets = sum(read_blocks(folder, manifest)["tokens"].to_pylist())
    assert targets == manifest.tokens - len(manifest.shards)


def test_a_manifest_reads_back_and_its_hash_is_that_of_its_bytes(component: tuple[Path, Manifest]) -> None:
    folder, manifest = component
    data = (folder / "manifest.json").read_bytes()
    assert decode_manifest(data, "manifest.json") == manifest
    assert json.loads(data)["format"] == "corpusmill/shards/v1"


def test_manifests_that_do_not_add_up_or_point_elsewhere_are_refused(
    component: tuple[Path, Manifest],
) -> None:
    manifest = component[1]
    first = manifest.shards[0]
    for bad, says in (
        (replace(manifest, rows=manifest.rows + 1), "do not add up"),
        (replace(manifest, rows=-1), "rows is -1"),
        (replace(manifest, eos="0"), "eos is '0'"),  # type: ignore[arg-type]
        (replace(manifest, shards=(replace(first, file="../x.arrow"),)), "outside its folder"),
    ):
        with pytest.raises(ShardError, match=says):
            decode_manifest(bad.encode(), "manifest.json")
    unwritable = json.dumps({**json.loads(manifest.encode()), "name": "\ud800"}).encode()
    with pytest.raises(ShardError, match=r"manifest\.json cannot be read"):
        decode_manifest(unwritable, "manifest.json")


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"\xff", b'{"format": "corpusmill/shards/v2"}'])
def test_what_is_no_manifest_is_refused_with_its_name(data: bytes) -> None:
    with pytest.raises(ShardError, match=r"here/manifest\.json"):
        decode_manifest(data, "here/manifest.json")


def test_blocks_hold_at_least_one_row() -> None:
    assert rows_per_block(2048, "uint16", 16 << 20) == 4094
    assert rows_per_block(1 << 20, "uint32", 1 << 20) == 1
