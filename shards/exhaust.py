"""A mixture whose components run out: `redistribute` gives the weight of one that is used up to the others, in their proportions.

Exactly: from the sample on that would take a component over its `max_epochs` a phase of the plan has the other weights, so the plan says where each
component ends, and any prefix keeps to the weights as in every plan.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from corpusmill.pipeline.errors import BudgetError
from corpusmill.shards.mixture import PPB, whole_parts
from corpusmill.shards.plan import Phase, Plan, capacity


def redistributed(plan: Plan, samples: int) -> Plan:
    """The plan with the phases it takes to read `samples`; BudgetError where nothing is left, or a ramp would have to bend."""
    while (most := capacity(plan)) is not None and most < samples:
        counts = plan.mixture().counts(most + 1)
        # One sample has one component.
        (full,) = (
            each.name
            for each, count in zip(plan.components, counts, strict=True)
            if each.max_epochs is not None and count > each.epoch_rows * each.max_epochs
        )
        plan = replace(plan, phases=_without(plan.phases, full, most, samples))
    return plan


def _without(phases: Collection[Phase], name: str, start: int, samples: int) -> tuple[Phase, ...]:
    """From sample `start` on nobody reads `name`."""
    before = [phase for phase in phases if phase.start < start]
    current = max((phase for phase in phases if phase.start <= start), key=lambda phase: phase.start)
    if start < current.start + current.ramp:
        raise BudgetError(
            f"{name} is used up at sample {start}, in the ramp from {current.start} to {current.start + current.ramp}: its weight cannot be "
            "redistributed in the middle of a ramp; shorten the ramp, lower the weight, raise max_epochs, or set exhaust: stop"
        )
    after = [phase for phase in phases if phase.start > start]
    now = Phase(start, _others(current, name, start, samples))
    return (
        *before,
        now,
        *(Phase(each.start, _others(each, name, start, samples), each.ramp) for each in after),
    )


def _others(phase: Phase, name: str, start: int, samples: int) -> dict[str, int]:
    left = {each: 0 if each == name else weight for each, weight in phase.weights_ppb.items()}
    total = sum(left.values())
    if not total:
        raise BudgetError(
            f"{name} is used up at sample {start} of {samples}, and the phase from sample {phase.start} gives no other component weight that has rows left: "
            "lower the budget, raise max_epochs, or set exhaust: stop"
        )
    return dict(zip(left, whole_parts([(weight * PPB, total) for weight in left.values()]), strict=True))
