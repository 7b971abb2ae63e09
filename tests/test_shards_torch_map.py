"""The map-style dataset in real DataLoaders: the stream's rows for every rank, from any start."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from shard_samples import small_shards

from corpusmill.pipeline.errors import CursorError
from corpusmill.shards import stream

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, Subset  # noqa: E402

from corpusmill.shards.torch import stream_loader  # noqa: E402
from corpusmill.shards.torch_map import RankBatches, SampleDataset  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

TOTAL = 300
WANT = ("loss_mask", "position_ids")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards")
    small_shards(root, total=TOTAL)
    return root


@pytest.mark.parametrize("workers", [0, 2])
def test_every_rank_gets_the_streams_rows_from_any_start(shards: Path, workers: int) -> None:
    dataset = SampleDataset(shards, want=WANT)
    assert len(dataset) == TOTAL
    for rank in range(3):
        sampler = RankBatches(len(dataset), 12, start=60, dp_rank=rank, dp_size=3)
        loader = DataLoader(dataset, batch_sampler=sampler, num_workers=workers)
        assert len(loader) == (TOTAL - 60) // 12
        count = 0
        with stream(shards, 12, rank, 3, dataset.cursor(60), want=WANT) as batches:
            for ours, theirs in zip(loader, batches, strict=True):
                assert ours["tokens"].dtype == torch.int64
                assert all(np.array_equal(ours[name].numpy(), theirs[name]) for name in theirs)
                count += 1
        assert count == len(loader)


def test_items_in_any_order_are_the_samples_of_these_numbers(shards: Path) -> None:
    dataset = SampleDataset(shards)
    with stream(shards, TOTAL) as batches:
        rows = next(batches)["tokens"]
    numbers = [299, 4, 5, 6, 0, 4, 151]
    found = [item["tokens"].numpy() for item in dataset.__getitems__(numbers)]
    assert np.array_equal(found, rows[numbers])
    assert np.array_equal(dataset[17]["tokens"].numpy(), rows[17])
    for outside in (-1, TOTAL):
        with pytest.raises(IndexError):
            dataset[outside]


def test_a_plain_loader_gives_ranks_every_sample_once_the_rest_too(shards: Path) -> None:
    dataset, rows = SampleDataset(shards), {}
    for rank in range(7):  # 300 samples are no multiple of ranks or batches
        mine = range(rank, TOTAL, 7)
        found = [row for batch in DataLoader(Subset(dataset, mine), batch_size=8) for row in batch["tokens"]]
        rows.update(zip(mine, found, strict=True))
    with stream(shards, TOTAL) as batches:
        expected = next(batches)["tokens"]
    assert np.array_equal([rows[sample].numpy() for sample in range(TOTAL)], expected)


def test_an_opened_dataset_travels_to_another_process_without_its_files(shards: Path) -> None:
    dataset = SampleDataset(shards)
    first = dataset[0]["tokens"]
    again = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(again[0]["tokens"], first)


def test_what_does_not_fit_is_refused(shards: Path, tmp_path: Path) -> None:
    with pytest.raises(CursorError, match="position_ids"):
        SampleDataset(shards, want=("cu_seqlens",))
    with pytest.raises(CursorError, match=f"the plan has {TOTAL} samples"):
        SampleDataset(shards, samples=TOTAL + 1)
    small_shards(tmp_path)
    with pytest.raises(CursorError, match="no end"):
        SampleDataset(tmp_path)
    assert len(SampleDataset(tmp_path, samples=10**12)) == 10**12
    with pytest.raises(CursorError, match="multiple of dp_size 4"):
        RankBatches(TOTAL, 6, dp_size=4)
    with pytest.raises(CursorError, match="start=301"):
        RankBatches(TOTAL, 4, start=TOTAL + 1)


def test_all_ranks_end_together_without_repeats(shards: Path) -> None:
    samplers = [RankBatches(TOTAL, 16, dp_rank=rank, dp_size=4) for rank in range(4)]
    taken = [list(sampler) for sampler in samplers]
    assert {len(batches) for batches in taken} == {TOTAL // 16}
    samples = sorted(sample for batches in taken for batch in batches for sample in batch)
    assert samples == list(range(TOTAL // 16 * 16))


def test_batches_are_pinned_where_there_is_a_gpu_and_only_there(shards: Path) -> None:
    gpu = torch.cuda.is_available()
    assert next(iter(stream_loader(shards, 10)))["tokens"].is_pinned() == gpu
    assert not next(iter(stream_loader(shards, 10, pin_memory=False)))["tokens"].is_pinned()


def test_a_cursor_of_what_cannot_have_been_consumed_is_refused(shards: Path) -> None:
    dataset = SampleDataset(shards)
    for consumed in (-1, TOTAL + 1, 5.0):
        with pytest.raises(CursorError, match="consumed"):
            dataset.cursor(consumed)  # type: ignore[arg-type]
    assert json.loads(dataset.cursor(np.int64(7)).to_json())["next"] == 7  # type: ignore[arg-type]
    with pytest.raises(CursorError, match="samples=-1"):
        SampleDataset(shards, samples=-1)
    with pytest.raises(CursorError, match=r"batch_size is 8\.0"):
        RankBatches(TOTAL, 8.0)  # type: ignore[arg-type]
