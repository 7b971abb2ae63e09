"""A real crawl through every stage: same bytes, nothing lost, nothing mixed, one clear error for each mistake."""

import gzip
import io
import json
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from runs import RECIPE, corpusmill, events, hashes, inputs, write_recipe

from corpusmill.jobs.demo_pages import read_truth
from corpusmill.pipeline.documents import document_id
from corpusmill.pipeline.run import Run


def copy_of(out: Path, to: Path) -> Path:
    shutil.copytree(out, to)
    return to


def redone(done: object) -> list[str]:
    return [
        event["stage"] for event in events(done) if event["event"] == "stage_ended" and not event["reused"]
    ]  # type: ignore[arg-type]


def test_two_workers_write_the_same_bytes_as_one(
    undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path
) -> None:
    corpusmill("run", recipe, "--out", tmp_path / "out", *inputs(crawl), "--workers", "2")
    assert hashes(tmp_path / "out") == hashes(undisturbed)


def test_the_same_command_again_reuses_everything(
    undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path
) -> None:
    out = copy_of(undisturbed, tmp_path / "out")
    assert redone(corpusmill("run", recipe, "--out", out, *inputs(crawl))) == []
    assert hashes(out) == hashes(undisturbed)


def test_rows_in_are_kept_dropped_or_failed_at_every_stage(undisturbed: Path) -> None:
    run = Run(undisturbed)
    before = run.manifest("documents").rows
    for stage, counts in run.ledger():
        left = sum(n for name, n in counts.items() if name.startswith(("dropped.", "failed.")))
        assert counts["in"] == before and counts["in"] == counts["kept"] + left, stage
        before = counts["kept"]
    assert 0 < before < run.manifest("documents").rows


def test_every_page_of_the_crawl_is_a_row_but_for_the_damaged_one(undisturbed: Path, crawl: Path) -> None:
    truth = read_truth(crawl)
    rows = Counter(Run(undisturbed).table(["url"], kept=False)["url"].to_pylist())
    missing = {url for url in truth if url not in rows}
    assert {truth[url] for url in missing} <= {"damaged"}
    assert all(n == 1 for url, n in rows.items() if truth[url] != "exact_copy")
    assert Run(undisturbed).records()["bad_record"] == sum(kind == "damaged" for kind in truth.values())


def test_each_dropped_page_says_why_and_the_plants_go_for_the_right_reasons(
    undisturbed: Path, crawl: Path
) -> None:
    truth = read_truth(crawl)
    rows = Run(undisturbed).table(["url", "state", "stage", "reason"], kept=False).to_pylist()
    assert all((row["reason"] is None) == (row["state"] == 0) for row in rows)
    by_kind: dict[str, Counter[str]] = {}
    for row in rows:
        by_kind.setdefault(truth[row["url"]], Counter())[row["stage"] or "kept"] += 1
    # Docstrings are half prose: published thresholds take many of them, but never most of all that is good.
    assert by_kind["documentation"]["kept"] > by_kind["documentation"].total() / 4
    for kind in ("spam", "garbled", "http_error", "not_html", "other_language"):
        assert by_kind[kind]["kept"] == 0, (kind, by_kind[kind])


def test_ids_are_made_of_source_path_and_offset(undisturbed: Path) -> None:
    for row in Run(undisturbed).table(["id", "source", "origin"], kept=False).to_pylist():
        assert row["id"] == document_id(row["source"], row["origin"]["file"], row["origin"]["offset"])


def test_moving_one_threshold_measures_nothing_again(undisturbed: Path, crawl: Path, tmp_path: Path) -> None:
    out = copy_of(undisturbed, tmp_path / "out")
    other = write_recipe(tmp_path, RECIPE.replace("min_words: 30", "min_words: 60"))
    before = hashes(out)
    refused = corpusmill("run", other, "--out", out, *inputs(crawl), expect=2)
    assert "gopher_quality.min_words: 30 -> 60" in refused.stderr and "--update" in refused.stderr
    assert hashes(out) == before
    done = corpusmill("run", other, "--out", out, *inputs(crawl), "--update")
    assert not set(redone(done)) & {
        "documents",
        "filter.language",
        "filter.measures",
        "filter.c4",
        "filter.measures@c4",
        "dedup.signatures",
    }
    assert "filter.verdict" in redone(done)
    assert "filter.verdict: redone" in done.stdout and "filter.measures: reused" in done.stdout
    assert "| gopher_quality.words.at_least: 30.0 -> 60.0\n" in done.stdout
    fresh = tmp_path / "fresh"
    corpusmill("run", other, "--out", fresh, *inputs(crawl))
    new = hashes(out)
    assert {name: new[name] for name in hashes(fresh)} == hashes(fresh)


