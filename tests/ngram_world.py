"""A world in which mixtures can be judged exactly: text by Markov chains, proxies that are n-gram counts of sampled documents.

A seed is a sample of documents, and runs scatter as samples do. There are two kinds of runs. `run` draws documents by the weights and
learns from those alone: where all components are the same text, no mixture is better than another. A run in closed form
(`screen`) takes as many documents of every component and mixes their counts; its mean over samples, `truth`, can be computed for any
mixture, and so can the best one. Nothing is measured against what a fit or a proposal says of itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from corpusmill.mixing.gains import Trials
from corpusmill.mixing.screen import Screen, Tables
from corpusmill.mixing.swarm import Swarm, make_swarm

Floats = npt.NDArray[np.float64]
Tokens = npt.NDArray[np.int64]

VOCABULARY = 40
LENGTH = 80  # tokens of a document
RUN = 96  # documents that a run learns from
TRUE = 12  # samples over which the truth of runs in closed form is the mean
BYTES = 4.0  # of a token, so that losses are bits per byte of some text


@dataclass(frozen=True)
class Source:
    """A Markov chain on `VOCABULARY` tokens; a row of `steps` is the distribution of what follows."""

    steps: Floats

    def documents(self, count: int, generator: np.random.Generator) -> Tokens:
        """[count, LENGTH]; the first of them are the same whatever the count."""
        chance = (
            generator.random((RUN * 8, LENGTH))[:count]
            if count <= RUN * 8
            else generator.random((count, LENGTH))
        )
        upper = np.cumsum(self.steps, axis=1)
        found = np.empty((count, LENGTH), np.int64)
        at = (chance[:, 0] * VOCABULARY).astype(np.int64)
        for place in range(LENGTH):
            found[:, place] = at
            at = np.minimum((upper[at] < chance[:, place, None]).sum(axis=1), VOCABULARY - 1)
        return found


def source(seed: int, overlap: float = 0.3, tokens: slice = slice(None), sharpness: float = 0.08) -> Source:
    """`overlap` of its steps are those that all sources share; the rest is its own, within `tokens`."""
    generator = np.random.default_rng([seed, 11])
    shared = np.random.default_rng(5).dirichlet(np.full(VOCABULARY, sharpness), VOCABULARY)
    own = np.zeros((VOCABULARY, VOCABULARY))
    own[:, tokens] = generator.dirichlet(
        np.full(len(range(*tokens.indices(VOCABULARY))), sharpness), VOCABULARY
    )
    return Source(overlap * shared + (1 - overlap) * own)


def noise() -> Source:
    """Any token after any: nothing is learnt from it but its frequencies."""
    return Source(np.full((VOCABULARY, VOCABULARY), 1 / VOCABULARY))


@dataclass(frozen=True, eq=False)
class World:
    components: Mapping[str, Source]
    tables: Tables
    seed: int
    run_documents: int = RUN

    @classmethod
    def of(
        cls,
        components: Mapping[str, Source],
        targets: Mapping[str, Sequence[tuple[Source, float]]],
        seed: int,
        documents: int = 60,
        run_documents: int = RUN,
    ) -> World:
        """Targets are documents of sources in shares."""
        generator = np.random.default_rng([seed, 1])
        texts = {
            name: [
                row
                for origin, share in parts
                for row in origin.documents(
                    round(share * documents), np.random.default_rng(generator.integers(2**60))
                )
            ]
            for name, parts in targets.items()
        }
        sizes = {name: [round(BYTES * LENGTH)] * len(rows) for name, rows in texts.items()}
        tables = Tables.of(texts, sizes, VOCABULARY)
        return cls(components, tables, seed, run_documents)

    def screen(self, seed: int) -> Screen:
        """A sample of documents of every component, mixed in closed form: a run of any mixture with this seed."""
        return Screen.of(
            self.tables,
            [
                self.tables.count(
                    origin.documents(self.run_documents, np.random.default_rng([self.seed, 2, seed, place]))
                )
                for place, origin in enumerate(self.components.values())
            ],
        )

    @cached_property
    def screens(self) -> list[Screen]:
        return [self.screen(10**6 + number) for number in range(TRUE)]

    def truth(self, weights: Floats) -> Floats:
        """Bits per byte [k, targets] that runs in closed form have on average, of mixtures [k, m]."""
        learnt = self.run_documents * LENGTH
        return np.mean([screen.losses(weights, learnt) for screen in self.screens], axis=0)

    def run(self, weights: Floats, seed: int) -> dict[str, Floats]:
        """Bits of every document of every target, from one sample of documents."""
        counts = np.floor(np.cumsum(weights) * self.run_documents + 0.5).astype(int)
        parts = np.diff(np.concatenate([[0], counts]))
        rows = [
            origin.documents(int(count), np.random.default_rng([self.seed, 3, seed, place]))
            for place, (origin, count) in enumerate(zip(self.components.values(), parts, strict=True))
        ]
        screen = Screen.of(self.tables, [self.tables.count(np.concatenate(rows))])
        bits = screen.document_bits(np.ones((1, 1)), self.run_documents * LENGTH)
        return {name: values[0] for name, values in bits.items()}

    def swarm(self, mixtures: Floats, seed: int) -> Swarm:
        """A run of each mixture in closed form, each from a sample of its own."""
        learnt = self.run_documents * LENGTH
        losses = [
            self.screen(seed + place).losses(weights[None], learnt)[0]
            for place, weights in enumerate(mixtures)
        ]
        return make_swarm(tuple(self.components), self.tables.targets, mixtures, np.array(losses))

    def trials(self, mixtures: Mapping[str, Floats], seeds: Sequence[int], size: str = "n-gram") -> Trials:
        """Every mixture with every seed."""
        runs = {name: [self.run(weights, seed) for seed in seeds] for name, weights in mixtures.items()}
        bits = {
            target: np.array([[run[target] for run in runs[name]] for name in mixtures])
            for target in self.tables.targets
        }
        sizes = {target: np.full(values.shape[2], BYTES * LENGTH) for target, values in bits.items()}
        return Trials(size, tuple(mixtures), tuple(seeds), bits, sizes)


def mixed_world(seed: int) -> World:
    """A target of 0.6 A, 0.3 B, 0.1 C; A comes twice, junk teaches nothing, D is of no use and F shares half with B."""
    a, b, c, d = (source(100 * seed + place) for place in range(4))
    near_b = Source((b.steps + source(100 * seed + 9).steps) / 2)
    components = {"A": a, "A2": a, "B": b, "C": c, "D": d, "F": near_b, "junk": noise()}
    return World.of(components, {"target": [(a, 0.6), (b, 0.3), (c, 0.1)]}, seed)


def wide_world(seed: int) -> World:
    """Fourteen components, of which the target's three sources, a copy and three that are half of one have use: the rest has
    little or none, and two do harm: random tokens, and the target's own with their order lost."""
    a, b, c, *others = (source(100 * seed + place) for place in range(8))
    halves = {
        f"half {name}": Source((one.steps + source(100 * seed + 20 + place).steps) / 2)
        for place, (name, one) in enumerate({"A": a, "B": b, "C": c}.items())
    }
    blend = 0.6 * a.steps + 0.3 * b.steps + 0.1 * c.steps
    tokens = np.full(VOCABULARY, 1 / VOCABULARY) @ np.linalg.matrix_power(blend, 64)
    useless = {f"other {place}": each for place, each in enumerate(others)}
    junk = {"junk": noise(), "shuffled": Source(np.tile(tokens, (VOCABULARY, 1)))}
    components = {"A": a, "A2": a, "B": b, "C": c, **halves, **useless, **junk}
    return World.of(components, {"target": [(a, 0.6), (b, 0.3), (c, 0.1)]}, seed)


def null_world(seed: int, components: int = 4) -> World:
    """All components are the same text, as is the target."""
    same = source(seed)
    return World.of({f"c{place}": same for place in range(components)}, {"target": [(same, 1.0)]}, seed)


def interfering_world(seed: int) -> World:
    """`forum` speaks with the words of `law`, otherwise: the main target wants forum, law is to be kept."""
    first, last = slice(0, VOCABULARY // 2), slice(VOCABULARY // 2, VOCABULARY)
    web, law, forum = (
        source(100 * seed + place, 0.05, part) for place, part in enumerate((first, last, last))
    )
    return World.of(
        {"web": web, "law": law, "forum": forum, "junk": noise()},
        {"main": [(web, 0.15), (forum, 0.85)], "statutes": [(law, 1.0)]},
        seed,
    )
