"""Commands about shards: what they print, what they refuse, and that they need no more than a core install."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runs import corpusmill
from shard_samples import Sample, documents, small_shards, write_component, write_shards

from corpusmill.jobs.cli import main
from corpusmill.pipeline.errors import CursorError
from corpusmill.shards import Cursor, locate, stream, where
from corpusmill.shards.hide import hide_document
from corpusmill.shards.mixture import PPB
from corpusmill.shards.plan import Phase, compile_plan
from corpusmill.shards.plan_file import read_plan
from corpusmill.shards.quarantine import Entry
from corpusmill.shards.reader import Shards
from corpusmill.shards.sidecar import Wanted

TOTAL = 600
URL = "https://web.example/7"
Say = Callable[..., list[str]]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    small_shards(tmp_path / "out" / "shards", total=TOTAL)
    return tmp_path / "out"


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """The lines that a command prints; `expect` is its exit code."""

    def run(*arguments: Any, expect: int = 0) -> list[str]:
        assert main([str(argument) for argument in arguments]) == expect
        printed = capsys.readouterr()
        return (printed.err if expect else printed.out).splitlines()

    return run


def test_locate_prints_documents_with_address_and_place_in_the_crawl(out: Path, say: Say) -> None:
    lines = say("locate", out, "--at", "10:13")
    for sample in locate(out, 10, 13):
        for piece in sample.pieces:
            assert any(str(piece.url) in line and piece.id in line for line in lines)
            assert any(f"{piece.file}:{piece.offset}, {piece.length} bytes" in line for line in lines)
            assert any(
                f"sample {sample.sample}: tokens {piece.start} to {piece.end - 1}" in line for line in lines
            )


def test_a_step_is_the_samples_of_its_batch_and_a_ranks_part_of_them(out: Path, say: Say) -> None:
    def samples(*arguments: str) -> set[int]:
        found = [json.loads(line) for line in say("locate", out, *arguments, "--json")]
        return {piece["sample"] for each in found for piece in each["pieces"]}

    assert samples("--at", "24:36") == samples("--step", "2", "--batch-size", "12") == set(range(24, 36))
    part = samples("--step", "2", "--batch-size", "12", "--rank", "1", "--ranks", "3")
    assert part == {28, 29, 30, 31}
    cursor = Cursor(Shards(out).plan.id, 24)
    with stream(out, 12, 1, 3, cursor) as mine, stream(out, 4, cursor=Cursor(cursor.plan, 28)) as there:
        assert (next(mine)["tokens"] == next(there)["tokens"]).all()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--step", "2"],
        ["--step", "2", "--batch-size", "12", "--rank", "1"],
        ["--step", "2", "--batch-size", "12", "--rank", "3", "--ranks", "3"],
        ["--step", "2", "--batch-size", "12", "--rank", "0", "--ranks", "5"],
        ["--at", "2", "--batch-size", "12"],
        ["--at", "600"],
    ],
)
def test_steps_and_ranks_that_do_not_go_together_are_a_wrong_call(
    out: Path, say: Say, arguments: list[str]
) -> None:
    assert say("locate", out, *arguments, expect=2)


def test_where_prints_every_time_and_step(out: Path, say: Say) -> None:
    (found,) = where(out, url=URL)
    lines = say("where", out, "--url", URL, "--batch-size", 8)
    assert [line.split(":")[0].strip() for line in lines[2:]] == [
        f"step {time.sample // 8}, sample {time.sample}" for time in found.times
    ]
    by_place = say("where", out, "--warc", "web.warc.gz:7001", "--json", "--until", 300, "--batch-size", 8)
    value = json.loads(by_place[0])
    times = [time.sample for time in found.times if time.sample < 300]
    assert [time["sample"] for time in value["times"]] == times
    assert value["steps"] == sorted({time // 8 for time in times})
    assert "no document" in say("where", out, "--url", "https://nowhere.example", expect=2)[0]
    assert "FILE:OFFSET" in say("where", out, "--warc", "web.warc.gz", expect=2)[0]


def test_a_document_goes_into_quarantine_and_out_again(out: Path, say: Say) -> None:
    assert say("quarantine", out) == ["nothing is in quarantine"]
    lines = say("quarantine", out, "--url", URL, "--from", 100, "--reason", "loss went up")
    assert URL in lines[0] and "loss went up" in lines[0] and "from 100 on" in lines[0]
    assert Shards(out).quarantine.id in lines[1]
    (found,) = where(out, url=URL)
    late = next(time.sample for time in found.times if time.sample >= 100)
    hidden = [json.loads(line) for line in say("locate", out, "--at", late, "--json")]
    assert {each["url"]: each["pieces"][0]["quarantined"] for each in hidden}[URL] is True
    lines = say("quarantine", out, "--lift", 0, "--from", 200, "--reason", "it was harmless")
    assert "from 100 to 199" in lines[0] and "at 200: entry 0 lifted" in lines[1]
    entries = [json.loads(line) for line in say("quarantine", out, "--list", "--json")]
    assert [entry["start"] for entry in entries] == [100, 200]
    say("quarantine", out, "--at", "5:8", "--tokens", "0:4", "--from", 300, "--reason", "odd")
    assert Shards(out).quarantine.entries[2].start == 300  # type: ignore[union-attr]


def test_an_entry_needs_a_sample_and_a_reason(out: Path, say: Say) -> None:
    assert "--from N and --reason TEXT" in say("quarantine", out, "--url", URL, expect=2)[0]
    assert (
        "a reason is needed" in say("quarantine", out, "--url", URL, "--from", 1, "--reason", "", expect=2)[0]
    )


def test_a_plan_is_shown_with_the_epochs_of_its_components(out: Path, say: Say) -> None:
    lines = say("plan", "show", out)
    assert "600 samples" in lines[0] and "from 0: books 0.5, code 0.1, web 0.4" in lines[1]
    value = json.loads(say("plan", "show", out, "--at", 300, "--json")[0])
    rows = {component["name"]: component["rows"] for component in value["components"]}
    assert value["epochs"] == {
        name: pytest.approx(300 * share / rows[name], abs=3 / rows[name])
        for name, share in (("books", 0.5), ("code", 0.1), ("web", 0.4))
    }
    assert "--at 601" in say("plan", "show", out, "--at", 601, expect=2)[0]


def test_a_phase_and_a_component_of_another_run_are_appended_and_the_past_stays(out: Path, say: Say) -> None:
    with stream(out, 50) as batches:
        before = [next(batches)["tokens"] for _ in range(4)]
        saved = batches.cursor
    other = out.parent / "out" / "shards" / "later"
    write_component(other, Sample("web", [documents(8, 20)]))
    folder = other / "fp" / "web"
    refused = say("plan", "append", out, "--from", 200, "--weights", "web=1", "--add", folder, expect=2)
    assert "holds web already" in refused[0]
    weights = "web=0.5,later=0.25,books=0.25"
    say("plan", "append", out, "--from", 200, "--weights", weights, "--add", f"later={folder}")
    with stream(out, 50) as batches:
        assert all((next(batches)["tokens"] == batch).all() for batch in before)
    with stream(out, 100, cursor=saved) as batches:
        next(batches)
    assert {sample.component for sample in locate(out, 200, 300)} == {"web", "later", "books"}
    (old,) = (out / "shards" / "plans").iterdir()
    assert say("plan", "diff", old, out)[0].startswith(
        "from sample 200 on: weights went from books 0.5 to 0.25"
    )
    assert "same samples" in say("plan", "diff", out, out)[0]


def test_a_new_plan_over_two_runs_lies_above_both(tmp_path: Path, say: Say) -> None:
    for number, run in enumerate("ab"):
        samples = [Sample("web", [documents(number, 20)]), Sample("books", [documents(5 + number, 20)])]
        write_shards(tmp_path / run / "shards", samples, {"web": PPB}, total=10)
    path = tmp_path / "plan.json"
    assert (
        "components of one name"
        in say("plan", "new", path, "--add", tmp_path / "a", "--add", tmp_path / "b", expect=2)[0]
    )
    say("plan", "new", path, "--add", tmp_path / "a", "--add", f"b={tmp_path / 'b'}", "--samples", 40)
    plan = read_plan(path)
    assert [component.name for component in plan.components] == ["b.books", "b.web", "books", "web"]
    assert plan.components[0].folder == "b/shards/fp/books"
    with stream(tmp_path, 40) as batches:
        next(batches)
    assert "is there already" in say("plan", "new", path, "--add", tmp_path / "a", expect=2)[0]
    inside = tmp_path / "a" / "plan.json"
    assert "below the plan's folder" in say("plan", "new", inside, "--add", tmp_path / "b", expect=2)[0]


def test_a_limit_that_a_new_phase_goes_over_is_said_with_what_fits(out: Path, say: Say) -> None:
    asked = ["plan", "append", out, "--from", 300, "--weights", "code=1", "--max-epochs", "code=3"]
    assert (
        "code 11.00 epochs of 3" in say(*asked, expect=1)[0]
    )  # 30 of 300 samples, then 300 more, over 30 rows
    assert read_plan(out / "shards" / "plan.json").phases[-1].start == 0
    say(*asked, "--stop")
    assert read_plan(out / "shards" / "plan.json").samples == 300 + 2 * 30


CORE = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pydantic", "yaml", "rich", "tokenizers", "torch", "numba", "datasketch", "trafilatura", "fastwarc"}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
from corpusmill.jobs.cli import main
from corpusmill.pipeline.errors import CursorError
out, url = sys.argv[1:]
for command in (
    ["locate", out, "--at", "3:5"],
    ["where", out, "--url", url],
    ["quarantine", out, "--url", url, "--from", "9", "--reason", "odd"],
    ["quarantine", out],
    ["plan", "show", out],
    ["plan", "append", out, "--from", "50", "--weights", "web=1"],
    ["verify", out + "/shards"],
):
    assert main(command) == 0, command
"""


