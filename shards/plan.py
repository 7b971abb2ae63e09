"""The plan of a stream: components, phases and seed. Sample n of a plan is the same row for ever, on any number of ranks.

`plan.json` (plan_file.py) stands in OUT/shards and names its components' folders relative to itself. Its id is a hash of its content.
`past` lists earlier plans (id, first sample that may differ): a cursor made with one of them still fits while it stands
before that sample. Everything that can go wrong with amounts goes wrong here, when the plan is made: a component that would
be read more often than its `max_epochs` is an error with its figures, or ends the stream there (`exhaust: stop`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from corpusmill.pipeline.errors import BudgetError, ShardError
from corpusmill.shards.layout import Manifest, canonical, content_hash
from corpusmill.shards.mixture import PPB, Mixture, ramped
from corpusmill.shards.order import ORDER_VERSION

FORMAT = "corpusmill/plan/v1"

MOST_SAMPLES = 1 << 62
"""Samples are counted in 63 bits; half of them leave room for a batch, a block and an epoch behind any sample."""


@dataclass(frozen=True)
class Component:
    """`manifest` is the manifest's hash; `max_epochs` None means that nothing limits how often it is read.

    With `first_rows` an epoch is those rows and no others; documents were shuffled before they were packed, so they are a random part.
    """

    name: str
    folder: str
    manifest: str
    rows: int
    blocks: int
    max_epochs: int | None = None
    first_rows: int | None = None

    @property
    def epoch_rows(self) -> int:
        """Rows that an epoch reads."""
        return self.rows if self.first_rows is None else self.first_rows

    def content(self) -> dict[str, Any]:
        """`first_rows` is there only where it is set: a plan that reads all has the id that it had before there were parts."""
        return {
            name: value for name, value in vars(self).items() if name != "first_rows" or value is not None
        }


@dataclass(frozen=True)
class Phase:
    """From sample `start` on the weights hold; with a `ramp` they move there from the phase before, over so many samples."""

    start: int
    weights_ppb: dict[str, int]
    ramp: int = 0


@dataclass(frozen=True)
class Past:
    """An earlier plan that gives the same samples below `start`."""

    id: str
    start: int


@dataclass(frozen=True)
class Plan:
    """`samples` is where the stream ends; None means never. `window` is in blocks. Token ids are of `dtype`."""

    seed: int
    window: int
    sequence_length: int
    dtype: str
    eos: int
    components: tuple[Component, ...]
    phases: tuple[Phase, ...]
    samples: int | None = None
    past: tuple[Past, ...] = field(default=())

    def mixture(self) -> Mixture:
        """Quotas of the components, in their order in the plan."""
        names = [component.name for component in self.components]
        return Mixture(
            ramped([(p.start, p.ramp, tuple(p.weights_ppb.get(n, 0) for n in names)) for p in self.phases])
        )

    def epochs(self, sample: int) -> dict[str, float]:
        """How often each component has been read through before `sample`."""
        counts = self.mixture().counts(sample)
        return {c.name: count / c.epoch_rows for c, count in zip(self.components, counts, strict=True)}

    def content(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "order_version": ORDER_VERSION,
            "seed": self.seed,
            "window": self.window,
            "sequence_length": self.sequence_length,
            "dtype": self.dtype,
            "eos": self.eos,
            "components": [component.content() for component in self.components],
            "phases": [{"from": p.start, "ramp": p.ramp, "weights_ppb": p.weights_ppb} for p in self.phases],
            "samples": self.samples,
            "past": [{"id": past.id, "from": past.start} for past in self.past],
        }

    @property
    def id(self) -> str:
        """32 hex digits; equal for equal content."""
        return content_hash(canonical(self.content()))[:32]

    def encode(self) -> bytes:
        """The bytes of plan.json."""
        return canonical({**self.content(), "id": self.id})


def compile_plan(
    components: Sequence[tuple[str, Manifest]],
    phases: Sequence[Phase],
    *,
    seed: int,
    window: int = 16,
    samples: int | None = None,
    max_epochs: Mapping[str, int] | None = None,
    exhaust: str = "repeat",
    names: Mapping[str, str] | None = None,
    first_rows: Mapping[str, int] | None = None,
) -> Plan:
    """A checked plan of components given as (folder relative to plan.json, manifest); their order does not matter.

    `names` renames components by folder: two runs may both have a `web`. The name is part of what keys the order of rows.
    `max_epochs` limits a component by name, `first_rows` has only so many of its rows read. `exhaust: repeat` raises BudgetError when `samples` needs more than that;
    `stop` ends the stream before the first component would go over (one epoch each where no limit is given).
    """
    if not components:
        raise ShardError("a plan needs at least one component; shard some documents first")
    limits, parts = dict(max_epochs or {}), dict(first_rows or {})
    first = components[0][1]
    for _, manifest in components:
        same_kind(first, manifest)
    found = [
        component_of(folder, manifest, (names or {}).get(folder, manifest.name))
        for folder, manifest in components
    ]
    plan = Plan(
        seed=seed,
        window=window,
        sequence_length=first.sequence_length,
        dtype=first.dtype,
        eos=first.eos,
        components=tuple(
            replace(
                component,
                max_epochs=limits.pop(component.name, 1 if exhaust == "stop" else None),
                first_rows=parts.pop(component.name, None),
            )
            for component in sorted(found, key=lambda component: component.name)
        ),
        phases=tuple(phases),
        samples=samples,
    )
    for what, unknown in (("max_epochs", limits), ("first_rows", parts)):
        if unknown:
            raise ShardError(
                f"{what} names {', '.join(sorted(unknown))}, which the plan does not hold; it holds {_names(plan)}"
            )
    return within_budget(plan, samples, exhaust)


def component_of(folder: str, manifest: Manifest, name: str) -> Component:
    return Component(name, folder, manifest.hash, manifest.rows, manifest.blocks)


def within_budget(plan: Plan, samples: int | None, exhaust: str) -> Plan:
    """The plan, checked, with its end: `samples` (None: as far as limits allow), or an error or an earlier end where they do not."""
    check_plan(replace(plan, samples=samples), "the plan")
    most = capacity(plan)
    if samples is not None and most is not None and samples > most and exhaust == "repeat":
        raise BudgetError(_over_budget(plan, samples, most))
    return replace(plan, samples=most if samples is None else samples if most is None else min(samples, most))


def capacity(plan: Plan) -> int | None:
    """The most samples that keep every component within its `max_epochs`; None when none has a limit that is ever reached."""
    mixture = plan.mixture()
    limits = [None if c.max_epochs is None else c.epoch_rows * c.max_epochs for c in plan.components]
    last = mixture.steps[-1]

    def fits(samples: int) -> bool:
        counts = mixture.counts(samples)
        return all(limit is None or count <= limit for count, limit in zip(counts, limits, strict=True))

    low, high = 0, last.start + 1
    if all(limit is None or not weight for limit, weight in zip(limits, last.weights, strict=True)) and fits(
        last.start
    ):
        return None
    while fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def check_plan(plan: Plan, where: str) -> None:
    names = [component.name for component in plan.components]
    if not names or names != sorted(set(names)):
        raise ShardError(f"{where}: components must be there, sorted and named once; found {names}")
    times = Counter(component.manifest for component in plan.components)
    if same := [component.name for component in plan.components if times[component.manifest] > 1]:
        raise ShardError(
            f"{where}: {', '.join(same)} are the same shards; name each once and give it more weight"
        )
    if plan.window < 1 or (plan.samples is not None and (plan.samples < 0 or plan.samples > MOST_SAMPLES)):
        raise ShardError(
            f"{where}: window is {plan.window}, samples are {plan.samples}; at least 1 block, and 0 to {MOST_SAMPLES} samples are needed"
        )
    for component in plan.components:
        folder = PurePosixPath(component.folder)
        if folder.is_absolute() or ".." in folder.parts:
            raise ShardError(
                f"{where}: component {component.name} lies outside the plan's folder: {component.folder}"
            )
        if component.rows < 1:
            raise ShardError(f"{where}: component {component.name} has no rows; leave it out")
        if type(component.epoch_rows) is not int or not 1 <= component.epoch_rows <= component.rows:
            raise ShardError(
                f"{where}: first_rows of {component.name} is {component.first_rows!r}; it has rows 1 to {component.rows}"
            )
    starts = [phase.start for phase in plan.phases]
    if not starts or starts[0] != 0 or any(b <= a for a, b in pairwise(starts)):
        raise ShardError(f"{where}: phases must start at sample 0 and rise; they start at {starts}")
    for i, phase in enumerate(plan.phases):
        _check_phase(plan, i, phase, where)


def _check_phase(plan: Plan, i: int, phase: Phase, where: str) -> None:
    at = f"{where}: phase from sample {phase.start}"
    if unknown := sorted(set(phase.weights_ppb) - {component.name for component in plan.components}):
        raise ShardError(f"{at} names {', '.join(unknown)}, which it does not hold; it holds {_names(plan)}")
    if any(type(weight) is not int or weight < 0 for weight in phase.weights_ppb.values()):
        raise ShardError(f"{at}: weights must be whole parts in 10^9, none negative")
    if (total := sum(phase.weights_ppb.values())) != PPB:
        raise ShardError(f"{at}: weights add up to {total}, not {PPB}")
    end = plan.phases[i + 1].start if i + 1 < len(plan.phases) else None
    if phase.start + phase.ramp > MOST_SAMPLES:
        raise ShardError(f"{at} and its ramp of {phase.ramp} go beyond sample {MOST_SAMPLES}")
    if phase.ramp < 0 or (phase.ramp and i == 0) or (end is not None and phase.start + phase.ramp > end):
        raise ShardError(
            f"{at}: a ramp of {phase.ramp} samples needs a phase before it and must end with its own"
        )


def same_kind(first: Manifest, other: Manifest) -> None:
    """Raises ShardError for components that differ in what a stream of both needs to have in common."""
    for name in ("sequence_length", "dtype", "eos", "vocab_size", "tokenizer_sha256", "boundary", "bos"):
        mine, theirs = getattr(first, name), getattr(other, name)
        if mine != theirs:
            raise ShardError(
                f"components {first.name} and {other.name} cannot be mixed: {name} is {mine} and {theirs}; shard both alike"
            )


def _over_budget(plan: Plan, samples: int, most: int) -> str:
    counts = plan.mixture().counts(samples)
    over = [
        f"{c.name} {count / c.epoch_rows:.2f} epochs of {c.max_epochs}"
        for c, count in zip(plan.components, counts, strict=True)
        if c.max_epochs is not None and count > c.epoch_rows * c.max_epochs
    ]
    return (
        f"{samples} samples need more than there is: {', '.join(over)}; "
        f"{most} samples fit: lower the budget or those weights, raise max_epochs, or set exhaust: stop (of a plan made by hand: "
        "--samples, --weights, --max-epochs, --stop)"
    )


def _names(plan: Plan) -> str:
    return ", ".join(component.name for component in plan.components)
