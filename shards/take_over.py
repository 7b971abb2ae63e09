"""A Megatron dataset becomes shards of one component with a plan: what was tokenized elsewhere is streamed, resumed and looked up here.

Documents are put in a keyed order, packed and written shard by shard, as the shard stage does it; the same bytes for the same
dataset and arguments. A document without the end-of-text id at its end gets one. Where a document came from is all the dataset
knows of it: its place in the .bin. Memory: three times a shard, and 16 bytes a document.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.pipeline.documents import document_id
from corpusmill.pipeline.engine.store import hash_bytes, put
from corpusmill.pipeline.errors import InputError, ShardError
from corpusmill.shards.components import slug_of
from corpusmill.shards.layout import (
    BLOCKS_FILE,
    DOCS,
    MANIFEST,
    MOST_SEQUENCE,
    PLAN_FILE,
    TOKENIZER_FILE,
    Manifest,
    Packing,
    ShardFile,
    block_table,
    encode_blocks,
)
from corpusmill.shards.megatron import Indexed, read_indexed
from corpusmill.shards.mixture import PPB
from corpusmill.shards.pack import Rows, doc_starts, lay_rows, pack_shard
from corpusmill.shards.permutation import derive, permute
from corpusmill.shards.plan import Phase, Plan, compile_plan
from corpusmill.shards.sidecar import is_text

if TYPE_CHECKING:
    from corpusmill.pipeline.text.tokenizer import Tokenizer

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sizes:
    """How the shards are laid out; as the fields of the same names of the shard stage."""

    sequence_length: int = 2048
    packing: Packing = "concat"
    block_bytes: int = 16 << 20
    shard_bytes: int = 512 << 20
    seed: int = 17

    def check(self) -> None:
        if not 1 <= self.sequence_length <= MOST_SEQUENCE:
            raise ShardError(
                f"sequence_length is {self.sequence_length}; it has to be from 1 to {MOST_SEQUENCE}"
            )


def import_megatron(
    prefix: str | Path, to: str | Path, tokenizer: str | Path, name: str, sizes: Sizes, eos: str | None = None
) -> Plan:
    """Shards of `PREFIX.bin` in the new folder `to`, their component called `name`; `tokenizer` is the tokenizer.json it was made with.

    Raises InputError when the dataset is damaged or holds ids that the tokenizer does not know.
    """
    from corpusmill.pipeline.text.tokenizer import Tokenizer

    sizes.check()
    if not is_text(name):
        raise ShardError(f"the name {name!r} is no text in UTF-8; give another")
    source, to, file = read_indexed(Path(prefix)), Path(to), Path(tokenizer)
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ShardError(
            f"{to} is there already: choose a new folder, or delete what an interrupted import left"
        )
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(
            f"{file} cannot be read ({error.strerror}); name the tokenizer.json of the dataset"
        ) from error
    made = Tokenizer(content, eos, str(file))
    folder = to / "imported" / slug_of(name)
    parts = list(_write(source, made, folder, name, sizes))
    if not parts:
        raise InputError(f"{source.path} holds no document with a token; there is nothing to stream")
    put(folder.parent / TOKENIZER_FILE, content)
    blocks = encode_blocks(pa.concat_tables([part.blocks for part in parts]))
    put(folder / BLOCKS_FILE, blocks)
    manifest = Manifest(
        name=name,
        slug=slug_of(name),
        sequence_length=sizes.sequence_length,
        dtype=made.dtype.name,
        vocab_size=made.vocab_size,
        eos=made.eos,
        tokenizer_sha256=made.sha256,
        tokenizer_file=f"../{TOKENIZER_FILE}",
        boundary="eos",
        bos=None,
        packing=sizes.packing,
        split_documents=sum(part.split for part in parts),
        rows=sum(part.file.rows for part in parts),
        tokens=sum(part.tokens for part in parts),
        documents=sum(part.file.documents for part in parts),
        blocks=sum(part.blocks.num_rows for part in parts),
        blocks_xxh3=hash_bytes(blocks),
        shards=tuple(part.file for part in parts),
    )
    put(folder / MANIFEST, manifest.encode())
    plan = compile_plan([(f"imported/{slug_of(name)}", manifest)], [Phase(0, {name: PPB})], seed=sizes.seed)
    put(to / PLAN_FILE, plan.encode())
    return plan


@dataclass(frozen=True)
class _Part:
    file: ShardFile
    blocks: pa.Table
    tokens: int
    split: int


def _write(source: Indexed, made: Tokenizer, folder: Path, name: str, sizes: Sizes) -> Iterator[_Part]:
    """Shard by shard; each is in its place when it is handed out."""
    kept = np.flatnonzero(np.diff(source.bounds))  # an empty document is no row
    order = (
        kept[permute(np.arange(len(kept)), len(kept), derive("import", sizes.seed, name))]
        if len(kept)
        else kept
    )
    sizes_of = np.diff(source.bounds)[order] + 1
    number = np.cumsum(sizes_of) * made.dtype.itemsize // sizes.shard_bytes
    first_doc = first_row = 0
    for part, documents in enumerate(
        np.split(order, np.flatnonzero(np.diff(number)) + 1) if len(order) else []
    ):
        stream, starts = _gathered(source, documents, made)
        lengths = np.diff(starts)
        rows = lay_rows(sizes.packing, lengths, sizes.sequence_length)
        length, block_bytes = sizes.sequence_length, sizes.block_bytes
        data = pack_shard(stream, starts, rows, first_doc, length, block_bytes, made.eos)
        docs = _docs(source, documents, lengths, rows, first_doc, name)
        file = ShardFile(
            f"part-{part:05d}.arrow",
            len(rows),
            len(documents),
            len(data),
            hash_bytes(data),
            f"docs-{part:05d}.parquet",
            len(docs),
            hash_bytes(docs),
        )
        put(folder / file.file, data)
        put(folder / file.docs_file, docs)
        yield _Part(file, block_table(data, part, first_row), int(starts[-1]), rows.split(lengths))
        first_doc, first_row = first_doc + len(documents), first_row + len(rows)


def _gathered(
    source: Indexed, documents: Integers, made: Tokenizer
) -> tuple[npt.NDArray[np.unsignedinteger], Integers]:
    """The documents end to end, each with its end of text, and where they start."""
    parts, lengths = [], []
    for number in documents.tolist():
        tokens = source.document(number)
        if int(tokens.min()) < 0 or int(tokens.max()) >= made.vocab_size:
            wrong = int(tokens.min()) if int(tokens.min()) < 0 else int(tokens.max())
            raise InputError(
                f"{source.path}: document {number} holds id {wrong}, the tokenizer's go from 0 to {made.vocab_size - 1}; "
                "name the tokenizer it was made with"
            )
        parts.append(tokens.astype(made.dtype))
        lengths.append(len(tokens))
        if tokens[-1] != made.eos:
            parts.append(np.array([made.eos], made.dtype))
            lengths[-1] += 1
    return np.concatenate(parts), doc_starts(np.array(lengths))


def _docs(
    source: Indexed, documents: Integers, lengths: Integers, rows: Rows, first_doc: int, name: str
) -> bytes:
    """Sidecar: a document's place is its bytes of the .bin."""
    width = source.tokens.dtype.itemsize
    count = len(documents)
    file = source.path.name
    offsets, ends = source.bounds[documents] * width, source.bounds[documents + 1] * width
    columns = {
        "doc": pa.array(first_doc + np.arange(count)),
        "id": pa.array([document_id(name, file, offset) for offset in offsets.tolist()], pa.binary(16)),
        "url": pa.nulls(count, pa.string()),
        "file": pa.array([file] * count),
        "offset": pa.array(offsets),
        "length": pa.array(ends - offsets),
        "digest": pa.nulls(count, pa.binary()),
        "source": pa.array([name] * count),
        "tokens": pa.array(lengths),
        "first_row": pa.array(rows.begins(count)),
    }
    sink = io.BytesIO()
    pq.write_table(
        pa.table([columns[each] for each in DOCS.names], names=DOCS.names).cast(DOCS),
        sink,
        compression="zstd",
    )
    return sink.getvalue()
