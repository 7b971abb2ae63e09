"""Proxies: sizes by name, budgets in whole steps, repetition as in the real run, and the plan of a run's stream."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proxy_runs import small_run, view_of

from corpusmill.mixing.proxy import MOST_BATCH_TOKENS, SIZES, Training, View, matched_rows, plan_of
from corpusmill.pipeline.errors import RecipeError
from corpusmill.shards.mixture import PPB

EVEN = {"digits": PPB // 4, "even": PPB // 4, "mixed": PPB // 2}


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    return view_of(small_run(tmp_path_factory.mktemp("proxy")))


@pytest.mark.parametrize("name", SIZES)
def test_a_size_has_the_parameters_of_its_name(name: str) -> None:
    stated = float(name[:-1]) * {"k": 1e3, "M": 1e6}[name[-1]]
    assert SIZES[name].inside == pytest.approx(stated, rel=0.06)
    assert SIZES[name].width % (2 * SIZES[name].heads) == 0  # rotary positions turn pairs of numbers


@given(budget=st.integers(2048, 10**12), length=st.sampled_from([32, 256, 2048]))
def test_steps_and_rows_make_the_budget_but_for_the_last_batch(budget: int, length: int) -> None:
    training = Training("1M", budget)
    read = training.steps(length) * training.batch_rows(length) * length
    assert budget - max(MOST_BATCH_TOKENS, length) < read <= budget


def test_what_cannot_be_is_named() -> None:
    with pytest.raises(RecipeError, match=r"size '1m'.*1M"):
        Training("1m", 1000)
    with pytest.raises(RecipeError, match="budget_tokens is 0"):
        Training("1M", 0)
    with pytest.raises(RecipeError, match="one row has 2048"):
        Training("1M", 1000).steps(2048)


@given(
    rows=st.dictionaries(st.sampled_from("abc"), st.integers(1, 10**9), min_size=1),
    budget=st.integers(1, 10**9),
    target=st.integers(1, 10**13),
)
def test_epochs_of_a_proxy_are_those_of_the_real_run(rows: dict[str, int], budget: int, target: int) -> None:
    found = matched_rows(rows, Training("1M", budget, target))
    for name, count in rows.items():
        wanted = count * min(1.0, budget / target)
        assert found[name] == pytest.approx(wanted, abs=0.51, rel=1e-9) or (found[name] == 1 and wanted < 1)
        assert 1 <= found[name] <= count


def test_a_plan_has_the_epochs_of_the_real_run(view: View) -> None:
    training = Training("64k", 8_000, target_tokens=80_000)
    plan = plan_of(view, training, EVEN, seed=3)
    assert plan.samples == 250 and plan.seed == 3  # 8,000 tokens in rows of 32
    for component in plan.components:
        real = 80_000 / 32 * EVEN[component.name] / PPB / component.rows
        assert plan.epochs(250)[component.name] == pytest.approx(real, rel=0.06)  # parts are of whole rows


def test_without_a_target_budget_all_rows_are_read(view: View) -> None:
    plan = plan_of(view, Training("64k", 8_000), EVEN, seed=3)
    assert all(component.first_rows is None for component in plan.components)


def test_components_that_a_mixture_does_not_name_get_nothing_and_unknown_ones_are_named(view: View) -> None:
    plan = plan_of(view, Training("64k", 8_000), {"even": PPB}, seed=3)
    assert plan.mixture().counts(250) == (0, 250, 0)
    with pytest.raises(Exception, match="names evne"):
        plan_of(view, Training("64k", 8_000), {"evne": PPB}, seed=3)


def test_an_id_changes_with_what_makes_a_proxy(view: View) -> None:
    training = Training("64k", 8_000)
    ids = {
        training.id(view.manifest),
        Training("1M", 8_000).id(view.manifest),
        Training("64k", 8_000, 80_000).id(view.manifest),
        training.id(replace(view.manifest, tokenizer_sha256="other")),
        training.id(view.manifest, "train.sh {out}"),
    }
    assert len(ids) == 5 and training.id(view.manifest) in ids


def test_a_target_of_another_tokenizer_is_refused(view: View) -> None:
    folders = {manifest.name: folder for folder, manifest in view.components}
    with pytest.raises(RecipeError, match="target digits was tokenized with another tokenizer"):
        View.of(Path(str(view.root)), folders, (replace(view.targets[0], tokenizer_sha256="other"),))
