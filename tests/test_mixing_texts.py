"""Documents read back from shards without a plan: the tokens and the bytes that went in, whatever the packing."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from shard_runs import Run, documents, vocabulary_of

from corpusmill.mixing.texts import first_documents, open_component, sizes_of
from corpusmill.shards.components import Components
from corpusmill.shards.stage import Shard, TokenizerSource

TEXTS = [
    f"page {number} tells in its own words what it is about, für alle. " * (1 + number % 7)
    for number in range(30)
]


@pytest.mark.parametrize("packing", ["concat", "best_fit", "pad"])
@pytest.mark.parametrize("boundary", ["eos", "none"])
def test_documents_come_whole_with_their_tokens_and_their_bytes(
    tmp_path: Path, packing: Literal["concat", "best_fit", "pad"], boundary: Literal["eos", "none"]
) -> None:
    # One token a byte: what a document is made of can be told without a tokenizer.
    (tmp_path / "tokenizer.json").write_bytes(vocabulary_of(300))
    shard = Shard(
        TokenizerSource(file=str(tmp_path / "tokenizer.json")),
        sequence_length=64,
        block_bytes=1 << 10,
        shard_bytes=1 << 12,
        packing=packing,
        boundary=boundary,
        components=Components(),
    )
    run = Run(tmp_path / "out", [documents(TEXTS)], shard, names=("shard",))
    reader = open_component(run.folder("shard.write") / "web")
    assert len(reader.manifest.shards) > 1
    found = first_documents(reader, 1 << 30)
    assert found.whole and len(found.tokens) == len(TEXTS)
    assert sorted(sizes_of(reader, found.tokens)) == sorted(len(text.encode()) for text in TEXTS)
    assert found.count == sum(len(text.encode()) + (boundary == "eos") for text in TEXTS)
    some = first_documents(reader, found.count // 3)
    assert not some.whole
    assert found.count // 3 <= some.count < found.count
    assert all(np.array_equal(a, b) for a, b in zip(some.tokens, found.tokens, strict=False))
