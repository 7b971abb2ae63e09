"""Designs over many components: groups of them are left out and boosted, and a fit has few enough runs."""

from __future__ import annotations

import numpy as np
import pytest

from corpusmill.mixing.caps import bounds_of
from corpusmill.mixing.constraints import draw, inside
from corpusmill.mixing.design import make_design, second_round, total_runs
from corpusmill.mixing.effects import effects_of
from corpusmill.mixing.fit import fit_swarm
from corpusmill.mixing.grouped import parts_of, share
from corpusmill.mixing.records import Record, swarm_of
from corpusmill.mixing.study import Component

SOURCES = ("books", "code", "forum", "web")

TOPICS = 10


def components(sources: tuple[str, ...] = SOURCES, topics: int = TOPICS) -> list[Component]:
    """Topics of a source differ in size up to tenfold; a token a unit, rows in proportion."""
    return [
        Component(f"{source}.topic{topic}", "", 6400 * (topic + 1), 25_600 * (topic + 1), 100 * (topic + 1))
        for source in sources
        for topic in range(topics)
    ]


MANY = components()

BOUNDS = bounds_of(
    MANY, 2 * sum(each.tokens for each in MANY)
)  # 4 epochs are twice a component's share by size


def losses(weights: np.ndarray) -> np.ndarray:
    """Half of it hangs on how much code there is, half on one of code's topics."""
    code = weights[:, TOPICS : 2 * TOPICS]
    return np.asarray(3 - 0.5 * np.sqrt(code.sum(axis=1)) - 0.5 * np.sqrt(code[:, 7]))


def test_many_components_are_grouped_by_the_first_part_of_their_names_and_few_are_not() -> None:
    parts = parts_of([each.name for each in MANY])
    assert [(part.name, len(part.members)) for part in parts] == [(name, TOPICS) for name in SOURCES]
    few = [each.name for each in components(topics=7)]
    assert [part.name for part in parts_of(few)] == few, "28 components stay what they are"
    topics = [f"topic{number}" for number in range(40)]
    assert [part.name for part in parts_of(topics)] == topics
    assert len(parts_of([f"web.{name}" for name in topics])) == 40, "one group is none"


def test_forty_components_take_no_more_runs_than_a_fit_needs_and_all_are_allowed() -> None:
    design = make_design(MANY, BOUNDS, seed=3)
    weights = np.array([run.weights() for run in design.runs])
    assert len(design.mixtures()) == total_runs(MANY) == 120
    assert inside(BOUNDS, weights).all()
    roles = [run.name for run in design.runs if run.role in ("without", "more")]
    assert roles == [f"{way} {name}" for name in SOURCES for way in ("without", "more")]
    without = design.run("without code").weights()
    prior = design.run("proportional").weights()
    code = parts_of(design.components)[1]
    # The others may be read four times in a budget of two: they cannot take all that code had.
    assert share(without, code) < 1e-6 < share(prior, code)


def test_a_fit_of_them_finds_the_group_and_the_topic_in_it() -> None:
    first = make_design(MANY, BOUNDS, seed=3, repeats=1, part=0.5)
    weights = np.array([run.weights() for run in first.runs])

    def records(design):  # type: ignore[no-untyped-def]
        return [
            Record(run.name, "target", design.components, run.weights_ppb, bits_per_byte=float(loss))
            for run, loss in zip(
                design.runs, losses(np.array([run.weights() for run in design.runs])), strict=True
            )
        ]

    fits = fit_swarm(swarm_of(records(first)), 3, ["inverse_power", "log"], control=False)
    design = second_round(first, BOUNDS, 120 - len(first.mixtures()), 3, fits.total)
    assert (
        len(design.mixtures()) == 120
        and inside(BOUNDS, np.array([run.weights() for run in design.runs])).all()
    )
    swarm = swarm_of(records(design))
    fits = fit_swarm(swarm, 3, ["inverse_power", "log"], control=False)
    pool = draw(BOUNDS, 300, 5)
    order = np.corrcoef(*(np.argsort(np.argsort(each)) for each in (fits.predict(pool)[:, 0], losses(pool))))
    assert order[0, 1] > 0.9, "among mixtures of all kinds"
    # At most twice what the prior has, as all of it may be read four times in a budget of two.
    second = np.array([run.weights() for run in design.runs if run.role == "second"])
    code = parts_of(design.components)[1]
    assert np.median([share(each, code) for each in second]) > 1.2 * share(weights[0], code)
    assert np.median(second[:, TOPICS + 7]) > 1.2 * weights[0, TOPICS + 7]

    effects = {(each.component, each.way): each for each in effects_of(design, records(design), swarm)}
    assert set(effects) == {(name, way) for name in SOURCES for way in ("without", "more")}
    # All of both terms; topic 7 has 8 of 55 parts of code.
    assert effects["code", "without"].change == pytest.approx(0.25 + 0.5 * (0.25 * 8 / 55) ** 0.5, abs=1e-3)
    assert effects["code", "more"].change < 0
    assert effects["code", "without"].before == pytest.approx(0.25)
    assert effects["code", "without"].after == pytest.approx(0, abs=1e-6)
    assert effects["web", "without"].change < 0, "what leaves room for code is good"
