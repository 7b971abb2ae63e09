"""Batches made ahead: groups keep order and errors in place, and waiting is counted where it happens."""

import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.shards.ahead import GROUP_BYTES, Batch, Waits, ahead, plainly


def batches(starts: Sequence[int], items: int = 4) -> list[Batch]:
    return [{"tokens": np.full(items, start, np.uint16)} for start in starts]


@settings(deadline=None, max_examples=25)
@given(
    size=st.sampled_from([1, 3000, GROUP_BYTES]),
    count=st.integers(1, 3),
    total=st.integers(0, 90),
    fails=st.booleans(),
)
def test_groups_of_any_size_keep_the_order_and_what_ends_it(
    size: int, count: int, total: int, fails: bool
) -> None:
    def make(starts: Sequence[int]) -> list[Batch]:
        if fails and total in starts:
            raise OSError("no more")
        return batches(starts, size)

    found = []
    stream = ahead(make, range(total + fails), count, Waits())
    try:
        for made in stream:
            found.append(int(made["tokens"][0]))
    except OSError:
        assert fails
    else:
        assert not fails
    assert found == list(range(total))


def test_a_batch_that_is_ready_is_not_waited_for() -> None:
    made: list[int] = []

    def make(starts: Sequence[int]) -> list[Batch]:
        made.extend(starts)
        return batches(starts, GROUP_BYTES)  # a group of its own

    waits = Waits()
    stream = ahead(make, range(9), 2, waits)
    next(stream)
    after_first = waits.seconds
    while len(made) < 4:  # two in the queue, one in the thread's hand
        time.sleep(0.001)
    next(stream)
    assert (waits.seconds, waits.starved) == (after_first, 0)
    stream.close()


def test_a_batch_that_is_not_ready_counts_as_starved_and_its_time_as_waited() -> None:
    may_go_on = threading.Event()

    def make(starts: Sequence[int]) -> list[Batch]:
        if starts[0]:
            may_go_on.wait()
        return batches(starts)

    waits = Waits()
    stream = ahead(make, range(2), 2, waits)
    next(stream)
    after_first = waits.seconds
    timer = threading.Timer(0.2, may_go_on.set)  # long after the line that asks
    timer.start()
    next(stream)
    assert waits.starved == 1 and waits.seconds > after_first
    assert list(stream) == [] and waits.starved == 1  # the end is no batch


def test_without_a_thread_every_batch_but_the_first_is_starved_for() -> None:
    waits = Waits()
    assert len(list(plainly(lambda starts: batches(starts, GROUP_BYTES), range(5), waits))) == 5
    assert waits.starved == 4 and waits.seconds > 0


def test_batches_of_a_group_do_not_share_what_a_caller_may_change() -> None:
    with pytest.raises(StopIteration):
        stream = ahead(batches, range(8), 2, Waits())
        for start in range(9):
            found = next(stream)
            assert (found["tokens"] == start).all()
            found["tokens"][:] = 99
