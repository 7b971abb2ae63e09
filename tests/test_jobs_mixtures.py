"""`corpusmill mix check`: what a mixture file asks of shards that are there."""

from __future__ import annotations

from pathlib import Path

import pytest
from shard_samples import Sample, documents, write_shards

from corpusmill.jobs.cli import main
from corpusmill.shards.mixture import PPB
from corpusmill.shards.plan_file import read_plan

HEAD = "schema: corpusmill/mixture/v1\n"


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    samples = [Sample("web", [documents(1, 60)]), Sample("books", [documents(2, 10)])]
    write_shards(tmp_path / "shards", samples, {"web": PPB // 2, "books": PPB // 2})
    return tmp_path / "shards"


def checked(shards: Path, text: str) -> int:
    (shards.parent / "mine.yaml").write_text(HEAD + text)
    return main(["mix", "check", str(shards.parent / "mine.yaml"), "--out", str(shards)])


def rows(shards: Path) -> dict[str, int]:
    return {each.name: each.rows for each in read_plan(shards / "plan.json").components}


def test_synthetic_text_beyond_what_a_search_gives_it_is_said_by_kind_and_phase(
    shards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "components: {books: {synthetic: generated}}\nbudget_tokens: 160\n"
        "phases: [{weights: {web: 0.85, books: 0.15}}, {from: 10, weights: {web: 0.8, books: 0.2}}]\n"
    )
    assert checked(shards, text) == 0
    said = capsys.readouterr().out
    assert "generated text has 20.00 % from sample 10 on; a search gives it 15 % at most" in said
    assert "from sample 0 on" not in said and "nothing speaks against it" not in said


def test_a_stream_that_may_stop_or_redistribute_is_not_wrong(
    shards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of 60 samples are 30 rows of books, of which there are fewer."""
    assert rows(shards)["books"] < 30 < 60 < rows(shards)["web"]
    text = "components: {books: {max_epochs: 1}}\nbudget_tokens: 480\nphases: [{weights: {web: 0.5, books: 0.5}}]\n"
    assert checked(shards, text) == 1
    assert "samples fit: lower the budget" in capsys.readouterr().out
    assert checked(shards, text + "exhaust: stop\n") == 0
    assert "the stream ends after" in capsys.readouterr().out
    assert checked(shards, text + "exhaust: redistribute\n") == 0
    said = capsys.readouterr().out
    books = next(line for line in said.splitlines() if line.startswith("books"))
    assert "50.0000 %" in books and " 0.0000 %" in books and "1.00" in books.split()
    assert "nothing speaks against it" in said


def test_all_mistakes_are_printed_with_their_lines(shards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(shards, "seed: x\nphases:\n- weights: {wep: 1}\n") == 2
    said = capsys.readouterr().err
    assert "mine.yaml, line 2: seed is 'x'" in said
    assert "line 4: phases.0.weights.wep: no component is called 'wep'; did you mean 'web'?" in said
