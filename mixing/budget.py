"""What a search can afford: sizes, tokens, seeds and runs for so many seconds of one worker (`corpusmill mix auto`).

    whole     the verdict at two sizes, five seeds: as large a proxy as learns 20 tokens a parameter in every run
    one size  the verdict at one
    least     fewer mixtures, three seeds

A run of the verdict learns twice as long as one of the design; its second size is the next larger one. Nothing here looks at a clock: the
same times give the same choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from corpusmill.mixing.design import total_runs
from corpusmill.mixing.grouped import parts_of
from corpusmill.mixing.pace import Pace
from corpusmill.mixing.proxy import SIZES, TOKENS_A_PARAMETER
from corpusmill.mixing.search import Search, Verification
from corpusmill.mixing.study import Component, Proxy
from corpusmill.pipeline.errors import RecipeError

LEAST_TOKENS = 50_000
"""Of a run of the smallest decoder: on fewer it knows little more than how often each token comes (docs/mixing-method.md)."""

SOME_TOKENS = 4 * LEAST_TOKENS  # below which seeds and runs are given up for tokens

LONGER = 2  # times as long as in the design proxies of the verdict learn

SPARE = 0.9  # of the budget is planned with: times of few steps are no promise

LEAST_EVAL, EVAL_PART = 4_000, 0.5
"""Tokens of a target that are predicted at least, and all targets together as a part of what is learnt."""

BASELINES = 4  # beside the mixture in use


@dataclass(frozen=True)
class Level:
    """How much is asked of a search."""

    name: str
    sizes: int  # of the verdict's proxies
    seeds: int
    few: bool  # whether the design has no more mixtures than a fit needs


LEVELS = (Level("whole", 2, 5, False), Level("one size", 1, 5, False), Level("least", 1, 3, True))


@dataclass(frozen=True)
class Task:
    """What is searched: enough to count runs and tokens. `target_tokens`: of the run that the weights are for."""

    search: Search
    components: tuple[Component, ...]
    targets: int
    target_tokens: int
    in_use: bool  # whether a mixture in use is a baseline, too

    def mixtures(self, few: bool) -> int:
        """Of the design."""
        if not few or self.search.runs is not None:
            return total_runs(self.components, self.search.runs)
        many = len(self.components)
        parts = len(parts_of([each.name for each in self.components]))
        return self.baselines + 2 * parts * self.search.ablation + max(many, 4)

    @property
    def baselines(self) -> int:
        return BASELINES + self.in_use

    def eval_tokens(self, tokens: int) -> int:
        """Of each target, for runs that learn `tokens`."""
        part = int(EVAL_PART * tokens / max(1, self.targets))
        return min(self.search.eval_tokens, max(LEAST_EVAL, part))


@dataclass(frozen=True)
class Choice:
    """A search that was chosen, and the seconds of one worker that its runs will take: of the design, and of the verdict."""

    search: Search
    level: str
    design_runs: int
    trials: int
    design_s: float
    verdict_s: float

    @property
    def seconds(self) -> float:
        return self.design_s + self.verdict_s


Paced = Callable[[Proxy], Pace]
"""The times of a proxy, measured or taken from another size."""


def choose(budget_s: float, task: Task, proxies: Sequence[Proxy], paced: Paced) -> Choice:
    """The best that `budget_s` affords with one of `proxies` (from small to large; their tokens are chosen). RecipeError names the least budget."""
    smallest, *larger = proxies
    whole, one, least = LEVELS
    for proxy in reversed(larger):
        found = _affordable(budget_s, task, proxy, whole, paced)
        if found is not None and _tokens(found) >= enough(proxy):
            return found
    wanted = min(enough(smallest), max(LEAST_TOKENS, _most(task)))
    for level, tokens in (
        (whole, wanted),
        (one, wanted),
        (one, SOME_TOKENS),
        (least, least_tokens(smallest)),
    ):
        found = _affordable(budget_s, task, smallest, level, paced)
        if found is not None and _tokens(found) >= min(tokens, wanted):
            return found
    needed = planned(task, smallest, least, least_tokens(smallest), paced)
    run_s = needed.design_s / needed.design_runs
    raise RecipeError(
        f"a budget of {spoken(budget_s)} is too little: {needed.design_runs} runs of the design and {needed.trials} of the verdict take"
        f" {spoken(needed.seconds / SPARE)} of one worker with the least that says anything ({_tokens(needed):,} tokens a run of"
        f" {needed.search.proxy.title}, {run_s:.1f} s each here); give --budget {spoken(needed.seconds / SPARE)}"
    )


def enough(proxy: Proxy) -> int:
    """Tokens from which a larger proxy is better than a longer run."""
    if proxy.size is None:
        return least_tokens(proxy)
    return TOKENS_A_PARAMETER * SIZES[proxy.size].inside


def least_tokens(proxy: Proxy) -> int:
    """Of a command those that the recipe names: who wrote it knows what its trainer needs."""
    return LEAST_TOKENS if proxy.kind == "decoder" else proxy.tokens or LEAST_TOKENS


def _most(task: Task) -> int:
    """A proxy that learns more than the run that it stands for is no proxy."""
    return task.target_tokens // LONGER


def _tokens(choice: Choice) -> int:
    return choice.search.proxy.tokens or 0


def _affordable(budget_s: float, task: Task, proxy: Proxy, level: Level, paced: Paced) -> Choice | None:
    """With as many tokens as the budget has; None if that is less than the least."""
    low, high = least_tokens(proxy), max(least_tokens(proxy), _most(task))

    def fits(tokens: int) -> bool:
        return planned(task, proxy, level, tokens, paced).seconds <= SPARE * budget_s

    if not fits(low):
        return None
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return planned(task, proxy, level, max(least_tokens(proxy), _round(low)), paced)


def _round(tokens: int) -> int:
    """Down to two digits: nobody reads more, and times are not known better."""
    unit: int = 10 ** max(0, len(str(tokens)) - 2)
    return tokens // unit * unit


def planned(task: Task, proxy: Proxy, level: Level, tokens: int, paced: Paced) -> Choice:
    """The search at a level and with so many tokens a run, and what it takes."""
    trained = replace(proxy, tokens=tokens)
    sizes = [trained.times(LONGER)]
    if level.sizes > 1:
        sizes.append(next_size(trained).times(LONGER))
    seen = task.eval_tokens(tokens)
    search = replace(
        task.search,
        proxy=trained,
        runs=task.mixtures(level.few),
        verify=Verification(tuple(sizes), level.seeds),
        eval_tokens=seen,
    )
    design = task.mixtures(level.few) + 2 * (task.search.repeats - 1)
    each = (task.baselines + task.search.candidates) * level.seeds

    def seconds(size: Proxy) -> float:
        return paced(size).seconds(size.tokens or 0, seen * task.targets)

    verdict_s = each * sum(map(seconds, sizes))
    return Choice(search, level.name, design, each * len(sizes), design * seconds(trained), verdict_s)


def next_size(proxy: Proxy) -> Proxy:
    """The verdict's other proxy: the next size, and where there is none, one that learns longer still."""
    names = list(SIZES)
    if proxy.size is None or proxy.size == names[-1]:
        return proxy.times(LONGER)
    return replace(proxy, size=names[names.index(proxy.size) + 1])


def by_work(measured: Mapping[str, Pace], work: Callable[[str], float]) -> Callable[[str], Pace]:
    """Times of any size: measured, or those of the largest measured one in proportion to its `work` a token. Small models waste more of
    a machine than large ones, so this rather says too much."""

    def paced(size: str) -> Pace:
        if size in measured:
            return measured[size]
        near = max(measured, key=work)
        factor = work(size) / work(near)
        known = measured[near]
        return Pace(factor * known.learn_s, factor * known.measure_s, known.beside_s)

    return paced


def spoken(seconds: float) -> str:
    """Whole minutes up, as --budget takes them."""
    minutes = max(1, math.ceil(seconds / 60))
    hours, rest = divmod(minutes, 60)
    return (f"{hours}h" if hours else "") + (f"{rest}m" if rest or not hours else "")