def test_a_changed_input_is_refused_and_named(
    crawl: Path, recipe: Path, undisturbed: Path, tmp_path: Path
) -> None:
    out = copy_of(undisturbed, tmp_path / "out")
    other = copy_of(crawl, tmp_path / "crawl")
    with gzip.open(other / "library.jsonl.gz", "at") as file:
        file.write(json.dumps({"text": "one more", "url": "https://x.example/"}) + "\n")
    refused = corpusmill("run", recipe, "--out", out, *inputs(other), expect=2)
    assert "input changed: library.jsonl.gz (library)" in refused.stderr


def test_an_input_that_comes_or_goes_leaves_the_partitions_of_the_others_as_they_are(
    crawl: Path, recipe: Path, undisturbed: Path, tmp_path: Path
) -> None:
    both, other = inputs(crawl), tmp_path / "other.jsonl"
    other.write_text((crawl / "truth.jsonl").read_text().replace('"url"', '"text"'))
    out, fresh = tmp_path / "out", tmp_path / "fresh"
    copy_of(undisturbed, out)
    three = [*both, "--input", f"also={other}"]  # sorted before the others: all partitions get another number
    grown = corpusmill("run", recipe, "--out", out, *three, "--update")
    began = {event["stage"]: event for event in events(grown) if event["event"] == "stage_began"}
    for stage in ("documents", "ledger.extract", "filter.language", "filter.measures", "dedup.signatures"):
        assert began[stage]["units"] - began[stage]["done"] == 1, stage
    corpusmill("run", recipe, "--out", fresh, *three)
    new, wanted = hashes(out), hashes(fresh)
    assert {name: new[name] for name in wanted} == wanted
    assert "0 findings" in corpusmill("verify", out).stdout
    corpusmill("run", recipe, "--out", out, *both, "--update")
    back, wanted = hashes(out), hashes(undisturbed)
    assert {name: back[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RECIPE.replace("min_words", "min_wrods"), "did you mean 'min_words'"),
        (RECIPE.replace("gopher_quality", "gopher_qality"), "did you mean 'gopher_quality'"),
    ],
)
def test_a_misspelt_recipe_writes_nothing(text: str, message: str, crawl: Path, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, text)
    done = corpusmill("run", recipe, "--out", tmp_path / "out", *inputs(crawl), expect=2)
    assert message in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_missing_model_is_one_error_that_names_the_command(
    crawl: Path, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUSMILL_MODELS", str(tmp_path / "empty"))
    done = corpusmill("run", recipe, "--out", tmp_path / "out", *inputs(crawl), expect=2)
    assert "corpusmill model get lid.176" in done.stderr and "Traceback" not in done.stderr


def test_an_unreadable_input_is_one_error(recipe: Path, tmp_path: Path, language_model: Path) -> None:
    junk = tmp_path / "junk.warc.gz"
    junk.write_bytes(b"no crawl at all, nor JSON, nor Parquet" * 50)
    done = corpusmill("run", recipe, "--out", tmp_path / "out", "--input", junk, expect=2)
    assert str(junk) in done.stderr and "Traceback" not in done.stderr
    gone = corpusmill(
        "run", recipe, "--out", tmp_path / "out2", "--input", tmp_path / "gone.warc.gz", expect=2
    )
    assert "cannot read" in gone.stderr


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_stage_starts_from_foreign_documents(kind: str, recipe: Path, tmp_path: Path) -> None:
    text = " ".join(f"word{i} and the others of that day," for i in range(40))
    rows = [
        {"text": text, "url": "https://a.example/1"},
        {"text": text, "url": "https://a.example/2"},
        {"text": "short", "url": None},
    ]
    if kind == "jsonl":
        (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    out = tmp_path / "out"
    corpusmill("dedup", recipe, "--out", out, "--input", tmp_path / f"in.{kind}")
    ledger = dict(Run(out).ledger())
    assert list(ledger) == ["extract", "dedup"]
    assert (
        ledger["dedup"]["in"] == 3
        and ledger["dedup"]["kept"] == 2
        and ledger["dedup"]["dropped.dedup.exact"] == 1
    )


def test_stage_commands_on_one_folder_end_where_run_ends(
    undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path
) -> None:
    text = (
        recipe.read_text()
        + f'inputs:\n  - {{path: "{crawl}/crawl-*.warc.gz", source: web}}\n  - {{path: "{crawl}/library.jsonl.gz", source: library}}\n'
    )
    with_inputs = write_recipe(tmp_path, text)
    out = tmp_path / "out"
    for stage in ("extract", "filter", "dedup", "redact"):
        corpusmill(stage, with_inputs, "--out", out)
    corpusmill("run", with_inputs, "--out", out)
    assert hashes(out) == hashes(undisturbed)


def test_exports_hold_exactly_what_was_asked(undisturbed: Path, tmp_path: Path) -> None:
    run = Run(undisturbed)
    counts = {}
    for which in ("kept", "dropped", "all"):
        corpusmill(
            "export",
            undisturbed,
            "--to",
            tmp_path / which,
            "--which",
            which,
            "--columns",
            "id,url,text,stage,reason,words",
        )
        rows = [line for path in sorted((tmp_path / which).glob("*.zst")) for line in read_zst(path)]
        counts[which] = len(rows)
        assert list(rows[0]) == ["id", "url", "text", "stage", "reason", "words"]
    assert counts["kept"] + counts["dropped"] == counts["all"] == run.manifest("documents").rows
    corpusmill(
        "export", undisturbed, "--to", tmp_path / "parquet", "--format", "parquet", "--columns", "id,text"
    )
    table = pa.concat_tables(
        [pq.read_table(path) for path in sorted((tmp_path / "parquet").glob("part-*.parquet"))]
    )
    assert table.equals(run.table(["id", "text"]))
    wrong = corpusmill("export", undisturbed, "--to", tmp_path / "wrong", "--columns", "txt", expect=2)
    assert "did you mean 'text'" in wrong.stderr


def read_zst(path: Path) -> list[dict[str, object]]:
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as reader:
        return [json.loads(line) for line in io.TextIOWrapper(reader, encoding="utf-8")]


def test_a_sample_is_the_same_documents_whatever_else_is_read(
    crawl: Path, recipe: Path, undisturbed: Path, tmp_path: Path
) -> None:
    corpusmill("extract", recipe, "--out", tmp_path / "all", *inputs(crawl), "--sample", "0.3")
    corpusmill(
        "extract",
        recipe,
        "--out",
        tmp_path / "one",
        "--input",
        f"library={crawl}/library.jsonl.gz",
        "--sample",
        "0.3",
    )
    ids = {name: Run(tmp_path / name).table(["id", "source"], kept=False) for name in ("all", "one")}
    library = [row["id"] for row in ids["all"].to_pylist() if row["source"] == "library"]
    assert library == ids["one"]["id"].to_pylist()
    total = Run(undisturbed).manifest("documents").rows
    assert 0.15 * total < ids["all"].num_rows < 0.45 * total
    assert Run(tmp_path / "all").records()["sampled_out"] == total - ids["all"].num_rows


def test_a_limit_takes_the_first_documents_in_input_order(
    crawl: Path, recipe: Path, undisturbed: Path, tmp_path: Path
) -> None:
    corpusmill("extract", recipe, "--out", tmp_path / "out", *inputs(crawl), "--limit", "25")
    first = Run(tmp_path / "out").table(["id"], kept=False)
    assert first["id"].to_pylist() == Run(undisturbed).table(["id"], kept=False)["id"].to_pylist()[:25]


def test_verify_finds_a_flipped_byte_and_a_missing_file(
    undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path
) -> None:
    assert "0 findings" in corpusmill("verify", undisturbed).stdout
    out = copy_of(undisturbed, tmp_path / "out")
    documents = sorted((out / "text" / "documents").rglob("part-*.parquet"))
    data = bytearray(documents[0].read_bytes())
    data[len(data) // 2] ^= 1
    documents[0].write_bytes(data)
    documents[1].unlink()
    done = corpusmill("verify", out, expect=1)
    assert str(documents[0]) in done.stdout and f"{documents[1]}: missing" in done.stdout
    documents[0].unlink()
    corpusmill("run", recipe, "--out", out, *inputs(crawl))
    assert hashes(out) == hashes(undisturbed)


def test_show_and_locate_answer_about_one_document(undisturbed: Path) -> None:
    run = Run(undisturbed)
    row = run.table(["id", "url"], kept=True).slice(0, 1).to_pylist()[0]
    shown = json.loads(corpusmill("show", undisturbed, "--document", row["id"].hex(), "--json").stdout)
    assert shown["url"] == row["url"] and shown["state"] == 0 and shown["words"] > 0
    assert "ledger" in json.loads(corpusmill("show", undisturbed, "--json").stdout)
    first = json.loads(corpusmill("locate", undisturbed, "--at", "0", "--json").stdout.splitlines()[0])
    assert first["pieces"] and first["url"] and first["text"]
    assert "no document" in corpusmill("show", undisturbed, "--document", "nowhere", expect=2).stderr
