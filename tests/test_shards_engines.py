"""The engine that tokenizes changes no byte of the shards, wrong or right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from shard_runs import Document, Run, documents

from corpusmill.pipeline.engine.metrics import FIGURES
from corpusmill.pipeline.text import choice
from corpusmill.pipeline.text.battery import pages
from corpusmill.pipeline.text.engines import Encoded, Fast
from corpusmill.shards import scatter
from corpusmill.shards.stage import Shard, TokenizerSource

pytest.importorskip("fastokens")

SMALL = Shard(
    TokenizerSource(train="bpe", vocab=400), sequence_length=64, block_bytes=1 << 12, shard_bytes=1 << 18
)
STAGES = ("shard.tokenizer", "shard.scatter", "shard.write")


def corpus() -> list[list[Document]]:
    rows = documents(list(pages(200_000)))
    return [rows[:20], rows[20:]]


class Wrong(Fast):
    """Right on the battery and on the first documents of a unit, then wrong on any text with `word` in it."""

    word = ""

    def encode(self, texts: Sequence[str]) -> Encoded:
        return super().encode([text.replace(self.word, "") if self.word else text for text in texts])


def files(run: Run) -> dict[str, dict[str, bytes]]:
    return {stage: dict(run.files(stage)) for stage in STAGES}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("reference"), corpus(), SMALL)


def test_units_of_a_few_pages_are_the_reference_s(plain: Run) -> None:
    assert not (plain.out / "metrics").exists()


def test_the_fast_engine_gives_the_same_shards(
    plain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scatter, "FAST_BYTES", 0)
    FIGURES.clear()
    run = Run(tmp_path, corpus(), SMALL)
    assert files(run) == files(plain)
    assert run.folders == plain.folders
    count = sum(map(len, corpus()))
    assert FIGURES["by_engine"] == count
    assert 32 <= FIGURES["cross_checked"] <= count


def test_a_unit_on_which_the_engine_is_wrong_is_done_again_and_the_run_says_so(
    plain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scatter, "FAST_BYTES", 0)
    monkeypatch.setattr(choice, "_loaded", lambda content, _: Wrong(content))
    battery = choice.first_difference

    def passed(*arguments: object) -> str | None:
        found = battery(*arguments)  # type: ignore[arg-type]
        Wrong.word = corpus()[0][0].text[:5]
        return found

    monkeypatch.setattr(choice, "first_difference", passed)
    monkeypatch.setattr(Wrong, "word", "")
    FIGURES.clear()
    run = Run(tmp_path, corpus(), SMALL)
    assert files(run) == files(plain)
    assert FIGURES["mismatches"] == 1, "all later units are the reference's"
    assert FIGURES["by_engine"] == 0
    assert corpus()[0][0].id.hex() in caplog.text
    assert "tokenized by the reference" in caplog.text
