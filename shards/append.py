"""A plan that goes on otherwise from a sample: new weights, new components, another end. What came before stays.

The order of a sample follows from its step's weights, its component's name and shards, seed and window, so a component that is
added with no weight before the sample moves nothing. `first_difference` says where two plans part; the earlier plan is kept
in `plans/` beside plan.json under its id, so that a cursor made with it is accepted or refused with the place and the cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.pipeline.errors import BudgetError, ShardError
from corpusmill.shards.mixture import PPB
from corpusmill.shards.plan import Component, Past, Phase, Plan, within_budget
from corpusmill.shards.plan_file import folder_to_change, read_plan

if TYPE_CHECKING:
    from corpusmill.pipeline.engine.place import Place

PLANS_FOLDER = "plans"


@dataclass(frozen=True)
class Difference:
    """Two plans may give different samples from `sample` on, because of `what`."""

    sample: int
    what: str

    def __str__(self) -> str:
        return f"from sample {self.sample} on: {self.what}"


def first_difference(old: Plan, new: Plan) -> Difference | None:
    """Where two plans part; None when they give the same samples as far as both go."""
    for name in ("seed", "window", "sequence_length", "dtype", "eos"):
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            return Difference(0, f"{name} was {before}, is {after}")
    found = [*_steps_differ(old, new), *_components_differ(old, new)]
    return min(found, key=lambda difference: difference.sample, default=None)


def appended(
    plan: Plan,
    phase: Phase,
    *,
    components: Sequence[Component] = (),
    samples: int | None = None,
    max_epochs: Mapping[str, int] | None = None,
    exhaust: str = "repeat",
) -> Plan:
    """`plan` up to the phase's start, then the phase in place of all that was to come. Raises ShardError or BudgetError.

    `components` are new ones; `max_epochs` changes limits by name. `samples` is the new end; None means none but the limits'.
    """
    start = phase.start
    if start < 1 or (plan.samples is not None and start > plan.samples):
        end = "" if plan.samples is None else f", the plan's end, {plan.samples}, at most"
        later = "" if start < 1 else "; to go further, begin there or before and give another end (--samples)"
        raise ShardError(f"a phase can be added from sample 1 on{end}; not from {start}{later}")
    if samples is not None and samples <= start:
        raise ShardError(f"a plan that ends at sample {samples} has no use for a phase from {start} on")
    limits = dict(max_epochs or {})
    held = [component.name for component in plan.components]
    if again := sorted({component.name for component in components} & set(held)):
        raise ShardError(
            f"the plan holds {', '.join(again)} already: give another name, like NAME=FOLDER, or leave it out"
        )
    grown = sorted((*plan.components, *components), key=lambda component: component.name)
    grown = [replace(c, max_epochs=limits.pop(c.name, c.max_epochs)) for c in grown]
    if limits:
        raise ShardError(f"max_epochs names {', '.join(sorted(limits))}, which the plan does not hold")
    longer = replace(
        plan,
        components=tuple(grown),
        phases=(*(kept for kept in plan.phases if kept.start < start), phase),
        past=(*(Past(past.id, min(past.start, start)) for past in plan.past), Past(plan.id, start)),
    )
    checked = within_budget(longer, samples, exhaust)
    if checked.samples is not None and checked.samples <= start:
        raise BudgetError(
            f"max_epochs would end the plan at sample {checked.samples}, before its phase from {start} on and after what may have been "
            "read: raise max_epochs, or begin the phase earlier"
        )
    if replace(checked, past=plan.past) == plan:
        raise ShardError(f"the plan goes on like this from sample {start} already")
    return checked


def write_appended(path: Path | Place, old: Plan, new: Plan) -> None:
    """plan.json anew, and the plan that it was under its id beside it. ShardError when it is no longer `old`: nobody's phase is lost."""
    from corpusmill.pipeline.engine.alone import alone

    folder = folder_to_change(path)
    with alone(folder):
        if read_plan(path).id != old.id:
            raise ShardError(
                f"{path} was changed meanwhile by somebody else: look at it (corpusmill plan show), then give the command again"
            )
        (folder / PLANS_FOLDER / f"{old.id}.json").put(old.encode())
        (folder / path.name).put(new.encode())


def earlier(path: Path | Place, plan_id: str) -> Plan | None:
    """An earlier plan that was kept beside `path`; None when there is none of this id."""
    if len(plan_id) != 32 or not plan_id.isalnum():
        return None
    place = path.parent / PLANS_FOLDER / f"{plan_id}.json"
    if not place.is_file():
        return None
    plan = read_plan(place)
    if plan.id != plan_id:  # it would let cursors on where they do not fit
        raise ShardError(f"{place} holds plan {plan.id}; restore it, or delete it to go by plan.json alone")
    return plan


def _steps_differ(old: Plan, new: Plan) -> list[Difference]:
    """The first step that has another start or other weights: steps restart the mixture's count of 4,096 samples."""
    before, after = (
        [
            (step.start, {n: w for n, w in zip(names, step.weights, strict=True) if w})
            for step in plan.mixture().steps
        ]
        for plan, names in ((p, [c.name for c in p.components]) for p in (old, new))
    )
    for i in range(max(len(before), len(after))):
        ours, theirs = (steps[i] if i < len(steps) else None for steps in (before, after))
        if ours != theirs:
            starts = [step[0] for step in (ours, theirs) if step is not None]
            past, now = (_in_force(steps, min(starts)) for steps in (before, after))
            return [Difference(min(starts), _moved(past, now))]
    return []


def _in_force(steps: Sequence[tuple[int, dict[str, int]]], sample: int) -> dict[str, int]:
    return [weights for start, weights in steps if start <= sample][-1]


def _moved(old: Mapping[str, int], new: Mapping[str, int]) -> str:
    moved = [
        f"{name} {old.get(name, 0) / PPB:.6g} to {new.get(name, 0) / PPB:.6g}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name, 0) != new.get(name, 0)
    ]
    return f"weights went from {', '.join(moved)}" if moved else "a phase begins in one of them alone"


def _components_differ(old: Plan, new: Plan) -> list[Difference]:
    """Components of one name and other shards, from the first sample that comes from them."""
    found = []
    theirs = {component.name: component for component in new.components}
    for place, component in enumerate(old.components):
        other = theirs.get(component.name)
        if other is None or (other.manifest, other.epoch_rows) == (component.manifest, component.epoch_rows):
            continue
        what = f"{component.name} was other shards ({component.manifest[:8]}, now {other.manifest[:8]})"
        if other.manifest == component.manifest:
            what = (
                f"{component.name} was read to row {component.epoch_rows}, is read to row {other.epoch_rows}"
            )
        first = old.mixture().sample_of(place, 0)
        if first is not None:
            found.append(Difference(first, what))
    return found
