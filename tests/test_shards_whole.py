"""Writer and reader together: what was kept is what a stream gives, and every sample leads back to its text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from shard_runs import Document, Run, documents

from corpusmill.mixing.stage import Mix
from corpusmill.pipeline.text.tokenizer import Tokenizer
from corpusmill.shards import stream
from corpusmill.shards.layout import TOKENIZER_FILE
from corpusmill.shards.locate import locate
from corpusmill.shards.stage import Shard, TokenizerSource
from corpusmill.shards.verify import verify

WEB = documents([f"page {i} " + f"has words number {i % 7} and more " * (i % 23) for i in range(150)])
BOOKS = documents([f"chapter {i} of a book " * (i + 1) for i in range(30)], "books")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    shard = Shard(
        TokenizerSource(train="bpe", vocab=300), sequence_length=32, block_bytes=1 << 10, shard_bytes=1 << 13
    )
    return Run(
        tmp_path_factory.mktemp("whole"), [WEB[:60], WEB[60:], BOOKS], shard, Mix(epochs=1.0, max_epochs=1)
    )


@pytest.fixture(scope="module")
def tokenizer(run: Run) -> Tokenizer:
    return Tokenizer((run.folder("shard.tokenizer") / TOKENIZER_FILE).read_bytes())


def test_a_full_check_finds_nothing(run: Run) -> None:
    assert verify(run.out) == []


def test_moved_shards_are_still_whole(run: Run, tmp_path: Path) -> None:
    run.out.joinpath("shards").rename(tmp_path / "elsewhere")
    try:
        assert verify(tmp_path / "elsewhere") == []
    finally:
        (tmp_path / "elsewhere").rename(run.out / "shards")


def test_one_epoch_gives_no_row_twice_and_leaves_out_a_few_at_most(run: Run) -> None:
    with stream(run.out, batch_size=1) as batches:
        rows = Counter(batch["tokens"].tobytes() for batch in batches)
    stored = sum(result.rows for result in run.manifests["shard.write"].results.values())
    assert stored > 200
    assert stored - 40 <= sum(rows.values()) <= stored


def test_the_tokens_of_a_sample_are_those_of_the_text_it_came_from(run: Run, tokenizer: Tokenizer) -> None:
    texts: dict[str, Document] = {row.id.hex(): row for row in (*WEB, *BOOKS)}
    seen: set[str] = set()
    with stream(run.out, batch_size=1) as batches:
        for sample, batch in zip(range(60), batches, strict=False):
            (row,) = batch["tokens"]
            (found,) = locate(run.out, sample)
            for piece in found.pieces:
                document = texts[piece.id]
                tokens = [*tokenizer.encode([document.text])[0].tolist(), tokenizer.eos]
                part = tokens[piece.token : piece.token + piece.end - piece.start]
                assert np.array_equal(row[piece.start : piece.end], part)
                assert (piece.url, piece.offset) == (
                    f"https://{document.source}.example/{document.number}",
                    document.number,
                )
                seen.add(document.source)
    assert seen == {"web", "books"}
