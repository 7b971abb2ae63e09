"""A search for weights as part of a recipe: `mix: {search: {...}}` becomes stages of the engine.

    mix.stats     components and targets: tokens, bytes, what each may weigh        search_study.py
    mix.leaks     targets that stand in components                                  search_leaks.py
    mix.design    which proxies to train                                            search_design.py
    mix.screen    n-gram counts of samples of the components                        search_runs.py
    mix.runs      a unit a proxy run                                                search_runs.py
    mix.design2   where a first fit hopes for most (not with `rounds: 1`)           search_design.py
    mix.runs2     and the runs of it
    mix.fit       how losses follow from weights, and how far that can be trusted   search_fit.py
    mix.propose   candidates, and the runs that would show them better              search_fit.py
    mix.trials    a unit a run: candidates and baselines at larger proxies          search_runs.py
    mix.verify    the verdict                                                       search_fit.py
    mix           the mixture file and the plan, with the verdict's weights         stage.py

search_chain.py puts them in this order. As stages they are resumed where they stopped and run on Ray as they run locally. Fits are
floating-point arithmetic: the same on the same library versions and kind of CPU; weights are rounded to 10^-6 before they decide anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from corpusmill.mixing.caps import Caps
from corpusmill.mixing.study import Proxy
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.kinds import Synthetic

PARTS = 16
"""Samples of each component's documents that the screen counts: a seed takes one. The first are for the design, the others for the verdict."""

DESIGN_PARTS = 4

LEAST_SEEDS = 2  # one seed is not an experiment

MOST_EPOCHS = 10**6  # who wants a component read without end says so by a number that a mixture file can hold

VERDICT_TIMES = (2, 4)
"""How much more than the proxies of the design those of the verdict learn, where the recipe does not say: two show order flips."""


@dataclass(frozen=True)
class ComponentOptions:
    """What is known or asked of a component; by default what the recipe's inputs say of it, read `max_epochs` times of the mix stage.

    Kinds are better said there: here they are for runs whose inputs say nothing.
    """

    max_epochs: float | None = None
    synthetic: Synthetic | None = None
    generation: int | None = None  # of synthetic text: 1 by default
    protected: bool | None = None
    least: float = 0.0
    most: float = 1.0

    def check(self, where: str) -> None:
        if self.generation is not None and self.generation < int(self.synthetic not in (None, "none")):
            raise RecipeError(
                f"{where}: generation is {self.generation}; text that a model made is of 1 or later"
            )
        if self.synthetic == "none" and self.generation:
            raise RecipeError(
                f"{where}: generation is {self.generation}, but natural text has none; leave it out, or say how it was made (synthetic)"
            )
        if not 0 <= self.least <= self.most <= 1:
            raise RecipeError(
                f"{where}: least is {self.least:g} and most {self.most:g}; shares from 0 to 1 are needed, the least no more than the most"
            )
        if self.max_epochs is not None and not 0 < self.max_epochs <= MOST_EPOCHS:
            raise RecipeError(
                f"{where}: max_epochs is {self.max_epochs:g}; it has to be above 0 and up to {MOST_EPOCHS:,}"
            )


@dataclass(frozen=True)
class TargetOptions:
    """A validation set: a component that is held out (without `path`), or a folder of shards with the same tokenizer."""

    path: str | None = None
    weight: float = 1.0
    worsening: float | None = None
    protected: bool = False

    def check(self, where: str) -> None:
        for key in ("weight", "worsening"):
            if (value := getattr(self, key)) is not None and not 0 <= value < float("inf"):
                raise RecipeError(f"{where}: {key} is {value:g}; a number from 0 is needed")


@dataclass(frozen=True)
class Verification:
    """The verdict's runs: proxies from small to large, each with these seeds for every candidate and baseline."""

    proxies: tuple[Proxy, ...] = ()
    seeds: int = 5


@dataclass(frozen=True)
class Search:
    """`targets`: all natural text that is held out unless some are named. `runs`: different mixtures (default: 6 a component, 24 at least).

    With two `rounds` half of them, as far as baselines and ablations leave so many, are where a fit of the others hopes for most.
    `sample_tokens` of each component are counted for the screen, `eval_tokens` of each target are predicted.
    """

    proxy: Proxy = field(default_factory=Proxy)
    verify: Verification = field(default_factory=Verification)
    runs: int | None = None
    rounds: int = 2
    repeats: int = 3
    ablation: bool = True
    candidates: int = 3
    components: dict[str, ComponentOptions] = field(default_factory=dict)
    targets: dict[str, TargetOptions] = field(default_factory=dict)
    caps: Caps = field(default_factory=Caps)
    families: tuple[str, ...] | None = None
    sample_tokens: int = 4_000_000
    eval_tokens: int = 200_000
    most_overlap: float = 0.1  # share of a target's tokens that may stand word for word in a component

    def check(self, name: str) -> None:
        """RecipeError for what no data can make right."""
        from corpusmill.mixing.families import chosen_families

        chosen_families(self.families)
        for key in ("runs", "repeats", "candidates", "sample_tokens", "eval_tokens"):
            if (value := getattr(self, key)) is not None and value < 1:
                raise RecipeError(f"{name}.search: {key} is {value}; at least 1 is needed")
        if self.rounds not in (1, 2):
            raise RecipeError(f"{name}.search: rounds is {self.rounds}; a design has one round or two")
        if not 0 <= self.most_overlap <= 1:
            raise RecipeError(
                f"{name}.search: most_overlap is {self.most_overlap:g}; it is a share from 0 to 1"
            )
        if self.verify.seeds < LEAST_SEEDS:
            raise RecipeError(
                f"{name}.search.verify: seeds is {self.verify.seeds}; one seed is not an experiment, give {LEAST_SEEDS} or more"
            )
        for proxy in (self.proxy, *self.verify.proxies):
            proxy.check(f"{name}.search")
        names = [proxy.title for proxy in self.verdict_proxies()]
        if len(set(names)) < len(names):
            raise RecipeError(f"{name}.search.verify: proxies {', '.join(names)} have to differ")
        if any(proxy.kind == "screen" for proxy in (self.proxy, *self.verdict_proxies())):
            self._check_parts(name)
        # As "not inside", so that nan, which is neither above nor below anything, is refused as well.
        for key, share in vars(self.caps).items():
            if not 0 <= share <= 1:
                raise RecipeError(f"{name}.search.caps: {key} is {share:g}; it is a share from 0 to 1")
        for component, options in self.components.items():
            options.check(f"{name}.search.components.{component}")
        for target, aim in self.targets.items():
            aim.check(f"{name}.search.targets.{target}")
        if self.targets and not any(aim.weight for aim in self.targets.values()):
            raise RecipeError(f"{name}.search.targets: no target has a weight above 0")

    def _check_parts(self, name: str) -> None:
        """Seeds of the screen are samples of documents, of which there are so many."""
        for what, asked, most in (
            ("repeats", self.repeats, DESIGN_PARTS),
            ("verify: seeds", self.verify.seeds, PARTS - DESIGN_PARTS),
        ):
            if asked > most:
                raise RecipeError(
                    f"{name}.search: {what} is {asked}; the screen has {most} samples of documents for it"
                )

    def verdict_proxies(self) -> tuple[Proxy, ...]:
        """From the smallest to the largest."""
        return self.verify.proxies or tuple(self.proxy.times(factor) for factor in VERDICT_TIMES)
