"""What a search can afford: larger budgets buy larger proxies and harder verdicts, and too small ones are told what it takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from corpusmill.jobs.auto import seconds_of
from corpusmill.mixing.budget import LEAST_TOKENS, SPARE, Choice, Task, by_work, choose, spoken
from corpusmill.mixing.pace import Pace
from corpusmill.mixing.proxy import SIZES, work
from corpusmill.mixing.search import Search
from corpusmill.mixing.study import Component, Proxy
from corpusmill.pipeline.errors import RecipeError

NAMES = ("web", "books", "code", "wiki")

TASK = Task(
    Search(), tuple(Component(name, "", 10**9, 4 * 10**9, 10**6) for name in NAMES), 2, 4 * 10**9, False
)

DECODERS = [Proxy("decoder", size=size, tokens=1) for size in SIZES]

HOURS = 3600.0


def paced(speed: float = 1.0) -> Callable[[Proxy], Pace]:
    """A machine on which 64k learns 10,000 tokens a second at `speed` 1, and others in proportion to their work."""
    base = work(SIZES["64k"], 8192, 512)
    times = by_work({"64k": Pace(1e-4 / speed, 3e-5 / speed, 1.0)}, lambda size: work(SIZES[size], 8192, 512))
    assert times("1M").learn_s == pytest.approx(1e-4 / speed * work(SIZES["1M"], 8192, 512) / base)
    return lambda proxy: times(proxy.size or "")


def chosen(hours: float, task: Task = TASK, speed: float = 1.0) -> Choice:
    return choose(hours * HOURS, task, DECODERS, paced(speed))


def test_more_time_buys_larger_proxies_and_never_smaller_ones() -> None:
    sizes = [chosen(hours).search.proxy.size for hours in (4, 40, 400, 4000, 40000)]
    order = [list(SIZES).index(size or "") for size in sizes]
    assert order == sorted(order) and order[0] == 0 and order[-1] >= 3


@pytest.mark.parametrize("hours", [1, 3, 10, 100, 1000])
def test_what_is_planned_fits_into_the_budget_with_something_to_spare(hours: float) -> None:
    """Counted here once more, run by run."""
    found = chosen(hours)
    search, pace = found.search, paced()
    mixtures = search.runs or 0
    eval_tokens = 2 * search.eval_tokens
    runs = mixtures + 2 * (search.repeats - 1)
    trials = (4 + search.candidates) * search.verify.seeds
    seconds = runs * pace(search.proxy).seconds(search.proxy.tokens or 0, eval_tokens) + trials * sum(
        pace(proxy).seconds(proxy.tokens or 0, eval_tokens) for proxy in search.verify.proxies
    )
    assert found.seconds == pytest.approx(seconds)
    assert seconds <= SPARE * hours * HOURS
    assert (found.design_runs, found.trials) == (runs, trials * len(search.verify.proxies))
    assert found.search.verify.seeds >= 3
    search.check("mix")


def test_where_there_is_time_the_verdict_has_two_sizes_that_differ_and_learn_longer() -> None:
    search = chosen(100).search
    small, large = search.verify.proxies
    assert (small.size, large.size) == (
        search.proxy.size,
        list(SIZES)[list(SIZES).index(small.size or "") + 1],
    )
    assert small.tokens == large.tokens == 2 * (search.proxy.tokens or 0)
    assert search.verify.seeds == 5


def test_too_little_is_refused_with_the_least_that_is_accepted() -> None:
    with pytest.raises(RecipeError, match="too little") as refused:
        chosen(0.05)
    least = re.search(r"give --budget (\w+)$", str(refused.value))
    assert least is not None
    needed = seconds_of(least.group(1))
    found = choose(needed, TASK, DECODERS, paced())
    assert found.level == "least"
    assert LEAST_TOKENS <= (found.search.proxy.tokens or 0) < 1.2 * LEAST_TOKENS, "whole minutes up"
    with pytest.raises(RecipeError, match="too little"):
        choose(0.9 * needed - 60, TASK, DECODERS, paced())


def test_no_proxy_learns_more_than_the_run_that_it_stands_for() -> None:
    small = replace(TASK, target_tokens=2_000_000)
    search = chosen(4000, small).search
    assert search.proxy.size == "64k", "a larger one would be wasted on so little"
    assert max(proxy.tokens or 0 for proxy in search.verify.proxies) <= small.target_tokens
    assert (search.proxy.tokens or 0) >= 900_000


def test_runs_that_the_recipe_names_stay_and_a_command_scales_by_tokens_alone() -> None:
    assert chosen(100, replace(TASK, search=Search(runs=77))).search.runs == 77
    trainer = Proxy("command", command="train.sh {out}", name="mine", tokens=1_000_000)
    found = choose(100 * HOURS, TASK, [trainer], lambda proxy: Pace(1e-5))
    first, *others = (found.search.proxy, *found.search.verify.proxies)
    assert (first.tokens or 0) >= 1_000_000 and [each.tokens for each in others] == [
        2 * (first.tokens or 0),
        4 * (first.tokens or 0),
    ]
    with pytest.raises(RecipeError, match="1,000,000 tokens a run of mine 1000000"):
        choose(60, TASK, [trainer], lambda proxy: Pace(1e-5))


@pytest.mark.parametrize(("text", "seconds"), [("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("45s", 45)])
def test_budgets_are_read(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "0h", "-2h", "2 h", "1.5h", "30m1h", "2hours"])
def test_budgets_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(RecipeError, match="like 2h, 90m or 1h30m"):
        seconds_of(text)


def test_minutes_are_said_so_that_the_budget_takes_them() -> None:
    assert [spoken(each) for each in (1, 60, 61, 3600, 5401)] == ["1m", "1m", "2m", "1h", "1h31m"]
    assert all(seconds_of(spoken(each)) >= each for each in range(1, 9000, 7))
