"""The order of samples: each epoch every row once, and exactly the order that a slow reading of its definition gives."""

from fractions import Fraction
from itertools import accumulate

import numpy as np
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.shards.mixture import BORDER, PPB, Mixture, Step
from corpusmill.shards.order import ComponentOrder, Order

M64 = (1 << 64) - 1


def mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
    return z ^ (z >> 31)


def place_of(x: int, n: int, key: int) -> int:
    """One place of the keyed permutation, in Python integers."""
    a = next(a for a in range(max(1, int(n**0.5) - 2), n + 1) if a * a >= n)
    b = (n + a - 1) // a
    while True:
        left, right = x // b, x % b
        for i in range(6):
            k = mix((key + (i + 1) * 0x9E3779B97F4A7C15) & M64)
            if i % 2 == 0:
                left = (left + mix((right + k) & M64) % a) % a
            else:
                right = (right + mix((left + k) & M64) % b) % b
        x = left * b + right
        if x < n:
            return x


def key_of(*parts: object) -> int:
    return xxhash.xxh3_64_intdigest("\0".join(str(part) for part in parts).encode())


class SlowComponent:
    """Rows of one component, by writing each epoch's windows out."""

    def __init__(self, name: str, seed: int, window: int, block_rows: list[int]) -> None:
        self.name, self.seed, self.window, self.block_rows = name, seed, window, block_rows
        self.first = [0, *accumulate(block_rows)]
        self.epoch = -1

    def row(self, position: int) -> tuple[int, int]:
        epoch, place = divmod(position, self.first[-1])
        if epoch != self.epoch:
            self.epoch = epoch
            self.base = key_of("order", 1, self.seed, self.name, epoch)
            n = len(self.block_rows)
            blocks = [place_of(i, n, self.base) for i in range(n)]
            self.windows = [
                [self.first[b] + j for b in blocks[i : i + self.window] for j in range(self.block_rows[b])]
                for i in range(0, n, self.window)
            ]
        for number, rows in enumerate(self.windows):
            if place < len(rows):
                return epoch, rows[place_of(place, len(rows), key_of(self.base, "rows", number))]
            place -= len(rows)
        raise AssertionError("a place beyond the epoch")


def half_up(value: Fraction) -> int:
    return (value + Fraction(1, 2)).__floor__()


def tree(weights: list[int]) -> tuple:
    nodes = sorted((w, i, i) for i, w in enumerate(weights) if w)
    number = len(weights)
    while len(nodes) > 1:
        light, heavy, *nodes = nodes
        nodes = sorted([*nodes, (light[0] + heavy[0], number, (heavy, light))], key=lambda node: node[:2])
        number += 1
    return nodes[0] if nodes else ()


def share(node: tuple, total: int, counts: list[int]) -> None:
    if node and isinstance(node[2], int):
        counts[node[2]] += total
    elif node:
        heavy, light = node[2]
        part, rest = divmod(total * heavy[0], node[0])
        part += 2 * rest >= node[0]
        share(heavy, part, counts)
        share(light, total - part, counts)


def border(weights: list[int], x: int) -> list[int]:
    counts, done, total = [0] * len(weights), 0, 0
    for i, w in enumerate(weights):
        if Fraction(w, PPB) >= Fraction(1, 4096):
            total += w
            edge = half_up(Fraction(x * total, PPB))
            counts[i], done = edge - done, edge
    share(tree([w if Fraction(w, PPB) < Fraction(1, 4096) else 0 for w in weights]), x - done, counts)
    return counts


def slow_components(weights: list[int], samples: int) -> list[int]:
    """Component of samples 0 .. of one phase: each block's tree is asked again for every prefix."""
    found: list[int] = []
    for first in range(0, samples, 4096):
        counts = [b - a for a, b in zip(border(weights, first), border(weights, first + 4096), strict=True)]
        node = tree(counts)
        before = [0] * len(weights)
        for x in range(1, 4097):
            after = [0] * len(weights)
            share(node, x, after)
            found.append(next(i for i in range(len(weights)) if after[i] > before[i]))
            before = after
    return found[:samples]


NAMES = ("books", "code", "rare", "web")
PHASES = [
    (0, [300_000_000, 199_900_000, 100_000, 500_000_000]),
    (60_001, [50_000_000, 0, 200_000, 949_800_000]),
]
BLOCK_ROWS = [[64] * 30 + [7], ([100] * 9 + [31]) * 5, [5], [256] * 15 + [1] + [256] * 16 + [255]]
SAMPLES = 100_000
GOLDEN = "cfbd80d5935562d792186f94face078c"


def plan_order() -> Order:
    return Order(
        Mixture([Step(start, tuple(weights)) for start, weights in PHASES]),
        [ComponentOrder(name, 17, 4, np.array(rows)) for name, rows in zip(NAMES, BLOCK_ROWS, strict=True)],
    )


def digest(component: np.ndarray, epoch: np.ndarray, row: np.ndarray) -> str:
    return xxhash.xxh3_128_hexdigest(np.stack([component, epoch, row], axis=1).astype("<i8").tobytes())


