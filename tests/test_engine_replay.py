"""Rows that a backstop stopped, in later runs: tried again in place, or failed elsewhere without a try; the bytes follow."""

import json
from collections.abc import Iterator
from pathlib import Path

import misbehaviour
import pytest
from extract_runs import Memory, inputs, laid_out
from misbehaviour import fates, write_texts
from runs import corpusmill, hashes

from corpusmill.jobs.reporter import SilentReporter
from corpusmill.pipeline.engine.failures import Failure
from corpusmill.pipeline.engine.replay import Replay, read_list
from corpusmill.pipeline.engine.stage import Result
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.extract.operation import ExtractDocuments
from corpusmill.pipeline.run import Run

STAGES = [{"filter": ["misbehaving"]}, "shout"]


class Said(SilentReporter):
    """Keeps what a run warns of."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def in_force(run: Run) -> dict[str, str]:
    """sha256 of what the run consists of; folders of layers that are no longer in force may stand beside it."""
    folders = tuple(stage.folder for stage in run.state.stages)
    return {
        name: value
        for name, value in hashes(Path(str(run.out))).items()
        if name.startswith((*folders, "run.json"))
    }


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a run in which a row crashed, `crashed`, and the list of its failed rows; the row would not crash any more."""
    folder = tmp_path_factory.mktemp("replay")
    glass = folder / "glass"
    glass.touch()
    texts = (["good one", f"fragile {glass}", "raise x", "good two"], ["other file", "last one"])
    write_texts(folder / "in", *texts)
    with pytest.MonkeyPatch.context() as patch:
        misbehaviour.register(patch)
        misbehaviour.run(folder / "crashed", [f"{folder}/in/*.jsonl"], STAGES)
        glass.unlink()
        listed = corpusmill("show", folder / "crashed", "--failed", "--json").stdout
        (folder / "list").write_text(listed)
        yield folder


def run(ground: Path, out: str, replay: Replay | None = None) -> Run:
    return misbehaviour.run(ground / out, [f"{ground}/in/*.jsonl"], STAGES, replay=replay)


def test_failed_rows_are_listed_with_stage_reason_and_place(ground: Path) -> None:
    listed = [Failure(**json.loads(line)) for line in (ground / "list").read_text().splitlines()]
    assert [(row.stage, row.reason, row.url, row.file, row.part) for row in listed] == [
        ("filter.letters", "crash:SIGSEGV", "http://example.org/0/1", "0.jsonl", 0),
        ("filter.letters", "exception:LookupError", "http://example.org/0/2", "0.jsonl", 0),
    ]
    lines = (ground / "in" / "0.jsonl").read_text().splitlines(keepends=True)
    assert [row.offset for row in listed] == [len(lines[0]), len(lines[0] + lines[1])]
    table = corpusmill("show", ground / "crashed", "--failed", "--rows", "1").stdout
    assert "crash:SIGSEGV" in table and "and more" in table


def test_a_list_fails_the_same_rows_elsewhere_without_a_try(ground: Path) -> None:
    elsewhere = run(ground, "elsewhere", read_list(ground / "list"))
    assert fates(elsewhere)["fragile"] == "crash:SIGSEGV"
    assert hashes(ground / "elsewhere") == hashes(ground / "crashed")


def test_rows_tried_again_give_the_bytes_of_a_run_in_which_they_never_failed(ground: Path) -> None:
    straight = run(ground, "straight")
    assert fates(straight)["fragile"] == "kept"
    before = run(ground, "retried", read_list(ground / "list"))
    assert fates(before)["fragile"] == "crash:SIGSEGV"
    assert fates(run(ground, "retried"))["fragile"] == "crash:SIGSEGV"  # a plain run leaves what stands
    retried = run(ground, "retried", Replay(retry=True))
    assert fates(retried) == fates(straight) and fates(retried)["raise"] == "exception:LookupError"
    assert in_force(retried) == in_force(straight)


def test_a_list_is_followed_in_a_folder_that_was_made_without_it(ground: Path) -> None:
    run(ground, "late")
    late = run(ground, "late", read_list(ground / "list"))
    assert in_force(late) == in_force(Run(ground / "crashed"))


