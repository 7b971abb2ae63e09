"""What holds the repository together: links, the direction of imports, the small import, and no traces of a machine."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("pipeline", "filters", "dedup", "mixing", "shards", "jobs")
MAY_IMPORT = {
    "pipeline": {"pipeline"},
    "filters": {"filters", "pipeline"},
    "dedup": {"dedup", "pipeline"},
    "shards": {"shards", "pipeline"},
    "mixing": {"mixing", "shards", "pipeline"},
    "jobs": set(ROOMS),
}
RAY_MAY_BE_IN = re.compile(r"jobs/|pipeline/engine/ray[^/]*\.py$")


def sources(room: str) -> list[Path]:
    return sorted(path for path in (ROOT / room).rglob("*.py") if "__pycache__" not in path.parts)


def imported(path: Path) -> set[str]:
    """Every module that a file imports, at its top or inside a function."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_linked_into_the_package_by_a_relative_link_inside(room: str) -> None:
    link = ROOT / "corpusmill" / room
    assert link.is_symlink()
    assert link.readlink() == Path("..") / room
    assert link.resolve() == ROOT / room


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_one_way(room: str) -> None:
    for path in sources(room):
        for name in imported(path):
            first, _, rest = name.partition(".")
            assert first not in ROOMS, f"{path.relative_to(ROOT)} imports {name}: write corpusmill.{name}"
            if first == "corpusmill" and rest:
                other = rest.split(".")[0]
                assert other not in ROOMS or other in MAY_IMPORT[room], (
                    f"{path.relative_to(ROOT)} imports {name}"
                )
            if first == "ray":
                assert RAY_MAY_BE_IN.match(path.relative_to(ROOT).as_posix()), (
                    f"{path.relative_to(ROOT)} imports ray"
                )


def test_classes_named_by_text_stand_where_the_registry_says() -> None:
    registry = pytest.importorskip("corpusmill.pipeline.registry")
    for path in {**registry.STAGES, **registry.RULES}.values():
        module, _, name = path.partition(":")
        file = ROOT.joinpath(*module.split(".")[1:]).with_suffix(".py")
        assert file.is_file(), path
        assert any(
            isinstance(node, ast.ClassDef) and node.name == name for node in ast.parse(file.read_bytes()).body
        ), path


def test_importing_shards_needs_four_distributions_and_the_standard_library() -> None:
    code = (
        "import sys, json; import corpusmill.shards as shards; shards.stream; shards.Cursor;"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    ours = {"corpusmill", "numpy", "pyarrow", "xxhash", "zstandard", "_xxhash", "_cffi_backend", "__main__"}
    ours.add("cloudpickle")  # pyarrow takes it where something else has brought it along
    installers = (
        "_editable",
        "__editable",
        "_virtualenv",
        "_distutils_hack",
        "cython",
        "_cython",
    )
    strangers = set(json.loads(found.stdout)) - sys.stdlib_module_names - ours
    assert not {name for name in strangers if not name.startswith(installers)}


def tracked() -> list[Path]:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], check=True, capture_output=True, cwd=ROOT
    ).stdout.decode()
    return [
        ROOT / name
        for name in listed.split("\0")
        if name and (ROOT / name).is_file() and not (ROOT / name).is_symlink()
    ]


def test_no_file_names_a_machine_or_a_package_registry() -> None:
    forbidden = re.compile(
        rb"(?<![\w.])/(?:h[o]me|U[s]ers|r[o]ot|w[o]rk|o[p]t)/\w|(?:p[y]pi\.org|python[h]osted\.org|registry\.n[p]mjs\.org|/s[i]mple/)|(?:index-url|find-links) *[= ]"
    )
    for path in tracked():
        if path == Path(__file__).resolve():
            continue
        for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
            if path.suffix not in (".npz", ".gz", ".zst", ".parquet", ".arrow", ".png"):
                assert not forbidden.search(line), f"{path.relative_to(ROOT)}:{number}: {line[:120]!r}"


def test_versions_are_pinned_and_nothing_but_versions() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", pin) for pin in pins), (
        "exact versions without local parts, files or addresses"
    )
    names = {re.sub(r"[-_.]+", "-", pin.split("==")[0]).lower() for pin in pins}
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    for line in wanted:
        name = re.split(r"[\[<>=!~ ;]", line)[0]
        assert re.sub(r"[-_.]+", "-", name).lower() in names, f"{line} of pyproject.toml has no pin"