def test_the_first_hundred_thousand_samples_are_pinned_and_those_of_the_slow_definition() -> None:
    slow = [SlowComponent(name, 17, 4, rows) for name, rows in zip(NAMES, BLOCK_ROWS, strict=True)]
    seen = [0] * len(NAMES)
    expected = []
    for (start, weights), stop in zip(PHASES, [PHASES[1][0], SAMPLES], strict=True):
        for i in slow_components(weights, stop - start):
            expected.append((i, *slow[i].row(seen[i])))
            seen[i] += 1
    component, epoch, row = (np.array(column) for column in zip(*expected, strict=True))
    found = plan_order().samples(0, SAMPLES)
    assert np.array_equal(found.component, component)
    assert np.array_equal(found.epoch, epoch) and np.array_equal(found.row, row)
    # Whoever changes this digest changes what every cursor in the world means: raise ORDER_VERSION with it.
    assert digest(component, epoch, row) == GOLDEN


def test_any_cut_of_the_order_is_the_same_order() -> None:
    order = plan_order()
    whole = order.samples(0, 20_000)
    for start, stop in [(0, 1), (4095, 4097), (59, 8192), (19_999, 20_000), (7, 7)]:
        part = plan_order().samples(start, stop)
        assert np.array_equal(part.row, whole.row[start:stop])
        assert np.array_equal(part.component, whole.component[start:stop])


@settings(deadline=None, max_examples=60)
@given(
    block_rows=st.lists(st.integers(1, 9), min_size=1, max_size=40),
    window=st.integers(1, 50),
    start=st.integers(0, 10**6),
)
def test_each_epoch_is_every_row_once_in_windows_of_whole_blocks(
    block_rows: list[int], window: int, start: int
) -> None:
    order = ComponentOrder("a", 3, window, np.array(block_rows))
    first = start // order.rows * order.rows
    epochs, rows = order.take(first, 2 * order.rows)
    for i in range(2):
        part = slice(i * order.rows, (i + 1) * order.rows)
        assert set(epochs[part].tolist()) == {start // order.rows + i}
        assert np.array_equal(np.sort(rows[part]), np.arange(order.rows))
    # No more than `window` blocks are open at a time: a block's rows lie within one window's length of each other.
    block = np.repeat(np.arange(len(block_rows)), block_rows)[rows[: order.rows]]
    longest = sum(sorted(block_rows)[-window:])
    for number in range(len(block_rows)):
        places = np.flatnonzero(block == number)
        assert places[-1] - places[0] < longest


def test_a_window_of_more_blocks_than_there_are_is_one_of_all_blocks() -> None:
    rows = np.array([5, 5, 3])
    _, whole = ComponentOrder("a", 3, 3, rows).take(0, 26)
    assert np.array_equal(ComponentOrder("a", 3, 10**25, rows).take(0, 26)[1], whole)


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    rows = np.full(50, 20)
    orders = [
        ComponentOrder(name, seed, 4, rows).take(epoch * 1000, 1000)[1]
        for name, seed, epoch in [("a", 0, 0), ("a", 0, 1), ("a", 1, 0), ("b", 0, 0)]
    ]
    for i, a in enumerate(orders):
        for b in orders[:i]:
            assert (a == b).sum() <= 10


def test_a_window_mixes_blocks_as_a_full_shuffle_would() -> None:
    """1,024 rows a block, window of 8, batches of 64: blocks in a batch as even as random draws from the window."""
    order = ComponentOrder("a", 5, 8, np.full(64, 1024))
    rows = order.take(0, 8192)[1] // 1024
    blocks = np.unique(rows)
    assert len(blocks) == 8
    counts = np.stack(
        [np.bincount(np.searchsorted(blocks, batch), minlength=8) for batch in rows.reshape(-1, 64)]
    )
    ratio = ((counts - 8) ** 2 / 8).sum() / (7 * len(counts))
    # 128 batches of 7 degrees of freedom: standard deviation 0.047; drawing without replacement lowers the mean by 1/128.
    assert abs(ratio - 1) < 0.25


def test_components_of_more_rows_than_32_bits_count_keep_them_apart() -> None:
    order = ComponentOrder("a", 1, 16, np.full(2_500_000, 4096))
    rows = np.concatenate([order.take(start, 1000)[1] for start in (0, 2**32, order.rows - 1000)])
    assert order.rows > 2**33
    assert len(np.unique(rows)) == 3000 and rows.max() > 2**32 and rows.min() >= 0 and rows.max() < order.rows


def test_the_billionth_block_of_samples_needs_no_more_than_the_first() -> None:
    order = Order(
        Mixture([Step(0, (700_000_000, 300_000_000))]),
        [ComponentOrder(name, 1, 16, np.full(2000, 4096)) for name in "ab"],
    )
    samples = order.samples(10**12, 10**12 + BORDER)
    assert len(samples.row) == BORDER
    assert set(samples.epoch[samples.component == 0].tolist()) == {int(10**12 * 0.7) // (2000 * 4096)}