def test_all_of_them_work_on_a_core_install(out: Path) -> None:
    run = subprocess.run([sys.executable, "-c", CORE, str(out), URL], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


RECIPE = """
seed: 3
stages:
  - extract
  - shard:
      tokenizer: {train: bpe, vocab: 300}
      sequence_length: 32
      block_bytes: 4096
  - mix: {weights: SHARES}
"""


def test_a_run_leaves_a_plan_that_goes_on_from_its_own_and_keeps_one_that_it_replaces(tmp_path: Path) -> None:
    for source in "ab":
        texts = (f"{source} page {i} has some words of its own " * 9 for i in range(30))
        (tmp_path / f"{source}.jsonl").write_text(
            "".join(json.dumps({"text": text}) + "\n" for text in texts)
        )
    out, plan = tmp_path / "out", tmp_path / "out" / "shards" / "plan.json"

    def run(shares: str, *more: str) -> None:
        recipe = tmp_path / "r.yaml"
        recipe.write_text(RECIPE.replace("SHARES", shares))
        files = [f"--input={source}={tmp_path}/{source}.jsonl" for source in "ab"]
        corpusmill("run", recipe, "--out", out, "--workers", "1", *files, *more)

    run("proportional")
    made = read_plan(plan)
    assert made.samples is not None
    with stream(out, 4) as batches:
        next(batches)
        saved = batches.cursor
    corpusmill("plan", "append", out, "--from", "20", "--weights", "a=1")
    longer = read_plan(plan)
    run("proportional")
    assert read_plan(plan) == longer and len(longer.phases) == 2
    run("{a: 0.25, b: 0.75}", "--update")
    assert {path.stem for path in (plan.parent / "plans").iterdir()} == {made.id, longer.id}
    with pytest.raises(CursorError, match=r"from sample 0 on \(weights went from a 0\.5 to 0\.25"):
        stream(out, 4, cursor=saved)
    run("proportional", "--update")
    stream(out, 4, cursor=saved).close()


def test_what_a_run_hides_stays_hidden_in_plans_over_it(tmp_path: Path, say: Say) -> None:
    """Entry 0 is in force, entry 1 was lifted; of the two runs only the first has a list."""
    for number, run in enumerate("ab"):
        write_shards(
            tmp_path / run / "shards", [Sample("web", [documents(number, 20)])], {"web": PPB}, total=50
        )
    first = tmp_path / "a"
    say("quarantine", first, "--url", URL, "--from", 40, "--reason", "odd")
    say("quarantine", first, "--url", "https://web.example/3", "--from", 0, "--reason", "odd")
    say("quarantine", first, "--lift", 1, "--from", 30, "--reason", "it was not")
    say("plan", "new", tmp_path / "plan.json", "--add", f"a={first}", "--samples", 60)
    (entry,) = Shards(tmp_path).quarantine.entries
    assert isinstance(entry, Entry)
    assert (entry.start, entry.component, entry.url) == (0, "a.web", URL)
    say("quarantine", tmp_path, "--lift", 0, "--from", 10, "--reason", "here it is not")
    say("plan", "append", tmp_path, "--from", 30, "--weights", "a.web=1", "--add", f"b={tmp_path / 'b'}")
    assert len(Shards(tmp_path).quarantine.entries) == 2  # what the plan had already is not hidden again
    other = tmp_path / "b" / "plan.json"
    say("plan", "new", other, "--add", tmp_path / "b")
    assert Shards(tmp_path / "b").quarantine.entries == ()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--url", "", "--from", "5", "--reason", "odd"], "is empty"),
        (["--doc", "", "--from", "5", "--reason", "odd"], "is empty"),
        (["--from", "5", "--reason", "odd"], "what is to be hidden"),
        (["--tokens", "1:2"], "--tokens goes with"),
        (["--lift", "0", "--tokens", "1:2", "--from", "5", "--reason", "odd"], "--tokens goes with"),
    ],
)
def test_a_quarantine_that_would_hide_nothing_is_no_success(
    out: Path, say: Say, arguments: list[str], says: str
) -> None:
    assert says in say("quarantine", out, *arguments, expect=2)[0]


