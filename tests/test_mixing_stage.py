"""The mix stage: from components to mixture.yaml and the plan; what a mixture file states is checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from shard_runs import Run, documents

from corpusmill.mixing.mixture import decode_mixture, encode_mixture
from corpusmill.mixing.stage import Mix
from corpusmill.pipeline.chain import Chain
from corpusmill.pipeline.errors import BudgetError, RecipeError
from corpusmill.shards.layout import Manifest, ShardFile
from corpusmill.shards.plan import Plan, compile_plan
from corpusmill.shards.plan_file import read_plan
from corpusmill.shards.stage import Shard, TokenizerSource

SHARD = Shard(
    TokenizerSource(train="bpe", vocab=300), sequence_length=16, block_bytes=1 << 10, shard_bytes=1 << 16
)
WEB = documents([f"page {i} has some words " * 20 for i in range(40)])
BOOKS = documents([f"book {i} has others " * 30 for i in range(4)], "books")


@pytest.fixture
def mixed(tmp_path: Path) -> Callable[[Mix], tuple[Plan, dict[str, Any]]]:
    def run(mix: Mix) -> tuple[Plan, dict[str, Any]]:
        Run(tmp_path / "out", [WEB, BOOKS], SHARD, mix)
        mixture = yaml.safe_load((tmp_path / "out/mixture.yaml").read_text())
        return read_plan(tmp_path / "out/shards/plan.json"), mixture

    return run


Mixed = Callable[[Mix], tuple[Plan, dict[str, Any]]]


def rows_of(plan: Plan) -> dict[str, int]:
    return {component.name: component.rows for component in plan.components}


def read_counts(plan: Plan) -> dict[str, int]:
    assert plan.samples is not None
    return dict(zip(rows_of(plan), plan.mixture().counts(plan.samples), strict=True))


def test_proportional_reads_every_row_about_once(mixed: Mixed) -> None:
    plan, mixture = mixed(Mix())
    rows = rows_of(plan)
    assert plan.samples == sum(rows.values())
    assert all(abs(count - rows[name]) <= 3 for name, count in read_counts(plan).items())
    assert mixture["evidence"] == {"verdict": "baseline", "weights": "proportional"}
    assert mixture["phases"] == [{"from": 0, "ramp": 0, "weights_ppb": plan.phases[0].weights_ppb}]


def test_the_plan_finds_its_components_below_its_own_folder(mixed: Mixed, tmp_path: Path) -> None:
    plan, _ = mixed(Mix())
    for component in plan.components:
        assert (tmp_path / "out/shards" / component.folder / "manifest.json").is_file()


def test_unimax_reads_no_component_over_its_epochs_and_the_rest_equally(mixed: Mixed) -> None:
    plan, _ = mixed(Mix(weights="unimax", epochs=1.5))
    rows, counts = rows_of(plan), read_counts(plan)
    assert rows["books"] * 4 < 1.5 * sum(rows.values()) / 2, "the case is about a source that is too small"
    assert 0 < rows["books"] * 4 - counts["books"] <= 8
    assert sum(counts.values()) == int(1.5 * sum(rows.values()))


def test_uniform_without_a_budget_ends_where_a_component_is_used_up(
    mixed: Mixed, caplog: pytest.LogCaptureFixture
) -> None:
    plan, mixture = mixed(Mix(weights="uniform"))
    counts, rows = read_counts(plan), rows_of(plan)
    assert rows["books"] * 4 - 3 <= counts["books"] <= rows["books"] * 4
    assert "read max_epochs times" in caplog.text
    assert mixture["derived"]["epochs"]["books"] == pytest.approx(4, abs=0.1)


def test_a_stated_budget_that_needs_too_many_epochs_is_an_error_with_the_figures(mixed: Mixed) -> None:
    with pytest.raises(BudgetError, match=r"books \d+\.\d\d epochs of 4"):
        mixed(Mix(weights="uniform", epochs=1.0))


def test_exhaust_stop_ends_the_stream_there_instead(mixed: Mixed) -> None:
    plan, _ = mixed(Mix(weights="uniform", epochs=1.0, exhaust="stop"))
    assert plan.samples is not None
    assert plan.samples < sum(rows_of(plan).values())


def test_exhaust_redistribute_goes_on_with_what_is_left(mixed: Mixed, tmp_path: Path) -> None:
    plan, mixture = mixed(Mix(weights="uniform", epochs=1.0, exhaust="redistribute"))
    rows, counts = rows_of(plan), read_counts(plan)
    assert plan.samples == sum(rows.values())
    assert counts["books"] == 4 * rows["books"], "used up to its last row"
    first, then = mixture["phases"]
    assert first["weights_ppb"] == {"books": 500_000_000, "web": 500_000_000}
    assert then["weights_ppb"] == {"books": 0, "web": 1_000_000_000}
    assert mixture["exhaust"] == "redistribute"
    file = tmp_path / "again.yaml"
    file.write_bytes((tmp_path / "out/mixture.yaml").read_bytes())
    again, _ = mixed(Mix(file=str(file)))
    assert again == plan


def test_one_epoch_with_at_most_one_epoch_is_no_contradiction(mixed: Mixed) -> None:
    plan, _ = mixed(Mix(epochs=1.0, max_epochs=1))
    assert plan.samples is not None
    assert 0 <= sum(rows_of(plan).values()) - plan.samples <= 3 * 12
    assert all(read_counts(plan)[name] <= rows for name, rows in rows_of(plan).items())


def test_a_written_mixture_given_back_makes_the_same_plan(mixed: Mixed, tmp_path: Path) -> None:
    plan, _ = mixed(Mix(weights={"web": 0.75, "books": 0.25}, budget_tokens=16 * 300))
    file = tmp_path / "again.yaml"
    file.write_bytes((tmp_path / "out/mixture.yaml").read_bytes())
    again, _ = mixed(Mix(file=str(file)))
    assert again == plan
    assert (tmp_path / "out/mixture.yaml").read_bytes() == file.read_bytes()


def test_phases_by_hand_change_the_weights_at_their_sample(mixed: Mixed, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "schema: corpusmill/mixture/v1\nbudget_tokens: 4.8e3\nphases:\n"
        "  - {from: 0, weights: {web: 1, books: 0}}\n  - {from: 200, weights_ppb: {web: 500000000, books: 500000000}}\n"
    )
    plan, mixture = mixed(Mix(file=str(file)))
    assert plan.samples == 300
    assert plan.mixture().counts(200) == (0, 200)
    assert read_counts(plan) == {"books": 50, "web": 250}
    assert mixture["evidence"] == {"verdict": "manual"}


@pytest.mark.parametrize(
    ("mix", "words"),
    [
        (Mix(file="gone.yaml"), r"gone\.yaml"),
        (Mix(weights="uniform", file="x.yaml"), "leave out weights, or file"),
        (Mix(weights="temperature"), "temperature"),
        (Mix(temperature=2.0), "temperature"),
        (Mix(epochs=1.0, budget_tokens=5), "give one"),
        (Mix(budget_tokens=0), "budget_tokens is 0"),
        (Mix(epochs=float("nan")), "epochs is nan"),
        (Mix(weights={"web": float("nan"), "books": 1.0}), "weight of web is nan"),
        (Mix(weights={"web": -1.0, "books": 2.0}), "weight of web is -1.0"),
        (Mix(weights={"web": 0.5, "books": 0.4}), "add up to 0.9"),
        (Mix(weights={}), "add up to 0"),
        (Mix(), "put a shard stage before it"),
    ],
)
def test_a_mix_that_cannot_be_run_says_why(mix: Mix, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        mix.extend(Chain(), "mix")


def test_an_unknown_component_is_named_with_a_suggestion(mixed: Mixed) -> None:
    with pytest.raises(RecipeError, match="'boks'; did you mean 'books'"):
        mixed(Mix(weights={"boks": 1.0}))


def test_a_component_without_a_weight_is_warned_about(mixed: Mixed, caplog: pytest.LogCaptureFixture) -> None:
    plan, _ = mixed(Mix(weights={"web": 1.0}))
    assert read_counts(plan)["books"] == 0
    assert "books" in caplog.text


def test_a_budget_under_one_sequence_is_refused(mixed: Mixed) -> None:
    with pytest.raises(RecipeError, match="one sequence has 16"):
        mixed(Mix(budget_tokens=15))


def manifest(name: str, rows: int) -> Manifest:
    shards = (ShardFile("part-00000.arrow", rows, 1, 1, "0", "docs-00000.parquet", 1, "0"),)
    return Manifest(
        name,
        name,
        16,
        "uint16",
        300,
        0,
        "ab",
        "../tokenizer.json",
        "eos",
        None,
        "concat",
        0,
        rows,
        16 * rows,
        1,
        1,
        "0",
        shards,
    )


MANIFESTS = {"books": manifest("books", 100), "web": manifest("web", 300)}
HEAD = "schema: corpusmill/mixture/v1\n"
PHASES = "phases: [{from: 0, weights: {web: 1}}]\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid YAML"),
        ("[1]", "a mapping"),
        (PHASES, "schema is None"),
        (HEAD, "phases: a list is needed"),
        (HEAD + "phasis: []\n", "did you mean 'phases'"),
        (HEAD + "phases: [{from: 0}]", "either weights"),
        (HEAD + "phases: [{from: 0, weights: {web: 1}, weights_ppb: {web: 1000000000}}]", "either weights"),
        (HEAD + "phases: [{from: 0, weights_ppb: {web: 999999999}}]", "add up to 999999999"),
        (HEAD + "phases: [{from: 0, weights_ppb: {web: 1000000001, books: -1}}]", "weight of books is -1"),
        (HEAD + "phases: [{from: 0, weights_ppb: {wep: 1000000000}}]", "did you mean 'web'"),
        (HEAD + "phases: [{from: 0, weights: {web: .nan}}]", "weight of web is nan"),
        (HEAD + "phases: [{from: 0, weights: {web: yes}}]", "weight of web is True"),
        (HEAD + "phases: [{from: -1, weights: {web: 1}}]", "from is -1"),
        (HEAD + "phases: [{frm: 0, weights: {web: 1}}]", "did you mean 'from'"),
        (HEAD + "phases: [{weights: {2024: 1}}]", "no component is called 2024"),
        (HEAD + "phases: " + "[" * 5000, "not valid YAML"),
        (HEAD + PHASES + "components: {web: {max_epoch: 1}}\n", "did you mean 'max_epochs'"),
        (HEAD + "id: sha256:0\nevidence: {date: 2026-01-01}\n" + PHASES, "edited since"),
        (HEAD + "id: sha256:0\nevidence: {1: a, b: c}\n" + PHASES, "edited since"),
        (HEAD + PHASES + "tokenizer: sha256:cd\n", "weights do not carry over"),
        (HEAD + PHASES + "unit: documents\n", "only tokens"),
        (HEAD + PHASES + "exhaust: loop\n", "repeat, stop or redistribute"),
        (HEAD + PHASES + "budget_tokens: many\n", "budget_tokens is 'many'"),
        (HEAD + PHASES + "components: {wep: {}}\n", "did you mean 'web'"),
        (HEAD + PHASES + "components: {web: {hash: sha256:0}}\n", "was made for sha256:0"),
        (HEAD + PHASES + "components: [web]\n", "a mapping is needed"),
        (HEAD + "id: sha256:0\n" + PHASES, "edited since"),
    ],
)
def test_mistakes_in_a_mixture_file_are_named(text: str, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        decode_mixture(text, MANIFESTS, "mine.yaml")


def test_a_mixture_says_how_often_each_component_is_read() -> None:
    given = decode_mixture(
        HEAD + "phases: [{from: 0, weights: {web: 0.5, books: 0.5}}]", MANIFESTS, "mine.yaml"
    )
    found = [(name, each) for name, each in MANIFESTS.items()]
    plan = compile_plan(found, given.phases, seed=1, samples=400, max_epochs={"books": 4, "web": 4})
    value = yaml.safe_load(encode_mixture(plan, MANIFESTS, 6400, "repeat", given.evidence))
    assert value["derived"] == {"samples": 400, "epochs": {"books": 2.0, "web": 0.6667}}
    assert value["tokenizer"] == "sha256:ab"
