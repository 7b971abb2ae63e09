"""The stream as a torch dataset and loader; the state is one cursor, kept by the process that trains.

    loader = stream_loader("out", batch_size=512, dp_rank=rank, dp_size=ranks, num_workers=0)
    loader.load_state_dict(saved)          # before the first batch
    for batch in loader: ...
    saved = loader.state_dict()            # counts batches handed out, not batches that workers have ready

One thread is enough for most trainers (`num_workers=0`). Worker w of W makes batches w, w + W, ... of those to come, so the order
is the same for any number of workers, and state saved with one number loads with another, on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from corpusmill.pipeline.errors import CursorError
from corpusmill.shards.ahead import Batch
from corpusmill.shards.cursor import Cursor, open_at
from corpusmill.shards.fetch import spread
from corpusmill.shards.reader import Shards
from corpusmill.shards.stream import Stream, slicing

if TYPE_CHECKING:
    from corpusmill.shards.cache import Cache

Tensors = dict[str, torch.Tensor]

_OVERTAKEN = "this iteration was overtaken by a later one, which went on from its place; go on with that, or begin another"


class StreamDataset(IterableDataset):  # type: ignore[misc]  # torch is not followed by the type checker
    """Whole batches (use it with `batch_size=None`): `tokens` int64 [rows of this rank, T + 1] and what `want` names.

    Iterating again goes on where the last iteration stopped.
    """

    def __init__(
        self,
        path: str | Path,
        batch_size: int = 512,
        dp_rank: int = 0,
        dp_size: int = 1,
        cursor: Cursor | Mapping[str, Any] | str | None = None,
        *,
        want: Sequence[str] = (),
        prefetch: int = 2,
        cp_rank: int = 0,
        cp_size: int = 1,
        cache: Cache | None = None,
    ) -> None:
        super().__init__()
        spread(path, dp_size)
        shards = Shards(path, cache)
        self._cache = cache
        self.path, self.plan = shards.path, shards.plan
        self._quarantine = shards.quarantine.id
        self.prefetch = prefetch
        self._part = slicing(self.plan, batch_size, dp_rank, dp_size, want, cp_rank, cp_size)
        self._next = open_at(shards, cursor, self._part.want)
        self._began = self._counted = False
        self._iteration = 0
        # Set by the first worker of a plain DataLoader, read by the parent and by the first worker of the next iteration.
        self._elsewhere = torch.zeros(1, dtype=torch.bool).share_memory_()

    def __iter__(self) -> Iterator[Tensors]:
        worker = get_worker_info()
        if worker is not None:
            if self._elsewhere[0] and not self._counted and worker.id == 0:
                raise CursorError(
                    "a plain DataLoader with workers would begin anew where the last iteration began: use stream_loader"
                )
            if worker.id == 0:
                self._elsewhere[0] = True
            yield from self._work(worker.id, worker.num_workers)
            return
        self._began = True
        self._iteration += 1
        mine = self._iteration
        with Stream(self._open(), self._part, self._next, self.prefetch) as batches:
            for batch in batches:
                self._next = batches.cursor.next
                yield _tensors(batch)
                if mine != self._iteration:
                    raise CursorError(_OVERTAKEN)

    def state_dict(self) -> dict[str, Any]:
        """The cursor after the last batch handed out; equal on all ranks."""
        if get_worker_info() is not None or (self._elsewhere[0] and not self._counted):
            raise CursorError(
                "a plain DataLoader with workers does not tell how many batches it handed out: use stream_loader"
            )
        return Cursor(self.plan.id, self._next, self._quarantine).state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises CursorError when iteration has begun (workers would go on from the old place) or the plan is another."""
        if self._began or self._elsewhere[0]:
            raise CursorError(
                "load_state_dict after iteration began would be ignored by what is on its way: load first, then iterate"
            )
        if not state:  # what a checkpoint without one may give; a cursor of None would mean the beginning
            raise CursorError(f"the state is {state!r}; leave load_state_dict out to begin at sample 0")
        self._next = open_at(self._open(), state, self._part.want)

    def begin(self) -> int:
        """Called by the loader that counts for a dataset whose batches are made by workers; the iteration's number."""
        self._began = self._counted = True
        self._iteration += 1
        return self._iteration

    def handed_out(self, iteration: int) -> None:
        if iteration != self._iteration:
            raise CursorError(_OVERTAKEN)
        self._next += self._part.batch_size

    def _open(self) -> Shards:
        """The shards again, where they are read; refused when the list has changed meanwhile, for the state names the old one."""
        shards = Shards(self.path, self._cache)
        if (shards.plan.id, shards.quarantine.id) != (self.plan.id, self._quarantine):
            raise CursorError(
                f"plan or quarantine list in {self.path.parent} changed since this dataset was made: make it again from its state_dict"
            )
        return shards

    def _work(self, worker: int, workers: int) -> Iterator[Tensors]:
        shards = self._open()
        first = self._next + worker * self._part.batch_size
        for start in self._part.starts(self.plan, first, workers):
            yield _tensors(self._part.batch(shards, start))


class StreamLoader(DataLoader):  # type: ignore[misc]  # torch is not followed by the type checker
    """A DataLoader over a StreamDataset that knows how many batches it has handed out, whatever its workers are doing."""

    def __init__(self, dataset: StreamDataset, num_workers: int = 0, **options: Any) -> None:
        if not options.get("in_order", True):
            raise CursorError("batches out of order cannot be counted by a cursor: leave in_order out")
        if options.pop("persistent_workers", False):
            raise CursorError(
                "persistent workers keep the place of the first iteration: leave persistent_workers out"
            )
        if num_workers and not isinstance(dataset.path, Path):
            # A store's client does not survive a fork, which is torch's own choice on Linux.
            options.setdefault("multiprocessing_context", "spawn")
            if options["multiprocessing_context"] == "fork":
                raise CursorError(
                    'workers that read a store cannot be forked: leave multiprocessing_context out, or pass "spawn"'
                )
        options.setdefault("pin_memory", torch.cuda.is_available())
        super().__init__(dataset, batch_size=None, num_workers=num_workers, **options)

    def __iter__(self) -> Iterator[Tensors]:
        if not self.num_workers:
            yield from super().__iter__()
            return
        mine = self.dataset.begin()
        for batch in super().__iter__():
            self.dataset.handed_out(mine)
            yield batch

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = self.dataset.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.dataset.load_state_dict(state)


def stream_loader(
    path: str | Path,
    batch_size: int = 512,
    dp_rank: int = 0,
    dp_size: int = 1,
    cursor: Cursor | Mapping[str, Any] | str | None = None,
    *,
    want: Sequence[str] = (),
    num_workers: int = 0,
    cp_rank: int = 0,
    cp_size: int = 1,
    cache: Cache | None = None,
    **options: Any,
) -> StreamLoader:
    """A loader with `state_dict` and `load_state_dict`; `options` go to torch's DataLoader (`prefetch_factor`, ...).

    Batches are in pinned memory where there is a GPU, unless `pin_memory=False`.
    """
    dataset = StreamDataset(
        path, batch_size, dp_rank, dp_size, cursor, want=want, cp_rank=cp_rank, cp_size=cp_size, cache=cache
    )
    return StreamLoader(dataset, num_workers, **options)


def _tensors(batch: Batch) -> Tensors:
    """Token ids become int64, which embeddings take; the other arrays keep their type."""
    tensors = {name: torch.from_numpy(array) for name, array in batch.items() if name != "tokens"}
    return {"tokens": torch.from_numpy(batch["tokens"].astype("int64")), **tensors}
