"""Blocks that are open, and batches gathered from them: one copy of each row, whatever block it lies in.

A row is found by its address: that of its block's first token, which is kept for every open block, and its place in the block.
NumPy's own gather then takes any rows of any blocks in one call, through one view of the whole address space with a row at every
token. It costs what `np.memmap[rows]` costs (0.8 us a row of 2,049 16-bit ids at 8 rows, 0.57 at 512); block by block it was
twice that at 512 rows and eight times at 8.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.shards.permutation import Indices

Tokens = npt.NDArray[np.unsignedinteger[Any]]

SPAN = 1 << 47
"""Bytes of address space that a process of Linux or macOS maps files into, on x86-64 and on arm64 unless it asks for more."""

WIDEST = 1 << 14
"""Tokens of a row up to which the view is used: NumPy counts an array's bytes in 63 bits. One call a row costs wider ones nothing."""


@dataclass(frozen=True)
class BlockView:
    """One block: `tokens` [rows, T + 1] and `batch`, both views of a mapped file."""

    first_row: int
    tokens: Tokens
    batch: pa.RecordBatch

    def lists(self, column: str) -> tuple[Indices, npt.NDArray[np.unsignedinteger[Any]]]:
        """(offsets, values) of a list column: row i holds values[offsets[i] : offsets[i + 1]]."""
        array = self.batch.column(self.batch.schema.get_field_index(column))
        return np.asarray(array.offsets).astype(np.int64), np.asarray(array.values)


class OpenBlocks:
    """Up to `keep` of a plan's blocks, counted through all components; what was longest not looked for goes first.

    `find` opens a block, whose number of rows and width were compared with its table: nothing else bounds what is gathered.
    `soon` is told what `find` is going to be asked for.
    """

    def __init__(
        self,
        blocks: int,
        width: int,
        dtype: str,
        keep: int,
        find: Callable[[int], BlockView],
        soon: Callable[[Sequence[int]], None] = lambda blocks: None,
    ) -> None:
        self.keep, self.opened = keep, 0
        self._find, self._soon, self._width, self._dtype = find, soon, width, np.dtype(dtype)
        self._address = np.zeros(blocks, np.int64)  # in tokens, less one; 0: the block is not open
        self._views: OrderedDict[int, BlockView] = OrderedDict()
        self._rows = _every_row(width, self._dtype)

    def __len__(self) -> int:
        return len(self._views)

    def view(self, block: int) -> BlockView:
        self._open([block])
        return self._views[block]

    def gather(self, block: Indices, inside: Indices) -> Tokens:
        """[rows, T + 1]: row `inside[i]` of block `block[i]`, a copy of the caller's own."""
        address = self._address[block]
        if np.count_nonzero(address) < len(address):
            needed = np.unique(block)
            if len(needed) > self.keep:  # more than may be open at once: part by part
                half = len(block) // 2
                parts = [self.gather(block[at], inside[at]) for at in (slice(half), slice(half, None))]
                return np.concatenate(parts)
            self._open(needed.tolist())
            address = self._address[block]
        if self._rows is None:
            return self._one_by_one(block, inside)
        address += inside * self._width
        return self._rows[address]

    def _one_by_one(self, block: Indices, inside: Indices) -> Tokens:
        out = np.empty((len(block), self._width), self._dtype)
        for i, (number, row) in enumerate(zip(block.tolist(), inside.tolist(), strict=True)):
            out[i] = self._views[number].tokens[row]
        return out

    def _open(self, needed: list[int]) -> None:
        """Opens what is not open yet; none of `needed` (`keep` at most) goes for it."""
        for block in needed:
            if block in self._views:
                self._views.move_to_end(block)
        missing = [block for block in needed if block not in self._views]
        if len(missing) > 1:
            self._soon(missing)
        for block in missing:
            if block not in self._views:
                while len(self._views) >= self.keep:
                    self._close()
                view = self._views[block] = self._find(block)
                self._address[block] = view.tokens.__array_interface__["data"][0] // self._dtype.itemsize - 1
                self.opened += 1

    def _close(self) -> None:
        block, _ = self._views.popitem(last=False)
        self._address[block] = 0


def _every_row(width: int, dtype: np.dtype[Any]) -> Tokens | None:
    """An array whose item i is the row that begins with the token at address (i + 1) * itemsize; None for rows too wide for that."""
    if width > WIDEST:
        return None
    step = dtype.itemsize

    interface = {
        "version": 3,
        "typestr": dtype.str,
        "shape": (SPAN // step - width - 1, width),
        "strides": (step, step),
        "data": (step, True),  # not from 0, which NumPy takes for "no data"; read only
    }
    return np.asarray(SimpleNamespace(__array_interface__=interface))
