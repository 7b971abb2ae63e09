"""manifest.json and blocks.arrow of a component, put together in the driver from what its shards reported. No data is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from corpusmill.pipeline.engine.stage import FileRecord, Result
from corpusmill.pipeline.engine.store import hash_bytes
from corpusmill.shards.layout import (
    BLOCKS,
    TOKENIZER_FILE,
    Boundary,
    Manifest,
    Packing,
    ShardFile,
    encode_blocks,
)


def component_files(
    parts: Sequence[Result],
    sequence_length: int,
    boundary: Boundary,
    packing: Packing,
    made: Mapping[str, Any],
) -> tuple[bytes, bytes]:
    """manifest.json and blocks.arrow of a component, from what its shards reported."""
    parts = sorted(parts, key=lambda part: int(part.extra["shard"]))
    rows = _blocks(parts)
    blocks = encode_blocks(pa.Table.from_pylist(rows, schema=BLOCKS))
    manifest = Manifest(
        name=parts[0].extra["component"],
        slug=parts[0].extra["slug"],
        sequence_length=sequence_length,
        dtype=made["dtype"],
        vocab_size=made["vocab_size"],
        eos=made["eos"],
        tokenizer_sha256=made["sha256"],
        tokenizer_file="../" * (1 + parts[0].extra["slug"].count("/")) + TOKENIZER_FILE,
        boundary=boundary,
        bos=made["bos"] if boundary in ("bos", "both") else None,
        packing=packing,
        split_documents=sum(part.extra["split"] for part in parts),
        rows=sum(part.extra["rows"] for part in parts),
        tokens=sum(part.extra["tokens"] for part in parts),
        documents=sum(part.extra["documents"] for part in parts),
        blocks=len(rows),
        blocks_xxh3=hash_bytes(blocks),
        shards=tuple(_shard_file(part) for part in parts),
    )
    return manifest.encode(), blocks


def _blocks(parts: Sequence[Result]) -> list[dict[str, int]]:
    """Blocks of all shards in order; a shard knows its own rows only, here they count through the component."""
    found: list[dict[str, int]] = []
    before = 0
    for part in parts:
        for block in part.extra["blocks"]:
            fields = dict(zip(BLOCKS.names, block, strict=True))
            found.append(fields | {"first_row": before + fields["first_row"]})
        before += part.extra["rows"]
    return found


def _shard_file(part: Result) -> ShardFile:
    data, docs = sorted(part.files, key=_is_sidecar)
    return ShardFile(
        file=data.name.rpartition("/")[2],
        rows=part.extra["rows"],
        documents=part.extra["documents"],
        size_bytes=data.size_bytes,
        xxh3=data.xxh3,
        docs_file=docs.name.rpartition("/")[2],
        docs_bytes=docs.size_bytes,
        docs_xxh3=docs.xxh3,
    )


def _is_sidecar(file: FileRecord) -> bool:
    return file.name.endswith(".parquet")
