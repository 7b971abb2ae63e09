"""Documents of a component or target as token ids, whole, with their sizes as text: what the screen counts and proxies are measured on.

Shards hold documents in shuffled order, so the first ones are a random sample, and reading stops when there are enough. A
size is that of the decoded tokens without their boundary, in bytes of UTF-8; decoding takes longer than reading, so components are sampled for theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.engine.disk import Disk
from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.errors import ShardError
from corpusmill.shards.data_sets import decoder_of
from corpusmill.shards.fetch import source_of
from corpusmill.shards.layout import read_manifest
from corpusmill.shards.pack import doc_starts
from corpusmill.shards.plan import component_of
from corpusmill.shards.reader import ComponentReader
from corpusmill.shards.sidecar import Sidecar

Tokens = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Documents:
    """Whole documents with their boundary, in the shards' order; `whole` when they are all there are."""

    tokens: tuple[Tokens, ...]
    whole: bool

    @property
    def count(self) -> int:
        """Tokens of all."""
        return sum(map(len, self.tokens))


def on_disk(folder: Path | Place) -> Path | Place:
    """A path where there is one: what reads shards takes either."""
    return folder.path if isinstance(folder, Disk) else folder


def open_component(folder: Path | Place) -> ComponentReader:
    """A component's folder, without a plan that names it."""
    folder = on_disk(folder)
    manifest = read_manifest(folder)
    return ComponentReader(folder, component_of("", manifest, manifest.name), source_of(folder, None))


def first_documents(reader: ComponentReader, most_tokens: int) -> Documents:
    """Documents of `most_tokens` together, the one that reaches it among them."""
    found: list[Tokens] = []
    count = 0
    for shard in range(len(reader.manifest.shards)):
        lengths = Sidecar(reader, shard).file.read(columns=["tokens"])["tokens"].to_numpy().astype(np.int64)
        before = count + np.cumsum(lengths) - lengths
        wanted = int((before < most_tokens).sum())
        found += _documents(reader, shard, lengths[:wanted])
        count += int(lengths[:wanted].sum())
        if wanted < len(lengths) or (count >= most_tokens and shard + 1 < len(reader.manifest.shards)):
            return Documents(tuple(found), whole=False)
    return Documents(tuple(found), whole=True)


def _documents(reader: ComponentReader, shard: int, lengths: npt.NDArray[np.int64]) -> list[Tokens]:
    """The first documents of a shard, whatever rows their pieces lie in."""
    first = sum(other.documents for other in reader.manifest.shards[:shard])
    starts = doc_starts(lengths)
    stream = np.empty(int(starts[-1]), reader.manifest.dtype)
    filled = np.zeros(len(stream), np.bool_)
    for block in np.flatnonzero(reader.blocks["shard"] == shard).tolist():
        # Rows of `concat` hold documents in their order; other packings may put the rest of one anywhere.
        if reader.manifest.packing == "concat" and filled.all():
            break
        view = reader.view(block)
        bounds, ends = view.lists("doc_ends")
        owners, offsets = view.lists("doc_ids")[1], view.lists("doc_offsets")[1]
        row = np.repeat(np.arange(len(view.tokens)), np.diff(bounds))
        begins = np.append(0, ends[:-1]).astype(np.int64)
        begins[bounds[:-1]] = 0
        owner = owners.astype(np.int64) - first
        wanted = owner < len(lengths)
        pieces = (row, begins, ends, starts[np.where(wanted, owner, 0)] + offsets.astype(np.int64))
        for at, begin, end, target in zip(*(each[wanted].tolist() for each in pieces), strict=True):
            stream[target : target + end - begin] = view.tokens[at, begin:end]
            filled[target : target + end - begin] = True
    if not filled.all():
        raise ShardError(
            f"{reader.folder}: its rows do not hold all tokens that its sidecar counts; run `corpusmill verify`"
        )
    return np.split(stream, starts[1:-1])


def sizes_of(reader: ComponentReader, documents: Sequence[Tokens]) -> list[int]:
    """Bytes of UTF-8 that documents have as text."""
    decode = decoder_of(reader)
    return [len(decode(document).encode()) for document in documents]
