"""Targets: which tokens are predicted, to which document they belong, and how many bytes of text they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from proxy_runs import SMALL, corpus
from shard_runs import Run

from corpusmill.mixing.held import Held, read_held
from corpusmill.mixing.stage import Mix
from corpusmill.shards.holdout import held_out


def texts(run: Run, source: str) -> list[str]:
    return sorted(
        row.text for row in corpus() if row.source == source and held_out(row.id, None, run.seed, 0.1)
    )


@pytest.fixture(scope="module", params=["concat", "best_fit", "pad"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    config = replace(SMALL, packing=request.param)
    return Run(tmp_path_factory.mktemp(request.param), [corpus()], config, Mix())


def test_the_bytes_are_those_of_the_texts_behind_their_first_tokens(run: Run) -> None:
    from tokenizers import Tokenizer

    folder = run.folder("shard.write")
    loaded = Tokenizer.from_str((folder / "tokenizer.json").read_text())
    for source in ("even", "digits"):
        held = read_held(source, folder / "holdout" / source)
        sizes = [
            len(text.encode()) - len(loaded.decode([loaded.encode(text).ids[0]]).encode())
            for text in texts(run, source)
        ]
        assert sorted(held.document_bytes.tolist()) == sorted(sizes)
        # Each token of a text but its first is predicted once, whatever rows it lies in.
        assert held.predicted().sum() == sum(len(loaded.encode(text).ids) - 1 for text in texts(run, source))


def test_a_part_of_a_target_is_its_first_rows_with_their_own_bytes(run: Run) -> None:
    folder = run.folder("shard.write") / "holdout" / "even"
    whole, part = read_held("even", folder), read_held("even", folder, most_tokens=5 * 32 + 31)
    assert len(part.tokens) == 5 and (part.tokens == whole.tokens[:5]).all()
    assert 0 < part.document_bytes.sum() < whole.document_bytes.sum()
    assert len(read_held("even", folder, most_tokens=1).tokens) == 1


def test_frequencies_alone_cost_their_entropy() -> None:
    # Three tokens of one kind and one of another behind a first: 4 · H(1/4) = 3.245 bits, in 8 bytes.
    tokens = np.array([[9, 5, 5, 5, 6, 0]], np.uint16)
    document = np.array([[0, 0, 0, 0, 0, -1]])
    held = Held("a", tokens, document, np.array([8]), 0, "")
    assert held.predicted().tolist() == [[True, True, True, True, False]]
    assert held.unigram_bits_per_byte() == pytest.approx(3.2451124978 / 8)


def test_a_target_without_text_is_named(tmp_path: Path, run: Run) -> None:
    from corpusmill.pipeline.errors import ShardError

    with pytest.raises(ShardError, match=r"manifest\.json is missing"):
        read_held("none", tmp_path)
