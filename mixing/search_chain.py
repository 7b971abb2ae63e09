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
from corpusmill.shards.about import About


@dataclass(frozen=True)
class Aim:
    """What the weights are for, as the mix stage says it."""

    shards: str  # the stage that writes them
    budget_tokens: int | None
    epochs: float | None
    max_epochs: int
    current: dict[str, float] | None  # the mixture in use


def append(chain: Chain, name: str, search: Search, aim: Aim) -> str:
    """The stages of a search, below `name`; the name of the last, whose result has the weights."""
    stats, leaks = append_stats(chain, name, search, aim)
    proxies = (search.proxy, *search.sizes())
    screen = None
    if any(proxy.kind == "screen" for proxy in proxies):
        screen = f"{name}.screen"
        operation = Screening(stats, aim.shards, search.sample_tokens, search.eval_tokens)
        chain.set(screen, operation, reads=(stats, aim.shards))

    def train(stage: str, design: str, sizes: tuple[Proxy, ...]) -> str:
        stage = f"{name}.{stage}"
        runs = runs_of(sizes)(design, stats, aim.shards, screen, sizes, search.eval_tokens)
        chain.set(stage, runs, reads=(design, stats, aim.shards, *([screen] if screen else [])))
        return stage

    design = f"{name}.design"
    make = MakeDesign(
        stats,
        search.caps,
        search.runs,
        search.rounds,
        search.repeats,
        search.ablation,
        aim.current,
        leaks,
        aim.shards,
        search.most_overlap,
        search.eval_tokens,
        chain.seed,
    )
    chain.set(design, make, reads=(stats, leaks, aim.shards))
    runs: tuple[str, ...] = (train("runs", design, (search.proxy,)),)
    if search.rounds > 1:
        first, design = design, f"{name}.design2"
        second = SecondDesign(stats, first, runs[0], search.caps, search.runs, search.families, chain.seed)
        chain.set(design, second, reads=(stats, first, *runs))
        runs = (*runs, train("runs2", design, (search.proxy,)))

    counted = tuple(target for target, options in search.targets.items() if options.weight)
    fit, propose, verify = (f"{name}.{part}" for part in ("fit", "propose", "verify"))
    chain.set(
        fit,
        Fit(design, runs, search.families, counted, search.proxy.title, chain.seed),
        reads=(design, *runs),
    )
    candidates = Propose(
        stats, runs, search.caps, search.families, search.candidates, search.verify.seeds, aim.current, chain.seed
    )  # fmt: skip
    chain.set(propose, candidates, reads=(stats, *runs, fit))
    trials = train("trials", propose, search.sizes())
    judge = Judge(stats, propose, fit, trials, search.sizes())
    chain.set(verify, judge, reads=(stats, propose, fit, trials))
    return verify


def append_stats(chain: Chain, name: str, search: Search, aim: Aim) -> tuple[str, str]:
    """The first two stages: what is weighed and measured, and what of it stands in what is weighed."""
    stats, leaks = f"{name}.stats", f"{name}.leaks"
    about = next(stage.name for stage in reversed(chain.stages) if isinstance(stage.operation, About))
    study = Stats(
        aim.shards,
        search.components,
        search.targets,
        aim.max_epochs,
        aim.budget_tokens,
        aim.epochs,
        search.eval_tokens,
        about,
        chain.seed,
    )
    chain.set(stats, study, reads=(aim.shards, about))
    chain.set(leaks, Leaks(stats, aim.shards, search.eval_tokens), reads=(stats, aim.shards))
    return stats, leaks
