"""Where a stream stands: about 100 bytes, the same on every rank, whatever the number of ranks, workers or the batch size.

A cursor fits a plan and a quarantine list that give the same samples below its `next`, whatever they say from there on.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corpusmill.pipeline.errors import CursorError
from corpusmill.shards.append import PLANS_FOLDER, earlier, first_difference
from corpusmill.shards.layout import PLAN_FILE
from corpusmill.shards.plan import MOST_SAMPLES, Plan
from corpusmill.shards.quarantine import check_version
from corpusmill.shards.reader import Shards

VERSION = 1

AT_ONCE = 1 << 20
"""Samples that are looked up at a time: what is known of each, and of its documents, is held in memory."""


@dataclass(frozen=True)
class Cursor:
    """`next` is the first sample not yet handed out; `quarantine` None means that no quarantine list was in force."""

    plan: str
    next: int
    quarantine: str | None = None
    v: int = VERSION

    def state(self) -> dict[str, Any]:
        return {"v": self.v, "plan": self.plan, "next": self.next, "quarantine": self.quarantine}

    def to_json(self) -> str:
        return json.dumps(self.state(), separators=(",", ":"))


def whole(name: str, value: int) -> int:
    """As Python's own integer: one of NumPy's would go into cursors, where JSON does not take it."""
    try:
        return operator.index(value)
    except TypeError:
        raise CursorError(f"{name} is {value!r}; a whole number is needed") from None


def need_samples(plan: Plan, first: int, stop: int, at_once: int | None = None) -> None:
    """Raises CursorError unless the plan has samples `first` .. `stop` - 1, at least one and not more than `at_once`."""
    end = MOST_SAMPLES if plan.samples is None else plan.samples
    if first < 0 or stop <= first or stop > end:
        has = f"0 to {end - 1}" if end else "none"
        raise CursorError(f"no samples {first} to {stop - 1}: the plan has {has}")
    if at_once is not None and stop - first > at_once:
        raise CursorError(
            f"samples {first} to {stop - 1} are {stop - first}; ask for {at_once} at most at a time"
        )


def read_cursor(value: Cursor | Mapping[str, Any] | str) -> Cursor:
    """A cursor from its JSON or dict form; raises CursorError when it is none."""
    try:
        if isinstance(value, Cursor):
            cursor = value
        else:
            cursor = Cursor(**(json.loads(value) if isinstance(value, str) else dict(value)))
    except (ValueError, TypeError, RecursionError) as error:
        raise CursorError(f"not a cursor: {repr(value)[:200]} ({error}); pass what `.cursor` gave") from error
    if cursor.v != VERSION:
        raise CursorError(
            f"cursor is of version {cursor.v!r}, this version reads {VERSION}: resume with the one that wrote it"
        )
    if (
        type(cursor.plan) is not str
        or type(cursor.next) is not int
        or cursor.next < 0
        or type(cursor.quarantine) not in (str, type(None))
    ):
        raise CursorError(f"not a cursor: {repr(value)[:200]}; pass what `.cursor` gave")
    return cursor


def open_at(shards: Shards, cursor: Cursor | Mapping[str, Any] | str | None, want: Sequence[str] = ()) -> int:
    """The sample from which a stream goes on; raises CursorError when plan or quarantine have changed what was before it,
    and when something is hidden from there on but `want` does not take the loss mask that says so."""
    kept = None if cursor is None else earlier(shards.path, read_cursor(cursor).plan)
    try:
        start = start_of(cursor, shards.plan, str(shards.path), kept)
    except CursorError as error:
        if kept is None:
            raise
        raise CursorError(
            f"{error} (it was kept: copy {shards.path.parent}/{PLANS_FOLDER}/{kept.id}.json beside {PLAN_FILE}, and open the copy)"
        ) from None
    if cursor is not None:
        version = read_cursor(cursor).quarantine
        check_version(shards.quarantine, version, start, shards.plan, shards.order)
    if "loss_mask" not in want and shards.hidden.hides_from(start):
        raise CursorError(
            f"{shards.path.parent} has a quarantine list: its tokens arrive as end-of-text and must not be learnt; "
            'take the mask with want=("loss_mask",) and leave those targets out of the loss'
        )
    return start


def start_of(
    cursor: Cursor | Mapping[str, Any] | str | None, plan: Plan, where: str, made_with: Plan | None = None
) -> int:
    """The sample to go on from; raises CursorError when the cursor's plan is not `plan` up to there.

    `made_with` is the cursor's own plan where it was kept: it tells where and in what the two differ.
    """
    if cursor is None:
        return 0
    cursor = read_cursor(cursor)
    end = MOST_SAMPLES if plan.samples is None else plan.samples
    if cursor.next > end:
        raise CursorError(
            f"cursor stands at sample {cursor.next}, {where} ends at {end}: pass the plan it was made with"
        )
    if cursor.plan == plan.id:
        return cursor.next
    parting = {past.id: past.start for past in plan.past}.get(cursor.plan)
    cause = ""
    if made_with is not None:
        difference = first_difference(made_with, plan)
        parting = cursor.next if difference is None else difference.sample
        cause = "" if difference is None else f" ({difference.what})"
    if parting is None:
        raise CursorError(
            f"cursor was made for plan {cursor.plan[:8]}, {where} is {plan.id[:8]}: they may differ from sample 0 on; "
            "pass the plan it was made with, or start this one without a cursor"
        )
    if cursor.next > parting:
        raise CursorError(
            f"cursor was made for plan {cursor.plan[:8]} and stands at sample {cursor.next}, {where} is {plan.id[:8]}: they differ "
            f"from sample {parting} on{cause}; change weights at {cursor.next} or later, or pass the plan it was made with"
        )
    return cursor.next
