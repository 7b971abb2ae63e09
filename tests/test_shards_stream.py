"""The stream: one order for any ranks, batches, kills and resumes; damage is named before a wrong token leaves."""

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_samples import EOS, Sample, documents, small_shards, write_shards

from corpusmill.pipeline.errors import CursorError, ShardError
from corpusmill.shards import Cursor, Stream, fetch, locate, stream
from corpusmill.shards.cursor import start_of
from corpusmill.shards.plan import MOST_SAMPLES, PPB, Phase
from corpusmill.shards.reader import Shards
from corpusmill.shards.stream import slicing

TOTAL = 900  # about four epochs of the small shards


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards")
    small_shards(root, total=TOTAL)
    return root


@pytest.fixture(scope="module")
def straight(shards: Path) -> np.ndarray:
    """All samples in order, looked up one by one in tables that Arrow reads as a whole."""
    opened = Shards(shards)
    tables = []
    for reader in opened.components:
        files = [
            pa.ipc.open_file(str(reader.folder / shard.file)).read_all() for shard in reader.manifest.shards
        ]
        tables.append(pa.concat_tables(files)["tokens"].to_pylist())
    samples = opened.order.samples(0, TOTAL)
    return np.array([tables[c][r] for c, r in zip(samples.component, samples.row, strict=True)], np.uint16)


def tokens(batches: Iterator[dict[str, np.ndarray]]) -> np.ndarray:
    return np.concatenate([batch["tokens"] for batch in batches])


def restarted(root: Path, size: int, ranks: int, cursor: Cursor | None) -> list[Stream]:
    """A stream a rank, from a cursor, over shards opened anew."""
    opened = Shards(root)
    start = start_of(cursor, opened.plan, "plan.json")
    return [
        Stream(opened, slicing(opened.plan, size, rank, ranks), start, prefetch=0) for rank in range(ranks)
    ]


def test_a_straight_run_gives_the_plans_samples_in_order(shards: Path, straight: np.ndarray) -> None:
    assert np.array_equal(tokens(stream(shards, 9)), straight)
    assert tokens(stream(shards, 9)).dtype == np.uint16


@settings(deadline=None, max_examples=40)
@given(
    schedule=st.lists(
        st.tuples(st.sampled_from([1, 2, 3, 8]), st.integers(1, 5), st.integers(1, 3)), max_size=8
    )
)
def test_any_schedule_of_ranks_batches_and_restarts_gives_the_order_of_a_straight_run(
    shards: Path, straight: np.ndarray, schedule: list[tuple[int, int, int]]
) -> None:
    cursor: Cursor | None = None
    at = 0
    for ranks, rows, batches in schedule:
        streams = restarted(shards, ranks * rows, ranks, cursor)
        for _ in range(batches):
            batch = np.concatenate([next(rank)["tokens"] for rank in streams])
            assert np.array_equal(batch, straight[at : at + ranks * rows])
            at += ranks * rows
        (cursor,) = {rank.cursor for rank in streams}
        assert cursor.next == at


RESUMED = """
import sys
import numpy as np
from corpusmill.shards import stream
root, cursor, rank, ranks = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
batches = stream(root, 24, rank, ranks, cursor or None)
sys.stdout.buffer.write(b"".join(next(batches)["tokens"].tobytes() for _ in range(2)))
sys.stderr.write(batches.cursor.to_json())
"""


