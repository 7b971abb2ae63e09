"""A search's stages in their order, each with what it reads (the list stands in search.py)."""

from __future__ import annotations

from dataclasses import dataclass

from corpusmill.mixing.search import Search
from corpusmill.mixing.search_design import MakeDesign, SecondDesign
from corpusmill.mixing.search_fit import Fit, Judge, Propose
from corpusmill.mixing.search_leaks import Leaks
from corpusmill.mixing.search_runs import Screening, runs_of
from corpusmill.mixing.search_study import Stats
from corpusmill.mixing.study import Proxy
from corpusmill.pipeline.chain import Chain
from corpusmill.pipeline.engine.stage import SetOperation
from corpusmill.shards.about import About


@dataclass(frozen=True)
class Purpose:
    """What the weights are for, as the mix stage says it."""

    shards: str  # the stage that writes them
    budget_tokens: int | None
    epochs: float | None
    max_epochs: int
    current: dict[str, float] | None  # the mixture in use


def append(chain: Chain, name: str, search: Search, purpose: Purpose) -> str:
    """The stages of a search, below `name`; the name of the last, whose result has the weights."""
    return _Below(chain, name, search, purpose).all()


def append_stats(chain: Chain, name: str, search: Search, purpose: Purpose) -> tuple[str, str]:
    """The first two stages: what is weighed and measured, and what of it stands in what is weighed."""
    return _Below(chain, name, search, purpose).stats()


@dataclass(frozen=True)
class _Below:
    """Appends stages below `name`; each method gives the names that later ones read."""

    chain: Chain
    name: str
    search: Search
    purpose: Purpose

    def all(self) -> str:
        search, seed = self.search, self.chain.seed
        stats, leaks = self.stats()
        screen = self._screen(stats)
        design, runs = self._designed(stats, leaks, screen)
        counted = tuple(target for target, options in search.targets.items() if options.weight)
        fit = Fit(
            design=design,
            runs=runs,
            families=search.families,
            counted=counted,
            proxy=search.proxy.title,
            seed=seed,
        )
        fitted = self._add("fit", fit, design, *runs)
        propose = Propose(
            stats=stats,
            runs=runs,
            caps=search.caps,
            families=search.families,
            count=search.candidates,
            seeds=search.verify.seeds,
            current=self.purpose.current,
            seed=seed,
        )
        proposed = self._add("propose", propose, stats, *runs, fitted)
        proxies = search.verdict_proxies()
        trials = self._trained("trials", proposed, proxies, stats, screen)
        judge = Judge(stats=stats, propose=proposed, fit=fitted, trials=trials, sizes=proxies)
        return self._add("verify", judge, stats, proposed, fitted, trials)

    def stats(self) -> tuple[str, str]:
        search, purpose = self.search, self.purpose
        about = next(each.name for each in reversed(self.chain.stages) if isinstance(each.operation, About))
        study = Stats(
            shards=purpose.shards,
            components=search.components,
            targets=search.targets,
            max_epochs=purpose.max_epochs,
            budget_tokens=purpose.budget_tokens,
            epochs=purpose.epochs,
            eval_tokens=search.eval_tokens,
            about=about,
            seed=self.chain.seed,
        )
        stats = self._add("stats", study, purpose.shards, about)
        leaks = Leaks(stats=stats, shards=purpose.shards, eval_tokens=search.eval_tokens)
        return stats, self._add("leaks", leaks, stats, purpose.shards)

    def _screen(self, stats: str) -> str | None:
        """None where no proxy is a screen."""
        if all(proxy.kind != "screen" for proxy in (self.search.proxy, *self.search.verdict_proxies())):
            return None
        screening = Screening(
            stats=stats,
            shards=self.purpose.shards,
            sample_tokens=self.search.sample_tokens,
            eval_tokens=self.search.eval_tokens,
        )
        return self._add("screen", screening, stats, self.purpose.shards)

    def _designed(self, stats: str, leaks: str, screen: str | None) -> tuple[str, tuple[str, ...]]:
        """The last design, which holds the one before, and the runs of all rounds."""
        search, seed = self.search, self.chain.seed
        make = MakeDesign(
            stats=stats,
            caps=search.caps,
            runs=search.runs,
            rounds=search.rounds,
            repeats=search.repeats,
            ablation=search.ablation,
            current=self.purpose.current,
            leaks=leaks,
            shards=self.purpose.shards,
            most_overlap=search.most_overlap,
            eval_tokens=search.eval_tokens,
            seed=seed,
        )
        first = self._add("design", make, stats, leaks, self.purpose.shards)
        runs = self._trained("runs", first, (search.proxy,), stats, screen)
        if search.rounds == 1:
            return first, (runs,)
        more = SecondDesign(
            stats=stats,
            design=first,
            runs=runs,
            caps=search.caps,
            count=search.runs,
            families=search.families,
            seed=seed,
        )
        second = self._add("design2", more, stats, first, runs)
        return second, (runs, self._trained("runs2", second, (search.proxy,), stats, screen))

    def _trained(
        self, part: str, design: str, proxies: tuple[Proxy, ...], stats: str, screen: str | None
    ) -> str:
        shards = self.purpose.shards
        runs = runs_of(proxies)(
            design=design,
            stats=stats,
            shards=shards,
            screen=screen,
            proxies=proxies,
            eval_tokens=self.search.eval_tokens,
        )
        return self._add(part, runs, design, stats, shards, *([screen] if screen else []))

    def _add(self, part: str, operation: SetOperation, *reads: str) -> str:
        stage = f"{self.name}.{part}"
        self.chain.set(stage, operation, reads=reads)
        return stage
