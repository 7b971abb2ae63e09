"""Mixture files by hand: every mistake is named with its line, none ends otherwise; components that run out give their weight away exactly."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from test_mixing_stage import HEAD, MANIFESTS

from corpusmill.mixing.mixture import decode_mixture, encode_mixture, load_mixture
from corpusmill.pipeline.errors import BudgetError, RecipeError
from corpusmill.pipeline.strict_yaml import read_with_lines, read_yaml
from corpusmill.shards.exhaust import redistributed
from corpusmill.shards.mixture import PPB
from corpusmill.shards.plan import Component, Phase, Plan, capacity, check_plan, compile_plan

WRONG = """schema: corpusmill/mixture/v1
budget_tokens: -3
exhaust: loop
tokenizer: sha256:cd
components:
  web: {max_epochs: 0, synthetic: generatd}
  boks:
    max_epochs: 1
  books: {available_tokens: 5, generation: 2}
phases:
  - from: 2
    weights: {web: 0.5, books: 0.4}
  - from: 1
    weights_ppb:
      web: 0.25
      books: -1
  - {from: 9, ramp: many, weight: {}}
derived: {}
evidence: none
"""


def test_every_mistake_of_a_file_is_named_with_its_line() -> None:
    with pytest.raises(RecipeError) as error:
        decode_mixture(WRONG, MANIFESTS, "mine.yaml")
    said = str(error.value).splitlines()
    wanted = [
        (2, "budget_tokens is -3"),
        (3, "exhaust is 'loop'; it can be repeat, stop or redistribute"),
        (4, "tokenizer is 'sha256:cd', these shards were made with sha256:ab"),
        (6, "components.web.max_epochs is 0"),
        (6, "components.web.synthetic is 'generatd'; did you mean 'generated'"),
        (7, "components.boks: no component is called 'boks'; did you mean 'books'"),
        (9, "components.books.generation is 2, but natural text has none"),
        (9, "components.books.available_tokens is 5, these shards have 1600"),
        (11, "phases.0.from is 2; the first phase begins at sample 0"),
        (12, "phases.0.weights: weights add up to 0.9, not 1; in the same proportions: web: 0.555556"),
        (13, "phases.1.from is 1; phases rise, and the one before begins at 2"),
        (15, "phases.1.weights_ppb.web: the weight of web is 0.25; whole parts in 10^9 are needed"),
        (16, "phases.1.weights_ppb.books: the weight of books is -1"),
        (17, "phases.2: a phase has from, and either weights"),
        (19, "evidence is 'none'; a mapping is needed"),
    ]
    assert len(said) == len(wanted)
    for line, (number, words) in zip(said, wanted, strict=True):
        assert line.startswith(f"mine.yaml, line {number}: {words}"), (line, words)


def test_what_can_be_told_without_shards_is_told_before_there_are_any() -> None:
    with pytest.raises(RecipeError) as error:
        load_mixture(WRONG, "mine.yaml")
    said = str(error.value)
    assert "weights add up to 0.9" in said and "line 15" in said
    assert "boks" not in said and "tokenizer" not in said
    load_mixture(HEAD + "phases: [{weights: {anything: 0.5, other: 0.5}}]", "mine.yaml")


def test_of_a_file_of_mistakes_fifty_are_said() -> None:
    names = ", ".join(f"n{number}: 1" for number in range(80))
    with pytest.raises(RecipeError) as error:
        decode_mixture(HEAD + f"phases: [{{weights_ppb: {{{names}}}}}]", MANIFESTS, "mine.yaml")
    assert len(str(error.value).splitlines()) == 51
    assert str(error.value).endswith("... and 30 more")


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "stands for more than 1,000,000 values"),
        ("evidence: &e {again: *e}", "holds itself"),
        ("phases: [{weights: {web: 0.5, web: 0.5}}]", "'web' stands twice"),
        ("budget_tokens: 0x" + "f" * 5000, "budget_tokens is a number of thousands of digits"),
        ("budget_tokens: " + "9" * 5000, "not valid YAML"),
        ("budget_tokens: " + "9" * 400, "budget_tokens is 999"),
        ("budget_tokens: 1.0e+300", "budget_tokens is 1e"),
        ("budget_tokens: .inf", "budget_tokens is inf"),
        ("seed: 2024-01-01", "seed is datetime.date"),
        ("phases: [{weights: {web: 0x" + "f" * 5000 + "}}]", "weight of web is a number of thousands"),
        ("phases: [{weights: {web: " + "9" * 400 + "}}]", "weight of web is 999"),
        ("phases: [{weights: {web: .nan}}]", "weight of web is nan"),
        ("phases: [{weights: {web: -.inf}}]", "weight of web is -inf"),
        ("phases: [{weights: {web: '1'}}]", "weight of web is '1'"),
        ("phases: [{weights_ppb: {web: 0x" + "f" * 5000 + "}}]", "add up to a number of thousands of digits"),
        ("phases: [{weights_ppb: {web: 1.0e+9}}]", "weight of web is 1000000000.0; whole parts"),
        ("phases: [{weights_ppb: {web: true}}]", "weight of web is True"),
        ("phases: [{weights: {? [1]: 1}}]", "not valid YAML"),
        ("phases: [{weights: {2024: 1}}]", "no component is called 2024"),
        ("phases: [{weights: !!python/object:os.system {}}]", "not valid YAML"),
        (
            "phases: [{weights: {web: 1}}, {from: 10, ramp: 9, weights: {web: 1}}, {from: 12, weights: {web: 1}}]",
            "ramp of the phase before",
        ),
        ("\0", "not valid YAML"),
    ],
)
def test_hostile_files_are_refused_in_a_few_words(text: str, words: str) -> None:
    with pytest.raises(RecipeError) as error:
        decode_mixture(HEAD + text, MANIFESTS, "mine.yaml")
    assert words in str(error.value)
    assert len(str(error.value)) < 2000


def test_aliases_are_read_where_they_say_little() -> None:
    assert read_yaml("a: &a {x: 1}\nb: [*a, *a]", "file") == {"a": {"x": 1}, "b": [{"x": 1}, {"x": 1}]}


def test_lines_are_those_of_keys_and_of_what_stands_in_lists() -> None:
    value, lines = read_with_lines("a: 1\nb:\n  - x\n  - c:\n      2", "file")
    assert value == {"a": 1, "b": ["x", {"c": 2}]}
    assert [lines.of(path) for path in (("a",), ("b", "0"), ("b", "1"), ("b", "7"))] == [1, 3, 4, 2]


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(10**300, 10**310)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["web", "books", "repeat", "none", "generated", "2e9", "sha256:ab"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3),
    max_leaves=8,
)


def valid() -> dict[str, Any]:
    return {
        "schema": "corpusmill/mixture/v1",
        "unit": "tokens",
        "tokenizer": "sha256:ab",
        "budget_tokens": 1600,
        "seed": 3,
        "exhaust": "redistribute",
        "components": {"web": {"max_epochs": 4, "synthetic": "rephrased", "generation": 2}, "books": {}},
        "phases": [
            {"from": 0, "weights": {"web": 0.5, "books": 0.5}},
            {"from": 40, "ramp": 3, "weights_ppb": {"web": PPB}},
        ],
        "evidence": {"verdict": "manual"},
    }


PATHS: list[tuple[Any, ...]] = [
    *((key,) for key in valid()),
    *(("components", name) for name in ("web", "books", "new")),
    *(
        ("components", "web", key)
        for key in ("hash", "available_tokens", "max_epochs", "synthetic", "generation", "x")
    ),
    *(("phases", place) for place in (0, 1)),
    *(("phases", 0, key) for key in ("from", "ramp", "weights", "weights_ppb", "name", "x")),
    *(("phases", 0, "weights", name) for name in ("web", "books", "new")),
    *(("phases", 1, "weights_ppb", name) for name in ("web", "books")),
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PATHS), VALUES), min_size=1, max_size=3))
def test_whatever_stands_in_a_file_is_read_or_refused_with_its_place(
    changes: list[tuple[tuple[Any, ...], Any]],
) -> None:
    value = valid()
    for path, new in changes:
        at: Any = value
        for part in path[:-1]:
            if not (isinstance(at, dict) and part in at) and not (
                isinstance(at, list) and part in range(len(at))
            ):
                break
            at = at[part]
        else:
            if isinstance(at, dict) or (isinstance(at, list) and path[-1] in range(len(at))):
                at[path[-1]] = new
    try:
        text = yaml.safe_dump(value, allow_unicode=True)
    except yaml.YAMLError:  # nothing that a file could hold
        return
    try:
        found = decode_mixture(text, MANIFESTS, "mine.yaml")
    except RecipeError as error:
        assert str(error).startswith("mine.yaml")
        return
    # What is read can be compiled: it is not refused later for what stands in the file.
    shards = [(name, each) for name, each in MANIFESTS.items()]
    plan = compile_plan(shards, found.phases, seed=1, samples=None)
    assert all(sum(phase.weights_ppb.values()) == PPB for phase in plan.phases)


def test_a_valid_file_is_read_and_its_kinds_are_written_again() -> None:
    found = decode_mixture(yaml.safe_dump(valid()), MANIFESTS, "mine.yaml")
    assert found.exhaust == "redistribute"
    plan = compile_plan([(name, each) for name, each in MANIFESTS.items()], found.phases, seed=1, samples=60)
    written = encode_mixture(plan, MANIFESTS, 960, "redistribute", found.evidence, found.kinds)
    again = decode_mixture(written.decode(), MANIFESTS, "again.yaml")
    assert again.kinds == found.kinds
    assert (again.kinds["web"].synthetic, again.kinds["web"].generation) == ("rephrased", 2)
    assert again.phases == plan.phases


def plan_of(rows: dict[str, int], *phases: Phase, epochs: int = 1) -> Plan:
    components = tuple(
        Component(name, name, f"{name}0", count, 1, epochs) for name, count in sorted(rows.items())
    )
    return Plan(1, 16, 8, "uint16", 0, components, phases)


def test_a_component_that_is_used_up_is_read_to_its_last_row_and_the_others_take_its_weight_in_proportion() -> (
    None
):
    weights = {"a": PPB // 2, "b": PPB // 4, "c": PPB // 4}
    plan = redistributed(plan_of({"a": 100, "b": 400, "c": 400}, Phase(0, weights)), 800)
    assert [phase.weights_ppb for phase in plan.phases] == [weights, {"a": 0, "b": PPB // 2, "c": PPB // 2}]
    # Half of the samples: 100 rows of a last to about sample 200.
    assert abs(plan.phases[1].start - 200) <= 6
    assert plan.mixture().counts(800)[0] == 100
    assert plan.mixture().counts(plan.phases[1].start)[0] == 100


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.integers(1, 300), min_size=1, max_size=5),
    parts=st.lists(st.integers(0, 50), min_size=5, max_size=5),
    later=st.lists(st.integers(0, 50), min_size=5, max_size=5),
    start=st.integers(1, 400),
    share=st.fractions(Fraction(1, 10), Fraction(1)),
    epochs=st.integers(1, 3),
)
def test_redistributing_reads_no_row_too_often_and_loses_none_that_has_weight(
    rows: list[int], parts: list[int], later: list[int], start: int, share: Fraction, epochs: int
) -> None:
    names = [f"c{number}" for number in range(len(rows))]

    def ppb(given: list[int]) -> dict[str, int]:
        total = sum(given[: len(names)])
        exact = [value * PPB // total for value in given[: len(names)]]
        exact[max(range(len(names)), key=lambda place: given[place])] += PPB - sum(exact)
        return dict(zip(names, exact, strict=True))

    if not sum(parts[: len(rows)]) or not sum(later[: len(rows)]):
        return
    plan = plan_of(
        dict(zip(names, rows, strict=True)), Phase(0, ppb(parts)), Phase(start, ppb(later)), epochs=epochs
    )
    samples = max(1, int(share * sum(rows) * epochs))
    try:
        made = redistributed(plan, samples)
    except BudgetError as error:
        assert "gives no other component weight that has rows left" in str(error)
        return
    check_plan(replace(made, samples=samples), "made")
    most = capacity(made)
    assert most is None or most >= samples
    counts = made.mixture().counts(samples)
    assert sum(counts) == samples
    assert all(count <= size * epochs for count, size in zip(counts, rows, strict=True))


def test_what_cannot_be_redistributed_exactly_is_refused_with_the_reason() -> None:
    ramp = plan_of(
        {"a": 100, "b": 900}, Phase(0, {"a": PPB, "b": 0}), Phase(80, {"a": 0, "b": PPB}, ramp=200)
    )
    with pytest.raises(BudgetError, match=r"a is used up at sample 1\d\d, in the ramp from 80 to 280"):
        redistributed(ramp, 900)
    alone = plan_of({"a": 100, "b": 900}, Phase(0, {"a": PPB, "b": 0}))
    with pytest.raises(BudgetError, match="a is used up at sample 100 of 900"):
        redistributed(alone, 900)
