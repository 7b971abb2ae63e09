"""Commands about shards, killed before and after every change they make to a folder: the same command then ends as if nothing had been."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shard_samples import small_shards

from corpusmill.jobs.cli import main

# Every change of a folder goes through one of these. `moment` counts them from 1, two for each: before it and after it.
DRIVER = """
import os, pathlib, sys
moment, said = int(sys.argv[1]), 0

def dies(change):
    def changed(*given, **named):
        global said
        for _ in range(1):
            said += 1
            if said == moment:
                os.kill(os.getpid(), 9)
            found = change(*given, **named)
            said += 1
            if said == moment:
                os.kill(os.getpid(), 9)
            return found
    return changed

for where, name in ((os, "fsync"), (os, "replace"), (os, "rename"), (os, "link"), (os, "unlink"),
                    (pathlib.Path, "replace"), (pathlib.Path, "unlink"), (pathlib.Path, "mkdir")):
    setattr(where, name, dies(getattr(where, name)))
from corpusmill.jobs.cli import main
code = main(sys.argv[2:])
os.write(1, f"{said}".encode())
os._exit(code)
"""

COMMANDS = {
    "quarantine": ["quarantine", "{out}", "--at", "20:23", "--from", "30", "--reason", "noise"],
    "plan append": ["plan", "append", "{out}", "--from", "100", "--weights", "books=1"],
}


def files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def killed(arguments: list[str], moment: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", DRIVER, str(moment), *arguments], capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    ("name", "stride"),
    [("quarantine", 5), *(pytest.param(name, 1, marks=pytest.mark.slow) for name in COMMANDS)],
)
def test_a_command_that_is_killed_at_any_moment_is_made_good_by_itself(
    name: str, stride: int, tmp_path: Path
) -> None:
    small_shards(tmp_path / "pristine" / "shards", total=200)

    def ready(place: str) -> tuple[Path, list[str]]:
        folder = tmp_path / place
        shutil.copytree(tmp_path / "pristine", folder / "out")
        return folder, [part.format(out=folder / "out") for part in COMMANDS[name]]

    folder, arguments = ready("undisturbed")
    done = killed(arguments, -1)
    assert done.returncode == 0, done.stderr
    moments, wanted = int(done.stdout.rpartition("\n")[2]), files(folder)
    assert moments >= 4  # a file of its own made durable and put in place, before and after
    for moment in range(1, moments + 1, stride):
        folder, arguments = ready(f"moment-{moment}")
        assert killed(arguments, moment).returncode == -9
        main(arguments)  # which says so where all was done before the kill
        found = {path: digest for path, digest in files(folder).items() if ".tmp-" not in path}
        assert found == wanted, f"after a kill at moment {moment} of {moments}"
        shutil.rmtree(folder)
