"""Trainers that are programs: what they are told, what is read back, what is said when they fail, and that they die with their task."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from proxy_runs import small_run, view_of

from corpusmill.mixing.command import Command
from corpusmill.mixing.losses import read_losses
from corpusmill.mixing.proxy import Training, View
from corpusmill.mixing.records import Record
from corpusmill.pipeline.errors import RecipeError, RunError
from corpusmill.shards.mixture import PPB

TRAINING = Training("64k", 8_000, target_tokens=80_000)
WEIGHTS = {"digits": PPB // 4, "even": PPB // 4, "mixed": PPB // 2}
TARGETS = {"digits": "held/digits", "even": "held/even"}


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    return view_of(small_run(tmp_path_factory.mktemp("command")))


def script(folder: Path, text: str, places: str = "{mixture} {seed} {out}") -> Command:
    path = folder / "train.py"
    path.write_text(text)
    return Command(f"{shlex.quote(sys.executable)} {shlex.quote(str(path))} {places}")


def said(command: Command, view: View, out: Path) -> dict[str, Record]:
    found = command.run(view, TRAINING, WEIGHTS, 7, "run-1", out, TARGETS)
    return {record.target: record for record in found}


def test_a_program_is_told_the_mixture_and_its_losses_are_read(tmp_path: Path, view: View) -> None:
    command = script(
        tmp_path,
        """
import json, sys
mixture, seed, out = json.load(open(sys.argv[1])), int(sys.argv[2]), sys.argv[3]
losses = {name: seed + mixture["weights"][name] for name in ("digits", "even")}
losses["even"] = {"document_bits": [8.0, 4.0], "document_bytes": [10, 2], "loss": 1.5}
json.dump(losses, open(out + "/losses.json", "w"))
json.dump(mixture, open(out + "/told.json", "w"))
""",
    )
    out = tmp_path / "out"
    found = said(command, view, out)
    assert found["digits"].bits_per_byte == 7.25 and found["digits"].loss is None
    even = found["even"]
    assert (even.bits_per_byte, even.loss, even.eval_bytes) == (1.0, 1.5, 12)
    assert even.document_bits.tolist() == [8.0, 4.0] and even.document_bytes.tolist() == [10, 2]
    assert (even.run, even.seed, even.components) == ("run-1", 7, ("digits", "even", "mixed"))
    assert even.requested_ppb == (PPB // 4, PPB // 4, PPB // 2)
    told = json.loads((out / "told.json").read_text())
    assert told["weights_ppb"] == WEIGHTS and told["budget_tokens"] == 8_000
    assert told["targets"] == {name: {"folder": folder} for name, folder in TARGETS.items()}
    component = told["components"]["even"]
    assert component["first_rows"] == pytest.approx(component["rows"] / 10, abs=0.5)
    assert (Path(component["folder"]) / "manifest.json").is_file()


def test_a_program_can_read_our_stream_by_the_plan_that_it_is_given(tmp_path: Path, view: View) -> None:
    command = script(
        tmp_path,
        """
import json, sys
from corpusmill.shards import stream
rows = sum(len(batch["tokens"]) for batch in stream(sys.argv[1], batch_size=10))
json.dump({"digits": rows, "even": 1}, open(sys.argv[2] + "/losses.json", "w"))
""",
        "{plan} {out}",
    )
    assert said(command, view, tmp_path / "out")["digits"].bits_per_byte == 250  # 8,000 tokens in rows of 32


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "print('no such GPU'); sys.exit(3)",
            r"run run-1: .*train\.py .* ended with code 3; .*\nno such GPU",
        ),
        ("import os; os.kill(os.getpid(), 9)", "ended with signal 9; it said nothing"),
        ("print('done')", r"wrote neither .*losses\.json nor losses\.csv; .*\ndone"),
        ("open('losses.json', 'w').write('{')", r"losses\.json cannot be read"),
        ("""open('losses.json', 'w').write('{"even": 1}')""", "says nothing of target digits"),
        ("""open('losses.json', 'w').write('{"evne": 1, "digits": 1, "even": 1}')""", "'evne'.*'?even"),
        ("""open('losses.json', 'w').write('{"digits": NaN, "even": 1}')""", "digits: bits_per_byte is nan"),
        ("""open('losses.json', 'w').write('{"digits": {"los": 1}, "even": 1}')""", "unknown key 'los'"),
        ("""open('losses.csv', 'w').write('target,bits\\neven,1\\n')""", "columns target and bits_per_byte"),
    ],
)
def test_what_went_wrong_is_said_with_what_the_program_said(
    tmp_path: Path, view: View, body: str, says: str
) -> None:
    with pytest.raises(RunError, match=rf"(?s){says}"):
        said(script(tmp_path, f"import sys\n{body}\n"), view, tmp_path / "out")


def test_losses_come_as_csv_too(tmp_path: Path) -> None:
    (tmp_path / "losses.csv").write_text("target,bits_per_byte,loss\ndigits,2.5,\neven,0.75,1.25\n")
    found = read_losses(tmp_path, TARGETS, "a")
    assert found == {"digits": {"bits_per_byte": 2.5}, "even": {"bits_per_byte": 0.75, "loss": 1.25}}


@pytest.mark.parametrize("line", ["", "train.sh {mix}", "train.sh {", "train.sh 'open", "train.sh {}"])
def test_lines_that_cannot_be_run_are_refused_before_anything_runs(line: str) -> None:
    with pytest.raises(RecipeError, match="command"):
        Command(line)


def test_no_shell_sees_the_line_and_a_missing_program_is_named(tmp_path: Path, view: View) -> None:
    with pytest.raises(RunError, match=r"(?s)wrote neither.*\nsaid; touch \S*/touched$"):
        said(Command("echo said; touch {out}/touched"), view, tmp_path / "out")
    assert not (tmp_path / "out" / "touched").exists()
    with pytest.raises(RecipeError, match="run run-1: no-such-program-here cannot be started"):
        said(Command("no-such-program-here {out}"), view, tmp_path / "other")


def test_what_a_program_leaves_running_is_ended_with_it(tmp_path: Path, view: View) -> None:
    command = script(
        tmp_path,
        """
