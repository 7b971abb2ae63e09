"""A takedown over shards as the writer packs them: all samples of a document are known, and none of its tokens is learnt."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from shard_runs import Run, documents

from corpusmill.mixing.stage import Mix
from corpusmill.shards import locate, stream, suspects, verify, where
from corpusmill.shards.hide import hide_document
from corpusmill.shards.layout import Boundary, Packing
from corpusmill.shards.sidecar import Wanted
from corpusmill.shards.stage import Shard, TokenizerSource

WEB = documents([f"page {i} " + f"has words number {i % 7} and more " * (i % 23) for i in range(60)])
BOOKS = documents([f"chapter {i} of a book " * (5 * i + 1) for i in range(12)], "books")


@pytest.mark.parametrize(
    ("packing", "boundary"), [("concat", "eos"), ("concat", "both"), ("best_fit", "eos"), ("pad", "bos")]
)
def test_every_position_of_every_document_is_what_a_look_at_all_samples_finds(
    tmp_path: Path, packing: Packing, boundary: Boundary
) -> None:
    shard = Shard(
        TokenizerSource(train="bpe", vocab=300, bos="<bos>" if boundary in ("bos", "both") else None),
        sequence_length=32,
        block_bytes=1 << 10,
        shard_bytes=1 << 13,
        packing=packing,
        boundary=boundary,
    )
    run = Run(tmp_path, [WEB[:30], WEB[30:], BOOKS], shard, Mix(epochs=2.0, max_epochs=3))
    with stream(run.out, 1) as batches:
        total = batches.batches_left
    assert total is not None
    seen: dict[str, list[tuple[int, int, int]]] = {}
    for sample in locate(run.out, 0, total):
        for piece in sample.pieces:
            seen.setdefault(piece.id, []).append((sample.sample, piece.start, piece.end))
    for document in (*WEB, *BOOKS):
        (found,) = where(run.out, id=document.id.hex())
        times = [(time.sample, time.start, time.end) for time in found.times]
        assert times == seen.get(document.id.hex(), [])

    with stream(run.out, total, want=("loss_mask",)) as batches:
        before = next(batches)
    long = BOOKS[-1].id.hex()
    assert len({row for row, _, _ in seen[long]}) > 5
    hide_document(run.out, Wanted(id=long), total // 3, "its author asked")
    with stream(run.out, total, want=("loss_mask",)) as batches:
        after = next(batches)
    gone = np.zeros(before["tokens"].shape, np.bool_)
    for row, start, end in seen[long]:
        gone[row, start:end] = row >= total // 3
    eos = batches.shards.plan.eos
    assert np.array_equal(after["tokens"], np.where(gone, eos, before["tokens"]))
    assert np.array_equal(after["loss_mask"], before["loss_mask"] & ~gone[:, 1:])
    assert verify(run.out) == []


def test_what_sharding_noted_of_a_document_stands_beside_it(tmp_path: Path) -> None:
    dice = random.Random(3)
    words = ["".join(dice.choices("aeioulnrst", k=dice.randint(2, 7))) for _ in range(200)]
    texts = [" ".join(dice.choices(words, k=80)) for _ in range(60)]
    texts[20] += " the same again" * 100
    shard = Shard(TokenizerSource(train="bpe", vocab=300), sequence_length=32, block_bytes=1 << 10)
    run = Run(tmp_path, [documents(texts)], shard, Mix())
    with stream(run.out, 1) as batches:
        total = batches.batches_left
    first, *others = suspects(run.out, 0, total)
    assert first.url == "https://web.example/20" and first.scores["periodic_run"] > 100
    assert all(other.suspicion < first.suspicion / 2 for other in others)
