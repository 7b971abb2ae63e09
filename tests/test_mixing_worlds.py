"""Verdicts and intervals where the truth is known: what benchmarks/mixing.py measures in full, in small."""

from __future__ import annotations

import pytest
from mixing_trials import coverage, interfering_verdict, null_verdict, pool_of_trials, power
from scipy.stats import binom


def test_where_no_mixture_is_better_there_is_no_evidence() -> None:
    """A rule that errs in one case of twenty would say something in 5 of 20 once in 400 times."""
    verdicts = [null_verdict(seed) for seed in range(20)]
    assert verdicts.count("no_evidence") >= 16


@pytest.mark.slow
def test_where_no_mixture_is_better_a_thousand_seeds_find_none() -> None:
    verdicts = [null_verdict(seed) for seed in range(10_000, 11_000)]
    assert verdicts.count("no_evidence") >= 935


@pytest.mark.parametrize(("run_documents", "seeds"), [(96, 5), (16, 3)])
def test_intervals_hold_the_truth_as_often_as_they_say(run_documents: int, seeds: int) -> None:
    """Real runs, drawn from many: with much noise of seeds and with little. The bounds are those of 500 draws at 95 %."""
    pool = pool_of_trials(1, 40, 500, run_documents)
    held = coverage(pool, seeds, 200, 500, 1)
    low, high = binom.ppf([0.002, 0.998], 500, 0.95) / 500
    assert low <= held["ours"] <= high


def test_a_true_gain_is_found_with_seeds_and_documents_enough() -> None:
    assert power(pool_of_trials(1, 40, 500), seeds=5, documents=400, repeats=20, seed=1) >= 0.8


def test_a_component_that_interferes_with_a_protected_target_is_named_and_refused() -> None:
    verdict, search = interfering_verdict(4)
    assert (verdict.verdict, verdict.ship) == ("refused", "uniform")
    assert "target statutes gets worse by" in verdict.reason
    assert "by forum (+" in verdict.reason
    # The fit was right about its own target: every candidate is better there.
    assert all(each.gain > 0 for each in verdict.gains if each.target in ("", "main"))
    forum = list(search.world.components).index("forum")
    assert all(each.weights()[forum] > 0.25 for each in search.proposal.candidates)
