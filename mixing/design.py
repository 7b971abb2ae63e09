"""Which proxies to train: mixtures that tell most about all others, every one of them allowed.

    anchors      proportional, uniform, UniMax, a temperature of 2, the mixture in use: the baselines, in the fit from the start
    without, more   the prior with one component left out, and with one boosted: the ablation table
    spread       drawn around the prior (Dirichlet), from wild to careful
    fill         where no other run is near (maximin in sqrt(w))
    repeats      the prior, and the anchor farthest from it, with other seeds: noise differs from mixture to mixture
    second       with two rounds: where a fit of all these hopes for the best

All other runs share a seed, so that model and order are no difference between them. A design takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from corpusmill.mixing import weights as baselines
from corpusmill.mixing.constraints import Bounds, draw, inside, nearest, settle
from corpusmill.mixing.fit import LEAST_MIXTURES
from corpusmill.mixing.grouped import inside_of, parts_of, share
from corpusmill.mixing.study import Component, Design, DesignRun, Floats, Role
from corpusmill.pipeline.errors import RecipeError
from corpusmill.shards.mixture import PPB

PER_COMPONENT = 6  # runs: two of them left out and boosted, four for the fit
LEAST_RUNS = 24

PER_ONE_OF_MANY, LEAST_OF_MANY = 3, 120
"""Runs where groups are left out and boosted (mixing/grouped.py): with 30 components each on its own a fit has as many beside these."""

BASELINES = 5

REPEATS = 3  # seeds of the prior and of the extreme anchor

TEMPERATURE = 2.0

BOOST = 0.3
"""A boosted component takes this part of what the others have: enough to see above noise, near enough to say which way is down."""

STRENGTHS = (0.3, 5.0)
"""Of the Dirichlet, spaced evenly in their logarithm: a component's parameter is strength x components x its share of the prior.
Around equal shares 0.3 gives mixtures of a few components, 5 gives mixtures near the prior."""

SMALLEST = 0.1  # of a Dirichlet's parameters, as a part of their mean: a rare component is tried as well

FILL = 0.22  # of the runs that are no anchors and no ablation
POOL = 2048  # allowed mixtures among which the farthest is taken
TRIES = 64  # draws for one run that is not like another

ALIKE = 0.03  # distance in sqrt(w) below which two mixtures are one

FRESH, PARENTS = 0.1, 8
"""A run of a second round is at least so far from every other, in sqrt(w): nearer ones tell the same again. Between so many of the best runs."""

VERIFY_SEEDS = 1000  # above those of the design: what was chosen by some seeds is judged by others


@dataclass
class _Draft:
    """A design in work: mixtures that are allowed and unlike one another, and notes."""

    components: tuple[str, ...]
    bounds: Bounds
    seed: int
    runs: list[DesignRun] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, role: Role, name: str, weights: Floats, seed: int | None = None) -> bool:
        """Whether it was added: not if a run is like it (but for repeats)."""
        if role != "repeat" and self.near(weights) < ALIKE:
            return False
        chosen = self.seed if seed is None else seed
        self.runs.append(DesignRun(len(self.runs), role, name, settle(self.bounds, weights), chosen))
        return True

    def near(self, weights: Floats) -> float:
        """Distance in sqrt(w) to the nearest run."""
        return float(apart(weights[None], self.weights())[0]) if self.runs else np.inf

    def weights(self) -> Floats:
        return np.array([run.weights_ppb for run in self.runs]) / PPB

    def done(self) -> Design:
        return Design(self.components, tuple(self.runs), tuple(self.notes))


def make_design(
    components: Sequence[Component],
    bounds: Bounds,
    seed: int,
    runs: int | None = None,
    repeats: int = REPEATS,
    ablation: bool = True,
    budget_rows: int | None = None,
    current: Mapping[str, Fraction] | None = None,
    part: float = 1.0,
) -> Design:
    """`runs` counts different mixtures (default: `total_runs`); repeats come on top.

    `budget_rows` is the length of the run that the weights are for, for UniMax; `current` a mixture in use. Of all runs a first round makes
    `part`, or more where baselines and ablations leave less than one a component.
    """
    wanted = total_runs(components, runs)
    draft = _Draft(tuple(each.name for each in components), bounds, seed)
    for name, weights in baseline_weights(components, bounds, budget_rows, current).items():
        if not draft.add("anchor", name, np.array(weights) / PPB):
            draft.notes.append(f"{name} is left out: another baseline is the same within the limits")
    prior = draft.runs[0].weights()
    if ablation:
        _ablate(draft, prior)
    left = wanted - len(draft.runs)
    if left < len(components):
        raise RecipeError(
            f"mix.design: {len(draft.runs)} baselines and ablations leave {max(0, left)} of {wanted} runs for a fit;"
            f" give runs: {len(draft.runs) + len(components)} or more"
            + (", or ablation: false" if ablation else "")
        )
    left = min(left, max(len(components), math.ceil(part * wanted) - len(draft.runs)))
    wanted = len(draft.runs) + left
    filled = round(FILL * left)
    _spread(draft, prior, left - filled)
    _fill(draft, filled)
    if len(draft.runs) < LEAST_MIXTURES:
        raise RecipeError(
            f"mix.design: the limits leave room for {len(draft.runs)} different mixture{'s' * (len(draft.runs) > 1)}, a fit needs"
            f" {LEAST_MIXTURES}: lower the budget, or raise max_epochs or the shares that are capped"
        )
    if len(draft.runs) < wanted:
        draft.notes.append(
            f"{len(draft.runs)} runs instead of {wanted}: the limits leave no room for more that differ"
        )
    _repeat(draft, prior, repeats)
    return draft.done()


def total_runs(components: Sequence[Component], runs: int | None = None) -> int:
    """Different mixtures of a design: those asked for, or 6 a component and 24 at least; 3 a component and 120 at least where groups are left out."""
    parts, many = len(parts_of([each.name for each in components])), len(components)
    if parts == many:
        return runs or max(PER_COMPONENT * many, LEAST_RUNS)
    return runs or max(PER_ONE_OF_MANY * many, LEAST_OF_MANY, BASELINES + 2 * parts + many)


def baseline_weights(
    components: Sequence[Component],
    bounds: Bounds,
    budget_rows: int | None = None,
    current: Mapping[str, Fraction] | None = None,
) -> dict[str, tuple[int, ...]]:
    """The baselines by name, in parts of 10^9; one that is not allowed becomes the allowed mixture nearest to it."""
    sizes = {each.name: each.rows for each in components}
    budget = budget_rows or sum(sizes.values())
    most = {each.name: max(1, int(each.rows * each.max_epochs)) for each in components}
    plain = {
        "proportional": baselines.proportional(sizes),
        "uniform": baselines.uniform(sizes),
        "unimax": baselines.unimax(most, budget),
        "temperature": baselines.tempered(sizes, TEMPERATURE),
        **({"current": dict(current)} if current else {}),
    }
    found = {}
    for name, shares in plain.items():
        parts = baselines.in_ppb(shares)
        weights = np.array([parts.get(each.name, 0) for each in components]) / PPB
        found[name] = settle(bounds, weights if inside(bounds, weights)[0] else nearest(bounds, weights))
    return found


def _ablate(draft: _Draft, prior: Floats) -> None:
    for part in parts_of(draft.components):
        alone, whole = inside_of(prior, part), share(prior, part)
        others = prior - whole * alone
        ways: list[tuple[Role, Floats, float]] = [("more", alone - prior, BOOST)]
        if others.sum() > 0:
            ways.insert(0, ("without", others / others.sum() - prior, 1.0))
        for role, way, far in ways:
            reach = min(far, _room(draft.bounds, prior, way))
            if not draft.add(role, f"{role} {part.name}", prior + reach * way):
                draft.notes.append(
                    f"{role} {part.name} is left out: the limits, or its size, make it another run"
                )


def _room(bounds: Bounds, start: Floats, way: Floats) -> float:
    """How far one can go from an allowed mixture before a limit is met."""
    speed = bounds.rows @ way
    room = np.maximum(bounds.values - bounds.rows @ start, 0.0)
    return float((room[speed > 1e-12] / speed[speed > 1e-12]).min(initial=np.inf))


def _spread(draft: _Draft, prior: Floats, count: int) -> None:
    """Around the prior. A draw that is not allowed goes back towards it, to a random place in the outer half of what is."""
    strengths = np.geomspace(*STRENGTHS, num=max(count, 1))
    for number in range(count):
        for attempt in range(TRIES):
            generator = np.random.Generator(np.random.PCG64([draft.seed, 1, number, attempt]))
            shape = strengths[number] * np.maximum(len(prior) * prior, SMALLEST)
            way = generator.dirichlet(shape) - prior
            room = _room(draft.bounds, prior, way)
            reach = 1.0 if room >= 1 else room * (0.5 + 0.5 * generator.random())
            if draft.add("spread", f"spread {number}", prior + reach * way):
                break


def _fill(draft: _Draft, count: int) -> None:
    """The mixture farthest from all runs, again and again."""
    if not count:
        return
    pool = draw(draft.bounds, POOL, draft.seed)
    nearest_run = apart(pool, draft.weights())
    for number in range(count):
        place = int(nearest_run.argmax())
        if not draft.add("fill", f"fill {number}", pool[place]):
            return
        nearest_run = np.minimum(nearest_run, apart(pool, pool[place : place + 1]))


def _repeat(draft: _Draft, prior: Floats, repeats: int) -> None:
    anchors = [run for run in draft.runs if run.role == "anchor"]
    far = max(anchors, key=lambda run: (float(apart(run.weights()[None], prior[None])[0]), -run.index))
    for run in dict.fromkeys((anchors[0], far)):
        for more in range(1, repeats):
            draft.add("repeat", f"{run.name} @{more}", run.weights(), draft.seed + more)


def second_round(
    design: Design, bounds: Bounds, count: int, seed: int, score: Callable[[Floats], tuple[Floats, Floats]]
) -> Design:
    """The design with `count` more runs where a first fit hopes for most: its prediction less its standard deviation is least.

    `score` gives both for mixtures [k, m]. Tried are mixtures from all over and between the best runs, a step of `FRESH` apart from all runs.
    """
    draft = _Draft(design.components, bounds, design.runs[0].seed, list(design.runs), list(design.notes))
    runs = draft.weights()
    best = runs[np.argsort(score(runs)[0], kind="stable")[:PARENTS]]
    generator = np.random.Generator(np.random.PCG64([seed, 2]))
    pool = np.vstack([draw(bounds, POOL, seed), generator.dirichlet(np.full(len(best), 0.5), POOL) @ best])
    predicted, unsure = score(pool)
    hoped = iter(pool[np.argsort(predicted - unsure, kind="stable")])
    for number in range(count):
        for weights in hoped:
            if draft.near(weights) >= FRESH and draft.add("second", f"second {number}", weights):
                break
    if (missing := count + len(design.runs) - len(draft.runs)) > 0:
        draft.notes.append(f"{missing} runs less: the limits leave no room for more that differ")
    return draft.done()


def verification(
    components: Sequence[str],
    candidates: Mapping[str, tuple[int, ...]],
    against: Mapping[str, tuple[int, ...]],
    seeds: int,
    seed: int,
) -> Design:
    """Every candidate and baseline with every seed, none of which a design has used."""
    runs = [
        DesignRun(0, "verify", f"{name} @{VERIFY_SEEDS + number}", weights, seed + VERIFY_SEEDS + number)
        for name, weights in {**against, **candidates}.items()
        for number in range(seeds)
    ]
    return Design(tuple(components), tuple(replace(run, index=place) for place, run in enumerate(runs)))


def apart(points: Floats, others: Floats) -> Floats:
    """Distance in sqrt(w) of each mixture [k, m] to the nearest of `others`."""
    roots, other_roots = np.sqrt(np.maximum(points, 0)), np.sqrt(np.maximum(others, 0))
    squares = (roots**2).sum(1)[:, None] + (other_roots**2).sum(1)[None] - 2 * roots @ other_roots.T
    found: Floats = np.sqrt(np.maximum(squares, 0)).min(axis=1)
    return found
