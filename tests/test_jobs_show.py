"""What `corpusmill show` and the end of a run say about pages that left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corpusmill.jobs.cli import main

RECIPE = """
stages:
  - extract: {}
  - filter: [gopher_quality: {min_words: 6, min_stop_words: 1, min_alpha_words: null, min_mean_word_length: null}]
"""
TEXTS = {
    "long": "one of the two pages that stay here",
    "short": "of it",
    "odd": "words without any",
    "brief": "to do",
}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shown")
    lines = [json.dumps({"text": text, "url": f"https://a.example/{name}"}) for name, text in TEXTS.items()]
    (folder / "pages.jsonl").write_text("\n".join(lines))
    (folder / "old.arc").write_bytes(b"filedesc://x.arc 127.0.0.1 20140301000000 text/plain 75\n")
    (folder / "r.yaml").write_text(RECIPE)
    run = ["run", f"{folder}/r.yaml", "--out", f"{folder}/out"]
    assert main([*run, "--input", f"{folder}/pages.jsonl", "--input", f"{folder}/*.arc"]) == 0
    return folder / "out"


def test_a_page_says_by_how_much_it_missed_each_bound(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(out), "--document", "https://a.example/odd"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(None, 1)[1] for line in lines if line.startswith("missed")] == [
        "gopher_quality: words is 3, wanted at_least 6",
        "gopher_quality: stop_words is 0, wanted at_least 1",
    ]
    assert ["state", "dropped"] in [line.split() for line in lines]
    assert main(["show", str(out), "--document", "https://a.example/long"]) == 0
    assert "missed" not in capsys.readouterr().out


@pytest.mark.parametrize("prefix", ["", "dropped."])
def test_the_pages_of_a_reason_are_listed_as_the_ledger_names_it(
    out: Path, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = f"{prefix}gopher_quality.words.at_least"
    assert main(["show", str(out), "--reason", reason, "--columns", "url,words"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [
        [f"https://a.example/{name}", str(len(TEXTS[name].split()))] for name in ("short", "odd", "brief")
    ]


def test_rows_that_are_not_shown_are_spoken_of(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(out), "--which", "dropped", "--rows", "2"]) == 0
    assert "and more: --rows 20" in capsys.readouterr().out
    assert main(["show", str(out), "--which", "dropped", "--rows", "3"]) == 0
    assert "more" not in capsys.readouterr().out


def test_a_reason_that_no_page_has_is_an_error(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(out), "--reason", "gopher_quality.word.at_least"]) == 2
    assert "did you mean 'gopher_quality.words.at_least'" in capsys.readouterr().err


def test_a_run_ends_by_naming_what_it_could_not_read(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = out.parent
    run = ["run", f"{folder}/r.yaml", "--out", str(out)]
    assert main([*run, "--input", f"{folder}/pages.jsonl", "--input", f"{folder}/*.arc"]) == 0
    assert "old.arc: refused, arc files are not read" in capsys.readouterr().out


def test_a_run_with_failed_rows_ends_with_the_command_that_lists_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pages.jsonl").write_text('{"text": "one"}\n{"text": \n')
    (tmp_path / "r.yaml").write_text("stages: [extract: {}]")
    out = f"{tmp_path}/out"
    assert main(["run", f"{tmp_path}/r.yaml", "--out", out, "--input", f"{tmp_path}/pages.jsonl"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("failed rows: ")]
    assert line == f"failed rows: corpusmill show {out} --failed"
    assert main(line.removeprefix("failed rows: corpusmill ").split()) == 0
    assert "unparsable" in capsys.readouterr().out


def test_a_run_that_was_stopped_in_its_first_stage_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipe.yaml").write_text("stages: [extract: {}]")
    assert main(["show", str(tmp_path)]) == 2
    assert "no stage of this run is done yet" in capsys.readouterr().err
