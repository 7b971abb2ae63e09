"""Ids of documents by the fast engine, with the reference looking over its shoulder.

The engine has passed the battery; still, of the documents themselves some are encoded by both: the first FIRST of a unit, and of
the rest a draw by the hash of the document's id (one in EVERY, odd ones ODD_FACTOR times as often), so the same ones whatever the
workers. The first difference is a `Differs`: the caller does its unit again by the reference, and the engine is not used again.
Which engine worked changes no byte, so nothing of it enters a manifest.

The reference takes 10 to 60 times as long for a document, so few are drawn: 45 of 6,519 (benchmarks/tokenize.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from corpusmill.pipeline.errors import ModelError
from corpusmill.pipeline.text.battery import differs, is_odd
from corpusmill.pipeline.text.engines import Engine, Ids
from corpusmill.pipeline.text.tokenizer import Tokenizer

FIRST = 32
"""Documents of a unit that are all checked."""

EVERY = 1000
ODD_FACTOR = 4


class Differs(Exception):
    """The fast engine gave other ids than the reference for `document`, or failed on it."""

    def __init__(self, document: bytes, why: str) -> None:
        super().__init__(why)
        self.document, self.why = document, why


@dataclass
class Checked:
    """Encodes the documents of one unit, in their order. Without an engine the reference does it, and nothing is left to check."""

    tokenizer: Tokenizer
    engine: Engine | None = None
    documents: int = 0  # that the engine has encoded so far, and how many of them the reference has too
    cross_checked: int = 0

    def encode(self, texts: Sequence[str], names: Sequence[bytes]) -> tuple[Ids, npt.NDArray[np.int64]]:
        """As Tokenizer.encode. Raises Differs."""
        if self.engine is None:
            return self.tokenizer.encode(texts)
        drawn = [
            place
            for place, (text, name) in enumerate(zip(texts, names, strict=True))
            if self.documents + place < FIRST or is_drawn(name, text)
        ]
        try:
            ids, lengths = self.tokenizer.encode(texts, self.engine)
        except ModelError as error:
            raise Differs(names[0], str(error)) from error
        self._check(texts, names, drawn, ids, lengths, self.engine.name)
        self.documents += len(texts)
        self.cross_checked += len(drawn)
        return ids, lengths

    def _check(
        self,
        texts: Sequence[str],
        names: Sequence[bytes],
        drawn: Sequence[int],
        ids: Ids,
        lengths: npt.NDArray[np.int64],
        engine: str,
    ) -> None:
        ends = np.cumsum(lengths)
        found = [ids[ends[place] - lengths[place] : ends[place]] for place in drawn]
        wanted, sizes = self.tokenizer.encode([texts[place] for place in drawn])
        mine = np.concatenate(found) if found else ids[:0]
        other = differs((wanted, sizes), (mine, lengths[list(drawn)]))
        if other is not None:
            raise Differs(names[drawn[other]], f"{engine} gave other ids than the reference")
        if self.tokenizer.reference.lossless:
            for place, part in zip(drawn, found, strict=True):
                self._comes_back(texts[place], part, names[place])

    def _comes_back(self, text: str, ids: Ids, name: bytes) -> None:
        if self.tokenizer.reference.decode(ids.tolist()) != text:
            raise ModelError(
                f"document {name.hex()} does not come back from its ids: tokenizer {self.tokenizer.sha256[:12]} loses text; "
                "give another tokenizer.json"
            )


def is_drawn(name: bytes, text: str) -> bool:
    """Whether a document is encoded by both engines."""
    drawn = xxhash.xxh3_64_intdigest(name) % EVERY
    return drawn == 0 or (drawn < ODD_FACTOR and is_odd(text))