import json, subprocess, sys
left = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
json.dump({"digits": left.pid, "even": 1}, open("losses.json", "w"))
""",
    )
    left = said(command, view, tmp_path / "out")["digits"].bits_per_byte
    assert left is not None and gone(int(left))


def test_a_program_dies_with_the_task_that_started_it(tmp_path: Path) -> None:
    """The task is killed, not asked: the program and what it started end all the same."""
    pids = tmp_path / "pids"
    body = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids) + '.new'!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"os.rename({str(pids) + '.new'!r}, {str(pids)!r})\n"
        "time.sleep(600)\n"
    )
    task = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from corpusmill.mixing.command import execute; "
            "execute([sys.executable, '-S', '-c', sys.argv[1]], Path(sys.argv[2]), 'a')",
            body,
            str(tmp_path),
        ]
    )
    try:
        until = time.monotonic() + 120
        while not pids.exists() and time.monotonic() < until:
            time.sleep(0.05)
        program, child = map(int, pids.read_text().split())
        assert not gone(program, wait_s=0) and not gone(child, wait_s=0)
    finally:
        task.send_signal(signal.SIGKILL)
        task.wait()
    assert gone(program) and gone(child)


def gone(pid: int, wait_s: float = 60) -> bool:
    """Whether a process has ended, at the latest after `wait_s`; one that nobody has taken off the list yet has."""
    until = time.monotonic() + wait_s
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        stat = Path(f"/proc/{pid}/stat")
        try:
            if stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(0.05)


DOCUMENTS = '{"a": {"document_bits": %s, "document_bytes": %s}}'


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ('{"a": 1' + "0" * 400 + "}", "bits_per_byte is 1000.*a finite number"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": 1, "a": 2}', "'a' stands there twice"),
        ('{"a": -0.5}', "bits_per_byte is -0.5; it cannot be below 0"),
        (DOCUMENTS % ("[8, 4]", "[1, Infinity]"), "lists of numbers from 0"),
        (DOCUMENTS % ("[8, -4]", "[8, 8]"), "lists of numbers from 0"),
        (DOCUMENTS % ("[true, 4]", "[8, 8]"), "lists of numbers from 0"),
        (DOCUMENTS % ("[]", "[]"), "not empty"),
        (DOCUMENTS % ("[8, 4]", "[8]"), "of one length"),
        (DOCUMENTS % ("[8, 4]", "[8, 0.5]"), "whole numbers from 1"),
        (DOCUMENTS % ("[8, 4]", "[8, 1e300]"), "whole numbers from 1"),
        (
            '{"a": {"bits_per_byte": 0.5, "document_bits": [8, 4], "document_bytes": [8, 8]}}',
            "bits_per_byte is 0.5, its documents have 0.75 together",
        ),
    ],
)
def test_numbers_that_cannot_be_losses_are_refused_by_run_and_target(
    tmp_path: Path, written: str, says: str
) -> None:
    (tmp_path / "losses.json").write_text(written)
    with pytest.raises(RunError, match=rf"run run-1: .*losses\.json.*{says}"):
        read_losses(tmp_path, ["a"], "run-1")


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("target,bits_per_byte,bits_per_byte\na,1,2\n", "a column stands there twice"),
        ("target,bits_per_byte\na,1,5\n", "more cells than there are columns"),
        ("target,bits_per_byte\na,1\na,2\n", "a target stands there twice"),
        ("target,bits_per_byte\na\n", "neither bits_per_byte nor loss"),
    ],
)
def test_tables_that_say_two_things_or_nothing_are_refused(tmp_path: Path, written: str, says: str) -> None:
    (tmp_path / "losses.csv").write_text(written)
    with pytest.raises(RunError, match=says):
        read_losses(tmp_path, ["a"], "run-1")


def test_what_programs_on_windows_write_is_read(tmp_path: Path) -> None:
    (tmp_path / "losses.csv").write_bytes("\ufefftarget,bits_per_byte\r\na,1.25\r\n".encode())
    assert read_losses(tmp_path, ["a"], "run-1") == {"a": {"bits_per_byte": 1.25}}


def test_a_program_that_removes_its_folder_is_named_and_of_much_output_the_end_is_said(
    tmp_path: Path, view: View
) -> None:
    gone = "import os, shutil\nshutil.rmtree(os.getcwd())\n"
    with pytest.raises(RunError, match=r"(?s)run run-1: the trainer wrote neither .*what it said is gone"):
        said(script(tmp_path, gone), view, tmp_path / "out")
    loud = "import sys\nfor _ in range(50): print('x' * 100_000)\nprint('out of memory'); sys.exit(1)\n"
    with pytest.raises(RunError, match=r"code 1; it said at the end:\nx+\nout of memory$") as error:
        said(script(tmp_path, loud), view, tmp_path / "loud")
    assert len(str(error.value)) < 3000
