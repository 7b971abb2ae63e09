"""What proposals and verdicts are tried on in the worlds of ngram_world.py: in small by the tests, in full by benchmarks/mixing.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ngram_world import (
    RUN,
    World,
    interfering_world,
    mixed_world,
    null_world,
    wide_world,
)

from corpusmill.mixing.constraints import Bounds, draw, simplex
from corpusmill.mixing.design import make_design
from corpusmill.mixing.families import FAMILIES
from corpusmill.mixing.fit import Fits, fit_swarm
from corpusmill.mixing.gains import Floats, Trials, gain
from corpusmill.mixing.polish import polished
from corpusmill.mixing.propose import Proposal, effects, propose
from corpusmill.mixing.study import Component, Target
from corpusmill.mixing.swarm import Swarm
from corpusmill.mixing.verify import Blame, Verdict, verify

RUNS_A_COMPONENT = 4

WIDE_FLOOR = 0.02  # of each kind of junk in the wide world

JUNK_FLOOR = 0.05  # without it the best mixtures have 0.03 to 0.04: some noise smooths counts


@dataclass(frozen=True, eq=False)
class Search:
    """A world, the fits of a swarm of its runs, and what was proposed."""

    world: World
    bounds: Bounds
    swarm: Swarm
    fits: Fits
    proposal: Proposal
    best: Floats  # by the truth

    def regret(self, weights: Floats) -> float:
        """Bits per byte above the best allowed mixture, on the first target."""
        found = self.world.truth(np.vstack([weights, self.best]))[:, 0]
        return float(found[0] - found[1])


def uniform(count: int) -> Floats:
    return np.full(count, 1 / count)


def search(world: World, bounds: Bounds, seed: int, families: Sequence[str] | None = None) -> Search:
    """Four runs a component, a fit, three candidates for the first target."""
    count = len(world.components)
    swarm = world.swarm(mixtures(world, bounds, seed), 1000 * seed)
    fits = fit_swarm(swarm, seed, families, control=False)
    importance = [1.0] + [0.0] * (len(swarm.targets) - 1)
    proposal = propose(
        fits, swarm, bounds, uniform(count), importance, {"uniform": uniform(count)}, seed=seed
    )
    return Search(world, bounds, swarm, fits, proposal, best_of(world, bounds))


def bare(found: Search, family: str) -> Floats:
    """Where one family's lowest prediction lies when nothing keeps it: anywhere, corners included."""
    model = FAMILIES[family].fit(found.swarm.weights, found.swarm.losses[:, 0])
    names = found.bounds.components
    anywhere = np.vstack([np.eye(len(names)), draw(simplex(names), 2000, 1)])
    return np.asarray(anywhere[model.predict(anywhere).argmin()])


def mixtures(world: World, bounds: Bounds, seed: int) -> Floats:
    """A design for components of one size, without ablations and repeats."""
    parts = [Component(name, "", tokens=10**6, bytes=4 * 10**6, rows=10**4) for name in world.components]
    made = make_design(parts, bounds, seed, RUNS_A_COMPONENT * len(parts), repeats=1, ablation=False)
    return np.array([run.weights() for run in made.runs])


def best_of(world: World, bounds: Bounds) -> Floats:
    """The allowed mixture that is best in truth, on the first target."""
    pool = draw(bounds, 1000, 1)
    start = pool[world.truth(pool)[:, 0].argmin()]
    return polished(lambda points: world.truth(points)[:, 0], start, bounds, 0.01)


def mixed_search(seed: int, families: Sequence[str] | None = None) -> Search:
    """Junk has a floor that is more than it is good for, so that a proposal can be seen to go there and stay."""
    world = mixed_world(seed)
    names = tuple(world.components)
    least = tuple(JUNK_FLOOR if name == "junk" else 0.0 for name in names)
    return search(world, Bounds(names, least, (1.0,) * len(names)), seed, families)


def wide_search(seed: int, families: Sequence[str] | None = None) -> Search:
    """Of fourteen components, two of them junk with a floor."""
    world = wide_world(seed)
    names = tuple(world.components)
    least = tuple(WIDE_FLOOR if name in ("junk", "shuffled") else 0.0 for name in names)
    return search(world, Bounds(names, least, (1.0,) * len(names)), seed, families)


def null_verdict(seed: int, seeds: int = 3) -> str:
    """Three candidates against three baselines where no mixture is better than another: what the verdict says."""
    world = null_world(seed)
    generator = np.random.default_rng([seed, 21])
    names = tuple(world.components)
    candidates = {
        f"candidate {place}": each for place, each in enumerate(generator.dirichlet(np.ones(len(names)), 3))
    }
    sizes = generator.dirichlet(np.ones(len(names)))
    baselines = {
        "uniform": uniform(len(names)),
        "proportional": sizes,
        "tempered": np.sqrt(sizes) / np.sqrt(sizes).sum(),
    }
    runs = world.trials({**baselines, **candidates}, range(seeds))
    return verify([runs], tuple(candidates), tuple(baselines), [Target("target")]).verdict


