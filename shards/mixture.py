"""Which component each sample comes from: exact quotas in integers, no random draws, no state.

A phase is cut into blocks of 4,096 samples. At each border a component's count is within one of its weight (weights of 1/4096
and more; rarer ones share a group and stay within two), for ever; inside a block the counts are spread evenly, so that any
prefix is within 3 and any window within 5. Counts never fall, so a component's samples are simply its next rows.
A block takes 0.06 ms with 3 components (2 shared cores); a border takes integer arithmetic in the number of components.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from corpusmill.shards.permutation import Indices

BORDER = 4096
PPB = 1_000_000_000
RAMP_STEPS = 64

_Number = TypeVar("_Number", int, Indices)


@dataclass(frozen=True)
class Step:
    """From sample `start` on, component i has `weights[i]` parts in 10^9."""

    start: int
    weights: tuple[int, ...]


@dataclass(frozen=True)
class _Node:
    weight: int
    leaf: int
    children: tuple[_Node, ...] = ()


@dataclass(frozen=True)
class Block:
    """Samples `start` .. `start + len(component)` - 1: their components, and how many samples each component had before."""

    start: int
    component: npt.NDArray[np.uint32]
    before: tuple[int, ...]


class Mixture:
    """The component of any sample, and how many samples each component has had, by arithmetic alone."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = tuple(steps)
        self._bases = [(0,) * len(self.steps[0].weights)]
        for step, after in zip(self.steps, self.steps[1:], strict=False):
            self._bases.append(_sum(self._bases[-1], _counts(step.weights, after.start - step.start)))

    def counts(self, sample: int) -> tuple[int, ...]:
        """How many samples each component has among 0 .. `sample` - 1."""
        at = self._step(sample)
        return _sum(self._bases[at], _counts(self.steps[at].weights, sample - self.steps[at].start))

    def sample_of(self, component: int, count: int) -> int | None:
        """The sample that is number `count` of a component, counted from 0: the inverse of `counts`; None if it never comes.

        Takes a few borders and one block: counts at borders lie within two of the weight, so few borders come into question.
        """
        at = max(i for i, base in enumerate(self._bases) if base[component] <= count)
        step = self.steps[at]
        part = step.weights[component] * BORDER
        if not part:
            return None
        wanted = count - self._bases[at][component]
        low, high = max(0, (wanted - 2) * PPB // part), (wanted + 3) * PPB // part + 1
        while high - low > 1:
            middle = (low + high) // 2
            found = _border(step.weights, middle * BORDER)[component]
            low, high = (middle, high) if found <= wanted else (low, middle)
        before = _border(step.weights, low * BORDER)[component]
        inside = np.flatnonzero(_spread(step.weights, low * BORDER) == component)
        return step.start + low * BORDER + int(inside[wanted - before])

    def block_start(self, sample: int) -> int:
        """Where the block that holds `sample` begins: a step's start, and every 4,096 samples from there."""
        start = self.steps[self._step(sample)].start
        return start + (sample - start) // BORDER * BORDER

    def block(self, sample: int) -> Block:
        """The block that holds `sample`; it ends at 4,096 samples or at the next step."""
        at = self._step(sample)
        step = self.steps[at]
        first = self.block_start(sample) - step.start
        stop = self.steps[at + 1].start - step.start if at + 1 < len(self.steps) else first + BORDER
        component = _spread(step.weights, first)[: min(BORDER, stop - first)]
        return Block(step.start + first, component, _sum(self._bases[at], _border(step.weights, first)))

    def _step(self, sample: int) -> int:
        return max(i for i, step in enumerate(self.steps) if step.start <= sample)


def ramped(phases: Sequence[tuple[int, int, tuple[int, ...]]]) -> list[Step]:
    """Phases (start, length of the ramp, weights) as steps of constant weights.

    A ramp becomes up to 64 equal steps, each at the weights of its middle.
    """
    steps: list[Step] = []
    for start, ramp, goal in phases:
        count = min(RAMP_STEPS, ramp)
        source = steps[-1].weights if steps else goal
        for i in range(count):
            part = [
                ((2 * count - 2 * i - 1) * a + (2 * i + 1) * b, 2 * count)
                for a, b in zip(source, goal, strict=True)
            ]
            steps.append(Step(start + ramp * i // count, whole_parts(part)))
        steps.append(Step(start + ramp, goal))
    return steps


def whole_parts(parts: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Fractions that add up to PPB, as integers that do: the largest remainders are rounded up, the first on a tie."""
    floors = [numerator // denominator for numerator, denominator in parts]
    order = sorted(range(len(parts)), key=lambda i: (-(parts[i][0] % parts[i][1]), i))
    up = set(order[: PPB - sum(floors)])
    return tuple(floor + (i in up) for i, floor in enumerate(floors))


def _counts(weights: tuple[int, ...], x: int) -> tuple[int, ...]:
    """Counts after any `x` samples of a step."""
    first = x // BORDER * BORDER
    counts = _border(weights, first)
    if x == first:
        return counts
    inside = np.bincount(_spread(weights, first)[: x - first], minlength=len(weights))
    return _sum(counts, inside.tolist())


def _border(weights: tuple[int, ...], x: int) -> tuple[int, ...]:
    """Counts after `x` samples, a multiple of BORDER; they add up to `x` and none falls from border to border."""
    counts = [0] * len(weights)
    done = total = 0
    for i, weight in enumerate(weights):
        # Differences of rounded sums are within one of the weight; from BORDER * weight = 1 on they cannot be negative.
        if weight * BORDER >= PPB:
            total += weight
            edge = _rounded(x * total, PPB)
            counts[i] = edge - done
            done = edge
    rare = tuple(weight if weight * BORDER < PPB else 0 for weight in weights)
    _share(_tree(rare), x - done, counts)
    return tuple(counts)


def _spread(weights: tuple[int, ...], first: int) -> npt.NDArray[np.uint32]:
    """Component of each of the BORDER samples after the border `first`."""
    start, end = _border(weights, first), _border(weights, first + BORDER)
    component = np.empty(BORDER, np.uint32)
    _place(_tree(tuple(b - a for a, b in zip(start, end, strict=True))), np.arange(BORDER), component)
    return component


@lru_cache(maxsize=64)
def _tree(weights: tuple[int, ...]) -> _Node | None:
    """Pairs the lightest two until one node is left (Huffman): shares are then rounded along few nodes of like weight."""
    heap = [(weight, i, _Node(weight, i)) for i, weight in enumerate(weights) if weight]
    heapq.heapify(heap)
    for i in range(len(weights), len(weights) + len(heap) - 1):
        light, heavy = heapq.heappop(heap)[2], heapq.heappop(heap)[2]
        weight = light.weight + heavy.weight
        heapq.heappush(heap, (weight, i, _Node(weight, -1, (heavy, light))))
    return heap[0][2] if heap else None


def _share(node: _Node | None, total: int, counts: list[int]) -> None:
    """Adds `total` to the leaves' counts by weight. Both children's shares never fall as `total` grows."""
    if node is None:
        return
    if not node.children:
        counts[node.leaf] += total
        return
    heavy, light = node.children
    share = _rounded(total * heavy.weight, node.weight)
    _share(heavy, share, counts)
    _share(light, total - share, counts)


def _place(node: _Node | None, places: Indices, component: npt.NDArray[np.uint32]) -> None:
    """Gives each leaf as many of `places` as it weighs, evenly spread."""
    if node is None:
        return
    if not node.children:
        component[places] = node.leaf
        return
    heavy, light = node.children
    shares = _rounded(np.arange(node.weight + 1) * heavy.weight, node.weight)
    to_heavy = shares[1:] > shares[:-1]
    _place(heavy, places[to_heavy], component)
    _place(light, places[~to_heavy], component)


def _rounded(numerator: _Number, denominator: int) -> _Number:
    """Quotient rounded half up."""
    return (2 * numerator + denominator) // (2 * denominator)


def _sum(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))
