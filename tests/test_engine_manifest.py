"""Commits, manifests, whole-object puts and input files."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corpusmill.pipeline.engine.inputs import find_inputs, fixed_prefix
from corpusmill.pipeline.engine.layout import TASK_SECONDS, group_units
from corpusmill.pipeline.engine.manifest import (
    damaged_units,
    read_commits,
    read_manifest,
    write_commit,
    write_manifest,
)
from corpusmill.pipeline.engine.place import place_of
from corpusmill.pipeline.engine.stage import FileRecord, Result, Unit
from corpusmill.pipeline.engine.store import put, sweep, temporary_beside
from corpusmill.pipeline.errors import InputError, RecipeError
from corpusmill.pipeline.input import Input


def result(unit: int, size: int = 3) -> Result:
    return Result(unit, (FileRecord(f"part-{unit}", 1, size, "00"),), 1, {"kept": 1}, {"first": unit})


def test_commits_come_back_whole_and_a_later_round_wins(tmp_path: Path) -> None:
    write_commit(tmp_path, [result(0), result(1)])
    write_commit(tmp_path, [result(1, size=9)], again=1)
    done = read_commits(tmp_path)
    assert done == {0: result(0), 1: result(1, size=9)}


def test_a_manifest_has_the_same_bytes_whatever_the_order_of_results(tmp_path: Path) -> None:
    for name, order in (("a", [0, 1, 2]), ("b", [2, 0, 1])):
        write_manifest(
            tmp_path / name, "s", "f", {"v": 1}, {unit: result(unit) for unit in order}, {"seal": b"x"}
        )
    for file in ("_manifest.json", "_manifest.parquet"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    manifest = read_manifest(tmp_path / "a")
    assert (
        manifest is not None
        and manifest.results == {unit: result(unit) for unit in range(3)}
        and manifest.counts == {"kept": 3}
    )


def test_a_manifest_whose_table_was_changed_does_not_stand(tmp_path: Path) -> None:
    write_manifest(tmp_path, "s", "f", {}, {0: result(0)}, {})
    table = tmp_path / "_manifest.parquet"
    table.write_bytes(table.read_bytes()[:-1] + b"x")
    assert read_manifest(tmp_path) is None


def test_a_head_with_any_bit_flipped_does_not_stand(tmp_path: Path) -> None:
    write_manifest(tmp_path, "s", "f", {"reads": {"documents": "é"}}, {0: result(0)}, {"seal": b"x"})
    head = tmp_path / "_manifest.json"
    data = head.read_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        head.write_bytes(flipped)
        assert read_manifest(tmp_path) is None, bytes(flipped)
    head.write_bytes(data)
    assert read_manifest(tmp_path) is not None


def test_a_commit_that_was_cut_or_changed_counts_for_nothing(tmp_path: Path) -> None:
    write_commit(tmp_path, [result(0)])
    write_commit(tmp_path, [result(1)])
    (path, _) = sorted((tmp_path / "_commits").iterdir())
    data = path.read_bytes()
    for damaged in (b"", data[:-1], data.replace(b'"unit":0', b'"unit":2')):
        assert damaged != data
        path.write_bytes(damaged)
        assert read_commits(tmp_path) == {1: result(1)}


def test_missing_and_cut_files_are_seen(tmp_path: Path) -> None:
    (tmp_path / "part-0").write_bytes(b"abc")
    (tmp_path / "part-1").write_bytes(b"ab")
    assert damaged_units(place_of(tmp_path).sizes(), {unit: result(unit) for unit in range(3)}) == [1, 2]


def test_a_put_that_fails_leaves_neither_the_file_nor_a_temporary_one(tmp_path: Path) -> None:
    target = tmp_path / "x"
    with pytest.raises(TypeError):
        put(target, "not bytes")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    put(target, b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_sweep_takes_what_dead_writers_left_and_nothing_of_the_living(tmp_path: Path) -> None:
    living = temporary_beside(tmp_path / "x")
    living.write_bytes(b"half")
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent.parent)!r})\n"
    code += "from pathlib import Path; from corpusmill.pipeline.engine.store import temporary_beside\n"
    code += f"temporary_beside(Path({str(tmp_path / 'x')!r})).write_bytes(b'half')"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert len(list(tmp_path.iterdir())) == 2
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == [living]


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="/proc says who is a zombie")
def test_a_writer_that_ended_and_was_never_waited_for_is_dead(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", ""])
    while "Z" not in Path(f"/proc/{writer.pid}/stat").read_text().rpartition(")")[2]:
        time.sleep(0.01)
    left = tmp_path / f".tmp-{os.uname().nodename}-{writer.pid}-0-part"
    left.write_bytes(b"half")
    sweep(tmp_path)
    assert not left.exists()
    writer.wait()


def test_tasks_are_consecutive_units_and_small_runs_still_feed_all_workers() -> None:
    units = [Unit(i, 10) for i in range(16)]
    for workers in (1, 2, 5):
        groups = group_units(units, 1e6, workers)
        assert [unit for group in groups for unit in group] == units
        assert len(groups) >= workers
    big = group_units([Unit(i, int(TASK_SECONDS * 1e6)) for i in range(3)], 1e6, 1)
    assert [len(group) for group in big] == [1, 1, 1]


@pytest.mark.parametrize(
    ("path", "prefix"),
    [
        ("a/b/*.gz", "a/b/"),
        ("a/b*/c.gz", "a/"),
        ("*.gz", ""),
        ("a/b/c.gz", "a/b/"),
        ("/x/**/y?.gz", "/x/"),
        ("a/[bc]/d", "a/"),
    ],
)
def test_the_fixed_prefix_ends_before_the_first_wildcard(path: str, prefix: str) -> None:
    assert fixed_prefix(path) == prefix


def test_inputs_are_sorted_by_source_and_relative_path_and_known_by_content(tmp_path: Path) -> None:
    for name in ("b", "a", "c/d"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode() * 100_000)
    files = find_inputs([Input(f"{tmp_path}/**/*", "web"), Input(str(tmp_path / "a"), "also")])
    assert [(file.source, file.relative, file.named) for file in files] == [
        ("also", "a", True),
        ("web", "a", False),
        ("web", "b", False),
        ("web", "c/d", False),
    ]
    before = files[0].identity
    with (tmp_path / "a").open("r+b") as file:
        file.seek(50_000)
        file.write(b"X")
    assert find_inputs([Input(str(tmp_path / "a"), "also")])[0].identity != before


def test_wrong_inputs_are_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no inputs"):
        find_inputs([])
    with pytest.raises(InputError, match="no file matches"):
        find_inputs([Input(f"{tmp_path}/*.warc.gz")])
    with pytest.raises(InputError, match=rf"below {re.escape(str(Path.cwd()))}, where the command was given"):
        find_inputs([Input("nowhere/*.warc.gz")])
    with pytest.raises(InputError, match="cannot read"):
        find_inputs([Input(f"{tmp_path}/missing.warc.gz")])
    with pytest.raises(InputError, match="is a folder"):
        find_inputs([Input(str(tmp_path))])
    with pytest.raises(RecipeError, match="ftp:// is not known"):
        find_inputs([Input("ftp://host/x")])
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x").write_bytes(folder.encode())
    with pytest.raises(RecipeError, match="another source"):
        find_inputs([Input(f"{tmp_path}/one/*"), Input(f"{tmp_path}/two/*")])
    (tmp_path / "one" / "y").symlink_to(tmp_path / "one" / "x")
    assert len(find_inputs([Input(f"{tmp_path}/one/x"), Input(f"{tmp_path}/one/*")])) == 2


def test_a_file_under_two_names_of_a_source_is_refused_rather_than_read_twice(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "x").write_bytes(b"1")
    with pytest.raises(RecipeError, match="read twice, as 'sub/x' and 'x'"):
        find_inputs([Input(f"{tmp_path}/*/x"), Input(f"{tmp_path}/sub/x")])
    assert len(find_inputs([Input(f"{tmp_path}/*/x"), Input(f"{tmp_path}/sub/x", "again")])) == 2


def test_a_run_never_reads_what_it_wrote(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"1")
    (tmp_path / "out" / "text").mkdir(parents=True)
    (tmp_path / "out" / "text" / "part").write_bytes(b"1")
    assert [file.relative for file in find_inputs([Input(f"{tmp_path}/**")], tmp_path / "out")] == ["x"]


@pytest.mark.parametrize("name", ["a b", "new\nline", "漢字", "-x", "e=f", "[1]", "q?", "*"])
def test_a_file_of_any_name_can_be_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"1")
    (file,) = find_inputs([Input(str(tmp_path / name))])
    assert file.relative == name and file.named


def test_what_cannot_be_read_twice_or_named_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="a pipe or a device"):
        find_inputs([Input(str(tmp_path / "pipe"))])
    Path(os.fsdecode(bytes(tmp_path) + b"/\xff")).write_bytes(b"1")
    with pytest.raises(InputError, match="not in UTF-8"):
        find_inputs([Input(f"{tmp_path}/*")])
