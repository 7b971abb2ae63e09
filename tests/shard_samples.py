"""Shards in the real format for tests of what reads them, packed by a plain loop that shares no code with the writer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from corpusmill.shards.layout import (
    BLOCKS,
    BLOCKS_FILE,
    DOCS,
    MANIFEST,
    PLAN_FILE,
    TOKENIZER_FILE,
    Manifest,
    ShardFile,
    block_table,
    encode_blocks,
    schema,
)
from corpusmill.shards.plan import Phase, Plan, compile_plan

EOS = 0
VOCAB = 50_000
TOKENIZER = b'{"a tokenizer": "that nothing here opens"}'


@dataclass(frozen=True)
class Sample:
    """One component to be written: documents as token lists without their end-of-text, `shards` lists of them."""

    name: str
    shards: Sequence[Sequence[Sequence[int]]]
    rows_per_block: int = 4


def documents(seed: int, count: int, longest: int = 40) -> list[list[int]]:
    """Documents of 0 .. `longest` tokens, each id telling document and place apart as far as 16 bits go."""
    return [
        [
            1 + (seed * 7919 + number * 131 + i * 17) % (VOCAB - 1)
            for i in range((seed + number * 29) % (longest + 1))
        ]
        for number in range(count)
    ]


def write_component(
    root: Path, sample: Sample, length: int = 8, dtype: str = "uint16", vocab: int = VOCAB
) -> tuple[str, Manifest]:
    """(folder below `root`, manifest)."""
    relative = f"fp/{sample.name}"
    folder = root / relative
    folder.mkdir(parents=True)
    (folder.parent / TOKENIZER_FILE).write_bytes(TOKENIZER)
    first_document = first_row = total = split = 0
    blocks, shards = [], []
    for number, docs in enumerate(sample.shards):
        streamed = [(token, d, i) for d, doc in enumerate(docs) for i, token in enumerate([*doc, EOS])]
        rows = [streamed[at : at + length + 1] for at in range(0, max(1, len(streamed) - 1), length)]
        part, side = f"part-{number:05d}.arrow", f"docs-{number:05d}.parquet"
        _write_rows(folder / part, rows, sample.rows_per_block, length, dtype, first_document)
        _write_docs(folder / side, sample.name, docs, rows, first_document)
        split += len(docs) - _whole(rows, docs)
        blocks.append(block_table(folder / part, number, first_row))
        shards.append(
            ShardFile(part, len(rows), len(docs), *stored(folder / part), side, *stored(folder / side))
        )
        first_row += len(rows)
        first_document += len(docs)
        total += len(streamed)
    stored_blocks = encode_blocks(pa.concat_tables([BLOCKS.empty_table(), *blocks]))
    (folder / BLOCKS_FILE).write_bytes(stored_blocks)
    manifest = Manifest(
        name=sample.name,
        slug=sample.name,
        sequence_length=length,
        dtype=dtype,
        vocab_size=vocab,
        eos=EOS,
        tokenizer_sha256=hashlib.sha256(TOKENIZER).hexdigest(),
        tokenizer_file=f"../{TOKENIZER_FILE}",
        boundary="eos",
        bos=None,
        packing="concat",
        split_documents=split,
        rows=first_row,
        tokens=total,
        documents=first_document,
        blocks=sum(table.num_rows for table in blocks),
        blocks_xxh3=xxhash.xxh3_128_hexdigest(stored_blocks),
        shards=tuple(shards),
    )
    (folder / MANIFEST).write_bytes(manifest.encode())
    return relative, manifest


def write_shards(
    root: Path,
    samples: Sequence[Sample],
    weights: Mapping[str, int] | Sequence[Phase],
    *,
    length: int = 8,
    dtype: str = "uint16",
    vocab: int = VOCAB,
    seed: int = 17,
    window: int = 2,
    total: int | None = None,
) -> Plan:
    """Components and plan.json below `root`; `weights` are parts in 10^9, or phases."""
    phases = [Phase(0, dict(weights))] if isinstance(weights, Mapping) else weights
    components = [write_component(root, sample, length, dtype, vocab) for sample in samples]
    plan = compile_plan(components, phases, seed=seed, window=window, samples=total)
    (root / PLAN_FILE).write_bytes(plan.encode())
    return plan


def small_shards(root: Path, total: int | None = None) -> Plan:
    """Three components of 2, 1 and 1 shards, some 200 rows of 9 tokens in all, blocks of 4 rows."""
    return write_shards(
        root,
        [
            Sample("books", [documents(1, 30), documents(2, 20)]),
            Sample("code", [documents(3, 12)], rows_per_block=3),
            Sample("web", [documents(4, 25)], rows_per_block=64),
        ],
        {"books": 500_000_000, "code": 100_000_000, "web": 400_000_000},
        total=total,
    )


def _write_rows(
    path: Path,
    rows: Sequence[Sequence[tuple[int, int, int]]],
    per_block: int,
    length: int,
    dtype: str,
    first: int,
) -> None:
    kind = schema(length, dtype)
    with pa.ipc.new_file(str(path), kind) as writer:
        for at in range(0, len(rows), per_block):
            records = [_row(row, length, first) for row in rows[at : at + per_block]]
            writer.write_batch(pa.RecordBatch.from_pylist(records, schema=kind))


def _whole(rows: Sequence[Sequence[tuple[int, int, int]]], docs: Sequence[Sequence[int]]) -> int:
    """Documents all of whose tokens lie in one row."""
    return len({d for row in rows for d, doc in enumerate(docs) if sum(e == d for _, e, _ in row) > len(doc)})


def _row(row: Sequence[tuple[int, int, int]], length: int, first: int) -> dict[str, list[int]]:
    begins = [i for i, (_, d, _) in enumerate(row) if i == 0 or row[i - 1][1] != d]
    return {
        "tokens": [token for token, _, _ in row] + [EOS] * (length + 1 - len(row)),
        "doc_ends": [*begins[1:], len(row)],
        "doc_ids": [first + row[i][1] for i in begins],
        "doc_offsets": [row[i][2] for i in begins],
    }


def _write_docs(
    path: Path,
    name: str,
    docs: Sequence[Sequence[int]],
    rows: Sequence[Sequence[tuple[int, int, int]]],
    first_document: int,
) -> None:
    begins = {d: r for r, row in reversed(list(enumerate(rows))) for _, d, _ in row}
    records = [
        {
            "doc": first_document + d,
            "id": (first_document + d).to_bytes(16, "big"),
            "url": f"https://{name}.example/{first_document + d}",
            "file": f"{name}.warc.gz",
            "offset": 1000 * (first_document + d),
            "length": 900 + d,
            "digest": b"digest",
            "source": name,
            "tokens": len(doc) + 1,
            "first_row": begins[d],
        }
        for d, doc in enumerate(docs)
    ]
    pq.write_table(pa.Table.from_pylist(records, schema=DOCS), path, row_group_size=7)


def stored(path: Path) -> tuple[int, str]:
    data = path.read_bytes()
    return len(data), xxhash.xxh3_128_hexdigest(data)
