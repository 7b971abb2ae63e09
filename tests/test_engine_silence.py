"""What gives nothing is said: files without documents, a run that keeps none, limits to sources that are not there."""

import gzip
import json
from pathlib import Path

import misbehaviour
import pytest
from misbehaviour import write_texts
from pin_results import warc_record
from runs import corpusmill

from corpusmill.jobs.reporter import SilentReporter
from corpusmill.pipeline.engine.disk import Disk
from corpusmill.pipeline.engine.silence import barren_files, nothing_kept
from corpusmill.pipeline.engine.stage import Result
from corpusmill.pipeline.errors import InputError

LINE = json.dumps({"url": "http://example.org/", "text": "some words"}) + "\n"


class Listener(SilentReporter):
    """Keeps what it is warned of."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def warn(self, message: str) -> None:
        self.said.append(message)


def test_files_without_a_document_are_named_with_the_reason_and_listed_again_by_show(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text(LINE)
    (folder / "b.jsonl").write_bytes(b"")
    (folder / "c.warc").write_bytes(
        warc_record("warcinfo", "", b"software: none\r\n", "application/warc-fields")
    )
    (folder / "d.jsonl").write_text("{broken\n{more\n" + json.dumps({"url": "http://example.org/"}) + "\n")
    (folder / "e.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    (folder / "f.jsonl.gz").write_bytes(gzip.compress(b""))
    listener = Listener()
    run = misbehaviour.run(tmp_path / "out", [f"web={folder}/*"], ["redact"], reporter=listener)
    (said,) = listener.said
    lines = said.splitlines()
    assert lines[0] == "5 of 6 input files gave no document:"
    assert lines[1] == "  b.jsonl (web): it is empty"
    assert lines[2] == "  c.warc (web): no record of a document: 1 record.warcinfo"
    assert lines[3] == "  d.jsonl (web): 3 records, none with text that can be used: most are unparsable (2)"
    assert lines[4].startswith("  e.png (web): ") and lines[4].endswith("files are not read")
    assert lines[5].startswith("  f.jsonl.gz (web): ")
    assert run.records()["file_empty"] >= 1
    shown = corpusmill("show", tmp_path / "out").stdout
    assert "gave no document:\n  b.jsonl (web): it is empty\n" in shown


def test_a_file_has_a_document_when_one_of_its_ranges_has_and_none_is_missed_that_a_sample_left_out() -> None:
    def range_of(unit: int, file: str, **counts: int) -> Result:
        return Result(unit, counts=counts, extra={"file": file, "source": "web", "start": 0, "end": 9})

    results = [
        range_of(0, "a", rows=2, **{"dropped.mime": 2}),
        range_of(1, "a", rows=1, kept=1),
        range_of(2, "b", rows=2, **{"dropped.mime": 2}),
        range_of(3, "b", rows=3, **{"dropped.http_status": 3}),
        range_of(4, "c", sampled_out=9),
    ]
    (one,) = barren_files({result.unit: result for result in results})
    assert str(one) == "b (web): 5 records, none with text that can be used: most are http_status (3)"


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("", {}, r"none of 2 input files holds a document: 0.jsonl \(web\): it is empty; 1.jsonl"),
        (LINE * 20, {"sample": 1e-12}, "the sample holds none of 40 documents: take a larger share"),
    ],
)
def test_inputs_that_hold_nothing_at_all_are_an_error(
    content: str, options: dict[str, float], said: str, tmp_path: Path
) -> None:
    for number in range(2):
        (tmp_path / f"{number}.jsonl").write_text(content)
    with pytest.raises(InputError, match=said) as error:
        misbehaviour.run(tmp_path / "out", [f"{tmp_path}/*.jsonl"], ["redact"], **options)
    assert error.value.exit_code == 2


def test_a_run_that_keeps_nothing_says_which_stage_and_reason_took_most(tmp_path: Path) -> None:
    inputs = write_texts(tmp_path / "in", ["two words", "three small words", "x"])
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "stages: [extract: {}, filter: [gopher_quality: {min_words: 3}], filter: {name: more, rules: [gopher_quality: {min_words: 50}]}]"
    )
    said = corpusmill("run", recipe, "--out", tmp_path / "out", "--input", inputs[0]).stdout
    wanted = "nothing is kept of 3 documents: most left at stage filter by gopher_quality."
    assert said.count(f"warning: {wanted}") == 2  # when it happens, and as the last word
    assert said.splitlines()[-1].startswith("warning: ") or wanted in said.rpartition("look: ")[2]


def test_what_took_most_is_named_over_all_stages() -> None:
    ledgers = [
        ("extract", {"in": 10, "kept": 9, "dropped.mime": 1}),
        ("filter", {"in": 9, "kept": 2, "dropped.a": 3, "failed.b": 4}),
        ("dedup", {"in": 2, "kept": 0, "dropped.c": 2}),
    ]
    assert "of 10 documents: most left at stage filter by b (4)" in (
        nothing_kept(ledgers, Disk(Path("out"))) or ""
    )
    assert nothing_kept(ledgers[:2], Disk(Path("out"))) is None
    assert nothing_kept([], Disk(Path("out"))) is None


def test_a_rule_for_a_source_that_no_input_has_is_named(tmp_path: Path) -> None:
    inputs = write_texts(tmp_path / "in", ["some words"])
    rule = {"gopher_quality": {"min_words": 1, "when": {"source": ["web", "bokks"]}}}
    listener = Listener()
    misbehaviour.run(tmp_path / "out", inputs, [{"filter": [rule]}], reporter=listener)
    assert listener.said[0] == "filter.gopher_quality: when.source names bokks, but the inputs are of web"


def test_a_source_that_has_no_part_in_the_shards_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    web, books = tmp_path / "web", tmp_path / "books"
    inputs = [f"web={write_texts(web, ['many words of a page ' * 20] * 5)[0]}"]
    inputs.append(f"books={write_texts(books, ['x'])[0]}")  # the rule keeps texts of three letters and more
    shard = {
        "tokenizer": {"train": "bpe", "vocab": 260},
        "sequence_length": 16,
        "block_bytes": 1024,
        "shard_bytes": 4096,
    }
    misbehaviour.register(monkeypatch)
    misbehaviour.run(tmp_path / "out", inputs, [{"filter": ["misbehaving"]}, {"shard": shard}])
    assert "shard: no document of source books is in the shards" in caplog.text
