"""What lies in a folder of shards, format `corpusmill/shards/v1`; the folder OUT/shards can be moved as a whole.

    plan.json                              which components, in which proportions, in which order (shards/plan.py)
    holdout.json                           what was held out, component after component, each row once
    components.json                        what is known of each component beside its tokens (shards/about.py)
    <fp>/tokenizer.json
    <fp>/kept_out.parquet                  what the audit of tokens kept out, if anything (shards/kept_out.py)
    <fp>/<slug>/manifest.json              one component (<fp>/holdout/<slug>/ when held out): counts, files and their hashes
    <fp>/<slug>/blocks.arrow               one row a block: where it lies, its rows, its hash
    <fp>/<slug>/part-00000.arrow           packed rows: all that a trainer reads
    <fp>/<slug>/docs-00000.parquet         where each document came from: read by `locate` alone

A shard is an uncompressed Arrow IPC file; a record batch is a block, the unit of reading, hashing and shuffling.
A row is T + 1 tokens: T inputs and, one further, T targets. A document that goes on in another row goes on there with its last
token, so no target is lost; with packing `concat` a row's last token is always the first of the shard's next row.
`doc_ends` are the ends of the pieces of documents in the row; the last is the number of real tokens, the rest is padding
with the end-of-text id. Documents never cross shards.
All offsets and counts are 64 bits wide. `block_table` reads each byte of a shard once.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import xxhash

from corpusmill.pipeline.engine.store import hash_bytes
from corpusmill.pipeline.errors import ShardError

if TYPE_CHECKING:
    from corpusmill.pipeline.engine.place import Place

FORMAT = "corpusmill/shards/v1"
MANIFEST = "manifest.json"
BLOCKS_FILE = "blocks.arrow"
PLAN_FILE = "plan.json"
HOLDOUT_FILE = "holdout.json"
TOKENIZER_FILE = "tokenizer.json"

MOST_BLOCK_BYTES = 1 << 30  # a block's lists have 32-bit offsets, and a window of blocks has to fit in memory
MOST_SEQUENCE = MOST_BLOCK_BYTES // 4 - 1  # a row is within a block, whatever its ids' width

FILE_MAGIC = b"ARROW1\0\0"  # an Arrow IPC file starts with it; the first message stands right behind

Boundary = Literal["eos", "bos", "both", "none"]
"""What stands around each document: its end of text, its begin of text, both, or nothing."""

Packing = Literal["concat", "best_fit", "pad"]
"""How documents share rows: end to end, whole ones where they fit best, or one a row (shards/pack.py)."""

BLOCKS = pa.schema(
    [
        pa.field("shard", pa.uint32(), nullable=False),  # index into the manifest's `shards`
        pa.field("offset", pa.int64(), nullable=False),  # where the record batch's message starts in the file
        pa.field("length", pa.int64(), nullable=False),  # metadata and body, as stored
        pa.field("first_row", pa.uint64(), nullable=False),  # component-wide
        pa.field("rows", pa.uint32(), nullable=False),
        pa.field("tokens", pa.uint64(), nullable=False),  # targets: real tokens less one, summed
        pa.field("xxh3", pa.uint64(), nullable=False),  # xxh3-64 of file[offset : offset + length]
    ]
)

DOCS = pa.schema(
    [
        pa.field("doc", pa.uint64(), nullable=False),  # component-wide index: `doc_ids` of the rows
        pa.field("id", pa.binary(16), nullable=False),  # the document's id in OUT/text/documents
        pa.field("url", pa.string()),
        pa.field("file", pa.string()),  # origin in the input: file, byte offset, stored length
        pa.field("offset", pa.int64()),
        pa.field("length", pa.int64()),
        pa.field("digest", pa.binary()),  # of the text that was tokenized
        pa.field("source", pa.string()),
        pa.field("tokens", pa.uint32(), nullable=False),  # with its boundary
        pa.field("first_row", pa.uint64(), nullable=False),  # row of its shard in which it begins
    ]
)
"""Columns that every docs sidecar has, in this order; those of the audit, `language` and measures may follow."""


def schema(sequence_length: int, dtype: str) -> pa.Schema:
    """Columns of a shard, none of them with nulls; `tokens` holds `sequence_length` + 1 ids of `dtype` in every row."""
    token = {"uint16": pa.uint16(), "uint32": pa.uint32()}[dtype]
    return pa.schema(
        [
            pa.field("tokens", pa.list_(token, sequence_length + 1), nullable=False),
            pa.field("doc_ends", pa.list_(pa.uint32()), nullable=False),
            pa.field("doc_ids", pa.list_(pa.uint64()), nullable=False),
            pa.field("doc_offsets", pa.list_(pa.uint64()), nullable=False),
        ]
    )


def rows_per_block(sequence_length: int, dtype: str, block_bytes: int) -> int:
    """Rows whose tokens fill `block_bytes`, at least one."""
    return max(1, block_bytes // ((sequence_length + 1) * np.dtype(dtype).itemsize))


def canonical(value: Any) -> bytes:
    """The one JSON form that is hashed: sorted keys, no spaces to argue about, UTF-8."""
    return (json.dumps(value, sort_keys=True, ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode()


def content_hash(data: bytes) -> str:
    """sha256 in hex: names manifests and plans."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class ShardFile:
    """A shard and its sidecar; hashes are xxh3-128 of the whole file in hex."""

    file: str
    rows: int
    documents: int
    size_bytes: int
    xxh3: str
    docs_file: str
    docs_bytes: int
    docs_xxh3: str


