"""Everything that can be checked about shards without the documents they came from; each byte is read two or three times.

Shards of a store or web server are fetched once, one after the other, into TMPDIR. The stream itself checks lengths when it opens and a block's hash before its first token; this looks at all of it at once:
files against the manifest, blocks against their table, pieces against the sidecar, tokens against the vocabulary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from corpusmill.pipeline.engine.store import hash_file
from corpusmill.pipeline.errors import ShardError
from corpusmill.shards.append import PLANS_FOLDER, earlier
from corpusmill.shards.layout import (
    BLOCKS_FILE,
    DOCS,
    HOLDOUT_FILE,
    MANIFEST,
    PLAN_FILE,
    Manifest,
    ShardFile,
    block_table,
    file_of,
    read_blocks,
    read_manifest,
    schema,
)
from corpusmill.shards.plan import Component
from corpusmill.shards.plan_file import find_plan, read_plan
from corpusmill.shards.quarantine import QUARANTINE_FILE, read_quarantine

if TYPE_CHECKING:
    from corpusmill.pipeline.engine.place import Place


@dataclass(frozen=True)
class Finding:
    """Something wrong with `file` (below the plan's folder)."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


@dataclass(frozen=True)
class _Pieces:
    """All pieces of one shard, row by row: row, first token and length in the row, document, first token in the document."""

    row: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    document: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]


def verify(path: str | Path | Place) -> list[Finding]:
    """All that is wrong with the shards of the plan at `path` (OUT, OUT/shards or plan.json); [] when nothing is.

    Beside it, what is held out is looked at as well, and the plans that it goes on from. Raises ShardError only when there is no
    plan to go by.
    """
    place = find_plan(path)
    findings = _plan(place)
    held = place.parent / HOLDOUT_FILE
    if place.name == PLAN_FILE and held.is_file():
        findings += [finding for finding in _plan(held) if finding not in findings]
    return findings + _past(place)


def _past(place: Path | Place) -> list[Finding]:
    """Kept plans that a cursor could not be compared with."""
    try:
        past = read_plan(place).past
    except ShardError:
        return []
    findings = []
    for plan in past:
        try:
            earlier(place, plan.id)
        except ShardError as error:
            findings.append(Finding(f"{PLANS_FOLDER}/{plan.id}.json", str(error)))
    return findings


def _plan(place: Path | Place) -> list[Finding]:
    from corpusmill.pipeline.engine.place import place_of

    folder = place_of(place.parent)
    try:
        plan = read_plan(place)
    except ShardError as error:
        return [Finding(place.name, str(error))]
    findings = [
        Finding(f"{component.folder}/{name}", what)
        for component in plan.components
        for name, what in _component(folder / component.folder, component)
    ]
    try:
        read_quarantine(place.parent, plan)
    except ShardError as error:
        findings.append(Finding(QUARANTINE_FILE, str(error)))
    return findings


def _component(folder: Place, component: Component) -> Iterator[tuple[str, str]]:
    """(file below `folder`, what is wrong with it), file by file."""
    try:
        manifest = read_manifest(folder)
    except ShardError as error:
        yield MANIFEST, str(error)
        return
    if manifest.hash != component.manifest:
        yield MANIFEST, "is not the manifest that the plan was made for"
    yield from _tokenizer(folder, manifest)
    blocks = None
    try:
        blocks = read_blocks(folder, manifest)
    except ShardError as error:
        yield BLOCKS_FILE, str(error)
    first_row = first_document = 0
    for number, shard in enumerate(manifest.shards):
        with ExitStack() as copies:
            here, broken = {}, []
            for name, size in ((shard.file, shard.size_bytes), (shard.docs_file, shard.docs_bytes)):
                found = (folder / name).size()
                if found == size:
                    here[name] = copies.enter_context((folder / name).here())
                else:
                    what = "is missing" if found is None else f"has {found} bytes, the manifest says {size}"
                    broken.append((name, what))
            broken += _hashes(shard, here, number, blocks)
            yield from broken or _content(
                here[shard.file], here[shard.docs_file], manifest, number, (first_row, first_document), blocks
            )
        first_row += shard.rows
        first_document += shard.documents


def _tokenizer(folder: Place, manifest: Manifest) -> Iterator[tuple[str, str]]:
    try:
        data = file_of(folder, manifest.tokenizer_file).read_bytes()
    except FileNotFoundError:
        yield manifest.tokenizer_file, "is missing"
        return
    if hashlib.sha256(data).hexdigest() != manifest.tokenizer_sha256:
        yield manifest.tokenizer_file, "is not the tokenizer that the shards were made with"


def _hashes(
    shard: ShardFile, here: Mapping[str, Path], number: int, blocks: pa.Table | None
) -> Iterator[tuple[str, str]]:
    """Hashes of a shard and its sidecar, as far as they are there; of a damaged shard also the blocks that are."""
    digests = {shard.file: shard.xxh3, shard.docs_file: shard.docs_xxh3}
    for name, path in here.items():
        if hash_file(path) != digests[name]:
            damaged = (
                _damaged_blocks(path, number, blocks) if name == shard.file and blocks is not None else []
            )
            where = f" (block {', '.join(map(str, damaged))})" if damaged else ""
            yield name, f"is damaged: its hash is not the manifest's{where}"


def _damaged_blocks(path: Path, number: int, blocks: pa.Table) -> list[int]:
    """Component-wide numbers of the shard's blocks whose stored bytes have another hash."""
    damaged = []
    with path.open("rb") as file:
        for i, block in enumerate(blocks.to_pylist()):
            if block["shard"] == number:
                file.seek(block["offset"])
                if xxhash.xxh3_64_intdigest(file.read(block["length"])) != block["xxh3"]:
                    damaged.append(i)
    return damaged


