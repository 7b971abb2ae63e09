"""The signature layer: what near and exact duplicates are found by, for every row with text.

It depends on the text, `ngram` and the number of hashes alone, so that thresholds, bands and earlier verdicts can move without
reading a text again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from corpusmill.dedup import shingle
from corpusmill.pipeline.engine.stage import Measure

WORDS, SHINGLES, CONTENT, SIGNATURE = "dedup_words", "dedup_shingles", "content_hash", "signature"


@dataclass(frozen=True)
class Signatures(Measure):
    """Counts, content hash and MinHash signature in datasketch's affine32 scheme (dedup/shingle.py is the specification)."""

    version: ClassVar[int] = shingle.VERSION
    by_name: ClassVar[bool] = True
    ngram: int = 5
    hashes: int = 112

    def schema(self) -> pa.Schema:
        about = {
            WORDS: "words of the normalised text (dedup/shingle.py)",
            SHINGLES: f"runs of {self.ngram} words, with repeats; 1 when there are fewer words, 0 without words",
            CONTENT: "xxh3-128 of the normalised text; of 0 and the text itself when it has no words",
            SIGNATURE: f"{self.hashes} little-endian u32 minima: datasketch MinHash(seed=1, scheme='affine32', hashfunc=shingle_hash)",
        }
        types = {
            WORDS: pa.uint32(),
            SHINGLES: pa.uint32(),
            CONTENT: pa.binary(16),
            SIGNATURE: pa.binary(4 * self.hashes),
        }
        return pa.schema([pa.field(name, types[name], metadata={"about": about[name]}) for name in types])

    def measure(self, rows: pa.Table) -> pa.Table:
        signed = shingle.sign(rows["text"], self.ngram, self.hashes)
        buffer = pa.py_buffer(signed.signatures.astype("<u4", copy=False))
        signatures = pa.Array.from_buffers(pa.binary(4 * self.hashes), len(signed.words), [None, buffer])
        columns = [
            pa.array(signed.words),
            pa.array(signed.shingles),
            pa.array(signed.content, pa.binary(16)),
            signatures,
        ]
        return pa.table(columns, schema=self.schema())

    def warm(self) -> None:
        shingle.warm()