@pytest.mark.parametrize("limit", ["nan", "inf", "1e300", "0"])
def test_a_limit_that_is_no_number_of_epochs_is_a_wrong_call(out: Path, say: Say, limit: str) -> None:
    asked = ["plan", "append", out, "--from", 300, "--weights", "web=1", "--max-epochs", f"web={limit}"]
    assert "a whole number from 1" in say(*asked, expect=2)[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "show", "OUT", "--at", str(1 << 63)],
        ["locate", "OUT", "--at", "9" * 5000],
        ["where", "OUT", "--url", URL, "--until", str(10**30)],
        ["plan", "append", "OUT", "--from", "5", "--weights", "web=0.5,web=0.5,web=0.5"],
    ],
)
def test_numbers_beyond_all_counts_and_names_given_twice_are_wrong_calls(
    out: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(out) if argument == "OUT" else argument for argument in arguments])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "no whole number" in error or "named twice" in error


def test_names_from_data_cannot_move_a_terminals_cursor(tmp_path: Path, say: Say) -> None:
    name = "web\x1b[2J\nsecond line"
    folder, manifest = write_component(tmp_path, Sample("web", [documents(1, 20)]))
    plan = compile_plan(
        [(folder, manifest)], [Phase(0, {name: PPB})], seed=1, samples=9, names={folder: name}
    )
    (tmp_path / "plan.json").write_bytes(plan.encode())
    printed = [*say("plan", "show", tmp_path), *say("locate", tmp_path, "--at", "0:9")]
    printed += say("plan", "append", tmp_path, "--from", 5, "--weights", "x=1", expect=2)
    assert all(line.isprintable() for line in printed)


def test_text_that_a_pipe_cannot_take_is_escaped_as_json_has_it(out: Path) -> None:
    reason = "\u6f22\u5b57 \U0001f600"
    hide_document(out, Wanted(url=URL), 5, reason)
    command = [sys.executable, "-m", "corpusmill.jobs.cli", "quarantine", str(out)]
    for options in ([], ["--json"]):
        run = subprocess.run(
            [*command, *options],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
        )
        assert run.returncode == 0, run.stderr
        assert r"\u6f22\u5b57 \ud83d\ude00" in run.stdout
    assert json.loads(run.stdout)["reason"] == reason