def interfering_verdict(seed: int, seeds: int = 5) -> tuple[Verdict, Search]:
    """The fit knows the main target only; law keeps its share; the verdict also watches the statutes."""
    world = interfering_world(seed)
    names = tuple(world.components)
    bounds = Bounds(names, (0.0, 0.25, 0.0, 0.0), (1.0, 0.25, 1.0, 1.0))
    found = search(world, bounds, seed, ["quadratic", "gp"])
    mixtures = {
        "uniform": uniform(len(names)),
        **{each.name: each.weights() for each in found.proposal.candidates},
    }
    runs = world.trials(mixtures, range(100, 100 + seeds))
    rise = effects(world.truth, uniform(len(names)))
    blame = Blame(names, mixtures, dict(zip(world.tables.targets, rise.T, strict=True)))
    targets = [Target("main"), Target("statutes", weight=0.0, protected=True)]
    candidates = [each.name for each in found.proposal.candidates]
    predicted = found.proposal.totals()
    return verify([runs], candidates, ("uniform",), targets, blame, predicted), found


def pool_of_trials(seed: int, seeds: int, documents: int, run_documents: int = RUN) -> Trials:
    """Many runs of four mixtures, measured on many documents: a population from which experiments can be drawn."""
    a, b, c = (list(mixed_world(seed).components.values())[place] for place in (0, 2, 3))
    world = World.of(
        {"A": a, "B": b, "C": c}, {"target": [(a, 0.6), (b, 0.3), (c, 0.1)]}, seed, documents, run_documents
    )
    mixtures = {
        "uniform": uniform(3),
        "most A": np.array([0.7, 0.2, 0.1]),
        "even": np.array([0.4, 0.35, 0.25]),
        "most C": np.array([0.1, 0.1, 0.8]),
    }
    return world.trials(mixtures, range(seeds))


def drawn(pool: Trials, seeds: int, documents: int, generator: np.random.Generator) -> Trials:
    """An experiment: some of the population's seeds, and documents drawn from its documents."""
    runs = generator.choice(len(pool.seeds), seeds, replace=False)
    texts = generator.integers(0, pool.bits["target"].shape[2], documents)
    bits = pool.bits["target"][:, runs][:, :, texts]
    return Trials(
        pool.size,
        pool.mixtures,
        tuple(range(seeds)),
        {"target": bits},
        {"target": pool.size_bytes["target"][texts]},
    )


def coverage(
    pool: Trials, seeds: int, documents: int, repeats: int, seed: int, peer: bool = False
) -> dict[str, float]:
    """How often the interval of a gain holds the population's; and (`peer`) that of a bootstrap over seeds and documents."""
    generator = np.random.default_rng([seed, 31])
    held = {"ours": 0, **({"bootstrap": 0} if peer else {})}
    pairs = [(one, other) for one in pool.mixtures for other in pool.mixtures if one < other]
    for repeat in range(repeats):
        one, other = pairs[repeat % len(pairs)]
        true = pool.loss(other, {"target": 1.0}) - pool.loss(one, {"target": 1.0})
        some = drawn(pool, seeds, documents, generator)
        found = gain(some, one, other, {"target": 1.0})
        held["ours"] += found.low <= true <= found.high
        if not peer:
            continue
        low, high = bootstrapped(some, one, other, generator)
        held["bootstrap"] += low <= true <= high
    return {name: round(count / repeats, 4) for name, count in held.items()}


def bootstrapped(
    some: Trials, one: str, other: str, generator: np.random.Generator, times: int = 400
) -> tuple[float, float]:
    """The usual percentile interval of a paired bootstrap over seeds and documents."""
    places = some.mixtures.index(other), some.mixtures.index(one)
    saved = some.bits["target"][places[0]] - some.bits["target"][places[1]]
    seeds, documents = saved.shape
    of_seeds = generator.multinomial(seeds, np.full(seeds, 1 / seeds), times) / seeds
    of_documents = generator.multinomial(documents, np.full(documents, 1 / documents), times)
    sizes = some.size_bytes["target"]
    gains = ((of_seeds @ saved) * of_documents).sum(axis=1) / (of_documents @ sizes)
    low, high = np.quantile(gains, [0.025, 0.975])
    return float(low), float(high)


def power(pool: Trials, seeds: int, documents: int, repeats: int, seed: int) -> float:
    """How often the better of two candidates is verified against a baseline that is worse in truth."""
    generator = np.random.default_rng([seed, 41])
    verdicts = [
        verify(
            [drawn(pool, seeds, documents, generator)],
            ("most A", "even"),
            ("uniform", "most C"),
            [Target("target")],
        ).verdict
        for _ in range(repeats)
    ]
    return verdicts.count("verified") / repeats
