"""Random choices keyed by names: the same on every machine, Python and day, whatever was chosen before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import xxhash

T = TypeVar("T")


class Dice:
    """A stream of choices that depends on `keys` alone."""

    def __init__(self, *keys: object) -> None:
        self._key = "\0".join(map(str, keys))
        self._drawn = 0

    def below(self, n: int) -> int:
        """0 <= result < n."""
        self._drawn += 1
        return xxhash.xxh3_64_intdigest(f"{self._key}\0{self._drawn}".encode()) % n

    def choose(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """`count` of `items` in random order, none twice; all of them where there are fewer."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(min(count, len(left)))]
