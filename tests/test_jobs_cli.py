"""Wrong calls and a hostile machine: one clear error, the right exit code, and nothing half done that looks whole."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from runs import command, corpusmill, hashes

from corpusmill.jobs.cli import main
from corpusmill.jobs.export import export
from corpusmill.jobs.reporter import SilentReporter
from corpusmill.jobs.run import run_recipe
from corpusmill.pipeline.engine.stage import Stage
from corpusmill.pipeline.engine.store import TEMPORARY, put
from corpusmill.pipeline.errors import RecipeError, RunError
from corpusmill.pipeline.recipe import load_recipe
from corpusmill.pipeline.run import Run

EXTRACT = "stages: [extract]\npartition_bytes: 100\n"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """OUT of a run over five one-document partitions."""
    folder = tmp_path_factory.mktemp("small")
    for i in range(5):
        (folder / f"{i}.jsonl").write_text(json.dumps({"text": f"page {i}", "url": f"https://a.example/{i}"}))
    (folder / "r.yaml").write_text(EXTRACT)
    assert main(["run", f"{folder}/r.yaml", "--out", f"{folder}/out", "--input", f"{folder}/*.jsonl"]) == 0
    return folder / "out"


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "demo", "--out", "x", "--workers", "0"],
        ["run", "demo", "--out", "x", "--workers", "-1"],
        ["run", "demo", "--out", "x", "--limit", "0"],
        ["show", "x", "--rows", "0"],
        ["show", "x", "--columns", " , "],
        ["export", "x", "--to", "y", "--columns", ""],
        ["locate", "x", "--at", "²"],
        ["locate", "x", "--at", "5:5"],
        ["locate", "x"],
        ["where", "x", "--url", "a", "--doc", "b"],
        ["plan", "append", "x", "--from", "5", "--weights", "web"],
    ],
)
def test_a_number_or_a_list_that_means_nothing_is_a_wrong_call(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.json"])
def test_showing_a_file_that_is_gone_or_damaged_is_one_error(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(tmp_path / name)]) == 2
    (tmp_path / name).write_bytes(b"junk")
    assert main(["show", str(tmp_path / name)]) == 2
    assert capsys.readouterr().err.count("corpusmill: ") == 2


def test_an_unknown_column_of_a_table_or_shard_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pa.table({"a": [1]})
    pq.write_table(table, tmp_path / "t.parquet")
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    for name in ("t.parquet", "t.arrow"):
        assert main(["show", str(tmp_path / name), "--columns", "b"]) == 2
        assert "no column 'b'; it has a" in capsys.readouterr().err


def test_a_column_asked_for_twice_is_shown_once(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(small), "--columns", "url,url", "--rows", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["url"]


@pytest.mark.parametrize(
    "text", [b"a: \xff", b"a: 2020-13-40", b"stages: " + b"[" * 5000], ids=["not UTF-8", "no date", "deep"]
)
def test_a_recipe_that_cannot_be_read_is_one_error(
    text: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r.yaml").write_bytes(text)
    assert main(["run", str(tmp_path / "r.yaml"), "--out", str(tmp_path / "out")]) == 2
    assert "r.yaml: not" in capsys.readouterr().err


def test_out_that_is_a_file_is_a_wrong_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.yaml").write_text(EXTRACT)
    (tmp_path / "out").touch()
    (tmp_path / "in.jsonl").touch()
    arguments = ["--out", str(tmp_path / "out"), "--input", str(tmp_path / "in.jsonl")]
    assert main(["run", str(tmp_path / "r.yaml"), *arguments]) == 2
    assert "File exists" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["run.json", "recipe.yaml"])
def test_a_damaged_record_of_a_run_is_named(
    name: str, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in ("run.json", "recipe.yaml"):
        (tmp_path / each).write_bytes((small / each).read_bytes())
    (tmp_path / name).write_bytes(b'{"half')
    arguments = ["--out", str(tmp_path), "--input", f"{small.parent}/*.jsonl"]
    assert main(["run", str(small.parent / "r.yaml"), *arguments]) == 2
    assert f"{name} is damaged" in capsys.readouterr().err


def test_verify_reports_a_manifest_that_was_cut(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "out"
    subprocess.run(["cp", "-r", small, copy], check=True)
    (head,) = copy.glob("text/documents/*/_manifest.json")
    head.write_bytes(head.read_bytes()[:100])
    assert main(["verify", str(copy)]) == 1
    assert "manifest is missing or damaged" in capsys.readouterr().out


def test_a_run_whose_output_nobody_reads_any_more_is_not_called_done(small: Path, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    run = command(
        "run", small.parent / "r.yaml", "--out", tmp_path / "out", "--input", f"{small.parent}/*.jsonl"
    )
    for arguments, wanted in ((run, 1), (command("show", small), 0)):
        done = subprocess.run(arguments, stdout=writer, stderr=subprocess.PIPE, timeout=120)
        assert done.returncode == wanted and b"Traceback" not in done.stderr and b"ignored" not in done.stderr
    os.close(writer)


def closed_stdout() -> None:
    os.close(1)


def no_room() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))


@pytest.mark.parametrize(("hinder", "wanted"), [(closed_stdout, 0), (no_room, 1)])
def test_a_run_on_a_hostile_machine_says_what_is_wrong_and_goes_on_later(
    hinder: Callable[[], None], wanted: int, small: Path, tmp_path: Path
) -> None:
    run = ["run", small.parent / "r.yaml", "--out", tmp_path / "out", "--input", f"{small.parent}/*.jsonl"]
    done = subprocess.run(command(*run), preexec_fn=hinder, capture_output=True, text=True, timeout=120)
    assert done.returncode == wanted and "Traceback" not in done.stderr, done.stderr
    assert wanted == 0 or "File too large" in done.stderr
    corpusmill(*run)
    assert Run(tmp_path / "out").table().num_rows == 5


def test_an_export_begun_with_other_columns_is_refused_and_the_same_one_goes_on(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, to = tmp_path / "whole", tmp_path / "to"
    export(small, whole, ["id"], "kept", "jsonl.zst", 1)
    with monkeypatch.context() as patch:
        patch.setattr("corpusmill.jobs.export.write_manifest", _killed)
        with pytest.raises(KeyboardInterrupt):
            export(small, to, ["id"], "kept", "jsonl.zst", 1)
    for columns, format in ((["url"], "jsonl.zst"), (["id"], "parquet")):
        with pytest.raises(RecipeError, match="another export"):
            export(small, to, columns, "kept", format, 1)
    export(small, to, ["id"], "kept", "jsonl.zst", 1)
    assert contents(to) == contents(whole)


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_export_makes_a_file_again_that_was_lost(small: Path, tmp_path: Path) -> None:
    export(small, tmp_path / "to", ["id"], "kept", "jsonl.zst", 1)
    before = contents(tmp_path / "to")
    (tmp_path / "to" / "part-00002.jsonl.zst").unlink()
    export(small, tmp_path / "to", ["id"], "kept", "jsonl.zst", 1)
    assert contents(tmp_path / "to") == before


def test_what_killed_drivers_left_beside_finished_stages_goes(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    subprocess.run(["cp", "-r", small, out], check=True)
    before = hashes(out)
    (documents,) = out.glob("text/documents/*")
    (documents / "_commits").mkdir()  # killed after the manifest, before the commits went
    (documents / "_commits" / "0-000000-000000-0.json").write_bytes(b"[]")
    dead = subprocess.Popen(["true"])
    dead.wait()
    for folder in (out, out / "shards", documents):  # killed before a rename
        put(folder / "x", b"")
        (folder / "x").rename(folder / f"{TEMPORARY}{os.uname().nodename}-{dead.pid}-0-run.json")
    corpusmill("run", small.parent / "r.yaml", "--out", out, "--input", f"{small.parent}/*.jsonl")
    assert hashes(out) == before


def test_a_run_that_another_recipe_has_overtaken_stops_instead_of_mixing_records(
    small: Path, tmp_path: Path
) -> None:
    folder, out = small.parent, tmp_path / "out"
    (tmp_path / "other.yaml").write_text(EXTRACT + "seed: 3\n")
    files = [f"{folder}/*.jsonl"]
    later = load_recipe(f"{tmp_path}/other.yaml").with_inputs(files)

    class Overtaken(SilentReporter):
        def stage_began(self, stage: Stage, units: int, done: int) -> None:
            run_recipe(later, out, workers=1, update=True, reporter=SilentReporter())

    with pytest.raises(RunError, match="another recipe has taken over"):
        run_recipe(load_recipe(f"{folder}/r.yaml").with_inputs(files), out, workers=1, reporter=Overtaken())
    assert Run(out).state.complete and Run(out).state.seed == 3


def test_kernels_get_a_folder_of_their_own_where_no_cache_can_be_written() -> None:
    code = (
        "import os; from pathlib import Path; from corpusmill.jobs.run import keep_kernels_somewhere as keep\n"
        "keep([Path('/dev/null/a'), Path('/dev/null/b')])\n"
        "folder = os.environ['NUMBA_CACHE_DIR']; assert not os.listdir(folder)\n"
        "from corpusmill.filters.measures import TextMeasures; TextMeasures().warm(); assert os.listdir(folder); print(folder)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not Path(done.stdout.strip()).exists()


def test_an_input_that_came_is_the_reason_why_documents_are_made_again(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"text": name}) + "\n")
    recipe = tmp_path / "r.yaml"
    recipe.write_text("stages: [extract]")
    corpusmill("run", recipe, "--out", tmp_path / "out", "--input", tmp_path / "a.jsonl")
    done = corpusmill("run", recipe, "--out", tmp_path / "out", "--input", f"{tmp_path}/*.jsonl", "--update")
    assert "documents: redone" in done.stdout and "input new: b.jsonl (web)" in done.stdout


def test_an_error_of_the_system_says_what_to_do_about_it(tmp_path: Path) -> None:
    recipe, given = tmp_path / "recipe.yaml", tmp_path / "in.jsonl"
    recipe.write_text(EXTRACT)
    given.write_text('{"text": "one"}\n')
    done = subprocess.run(
        command("run", recipe, "--out", tmp_path / "out", "--input", given, "--workers", "1"),
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6)),
    )
    assert done.returncode == 1
    assert done.stderr.endswith(
        "Too many open files: allow a process more open files (ulimit -n), and give the same command again\n"
    )
