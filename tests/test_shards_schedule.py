"""The law of the stream: whatever happens on the way, all batches together are one straight run over what was decided last."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shard_samples import small_shards

from corpusmill.shards import Cursor, stream
from corpusmill.shards.append import appended, write_appended
from corpusmill.shards.hide import hide_document
from corpusmill.shards.mixture import PPB
from corpusmill.shards.plan import Phase
from corpusmill.shards.plan_file import find_plan, read_plan
from corpusmill.shards.reader import Shards
from corpusmill.shards.sidecar import Wanted

TRAINER = """
import json, sys
import numpy as np
root, cursor, ranks, size, workers = sys.argv[1], sys.argv[2] or None, *map(int, sys.argv[3:])
def of_rank(rank):
    want = ("loss_mask",)
    if workers:
        from corpusmill.shards.torch import stream_loader
        loader = stream_loader(root, size, rank, ranks, cursor, want=want, num_workers=workers - 1)
        for batch in loader:
            yield batch["tokens"].numpy(), batch["loss_mask"].numpy(), json.dumps(loader.state_dict(), separators=(",", ":"))
    else:
        from corpusmill.shards import stream
        batches = stream(root, size, rank, ranks, cursor, want=want)
        for batch in batches:
            yield batch["tokens"], batch["loss_mask"], batches.cursor.to_json()
for parts in zip(*(of_rank(rank) for rank in range(ranks))):
    tokens, mask, cursors = zip(*parts)
    (saved,) = set(cursors)
    print(saved, np.concatenate(tokens).astype("<i8").tobytes().hex(), np.concatenate(mask).tobytes().hex(), flush=True)
"""


@dataclass(frozen=True)
class Turn:
    """A job on so many ranks, killed after some batches; then a document is hidden, or weights change, or neither.

    `workers`: 0 is the stream itself, n a torch loader with n - 1 workers.
    """

    ranks: int
    rows: int
    batches: int
    workers: int
    hides: int | None
    weight: int | None


def turns(workers: list[int]) -> st.SearchStrategy[list[Turn]]:
    turn = st.builds(
        Turn,
        st.sampled_from([1, 2, 3]),
        st.integers(1, 7),
        st.integers(1, 4),
        st.sampled_from(workers),
        st.none() | st.integers(0, 24),
        st.none() | st.integers(0, PPB),
    )
    return st.lists(turn, min_size=2, max_size=4)


def run(root: Path, turn: Turn, cursor: str) -> tuple[str, list[np.ndarray], list[np.ndarray]]:
    """What a job of its own hands out until it is killed: the last cursor it saved, tokens and masks."""
    size = turn.ranks * turn.rows
    arguments = [str(root), cursor, *map(str, (turn.ranks, size, turn.workers))]
    job = subprocess.Popen([sys.executable, "-c", TRAINER, *arguments], stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    tokens, mask = [], []
    for _ in range(turn.batches):
        cursor, *parts = job.stdout.readline().split()
        tokens.append(np.frombuffer(bytes.fromhex(parts[0]), "<i8").reshape(size, 9))
        mask.append(np.frombuffer(bytes.fromhex(parts[1]), np.bool_).reshape(size, 8))
    os.kill(job.pid, signal.SIGKILL)
    job.stdout.close()
    job.wait()
    return cursor, tokens, mask


def check(root: Path, schedule: list[Turn]) -> None:
    small_shards(root)
    cursor, tokens, mask, hidden = "", [], [], set()
    for turn in schedule:
        cursor, more, masks = run(root, turn, cursor)
        tokens += more
        mask += masks
        at = sum(map(len, tokens))
        if turn.hides is not None and turn.hides not in hidden:
            hidden.add(turn.hides)
            hide_document(root, Wanted(url=f"https://web.example/{turn.hides}"), at, "odd")
        if turn.weight is not None:
            plan = read_plan(find_plan(root))
            phase = Phase(at, {"books": turn.weight, "web": PPB - turn.weight})
            write_appended(find_plan(root), plan, appended(plan, phase))
    opened = Shards(root)
    total = sum(map(len, tokens))
    start = Cursor(opened.plan.id, 0, opened.quarantine.id)
    with stream(root, total, cursor=start, want=("loss_mask",)) as batches:
        straight = next(batches)
    assert np.array_equal(np.concatenate(tokens), straight["tokens"])
    assert np.array_equal(np.concatenate(mask), straight["loss_mask"])


@settings(deadline=None, max_examples=4, suppress_health_check=[HealthCheck.too_slow])
@given(schedule=turns([0]))
def test_jobs_of_any_ranks_and_batches_that_are_killed_hidden_from_and_reweighted_are_one_straight_run(
    tmp_path_factory: pytest.TempPathFactory, schedule: list[Turn]
) -> None:
    root = tmp_path_factory.mktemp("schedule") / "shards"
    check(root, schedule)
    shutil.rmtree(root)


@pytest.mark.slow
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(schedule=turns([0, 1, 2, 4]))
def test_so_are_they_with_loader_workers(
    tmp_path_factory: pytest.TempPathFactory, schedule: list[Turn]
) -> None:
    pytest.importorskip("torch")
    root = tmp_path_factory.mktemp("schedule") / "shards"
    check(root, schedule)
    shutil.rmtree(root)