@dataclass(frozen=True)
class Manifest:
    """One component. `tokens` counts each document's tokens, boundary included, once; rows overlap by one token on top of that."""

    name: str
    slug: str
    sequence_length: int
    dtype: str
    vocab_size: int
    eos: int
    tokenizer_sha256: str
    tokenizer_file: str  # relative to the component's folder
    boundary: Boundary
    bos: int | None  # None when documents have no begin of text
    packing: Packing
    split_documents: int  # that lie whole in no row
    rows: int
    tokens: int
    documents: int
    blocks: int
    blocks_xxh3: str  # xxh3-128 of blocks.arrow in hex
    shards: tuple[ShardFile, ...]

    def encode(self) -> bytes:
        return canonical({"format": FORMAT, **asdict(self)})

    @property
    def hash(self) -> str:
        return content_hash(self.encode())


def decode_manifest(data: bytes, where: str) -> Manifest:
    """Raises ShardError naming `where` when the content is of another format or does not add up."""
    try:
        value: dict[str, Any] = json.loads(data)
        if value.pop("format", None) != FORMAT:
            raise ShardError(
                f"{where} is not of format {FORMAT}; shard again or use the version that wrote it"
            )
        shards = tuple(ShardFile(**shard) for shard in value.pop("shards"))
        manifest = Manifest(shards=shards, **value)
        encoded = manifest.encode()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ShardError(
            f"{where} cannot be read as a manifest ({error}); restore it or shard again"
        ) from error
    parts: list[Manifest | ShardFile] = [manifest, *shards]
    for part in parts:
        _check_fields(part, where)
    if encoded != data:
        raise ShardError(f"{where} was edited or rewritten by another program; restore it or shard again")
    if (
        sum(shard.rows for shard in shards) != manifest.rows
        or sum(shard.documents for shard in shards) != manifest.documents
    ):
        raise ShardError(
            f"{where}: rows or documents of its shards do not add up to its totals; restore it or shard again"
        )
    return manifest


_KINDS = {"int": int, "str": str, "int | None": int, "Boundary": str, "Packing": str}


def _check_fields(value: Manifest | ShardFile, where: str) -> None:
    for item in fields(value):
        found = getattr(value, item.name)
        kind = _KINDS.get(str(item.type)) if found is not None or item.name != "bos" else None
        if (kind and type(found) is not kind) or (kind is int and found < 0):
            raise ShardError(f"{where}: {item.name} is {found!r}; restore it or shard again")
        if item.name in ("file", "docs_file") and Path(found).name != found:
            raise ShardError(f"{where}: {found!r} lies outside its folder; do not use these shards")


F = TypeVar("F", Path, "Place", "Path | Place")


def file_of(folder: F, name: str) -> F:
    """The file of a relative name with `../` before it: objects have no folders to go up from."""
    while name.startswith("../"):
        folder, name = folder.parent, name.removeprefix("../")
    return folder / name


def read_manifest(folder: Path | Place) -> Manifest:
    path = folder / MANIFEST
    try:
        return decode_manifest(path.read_bytes(), str(path))
    except OSError as error:
        raise ShardError(f"{path} is missing; restore the component's folder or shard again") from error


def read_blocks(folder: Path | Place, manifest: Manifest) -> pa.Table:
    """The component's blocks; raises ShardError when the file is missing or not the manifest's."""
    path = folder / BLOCKS_FILE
    try:
        data = pa.py_buffer(path.read_bytes())
    except OSError as error:
        raise ShardError(
            f"{path} is missing or cannot be read ({error}); restore it or shard again"
        ) from error
    return decode_blocks(data, manifest, str(path))


def decode_blocks(data: pa.Buffer, manifest: Manifest, where: str) -> pa.Table:
    """blocks.arrow from its bytes; raises ShardError naming `where` when they are not the manifest's."""
    if hash_bytes(memoryview(data)) != manifest.blocks_xxh3:
        raise ShardError(f"{where} is damaged: its hash is not the manifest's; restore it or shard again")
    return pa.ipc.open_file(pa.BufferReader(data)).read_all()


def encode_blocks(table: pa.Table) -> bytes:
    """blocks.arrow as bytes; `blocks_xxh3` of the manifest is `xxh3_128` of them."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, BLOCKS) as writer:
        writer.write_table(table.cast(BLOCKS).combine_chunks())
    return bytes(sink.getvalue())


def block_table(source: Path | pa.Buffer | bytes, shard: int = 0, first_row: int = 0) -> pa.Table:
    """Blocks of one shard, found by walking its messages; `first_row` is the component-wide row of the shard's first."""
    if isinstance(source, Path):
        with pa.memory_map(str(source)) as mapped:
            data = mapped.read_buffer()
    else:
        data = pa.py_buffer(source)
    stream = pa.BufferReader(data)
    stream.seek(len(FILE_MAGIC))
    columns = pa.ipc.read_schema(pa.ipc.read_message(stream))
    found: list[dict[str, int]] = []
    while (start := stream.tell()) < data.size:
        try:
            message = pa.ipc.read_message(stream)
        except EOFError:  # the end-of-stream mark before the footer
            break
        if message is None or message.type != "record batch":
            break
        batch = pa.ipc.read_record_batch(message, columns)
        length = stream.tell() - start
        found.append(
            {
                "shard": shard,
                "offset": start,
                "length": length,
                "first_row": first_row,
                "rows": batch.num_rows,
                "tokens": _targets(batch),
                "xxh3": xxhash.xxh3_64_intdigest(memoryview(data.slice(start, length))),
            }
        )
        first_row += batch.num_rows
    return pa.Table.from_pylist(found, schema=BLOCKS)


def _targets(batch: pa.RecordBatch) -> int:
    column = batch.column(batch.schema.get_field_index("doc_ends"))
    last = np.asarray(column.offsets)[1:] - 1
    ends = np.asarray(column.values)[last]
    return int(ends.sum(dtype=np.uint64)) - int(batch.num_rows)
