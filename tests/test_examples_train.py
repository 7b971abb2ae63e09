"""examples/train.py as a trainer uses it: killed and resumed, on other numbers of processes, and with a document that harms."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import xxhash  # noqa: E402
from training import (  # noqa: E402
    ROOT,
    killed_at,
    learnable_shards,
    lines,
    poisoned_shards,
    prose_shards,
    rows,
    steps,
    train,
    weights,
)

from corpusmill.shards import stream  # noqa: E402
from corpusmill.shards.quarantine import Entry  # noqa: E402
from corpusmill.shards.reader import Shards  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def assert_same_end(one: Path, other: Path) -> None:
    """Weights, optimizer, step, cursor and the losses of all steps are equal, bit for bit."""
    left, right = weights(one), weights(other)
    assert left.keys() == right.keys() and len(left) > 20
    for name, value in left.items():
        assert torch.equal(value, right[name]) if isinstance(value, torch.Tensor) else value == right[name], (
            name
        )
    assert steps(one) == steps(other)


def straight(data: Path, samples: int) -> list[str]:
    """Hashes of the first rows of the stream, as the trainer takes them."""
    found: list[str] = []
    for batch in stream(data, 8):
        found += [xxhash.xxh3_64_hexdigest(row.tobytes()) for row in batch["tokens"].astype("int64")]
        if len(found) >= samples:
            break
    return found[:samples]


def killed_often(data: Path, to: Path, ranks: int, total: int, kills: int, seed: int, *options: str) -> int:
    """Runs to the end through kills at random steps; how many there were."""
    random_ = random.Random(seed)
    done = 0
    while done < kills:
        begun = max((line["step"] for line in lines(to / "log.jsonl") if "next" in line), default=0)
        if not killed_at(min(total - 1, max(1, begun + random_.randint(0, 8))), data, to, ranks, *options):
            break
        done += 1
    train(data, to, ranks, *options)
    return done


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards")
    learnable_shards(root)
    return root


def test_a_killed_run_ends_with_the_weights_and_losses_of_an_unbroken_one(
    shards: Path, tmp_path: Path
) -> None:
    options = ("--steps", "24", "--save-every", "5")
    train(shards, tmp_path / "unbroken", 1, *options)
    assert killed_at(13, shards, tmp_path / "killed", 1, *options)
    train(shards, tmp_path / "killed", 1, *options)
    assert_same_end(tmp_path / "unbroken", tmp_path / "killed")
    assert rows(tmp_path / "killed") == rows(tmp_path / "unbroken") == straight(shards, 24 * 8)
    assert [line["next"] for line in steps(tmp_path / "killed").values()] == [8 * n for n in range(1, 25)]
    names = sorted(path.name for path in (tmp_path / "killed").iterdir() if path.is_dir())
    assert names == [f"step-{step:08d}" for step in (15, 20, 24)]  # the last three, nothing unfinished


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("ranks", "kills"), [(1, 20), (2, 6)])
def test_many_kills_at_random_steps_leave_no_trace(
    shards: Path, tmp_path: Path, ranks: int, kills: int
) -> None:
    options = ("--steps", "90", "--save-every", "4")
    train(shards, tmp_path / "unbroken", ranks, *options)
    assert killed_often(shards, tmp_path / "killed", ranks, 90, kills, 3, *options) == kills
    assert_same_end(tmp_path / "unbroken", tmp_path / "killed")
    assert rows(tmp_path / "killed") == straight(shards, 90 * 8)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 4])
def test_two_processes_killed_go_on_as_another_number_with_the_same_samples(
    shards: Path, tmp_path: Path, ranks: int
) -> None:
    options = ("--steps", "30", "--save-every", "4")
    assert killed_at(17, shards, tmp_path, 2, *options)
    train(shards, tmp_path, ranks, *options)
    assert [line["ranks"] for line in lines(tmp_path / "log.jsonl") if line.get("event") == "start"] == [
        2,
        ranks,
    ]
    assert rows(tmp_path) == straight(shards, 30 * 8)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_planted_document_is_found_by_its_spike_quarantined_and_done_without(
    tmp_path: Path, ranks: int
) -> None:
    document = poisoned_shards(tmp_path, late=800)
    options = ("--steps", "150", "--lr", "0.01")
    train(tmp_path, tmp_path / "run", ranks, *options)
    told = [line for line in lines(tmp_path / "run" / "log.jsonl") if "event" in line]
    assert [line["event"] for line in told] == ["start", "spike", "quarantine"]
    spike, quarantined = told[1:]
    values = [spike[name] for name in ("loss", "norm", "hardest")]
    assert any(value > bound for value, bound in zip(values, spike["bounds"], strict=True))
    assert quarantined["id"] == document and quarantined["url"] == "https://new.example/20"
    assert quarantined["from"] == quarantined["step"] * 8 <= spike["step"] * 8
    hidden = {entry for entry in Shards(tmp_path).quarantine.entries if isinstance(entry, Entry)}
    assert {(entry.document, entry.start) for entry in hidden} == {(document, quarantined["from"])}
    assert "new" in {
        entry.component for entry in hidden
    }  # samples number documents by component: web has a 20th, too
    assert (
        max(line["loss"] for step, line in steps(tmp_path / "run").items() if step > 100) < spike["bounds"][0]
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_kills_around_a_spike_change_nothing(tmp_path: Path) -> None:
    options = ("--steps", "130", "--lr", "0.01")
    found: dict[str, Any] = {}
    for name in ("unbroken", "killed"):
        (tmp_path / name).mkdir()
        poisoned_shards(tmp_path / name, late=800)
        if name == "killed":
            assert killed_often(tmp_path / name, tmp_path / name / "run", 1, 130, 8, 5, *options) == 8
        train(tmp_path / name, tmp_path / name / "run", 1, *options)
        found[name] = Shards(tmp_path / name).quarantine.id
    assert found["unbroken"] == found["killed"] is not None
    assert_same_end(tmp_path / "unbroken" / "run", tmp_path / "killed" / "run")


PROSE = ("--width", "64", "--layers", "2", "--batch-size", "16")


def run_on_prose(root: Path, steps: int, late: int, seed: int, ranks: int = 1, planted: bool = True) -> str:
    """The id of the planted document; the log is in root/run."""
    document = prose_shards(root, late * 16, seed, planted)
    train(root, root / "run", ranks, *PROSE, "--steps", str(steps), "--seed", str(seed))
    return document


def blamed(root: Path) -> list[str]:
    """Documents that were quarantined, in order."""
    return [line["id"] for line in lines(root / "run" / "log.jsonl") if line.get("event") == "quarantine"]


def test_noise_in_real_prose_is_found_and_nothing_else(tmp_path: Path) -> None:
    document = run_on_prose(tmp_path, 110, 50, 1)
    assert blamed(tmp_path) == [document]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(5))
def test_noise_in_real_prose_is_found_whatever_the_order(tmp_path: Path, seed: int) -> None:
    document = run_on_prose(tmp_path / "planted", 300, 150, seed)
    assert blamed(tmp_path / "planted") == [document]
    run_on_prose(tmp_path / "clean", 300, 150, seed, planted=False)
    assert blamed(tmp_path / "clean") == []


@pytest.mark.slow
def test_two_processes_find_noise_in_real_prose_too(tmp_path: Path) -> None:
    document = run_on_prose(tmp_path, 110, 50, 1, ranks=2)
    assert blamed(tmp_path) == [document]


def test_a_run_without_a_spike_quarantines_nothing(shards: Path, tmp_path: Path) -> None:
    train(shards, tmp_path, 1, "--steps", "120", "--lr", "0.01")
    assert [line["event"] for line in lines(tmp_path / "log.jsonl") if "event" in line] == ["start"]
    assert not (shards / "quarantine.json").exists()


def test_a_log_whose_last_line_was_cut_by_a_kill_goes_on_in_whole_lines(shards: Path, tmp_path: Path) -> None:
    train(shards, tmp_path, 1, "--steps", "8", "--save-every", "4", "--log-samples")
    logs = [tmp_path / "log.jsonl", tmp_path / "samples-0-of-1.jsonl"]
    for log in logs:
        os.truncate(log, log.stat().st_size - 5)
    train(shards, tmp_path, 1, "--steps", "12", "--save-every", "4", "--log-samples")
    for log in logs:
        steps = [json.loads(line).get("step") for line in log.read_text().splitlines()]
        assert steps[-1] == max(step for step in steps if step is not None)


@pytest.mark.slow
def test_two_by_two_processes_get_their_batches_and_tensor_parallel_peers_the_same(
    shards: Path, tmp_path: Path
) -> None:
    call = [sys.executable, str(ROOT / "tests" / "stream_ranks.py"), str(shards), "4"]
    processes = [
        subprocess.Popen(
            [*call, str(rank), str(tmp_path / "meeting"), "2", "6"],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(4)
    ]
    said = [process.communicate(timeout=300) for process in processes]
    assert not any(process.returncode for process in processes), b"\n".join(err for _, err in said).decode()
    found = [json.loads(out.splitlines()[-1]) for out, _ in said]
    assert [(each["dp"], each["tp"], each["next"]) for each in found] == [
        (0, 0, 48),
        (0, 1, 48),
        (1, 0, 48),
        (1, 1, 48),
    ]
    assert found[0]["batches"] == found[1]["batches"] and found[2]["batches"] == found[3]["batches"]
    both = zip(found[0]["batches"], found[2]["batches"], strict=True)
    assert [row for first, second in both for row in [*first, *second]] == straight(shards, 48)
