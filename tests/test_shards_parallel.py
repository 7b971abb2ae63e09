"""Ranks that share rows: context-parallel ones cut them, tensor- and pipeline-parallel peers get them whole and alike."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_samples import small_shards

from corpusmill.pipeline.errors import CursorError
from corpusmill.shards import Cursor, stream
from corpusmill.shards.reader import Shards

TOTAL = 300
ALL = ("loss_mask", "position_ids", "cu_seqlens")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards")
    small_shards(root, total=TOTAL)
    return root


def batch(root: Path, start: int, **where: Any) -> dict[str, np.ndarray]:
    cursor = Cursor(Shards(root).plan.id, start)
    with stream(root, 12, cursor=cursor, want=ALL, prefetch=0, **where) as batches:
        return next(batches)


@settings(deadline=None, max_examples=25)
@given(
    start=st.integers(0, TOTAL - 12), dp_size=st.sampled_from([1, 2, 3]), cp_size=st.sampled_from([2, 4, 8])
)
def test_context_parallel_parts_are_the_rows_cut_with_one_token_of_overlap(
    shards: Path, start: int, dp_size: int, cp_size: int
) -> None:
    for dp_rank in range(dp_size):
        data = {"dp_rank": dp_rank, "dp_size": dp_size}
        whole = batch(shards, start, **data)
        parts = [batch(shards, start, cp_rank=i, cp_size=cp_size, **data) for i in range(cp_size)]
        targets = 8 // cp_size
        assert all(part["tokens"].shape == (12 // dp_size, targets + 1) for part in parts)
        inputs = np.concatenate([part["tokens"][:, :-1] for part in parts], axis=1)
        labels = np.concatenate([part["tokens"][:, 1:] for part in parts], axis=1)
        assert np.array_equal(inputs, whole["tokens"][:, :-1])
        assert np.array_equal(labels, whole["tokens"][:, 1:])
        for name in ("loss_mask", "position_ids"):
            assert np.array_equal(np.concatenate([part[name] for part in parts], axis=1), whole[name])
        assert all(np.array_equal(part["cu_seqlens"], whole["cu_seqlens"]) for part in parts)


def test_all_context_parallel_ranks_have_one_cursor_and_may_be_another_number_after_a_resume(
    shards: Path,
) -> None:
    cursors = set()
    for rank in range(4):
        with stream(shards, 12, cp_rank=rank, cp_size=4) as batches:
            next(batches)
            cursors.add(batches.cursor.to_json())
    (cursor,) = cursors
    with stream(shards, 6, cursor=cursor, cp_rank=1, cp_size=2) as batches:
        found = next(batches)["tokens"]
    assert np.array_equal(found, batch(shards, 12)["tokens"][:6, 4:])


def test_peers_of_one_data_parallel_rank_get_the_same_batches(shards: Path) -> None:
    """Two data-parallel by two tensor-parallel processes: a peer passes the rank it shares, and nothing about itself."""
    peers = {(dp, tp): batch(shards, 24, dp_rank=dp, dp_size=2) for dp in range(2) for tp in range(2)}
    for dp in range(2):
        for name in ("tokens", *ALL):
            assert np.array_equal(peers[dp, 0][name], peers[dp, 1][name])
    assert not np.array_equal(peers[0, 0]["tokens"], peers[1, 0]["tokens"])


@pytest.mark.parametrize(
    ("rank", "size", "says"),
    [
        (0, 3, "rows of 8 tokens cannot be cut for 3 context-parallel ranks"),
        (2, 2, "cp_rank 2 of cp_size 2"),
        (0, 0, "cp_size 0"),
        (0, 2.0, "cp_size is 2.0"),
    ],
)
def test_context_parallel_ranks_that_do_not_fit_are_refused(
    shards: Path, rank: Any, size: Any, says: str
) -> None:
    with pytest.raises(CursorError, match=says):
        stream(shards, 12, cp_rank=rank, cp_size=size)
