"""The loaders that benchmarks/stream.py reads beside ours, each with its own files, shuffle and loader, in batches of SMALL rows, without workers."""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import types
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np

SMALL, WIDTH = 8, 2049
"""Rows of a batch, tokens of a row."""

Step = Callable[[int], None]
"""Reads so many samples."""


def batches_of(batches: Iterator[Any], size: int) -> Step:
    def read(samples: int) -> None:
        for _ in range(samples // size):
            next(batches)

    return read


def installed(make: Callable[[np.ndarray], Step], rows: np.ndarray) -> Step | None:
    """None where the peer is not installed; what it prints is not ours."""
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            return make(rows)
        except ImportError as error:
            print(f"{make.__name__}: {error}", file=sys.stderr)
            return None


def _for_ever(make: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    while True:
        yield from make()


def _mosaicml(rows: np.ndarray) -> Step:
    """Its own shuffle (py1e) and loader; of vision it needs the names alone, and its wheel of torchvision fits few builds of torch."""
    for name in ("torchvision", "torchvision.datasets", "torchvision.transforms.functional"):
        stand_in: Any = types.ModuleType(name)
        stand_in.__spec__ = ModuleSpec(name, None)
        stand_in.VisionDataset, stand_in.to_tensor = object, None
        sys.modules.setdefault(name, stand_in)
    streaming, local = importlib.import_module("streaming"), str(Path("mds").resolve())
    with streaming.MDSWriter(
        out=local, columns={"tokens": f"ndarray:uint16:{WIDTH}"}, size_limit=1 << 26
    ) as writer:
        for row in rows:
            writer.write({"tokens": row})
    dataset = streaming.StreamingDataset(local=local, shuffle=True, batch_size=SMALL)
    loader = streaming.StreamingDataLoader(dataset, batch_size=SMALL)
    return batches_of(_for_ever(lambda: iter(loader)), SMALL)


def _litdata(rows: np.ndarray) -> Step:
    """Its token loader, which maps chunks, and its own shuffle and loader."""
    litdata, torch = importlib.import_module("litdata"), importlib.import_module("torch")
    loader = litdata.TokensLoader(block_size=WIDTH)
    cache = litdata.streaming.Cache("litdata", chunk_bytes="64MB", item_loader=loader)
    for i, row in enumerate(rows):
        cache[i] = torch.from_numpy(row)
    cache.done()
    cache.merge()
    dataset = litdata.StreamingDataset(
        "litdata", item_loader=litdata.TokensLoader(block_size=WIDTH), shuffle=True
    )
    batches = litdata.StreamingDataLoader(dataset, batch_size=SMALL)
    return batches_of(_for_ever(lambda: iter(batches)), SMALL)


def _grain(rows: np.ndarray) -> Step:
    """Its map dataset over the same mapped file, shuffled by its index shuffle, without threads."""
    grain = importlib.import_module("grain")
    source = np.memmap("rows.bin", np.uint16, "r", shape=rows.shape)
    dataset = grain.MapDataset.source(source).shuffle(seed=1).repeat().batch(SMALL)
    return batches_of(iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=0))), SMALL)


PEERS = {"mosaicml": _mosaicml, "litdata": _litdata, "grain_memmap": _grain}