def _content(
    data: Path,
    sidecar: Path,
    manifest: Manifest,
    number: int,
    first: tuple[int, int],
    blocks: pa.Table | None,
) -> Iterator[tuple[str, str]]:
    """A shard whose bytes are those of its manifest: does what they say agree?"""
    shard = manifest.shards[number]
    found = block_table(data, number, first[0])
    if blocks is not None and not blocks.filter(pa.array(np.asarray(blocks["shard"]) == number)).equals(
        found
    ):
        yield shard.file, "its blocks are not those of blocks.arrow"
    # Absolute: pyarrow takes a relative `run-10:30/x` for an address.
    docs = pq.read_table(sidecar.absolute())
    if docs.schema.names[: len(DOCS)] != DOCS.names or docs.num_rows != shard.documents:
        yield shard.docs_file, "its columns or its number of documents are not the manifest's"
        return
    if (np.asarray(docs["doc"]).astype(np.int64) != first[1] + np.arange(shard.documents)).any():
        yield shard.docs_file, f"its documents are not numbered from {first[1]} on"
        return
    with pa.memory_map(str(data)) as source:
        reader = pa.ipc.open_file(source)
        if not reader.schema.equals(schema(manifest.sequence_length, manifest.dtype)):
            yield shard.file, "has other columns than the format"
            return
        batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        if sum(batch.num_rows for batch in batches) != shard.rows:
            yield shard.file, f"has not the {shard.rows} rows of its manifest"
            return
        tokens = np.asarray(docs["tokens"]).astype(np.int64)
        firsts = np.asarray(docs["first_row"]).astype(np.int64)
        rows = [np.asarray(b.column(0).values).reshape(b.num_rows, -1) for b in batches]
        pieces = _pieces(batches, first[1])
        yield from ((shard.file, what) for what in _rows(manifest, rows, pieces))
        yield from ((shard.file, what) for what in _sidecar(rows, pieces, tokens, firsts))


def _rows(manifest: Manifest, rows: Sequence[npt.NDArray[Any]], pieces: _Pieces) -> Iterator[str]:
    """Ids within the vocabulary, padding that is end-of-text, and with `concat` no padding but the last row's."""
    real = np.bincount(pieces.row, weights=pieces.length).astype(np.int64)
    if manifest.packing == "concat" and (real[:-1] != manifest.sequence_length + 1).any():
        yield "has padding before its last row"
    at = 0
    for block in rows:
        if int(block.max(initial=0)) >= manifest.vocab_size:
            yield f"holds id {int(block.max())}, the vocabulary ends at {manifest.vocab_size - 1}"
        padding = np.arange(block.shape[1]) >= real[at : at + len(block), None]
        if (block[padding] != manifest.eos).any():
            yield "its padding is not end-of-text"
        at += len(block)


def _sidecar(
    rows: Sequence[npt.NDArray[Any]],
    pieces: _Pieces,
    tokens: npt.NDArray[np.int64],
    first_rows: npt.NDArray[np.int64],
) -> Iterator[str]:
    """Every document of the sidecar from its first token to its last: each piece begins with the last token of the one before."""
    document = pieces.document
    if document.min() < 0 or document.max() >= len(tokens):
        yield "names documents that its sidecar does not have"
        return
    order = np.lexsort((pieces.row, pieces.offset, document))
    document, offset, end = document[order], pieces.offset[order], (pieces.offset + pieces.length)[order]
    begins = np.flatnonzero(np.diff(document, prepend=-1))
    ends = np.append(begins[1:], len(document)) - 1
    if len(begins) != len(tokens):
        yield "has no piece of some documents of its sidecar"
        return
    goes_on = np.setdiff1d(np.arange(len(document)), begins)
    if offset[begins].any() or (end[ends] != tokens).any() or (offset[goes_on] != end[goes_on - 1] - 1).any():
        yield "its pieces are not those of its sidecar's documents"
        return
    if _unlike(rows, pieces, order[goes_on - 1], order[goes_on]):
        yield "documents do not go on in another row with the token that they left off with"
    if (pieces.row[order[begins]] != first_rows).any():
        yield "its documents do not begin in the rows that its sidecar gives"


def _unlike(
    rows: Sequence[npt.NDArray[Any]],
    pieces: _Pieces,
    before: npt.NDArray[np.int64],
    after: npt.NDArray[np.int64],
) -> bool:
    """Whether the last token of any piece of `before` differs from the first of its successor."""
    row, start, length = (np.asarray(each) for each in (pieces.row, pieces.start, pieces.length))
    found = np.empty((2, len(before)), dtype=np.int64)
    at = 0
    places = (
        (found[0], row[before], (start + length)[before] - 1),
        (found[1], row[after], start[after]),
    )
    for block in rows:
        for values, in_row, place in places:
            here = np.flatnonzero((in_row >= at) & (in_row < at + len(block)))
            values[here] = block[in_row[here] - at, place[here]]
        at += len(block)
    return bool((found[0] != found[1]).any())


def _pieces(batches: Sequence[pa.RecordBatch], first_document: int) -> _Pieces:
    """Documents are counted from `first_document`, the shard's first."""
    columns: list[tuple[npt.NDArray[np.int64], ...]] = []
    at = 0
    for batch in batches:
        offsets = np.asarray(batch.column(1).offsets).astype(np.int64)
        end, document, offset = (np.asarray(batch.column(i).values).astype(np.int64) for i in (1, 2, 3))
        start = np.concatenate([[0], end[:-1]])
        start[offsets[:-1]] = 0
        row = at + np.repeat(np.arange(batch.num_rows), np.diff(offsets))
        columns.append((row, start, end - start, document - first_document, offset))
        at += batch.num_rows
    return _Pieces(*(np.concatenate(values) for values in zip(*columns, strict=True)))
