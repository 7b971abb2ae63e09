"""The torch surface with real DataLoaders: the order and the state are the same for any number of workers and ranks."""

from pathlib import Path

import numpy as np
import pytest
from shard_samples import small_shards

from corpusmill.pipeline.errors import CursorError, ShardError
from corpusmill.shards import stream

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

from corpusmill.shards.torch import StreamDataset, stream_loader  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

TOTAL = 300


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards")
    small_shards(root, total=TOTAL)
    return root


@pytest.fixture(scope="module")
def straight(shards: Path) -> np.ndarray:
    return np.concatenate([batch["tokens"] for batch in stream(shards, 10)]).astype(np.int64)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_any_number_of_workers_gives_the_streams_order(
    shards: Path, straight: np.ndarray, workers: int
) -> None:
    batches = list(stream_loader(shards, 12, num_workers=workers, want=("loss_mask",)))
    assert len(batches) == TOTAL // 12
    assert batches[0]["tokens"].dtype == torch.int64 and batches[0]["loss_mask"].dtype == torch.bool
    assert np.array_equal(torch.cat([batch["tokens"] for batch in batches]).numpy(), straight)


@pytest.mark.parametrize(("before", "after"), [(0, 3), (1, 0), (3, 1)])
def test_state_saved_with_some_workers_goes_on_with_others(
    shards: Path, straight: np.ndarray, before: int, after: int
) -> None:
    first = stream_loader(shards, 10, num_workers=before)
    found = []
    for number, batch in enumerate(first, start=1):
        found.append(batch["tokens"])
        assert first.state_dict()["next"] == 10 * number  # handed out, whatever the workers have ready
        if number == 4:
            break
    state = first.state_dict()
    second = stream_loader(shards, 20, num_workers=after)
    second.load_state_dict(state)
    assert second.state_dict() == state
    for number, batch in enumerate(second, start=1):
        found.append(batch["tokens"])
        if number == 3:
            break
    third = stream_loader(shards, 10, cursor=second.state_dict())
    found += [batch["tokens"] for batch in third]
    assert np.array_equal(torch.cat(found).numpy(), straight)


def test_state_saved_on_two_ranks_goes_on_with_four(shards: Path, straight: np.ndarray) -> None:
    two = [stream_loader(shards, 8, rank, 2) for rank in range(2)]
    ahead = [iter(loader) for loader in two]
    found = [next(rank)["tokens"] for _ in range(3) for rank in ahead]
    states = [loader.state_dict() for loader in two]
    assert states[0] == states[1]
    four = [stream_loader(shards, 8, rank, 4) for rank in range(4)]
    for loader in four:
        loader.load_state_dict(states[0])
    ahead = [iter(loader) for loader in four]
    found += [next(rank)["tokens"] for _ in range(3) for rank in ahead]
    assert np.array_equal(torch.cat(found).numpy(), straight[:48])


@pytest.mark.parametrize("workers", [0, 1])
def test_loading_after_iteration_began_is_an_error(shards: Path, workers: int) -> None:
    loader = stream_loader(shards, 10, num_workers=workers)
    next(iter(loader))
    with pytest.raises(CursorError, match="after iteration began"):
        loader.load_state_dict(loader.state_dict())


@pytest.mark.parametrize("workers", [0, 2])
def test_iterating_again_goes_on_where_the_last_loop_stopped(
    shards: Path, straight: np.ndarray, workers: int
) -> None:
    loader = stream_loader(shards, 10, num_workers=workers)
    found = []
    for _ in range(3):
        for number, batch in enumerate(loader, start=1):
            found.append(batch["tokens"])
            if number == 2:
                break
    assert np.array_equal(torch.cat(found).numpy(), straight[:60])


def test_the_dataset_in_a_plain_loader_keeps_its_state_without_workers(
    shards: Path, straight: np.ndarray
) -> None:
    dataset = StreamDataset(shards, 10)
    batches = iter(DataLoader(dataset, batch_size=None))
    assert np.array_equal(next(batches)["tokens"].numpy(), straight[:10])
    assert dataset.state_dict()["next"] == 10


def test_the_dataset_in_a_plain_loader_with_workers_refuses_to_guess(
    shards: Path, straight: np.ndarray
) -> None:
    dataset = StreamDataset(shards, 10)
    batches = iter(DataLoader(dataset, batch_size=None, num_workers=2))
    found = torch.cat([next(batches)["tokens"] for _ in range(4)])
    assert np.array_equal(found.numpy(), straight[:40])
    with pytest.raises(CursorError, match="use stream_loader"):
        dataset.state_dict()


def test_persistent_workers_are_refused(shards: Path) -> None:
    with pytest.raises(CursorError, match="persistent"):
        stream_loader(shards, 10, num_workers=1, persistent_workers=True)


def test_damage_found_by_a_worker_is_the_same_error(tmp_path: Path) -> None:
    small_shards(tmp_path)
    part = tmp_path / "fp" / "web" / "part-00000.arrow"
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    with pytest.raises(ShardError, match=r"part-00000\.arrow"):
        list(stream_loader(tmp_path, 10, num_workers=2))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iteration_that_another_overtook_hands_out_nothing_twice(
    shards: Path, straight: np.ndarray, workers: int
) -> None:
    loader = stream_loader(shards, 10, num_workers=workers)
    peek = iter(loader)
    found = [next(peek)["tokens"]]
    for number, batch in enumerate(loader, start=1):
        found.append(batch["tokens"])
        if number == 2:
            break
    with pytest.raises(CursorError, match="overtaken"):
        next(peek)
    assert np.array_equal(torch.cat(found).numpy(), straight[:30])
    assert loader.state_dict()["next"] == 30


def test_a_plain_loader_with_workers_does_not_begin_anew_in_silence(shards: Path) -> None:
    loader = DataLoader(StreamDataset(shards, 100), batch_size=None, num_workers=2)
    assert len(list(loader)) == TOTAL // 100
    with pytest.raises(CursorError, match="use stream_loader"):
        next(iter(loader))


def test_batches_out_of_order_are_refused(shards: Path) -> None:
    with pytest.raises(CursorError, match="in_order"):
        stream_loader(shards, 10, num_workers=2, in_order=False)


@pytest.mark.parametrize("state", [None, {}])
def test_a_checkpoint_without_a_state_does_not_mean_the_beginning(shards: Path, state: dict | None) -> None:
    loader = stream_loader(shards, 10)
    with pytest.raises(CursorError, match="leave load_state_dict out"):
        loader.load_state_dict(state)  # type: ignore[arg-type]
