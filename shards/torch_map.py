"""The plan as a map-style torch dataset: item n is sample n, and a sampler says which samples a rank takes next.

    dataset = SampleDataset("out")
    sampler = RankBatches(len(dataset), batch_size=512, start=consumed, dp_rank=rank, dp_size=ranks)
    for batch in DataLoader(dataset, batch_sampler=sampler, num_workers=2): ...

It is what `--dataloader-type external` of Megatron-LM and plain DDP loops take, whose state is the number of consumed samples. The order
is in the plan, so no sampler has to shuffle; torch's DistributedSampler would shuffle by itself, give each rank every R-th sample
and repeat some to fill the last batch. Consecutive items in one batch cost what a stream's cost; single items out of order 1 ms each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler

from corpusmill.pipeline.errors import CursorError
from corpusmill.shards.cursor import Cursor, open_at, whole
from corpusmill.shards.reader import Shards
from corpusmill.shards.stream import slicing

if TYPE_CHECKING:
    from corpusmill.shards.cache import Cache

Tensors = dict[str, torch.Tensor]


class SampleDataset(Dataset):  # type: ignore[misc]  # torch is not followed by the type checker
    """Item n: `tokens` int64 [T + 1] of sample n, and `loss_mask`, `position_ids` [T] where `want` names them.

    `samples` is its length where the plan has no end. Each process opens the shards when it reads its first item.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        want: Sequence[str] = (),
        samples: int | None = None,
        cursor: Cursor | Mapping[str, Any] | str | None = None,
        cache: Cache | None = None,
    ) -> None:
        shards = Shards(path, cache)
        self._part = slicing(shards.plan, 1, 0, 1, want)
        open_at(shards, cursor, self._part.want)
        self.path, self.plan = shards.path, shards.plan
        self._cache, self._quarantine = cache, shards.quarantine.id
        if "cu_seqlens" in self._part.want:
            raise CursorError(
                "cu_seqlens are of a whole batch, items are rows: take position_ids, which start anew with each document, or a stream"
            )
        end = self.plan.samples
        if samples is None and end is None:
            raise CursorError(
                f"the plan in {self.path.parent} has no end: pass samples=, how many will be read"
            )
        length = end if samples is None else whole("samples", samples)
        assert length is not None
        if length < 0:
            raise CursorError(f"samples={samples}: a number from 0 on is needed")
        if end is not None and length > end:
            raise CursorError(
                f"samples={samples} cannot be had: the plan has {end} samples; leave samples= out for all, or let the plan end later "
                "(corpusmill plan append --samples)"
            )
        self._length: int = length
        self._shards: Shards | None = None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, sample: int) -> Tensors:
        return self.__getitems__([sample])[0]

    def __getitems__(self, samples: Sequence[int]) -> list[Tensors]:
        """Samples in any order; runs of consecutive ones, which is what RankBatches gives, are gathered at once."""
        wanted = np.asarray(samples, np.int64)
        if wanted.size and not (wanted.min() >= 0 and wanted.max() < len(self)):
            raise IndexError(f"samples {wanted.min()} to {wanted.max()} of {len(self)}")
        shards = self._open()
        items: list[Tensors] = []
        for run in np.split(wanted, np.flatnonzero(np.diff(wanted) != 1) + 1) if wanted.size else ():
            batch = self._part.rows(shards, int(run[0]), len(run))
            batch["tokens"] = batch["tokens"].astype(np.int64)
            whole = {name: torch.from_numpy(array) for name, array in batch.items()}
            items += [{name: tensor[i] for name, tensor in whole.items()} for i in range(len(run))]
        return items

    def cursor(self, consumed: int) -> Cursor:
        """Where a stream, or another dataset, goes on after `consumed` samples."""
        consumed = whole("consumed", consumed)
        if not 0 <= consumed <= len(self):
            raise CursorError(f"{consumed} samples cannot have been consumed of {len(self)}")
        return Cursor(self.plan.id, consumed, self._quarantine)

    def _open(self) -> Shards:
        if self._shards is None:
            shards = Shards(self.path, self._cache)
            if (shards.plan.id, shards.quarantine.id) != (self.plan.id, self._quarantine):
                raise CursorError(
                    f"plan or quarantine list in {self.path.parent} changed since this dataset was made: make it again"
                )
            self._shards = shards
        return self._shards

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_shards": None}  # mapped files, and a store's client, belong to one process


class RankBatches(Sampler[list[int]]):  # type: ignore[misc]  # torch is not followed by the type checker
    """Lists of a data-parallel rank's samples, batch by batch from sample `start` on: the slices that a stream gives the same rank.

    The same number of batches on every rank; a last one that is not full is left out. `batch_size` counts all ranks' rows.
    """

    def __init__(
        self, samples: int, batch_size: int, *, start: int = 0, dp_rank: int = 0, dp_size: int = 1
    ) -> None:
        samples, batch_size, start = (
            whole("samples", samples),
            whole("batch_size", batch_size),
            whole("start", start),
        )
        dp_rank, dp_size = whole("dp_rank", dp_rank), whole("dp_size", dp_size)
        if dp_size < 1 or not 0 <= dp_rank < dp_size or batch_size < 1 or batch_size % dp_size:
            raise CursorError(
                f"batch_size {batch_size} (all ranks together) must be a multiple of dp_size {dp_size}, and dp_rank {dp_rank} below it"
            )
        if not 0 <= start <= samples:
            raise CursorError(f"start={start} lies outside 0 to {samples}")
        self.samples, self.batch_size, self.start = samples, batch_size, start
        self._rows = batch_size // dp_size
        self._first = dp_rank * self._rows

    def __len__(self) -> int:
        return (self.samples - self.start) // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        for batch in range(len(self)):
            first = self.start + batch * self.batch_size + self._first
            yield list(range(first, first + self._rows))
