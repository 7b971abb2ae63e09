"""What the documents show runs: Python examples compile and import what exists, commands name commands and make targets."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")])


def fences(path: Path, *languages: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [body for language, body in found if language in languages]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_python_examples_compile_and_import_names_that_exist(path: Path) -> None:
    for body in fences(path, "python"):
        for node in ast.walk(ast.parse(body)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("corpusmill"):
                file = ROOT.joinpath(*(node.module or "").split(".")[1:])
                text = (file / "__init__.py" if file.is_dir() else file.with_suffix(".py")).read_text(
                    encoding="utf-8"
                )
                for alias in node.names:
                    assert re.search(rf"\b{alias.name}\b", text), f"{node.module} has no {alias.name}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_name_make_targets_and_subcommands_that_exist(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z_]+) \?=", makefile, re.MULTILINE))
    for body in fences(path, "sh", "bash", "console"):
        for line in body.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["make"]:
                assert {word for word in words[1:] if "=" not in word} <= targets, line
                assert {word.split("=")[0] for word in words[1:] if "=" in word} <= variables, line
            elif words[:1] == ["corpusmill"]:
                check_subcommand(words)


def check_subcommand(words: list[str]) -> None:
    # They have commands of their own; `mix RECIPE` is one as well.
    below = words[2:3] if words[1] in ("plan", "model") or words[1:3] == ["mix", "export"] else []
    found = subprocess.run(
        [sys.executable, "-m", "corpusmill.jobs.cli", words[1], *below, "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert found.returncode == 0, f"{' '.join(words)}: {found.stderr}"
    for word in words[2:]:
        if word.startswith("--"):
            assert word.split("=")[0] in found.stdout, f"corpusmill {words[1]} has no {word}"


def test_relative_links_lead_to_files() -> None:
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.name}: {target}"


def anchors(path: Path) -> set[str]:
    """What a link's `#...` may be: headings as the forge that shows them spells them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_links_into_documents_lead_to_headings() -> None:
    for path in DOCUMENTS:
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", path.read_text(encoding="utf-8")):
            found = anchors(path.parent / target if target else path)
            assert anchor in found, f"{path.name}: {target}#{anchor}"