def test_a_list_of_other_rows_or_stages_is_refused(ground: Path) -> None:
    (first, *_) = [json.loads(line) for line in (ground / "list").read_text().splitlines()]
    for number, wrong in enumerate(({"id": "00" * 16}, {"part": 7}, {"stage": "filter.numbers"})):
        path = ground / f"wrong-{number}"
        path.write_text(json.dumps({**first, **wrong}))
        with pytest.raises(RecipeError, match=f"--replay {path}: .*(not there|no stage filter.numbers)"):
            run(ground, f"refused-{number}", read_list(path))


def test_a_list_whose_rows_did_not_fail_is_refused_where_others_failed_for_the_same_reasons(
    ground: Path,
) -> None:
    """In a new folder, and in one that stands."""
    rows = [json.loads(line) for line in (ground / "list").read_text().splitlines()]
    assert rows[1]["reason"] == "exception:LookupError"  # what fails so wherever it is tried
    path = ground / "swapped"
    path.write_text(json.dumps({**rows[1], "id": "00" * 16}))
    for out in ("swapped-new", "straight"):
        run(ground, "straight")
        with pytest.raises(RecipeError, match="not there"):
            run(ground, out, read_list(path))


def test_a_run_says_which_rows_failed_that_its_list_does_not_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    misbehaviour.register(monkeypatch)
    sources = write_texts(tmp_path / "in", ["good one", "raise x", "segfault y"])
    failed = misbehaviour.run(tmp_path / "out", sources, STAGES[:1])
    lines = corpusmill("show", str(failed.out), "--failed", "--json").stdout.splitlines()
    (tmp_path / "list").write_text(next(line for line in lines if "LookupError" in line))
    said = Said()
    misbehaviour.run(
        tmp_path / "out", sources, STAGES[:1], replay=read_list(tmp_path / "list"), reporter=said
    )
    (line,) = [line for line in said.warnings if "does not name" in line]
    assert line.startswith("stage filter.letters: 1 rows failed here by crash:SIGSEGV")


def test_a_run_says_that_there_was_nothing_to_try_again(ground: Path) -> None:
    said = Said()
    misbehaviour.run(
        ground / "straight", [f"{ground}/in/*.jsonl"], STAGES, replay=Replay(retry=True), reporter=said
    )
    assert len(said.warnings) == 1 and "none was tried again" in said.warnings[0]


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"stage": "documents"}', '{"stage": "a", "part": "0", "id": "b", "reason": "c"}']
)
def test_a_list_that_is_none_is_refused_with_its_line(line: str, tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_text(f"\n{line}\n")
    with pytest.raises(RecipeError, match=r"line 2: .*show OUT --failed --json"):
        read_list(path)


def test_only_what_a_backstop_stopped_is_tried_again() -> None:
    reasons = ("exception:ValueError", "cpu_limit", "unparsable", "memory", "crash:SIGSEGV")
    results = {
        unit: Result(unit, counts={"rows": 9, f"failed.{reason}": 1}) for unit, reason in enumerate(reasons)
    }
    assert Replay(retry=True).to_redo("documents", results, lambda _: []) == [1, 3, 4]
    assert Replay().to_redo("documents", results, lambda _: []) == []


def test_extract_fails_known_rows_untried(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": f"text {row}"}) + "\n" for row in range(5)))
    operation = ExtractDocuments()
    (unit,) = operation.units(laid_out(inputs([path]), 1 << 20))
    plain = Memory()
    operation.run(unit, plain)
    key = plain.partitions[0]["id"][3].as_py().hex()
    known = Memory(known={key: "memory"})
    counts = operation.run(unit, known).counts
    assert known.partitions[0]["failed"].to_pylist() == [None, None, None, "memory", None]
    assert known.partitions[0]["text"].to_pylist() == ["text 0", "text 1", "text 2", None, "text 4"]
    assert counts["failed.memory"] == 1 and counts["kept"] == 4