def test_fresh_processes_with_other_rank_counts_go_on_where_the_last_ones_stopped(
    shards: Path, straight: np.ndarray
) -> None:
    cursor, at = "", 0
    for ranks in (2, 1, 8, 3):
        runs = [
            subprocess.Popen(
                [sys.executable, "-c", RESUMED, str(shards), cursor, str(rank), str(ranks)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for rank in range(ranks)
        ]
        parts, cursors = [], set()
        for run in runs:
            out, err = run.communicate(timeout=60)
            assert run.returncode == 0, err
            parts.append(np.frombuffer(out, np.uint16).reshape(2, 24 // ranks, 9))
            cursors.add(err.decode())
        found = np.concatenate(parts, axis=1).reshape(48, 9)
        assert np.array_equal(found, straight[at : at + 48])
        assert len(cursors) == 1
        cursor, at = cursors.pop(), at + 48


TRAINER = """
import sys
from corpusmill.shards import stream
batches = stream(sys.argv[1], 6, cursor=sys.argv[2] or None)
for batch in batches:
    print(batches.cursor.to_json(), batch["tokens"].tobytes().hex(), flush=True)
"""


def test_a_killed_trainer_goes_on_from_the_last_cursor_it_saved(shards: Path, straight: np.ndarray) -> None:
    cursor, found = "", []
    for _ in range(3):
        run = subprocess.Popen(
            [sys.executable, "-c", TRAINER, str(shards), cursor], stdout=subprocess.PIPE, text=True
        )
        assert run.stdout is not None
        for _ in range(5):
            cursor, data = run.stdout.readline().split()
            found.append(np.frombuffer(bytes.fromhex(data), np.uint16).reshape(6, 9))
        run.kill()  # batches that it made after the last saved cursor are made again
        run.communicate()
    assert np.array_equal(np.concatenate(found), straight[: 3 * 5 * 6])


def test_a_cursor_counts_batches_handed_out_not_batches_made_ahead(shards: Path) -> None:
    with stream(shards, 10, prefetch=8) as batches:
        assert batches.cursor.next == 0
        for i in range(1, 4):
            next(batches)
            assert batches.cursor.next == 10 * i


def test_a_resumed_streams_first_cursor_is_the_one_it_was_given(shards: Path) -> None:
    with stream(shards, 10) as batches:
        next(batches)
        saved = batches.cursor
    with stream(shards, 5, cursor=saved) as again:
        assert again.cursor == saved
    with stream(shards, 5, cursor=again.cursor.to_json()) as third:
        assert third.cursor == saved


def test_batches_do_not_depend_on_how_far_ahead_they_are_made(shards: Path, straight: np.ndarray) -> None:
    for prefetch in (0, 1, 7):
        assert np.array_equal(tokens(stream(shards, 30, prefetch=prefetch)), straight)


def test_every_epoch_of_a_component_is_whole_and_small_sets_do_not_hang(tmp_path: Path) -> None:
    plan = write_shards(tmp_path, [Sample("only", [documents(1, 12)])], {"only": PPB}, total=None)
    rows = plan.components[0].rows
    with stream(tmp_path, 1) as batches:
        epochs = [sorted(tuple(next(batches)["tokens"][0]) for _ in range(rows)) for _ in range(4)]
    assert all(epoch == epochs[0] for epoch in epochs) and len(set(epochs[0])) == rows


def test_all_ranks_get_the_same_number_of_batches_and_the_last_partial_one_is_left_out(shards: Path) -> None:
    counts = []
    for rank in range(4):
        with stream(shards, 16, rank, 4) as batches:
            assert batches.batches_left == TOTAL // 16
            counts.append(sum(1 for _ in batches))
            assert batches.batches_left == 0
    assert counts == [TOTAL // 16] * 4


def test_a_stream_at_its_end_is_over_and_stays_so(shards: Path) -> None:
    with stream(shards, TOTAL) as batches:
        next(batches)
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(batches)
    assert list(stream(shards, 8, cursor=batches.cursor)) == []


@pytest.mark.parametrize(
    ("size", "rank", "ranks", "says"),
    [
        (10, 0, 4, "use 8 or 12"),
        (3, 0, 4, "use 4"),
        (0, 0, 1, "use 1"),
        (8, 4, 4, "dp_rank 4 of dp_size 4"),
        (8, -1, 4, "dp_rank -1"),
        (8, 0, 0, "dp_size 0"),
        (8.0, 0, 1, "batch_size is 8.0"),
        (8, 0, "1", "dp_size is '1'"),
        (TOTAL + 1, 0, 1, f"plan's {TOTAL} samples"),
    ],
)
def test_batches_and_ranks_that_do_not_fit_are_refused_with_what_would(
    shards: Path, size: Any, rank: Any, ranks: Any, says: str
) -> None:
    with pytest.raises(CursorError, match=says):
        stream(shards, size, rank, ranks)


def test_numpys_integers_leave_a_cursor_that_json_takes(shards: Path, straight: np.ndarray) -> None:
    with stream(shards, np.int64(8), np.int32(0), np.uint8(1)) as batches:  # type: ignore[arg-type]
        next(batches)
        saved = batches.cursor.to_json()
    with stream(shards, 8, cursor=saved) as batches:
        assert np.array_equal(next(batches)["tokens"], straight[8:16])


FORKED = """
import os, sys
from corpusmill.pipeline.errors import CursorError
from corpusmill.shards import stream
batches = stream(sys.argv[1], 8, prefetch=2)
next(batches)
child = os.fork()
try:
    first = next(batches)
except CursorError as error:
    os._exit(7 if child == 0 and "forked" in str(error) else 1)
assert child and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


def test_a_stream_in_a_forked_child_is_refused_instead_of_waiting_for_the_parents_thread(
    shards: Path,
) -> None:
    assert subprocess.run([sys.executable, "-c", FORKED, str(shards)], timeout=60).returncode == 0


def test_arrays_that_a_stream_does_not_make_are_refused(shards: Path) -> None:
    with pytest.raises(CursorError, match="want names attention_mask; a stream makes loss_mask"):
        stream(shards, 8, want=("attention_mask",))


def test_masks_positions_and_bounds_come_from_the_documents(tmp_path: Path) -> None:
    # T = 4. Stream: 1 2 0 | 3 0 | 4 5 6 7 8 0, 11 tokens: rows 1 2 0 3 0, 0 4 5 6 7, 7 8 0 . . (0 is end-of-text)
    write_shards(
        tmp_path, [Sample("only", [[[1, 2], [3], [4, 5, 6, 7, 8]]])], {"only": PPB}, length=4, total=3
    )
    with stream(tmp_path, 3, want=("loss_mask", "position_ids", "cu_seqlens")) as batches:
        batch = next(batches)
    place = {tuple(row): i for i, row in enumerate(batch["tokens"].tolist())}
    rows = [place[key] for key in ((1, 2, 0, 3, 0), (0, 4, 5, 6, 7), (7, 8, 0, 0, 0))]
    assert batch["loss_mask"][rows].tolist() == [[True] * 4, [True] * 4, [True, True, False, False]]
    assert batch["position_ids"][rows].tolist() == [[0, 1, 2, 0], [0, 0, 1, 2], [0, 1, 2, 0]]
    starts = [[0, 3], [0, 1], [0, 3]]  # of the pieces, and of the padding, among each row's four inputs
    expected = [4 * i + start for i in range(3) for start in starts[rows.index(i)]] + [12]
    assert batch["cu_seqlens"].tolist() == expected


@settings(deadline=None, max_examples=25)
@given(size=st.integers(1, 40), start=st.integers(0, TOTAL - 40))
def test_what_is_derived_agrees_with_each_row_on_its_own(shards: Path, size: int, start: int) -> None:
    opened = Shards(shards)
    samples = opened.order.samples(start, start + size)
    cursor = Cursor(opened.plan.id, start)
    with stream(
        shards, size, cursor=cursor, want=("loss_mask", "position_ids", "cu_seqlens"), prefetch=0
    ) as batches:
        batch = next(batches)
    bounds = []
    for i in range(size):
        reader = opened.components[samples.component[i]]
        view = reader.view(int(reader.block_of(samples.row[i : i + 1])[0]))
        ends = view.batch.column(1)[int(samples.row[i]) - view.first_row].as_py()
        assert batch["loss_mask"][i].tolist() == [j + 1 < ends[-1] for j in range(8)]
        starts = sorted({0, *(end for end in ends if end < 8)})
        assert batch["position_ids"][i].tolist() == [j - max(s for s in starts if s <= j) for j in range(8)]
        bounds += [8 * i + s for s in starts]
    assert batch["cu_seqlens"].tolist() == [*bounds, 8 * size]


def test_32_bit_ids_arrive_as_they_are(tmp_path: Path) -> None:
    write_shards(tmp_path, [Sample("only", [documents(1, 12)])], {"only": PPB}, dtype="uint32", total=8)
    with stream(tmp_path, 8) as batches:
        assert next(batches)["tokens"].dtype == np.uint32


def test_batches_are_the_callers_own(shards: Path) -> None:
    with stream(shards, 8) as batches:
        kept = next(batches)["tokens"]
        before = kept.copy()
        kept[:] = EOS
    with stream(shards, 8) as batches:
        assert np.array_equal(next(batches)["tokens"], before)


def test_two_sources_at_half_each_are_near_it_in_every_window(tmp_path: Path) -> None:
    write_shards(
        tmp_path,
        [Sample("a", [documents(1, 20)]), Sample("b", [documents(2, 20)])],
        [Phase(0, {"a": PPB // 2, "b": PPB // 2})],
    )
    component = Shards(tmp_path).order.samples(0, 100).component
    assert all(4 <= (component[i : i + 10] == 0).sum() <= 6 for i in range(91))


# Damage


def part(root: Path) -> Path:
    return root / "fp" / "books" / "part-00001.arrow"


def until_error(root: Path, straight: np.ndarray) -> str:
    """Streams to the error, checking every token on the way."""
    with stream(root, 9) as batches:
        for at in range(0, TOTAL, 9):
            try:
                batch = next(batches)
            except ShardError as error:
                with pytest.raises(ShardError):
                    next(batches)  # a broken stream does not look like one that is over
                return str(error)
            assert np.array_equal(batch["tokens"], straight[at : at + 9])
    return ""


@pytest.mark.parametrize("which", [0, 3])
def test_one_flipped_bit_is_named_with_shard_and_block_before_a_wrong_token(
    tmp_path: Path, straight: np.ndarray, which: int
) -> None:
    small_shards(tmp_path, total=TOTAL)
    reader = Shards(tmp_path).components[0]
    block = int(np.flatnonzero(reader.blocks["shard"] == 1)[which])
    data = bytearray(part(tmp_path).read_bytes())
    data[int(reader.blocks["offset"][block] + reader.blocks["length"][block]) - 70] ^= 1
    part(tmp_path).write_bytes(data)
    says = until_error(tmp_path, straight)
    assert "part-00001.arrow" in says and f"block {block} " in says


def test_a_cut_shard_is_named_at_open(tmp_path: Path) -> None:
    small_shards(tmp_path)
    part(tmp_path).write_bytes(part(tmp_path).read_bytes()[:-1000])
    with pytest.raises(ShardError, match=r"part-00001\.arrow has \d+ bytes, its manifest says \d+"):
        stream(tmp_path, 8)


@pytest.mark.parametrize("name", ["part-00001.arrow", "manifest.json", "blocks.arrow"])
def test_a_missing_file_is_named_at_open(tmp_path: Path, name: str) -> None:
    small_shards(tmp_path)
    (tmp_path / "fp" / "books" / name).unlink()
    with pytest.raises(ShardError, match=f"{name} is missing"):
        stream(tmp_path, 8)


@pytest.mark.parametrize("name", ["manifest.json", "blocks.arrow"])
@pytest.mark.parametrize("damage", ["flipped", "empty", "cut"])
def test_damaged_tables_are_named_at_open(tmp_path: Path, name: str, damage: str) -> None:
    small_shards(tmp_path)
    path = tmp_path / "fp" / "books" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes({"flipped": bytes(data), "empty": b"", "cut": path.read_bytes()[:-40]}[damage])
    with pytest.raises(ShardError, match=name):
        stream(tmp_path, 8)


def test_shards_that_are_not_the_plans_are_refused(tmp_path: Path) -> None:
    small_shards(tmp_path / "a")
    write_shards(tmp_path / "b", [Sample("books", [documents(9, 30)])], {"books": PPB})
    for file in (tmp_path / "b" / "fp" / "books").iterdir():
        (tmp_path / "a" / "fp" / "books" / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ShardError, match="not the plan's"):
        stream(tmp_path / "a", 8)


def test_shards_can_be_moved_as_a_whole(tmp_path: Path, straight: np.ndarray) -> None:
    small_shards(tmp_path / "here", total=TOTAL)
    (tmp_path / "here").rename(tmp_path / "there")
    assert np.array_equal(tokens(stream(tmp_path / "there", 50)), straight)


# Threads and memory


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "corpusmill-stream"]


def test_no_thread_is_left_behind(shards: Path) -> None:
    with stream(shards, 8) as batches:
        next(batches)
    assert threads() == []
    dropped = stream(shards, 8)
    next(dropped)
    assert len(threads()) == 1
    del dropped
    gc.collect()
    assert threads() == []
    list(stream(shards, 300))
    assert threads() == []


def test_a_program_that_forgets_to_close_its_stream_still_ends(shards: Path) -> None:
    code = f"from corpusmill.shards import stream; s = stream({str(shards)!r}, 1, prefetch=500); next(s)"
    for _ in range(3):  # its thread is at work when the interpreter ends
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_open_blocks_are_bounded(tmp_path: Path) -> None:
    write_shards(tmp_path, [Sample("only", [documents(1, 400)], rows_per_block=1)], {"only": PPB}, window=4)
    opened = Shards(tmp_path)
    found = opened.tokens(opened.order.samples(0, 600))
    assert len(opened.opened) == opened.opened.keep == 64
    assert np.array_equal(
        found, np.concatenate([opened.tokens(opened.order.samples(i, i + 1)) for i in range(600)])
    )


def test_a_shard_that_is_replaced_while_it_is_not_mapped_is_compared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for one mapped file, every shard is mapped anew whenever another one was read."""
    monkeypatch.setattr(fetch, "OPEN_SHARDS", 1)
    small_shards(tmp_path)
    web, books = (
        next(r for r in Shards(tmp_path).components if r.component.name == n) for n in ("web", "books")
    )
    books.source = web.source
    web.stored(0)
    books.stored(0)
    part = web.folder / "part-00000.arrow"
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.with_suffix(".new").write_bytes(data)
    part.with_suffix(".new").rename(part)
    with pytest.raises(ShardError, match=r"part-00000\.arrow: block 0"):
        web.stored(0)


@pytest.mark.parametrize("sample", [MOST_SAMPLES, 1 << 63, 10**30])
def test_samples_that_no_plan_counts_are_refused(tmp_path: Path, sample: int) -> None:
    plan = small_shards(tmp_path)
    with pytest.raises(CursorError):
        locate(tmp_path, sample)
    with pytest.raises(CursorError):
        stream(tmp_path, 8, cursor=Cursor(plan.id, sample + 1))
    with stream(tmp_path, 8, cursor=Cursor(plan.id, MOST_SAMPLES), prefetch=0) as batches:
        assert next(batches)["tokens"].shape == (8, 9)


def test_more_samples_than_can_be_looked_up_at_a_time_are_refused(tmp_path: Path) -> None:
    small_shards(tmp_path)
    with pytest.raises(CursorError, match="at most at a time"):
        locate(tmp_path, 0, 10**12)


@pytest.mark.parametrize("want", ["loss_mask", None, 5])
def test_what_is_no_list_of_names_is_told_how_to_write_it(shards: Path, want: Any) -> None:
    with pytest.raises(CursorError, match=r'\("loss_mask",\)'):
        stream(shards, 8, want=want)
