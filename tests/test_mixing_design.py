"""Designs: allowed, unlike one another, the same for a seed; and the values that they are made of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.mixing.caps import bounds_of
from corpusmill.mixing.constraints import Bounds, Group, inside, simplex
from corpusmill.mixing.design import (
    ALIKE,
    BOOST,
    apart,
    baseline_weights,
    make_design,
    second_round,
    verification,
)
from corpusmill.mixing.study import (
    Component,
    Design,
    Target,
    decode_design,
    decode_study,
    encode,
    encode_study,
)
from corpusmill.pipeline.errors import InputError, RecipeError
from corpusmill.shards.mixture import PPB

ROWS = {"web": 5000, "books": 1500, "code": 1000, "wiki": 500}


def components(rows: dict[str, int] = ROWS) -> list[Component]:
    return [Component(name, f"hash of {name}", 64 * size, 256 * size, size) for name, size in rows.items()]


def weights_of(design: Design, role: str) -> dict[str, np.ndarray]:
    return {run.name: run.weights() for run in design.runs if run.role == role}


def test_a_design_holds_the_baselines_every_ablation_and_four_more_runs_a_component() -> None:
    design = make_design(components(), simplex(tuple(ROWS)), seed=3)
    assert len(design.mixtures()) == 24
    anchors = weights_of(design, "anchor")
    assert list(anchors["proportional"]) == pytest.approx([0.625, 0.1875, 0.125, 0.0625])
    assert list(anchors["uniform"]) == [0.25] * 4
    # Of 8,000 rows UniMax gives 2,000 each, and wiki has 500 of which four epochs are allowed: it is the uniform mixture.
    assert "unimax" not in anchors
    assert set(weights_of(design, "without")) == {f"without {name}" for name in ROWS}
    assert set(weights_of(design, "more")) == {f"more {name}" for name in ROWS}


def test_left_out_is_without_weight_and_boosted_takes_its_part_of_the_others() -> None:
    design = make_design(components(), simplex(tuple(ROWS)), seed=3)
    without, more = weights_of(design, "without")["without books"], weights_of(design, "more")["more books"]
    assert list(without) == pytest.approx([0.625 / 0.8125, 0, 0.125 / 0.8125, 0.0625 / 0.8125], abs=2e-6)
    assert more[1] == pytest.approx(0.1875 + BOOST * 0.8125, abs=2e-6)
    assert more[0] / more[3] == pytest.approx(10, rel=1e-4), "the others keep their proportions"


def test_all_mixtures_differ_and_only_repeats_come_again_with_other_seeds() -> None:
    design = make_design(components(), simplex(tuple(ROWS)), seed=3, repeats=3)
    first = [run for run in design.runs if run.role != "repeat"]
    for place, run in enumerate(first[1:], 1):
        before = np.array([other.weights() for other in first[:place]])
        assert apart(run.weights()[None], before)[0] > ALIKE - 1e-4
    assert {run.seed for run in first} == {3}
    repeats = [run for run in design.runs if run.role == "repeat"]
    assert [run.name for run in repeats] == [
        "proportional @1",
        "proportional @2",
        "uniform @1",
        "uniform @2",
    ]
    assert [run.seed for run in repeats] == [4, 5, 4, 5]
    assert repeats[0].weights_ppb == design.run("proportional").weights_ppb


def test_a_design_is_the_same_for_a_seed_and_another_for_another() -> None:
    bounds = simplex(tuple(ROWS))
    assert encode(make_design(components(), bounds, 3)) == encode(make_design(components(), bounds, 3))
    one, other = (weights_of(make_design(components(), bounds, seed), "spread") for seed in (3, 4))
    assert all(not np.allclose(one[name], other[name]) for name in one)


def test_a_fill_lies_farther_from_all_runs_than_draws_do() -> None:
    design = make_design(components(), simplex(tuple(ROWS)), seed=3)
    rest = np.array([run.weights() for run in design.runs if run.role != "fill"])
    filled = np.array(list(weights_of(design, "fill").values()))
    others = np.random.Generator(np.random.PCG64(0)).dirichlet(np.ones(4), 200)
    assert apart(filled, rest).mean() > np.median(apart(others, rest))


def test_a_component_at_its_cap_is_not_boosted_and_the_design_says_so() -> None:
    bounds = Bounds(tuple(ROWS), (0.0,) * 4, (1.0, 0.1875, 1.0, 1.0))
    design = make_design(components(), bounds, seed=3)
    assert "more books" not in weights_of(design, "more")
    assert any("more books" in note for note in design.notes)


def test_too_few_runs_are_an_error_that_says_how_many_it_takes() -> None:
    with pytest.raises(RecipeError, match=r"leave 1 of 12 runs for a fit; give runs: 15 or more"):
        make_design(components(), simplex(tuple(ROWS)), seed=3, runs=12)
    assert len(make_design(components(), simplex(tuple(ROWS)), 3, runs=12, ablation=False).mixtures()) == 12


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.integers(1, 10**6), min_size=2, max_size=7),
    epochs=st.floats(1, 8),
    most=st.floats(0.05, 0.9),
    seed=st.integers(0, 99),
)
def test_every_run_of_any_design_is_allowed_and_adds_up(
    rows: list[int], epochs: float, most: float, seed: int
) -> None:
    parts = components({f"part{number}": size for number, size in enumerate(rows)})
    parts[0] = replace(parts[0], protected=True)
    plain = bounds_of(
        [replace(each, max_epochs=epochs) for each in parts], sum(each.tokens for each in parts)
    )
    group = Group("first", ("part0",), most=max(most, rows[0] / sum(rows)))  # the prior stays allowed
    bounds = replace(plain, groups=(*plain.groups, group))
    try:
        design = make_design(parts, bounds, seed)
    except RecipeError as error:
        assert "leave room for" in str(error)
        return
    weights = np.array([run.weights_ppb for run in design.runs])
    assert (weights.sum(axis=1) == PPB).all()
    assert inside(bounds, weights / PPB, slack=3e-6).all()


def test_limits_that_leave_no_room_for_a_fit_are_an_error() -> None:
    parts = [replace(each, max_epochs=1.0) for each in components()]
    bounds = bounds_of(parts, sum(each.tokens for each in parts))
    with pytest.raises(
        RecipeError, match=r"the limits leave room for 1 different mixture, a fit needs 4: lower the budget"
    ):
        make_design(parts, bounds, seed=3)


def test_a_baseline_that_is_not_allowed_becomes_the_nearest_that_is() -> None:
    bounds = Bounds(tuple(ROWS), (0.0,) * 4, (0.5, 1.0, 1.0, 1.0))
    found = baseline_weights(components(), bounds)
    # Least squares: what web has too much goes to the others in equal parts.
    assert np.array(found["proportional"]) / PPB == pytest.approx(
        [0.5, 0.1875 + 0.125 / 3, 0.125 + 0.125 / 3, 0.0625 + 0.125 / 3], abs=2e-6
    )
    assert found["uniform"] == (PPB // 4,) * 4


def test_a_second_round_goes_where_a_fit_hopes_for_most_and_tells_nothing_again() -> None:
    bounds = Bounds(tuple(ROWS), (0.05, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 0.6))
    first = make_design(components(), bounds, seed=3)

    def score(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return -points[:, 3], 0.5 * points[:, 2]  # most of wiki is best, of code little is known

    more = second_round(first, bounds, 6, seed=3, score=score)
    assert more.runs[: len(first.runs)] == first.runs
    new = np.array([run.weights() for run in more.runs if run.role == "second"])
    assert new.shape == (6, 4) and inside(bounds, new).all()
    # The most that can be hoped for is 0.6 + 0.5 * 0.35 = 0.775; uniform weights have 0.375, a draw 0.55 of a hundred.
    assert (new[:, 3] + 0.5 * new[:, 2]).min() > 0.55
    every = np.array([run.weights() for run in more.runs if run.role != "repeat"])
    for place in range(len(every) - 6, len(every)):
        assert apart(every[place : place + 1], np.delete(every, place, axis=0))[0] >= 0.1 - 1e-6


def test_a_second_round_says_when_there_is_no_room_for_it() -> None:
    bounds = Bounds(tuple(ROWS), (0.25, 0.25, 0.2, 0.15), (0.4, 0.4, 0.35, 0.3))
    first = make_design(components(), bounds, seed=3, runs=14, ablation=False)
    more = second_round(first, bounds, 60, seed=3, score=lambda points: (points[:, 0], points[:, 1]))
    added = len(more.runs) - len(first.runs)
    assert added < 60 and more.notes[-1].startswith(f"{60 - added} runs less")


def test_a_verification_pairs_all_mixtures_by_seeds_that_no_design_used() -> None:
    design = make_design(components(), simplex(tuple(ROWS)), seed=3)
    mixtures = {name: run for name, run in baseline_weights(components(), simplex(tuple(ROWS))).items()}
    found = verification(tuple(ROWS), {"stack": (PPB, 0, 0, 0)}, mixtures, seeds=3, seed=3)
    by_mixture: dict[tuple[int, ...], set[int]] = {}
    for run in found.runs:
        by_mixture.setdefault(run.weights_ppb, set()).add(run.seed)
    assert len({frozenset(seeds) for seeds in by_mixture.values()}) == 1
    assert not {run.seed for run in design.runs} & {run.seed for run in found.runs}


def test_what_is_written_is_read_back() -> None:
    design = make_design(components(), simplex(tuple(ROWS)), seed=3)
    assert decode_design(encode(design), "design.json") == design
    targets = [Target("b", worsening=0.01, protected=True), Target("a", weight=0.0, bytes=7, tokens=3)]
    found, sets = decode_study(encode_study(components(), targets), "study.json")
    assert [each.name for each in found] == sorted(ROWS)
    assert sets == (targets[1], targets[0])


def test_what_is_no_design_is_named_with_its_place() -> None:
    with pytest.raises(InputError, match=r"design.json is no JSON"):
        decode_design(b"{", "design.json")
    with pytest.raises(RecipeError, match=r"design.json: weights: unknown key"):
        decode_design(b'{"components": ["a"], "runs": [], "weights": 1}', "design.json")
    with pytest.raises(RecipeError, match=r"run 'x': weights add up to 5, not 1000000000"):
        decode_design(
            b'{"components": ["a"], "runs": [{"index": 0, "role": "fill", "name": "x", "weights_ppb": [5], "seed": 1}]}',
            "design.json",
        )
