"""Targets as proxies meet them: rows of a tokenized set, whose every token is known to belong to a document.

A target is any folder of shards (`shards/<fp>/holdout/<slug>`, or one made for the purpose). Its rows are read in order, as far as asked for.
What is predicted are the tokens of text that stand behind another one of their document: not a document's first, which a row may or
may not show something before, and not the marks between documents, which are no text. The bytes that losses are divided by are those
of the predicted text, by decoding (tokenizers: about 2 million tokens a second), so that bits per byte compare across tokenizers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.engine.place import Place, readable
from corpusmill.pipeline.errors import RecipeError, ShardError
from corpusmill.shards.data_sets import engine_of
from corpusmill.shards.fetch import source_of
from corpusmill.shards.layout import MANIFEST, read_manifest
from corpusmill.shards.opened import BlockView
from corpusmill.shards.plan import component_of
from corpusmill.shards.reader import ComponentReader

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Held:
    """`tokens` and `document` [rows, T + 1]: ids, and the place of each one's document in `document_bytes` (-1: padding)."""

    name: str
    tokens: npt.NDArray[np.unsignedinteger[Any]]
    document: Ints
    document_bytes: Ints  # of the text that is predicted; 0 where nothing of a document is
    eos: int
    tokenizer_sha256: str

    def predicted(self) -> npt.NDArray[np.bool_]:
        """[rows, T]: whether a row's token, from its second on, counts."""
        same = self.document[:, 1:] == self.document[:, :-1]
        found: npt.NDArray[np.bool_] = same & (self.document[:, 1:] >= 0) & (self.tokens[:, 1:] != self.eos)
        return found

    def unigram_bits_per_byte(self) -> float:
        """What the best model without context, one that knew this target's own frequencies, would reach.

        A proxy that is no better has learnt less than how often each token comes.
        """
        counts = np.bincount(self.tokens[:, 1:][self.predicted()])
        shares = counts[counts > 0] / counts.sum()
        bits = -float((shares * np.log2(shares)).sum()) * int(counts.sum())
        return bits / int(self.document_bytes.sum())


def target_hashes(folders: Mapping[str, str]) -> dict[str, str]:
    """Targets that are given are inputs: the sha256 of their manifests, as models of a stage; RecipeError for a folder without one."""
    found = {}
    for name, folder in folders.items():
        place = readable(folder) / MANIFEST
        if not place.is_file():
            raise RecipeError(
                f"target {name}: {place} is missing; a target has to be the folder of one component's shards"
            )
        found[f"target {name}"] = hashlib.sha256(place.read_bytes()).hexdigest()
    return found


def read_held(name: str, folder: Path | Place, most_tokens: int | None = None) -> Held:
    """The rows of a folder of shards, the first ones up to `most_tokens`, at least one."""
    manifest = read_manifest(folder)
    reader = ComponentReader(
        folder, component_of(folder.name, manifest, manifest.name), source_of(folder, None)
    )
    length = manifest.sequence_length
    wanted = manifest.rows if most_tokens is None else max(1, min(manifest.rows, most_tokens // length))
    rows: list[npt.NDArray[np.unsignedinteger[Any]]] = []
    owners, places = [], []
    for block in range(int(reader.block_of(np.array([wanted - 1]))[0]) + 1):
        view = reader.view(block)
        rows.append(view.tokens.copy())
        owner, place = _owners(view)
        owners.append(owner)
        places.append(place)
    tokens = np.concatenate(rows)[:wanted]
    owner, place = np.concatenate(owners)[:wanted], np.concatenate(places)[:wanted]
    known, inverse = np.unique(owner, return_inverse=True)
    document = inverse.reshape(owner.shape).astype(np.int64) - int(known[0] < 0)
    count = len(known) - int(known[0] < 0)
    sizes = _bytes(reader, tokens, document, place, count)
    if not sizes.any():
        raise ShardError(
            f"target {name}: {folder} holds no text to predict in its first {wanted} rows; give another"
        )
    return Held(name, tokens, document, sizes, manifest.eos, manifest.tokenizer_sha256)


def _owners(view: BlockView) -> tuple[Ints, Ints]:
    """[rows, T + 1]: the document of each token (-1: padding), and its place in the document."""
    height, width = view.tokens.shape
    bounds, ends = view.lists("doc_ends")
    ids, offsets = view.lists("doc_ids")[1], view.lists("doc_offsets")[1]
    row = np.repeat(np.arange(height), np.diff(bounds))
    stop = row * width + ends.astype(np.int64)
    start = np.concatenate([[0], stop[:-1]])
    start[bounds[:-1]] = np.arange(height) * width
    lengths = stop - start
    there = np.repeat(start - np.cumsum(lengths) + lengths, lengths) + np.arange(int(lengths.sum()))
    owner, place = np.full(height * width, -1, np.int64), np.zeros(height * width, np.int64)
    owner[there] = np.repeat(ids.astype(np.int64), lengths)
    place[there] = np.repeat(offsets.astype(np.int64) - start, lengths) + there
    return owner.reshape(height, width), place.reshape(height, width)


def _bytes(reader: ComponentReader, tokens: Any, document: Ints, place: Ints, count: int) -> Ints:
    """Of each document, the bytes of its text behind its first token, as far as it was read."""
    real = document >= 0
    owner, inside, ids = document[real], place[real], tokens[real]
    order = np.lexsort((inside, owner))
    owner, inside, ids = owner[order], inside[order], ids[order]
    # Rows overlap by a token: it is one token of its document.
    once = np.append(True, (np.diff(owner) != 0) | (np.diff(inside) != 0))
    owner, ids = owner[once], ids[once]
    cuts = np.searchsorted(owner, np.arange(1, count))
    marks = {reader.manifest.eos, reader.manifest.bos}
    decode = engine_of(reader).decode
    sizes = np.zeros(count, np.int64)
    # A Python loop over documents: decoding takes all the time.
    for number, part in enumerate(np.split(ids, cuts)):
        first, *rest = part.tolist()
        text = [token for token in rest if token not in marks]
        if text:
            whole = text if first in marks else [first, *text]
            begin = 0 if first in marks else len(decode([first]).encode())
            sizes[number] = max(1, len(decode(whole).encode()) - begin)
    return sizes
