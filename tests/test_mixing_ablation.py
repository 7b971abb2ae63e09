"""Two recipes compared: who keeps what, what is held out of both, equal tokens, the verdict."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from ablation_world import DROPS, copies, junk, pages, write_crawl, write_recipe
from runs import corpusmill

from corpusmill.jobs.ablate import ablation_recipe
from corpusmill.mixing.ablation import Ablate
from corpusmill.mixing.ablation_verdict import verdict_of
from corpusmill.mixing.gains import Trials, gain
from corpusmill.pipeline.chain import compile_recipe
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.recipe import Recipe, parse_recipe
from corpusmill.pipeline.run import Run

pytest.importorskip("torch")

SMALL = ("--size", "64k", "--tokens", "3000", "--vocab", "300", "--sequence-length", "32", "--seeds", "2")


def recipe(*stages: Any, **more: Any) -> Recipe:
    return parse_recipe({"stages": ["extract", *stages], **more})


QUALITY = {"filter": [{"gopher_quality": {"min_words": 50}}]}
STRICT = {"filter": [{"gopher_quality": {"min_words": 80}}]}


def names(first: Recipe, second: Recipe) -> list[str]:
    return [stage.name for stage in compile_recipe(ablation_recipe(first, second, Ablate()))]


def test_stages_that_both_begin_with_are_there_once_and_shards_of_the_recipes_not_at_all() -> None:
    shard = {"shard": {"tokenizer": {"train": "bpe"}}}
    found = names(recipe(QUALITY, "redact", shard), recipe(QUALITY, {"dedup": {}}, shard, "mix"))
    assert [name for name in found if name.startswith("filter")] == ["filter.measures", "filter.verdict"]
    assert "a_redact" in found and "b_dedup.verdict" in found and "b_redact" not in found
    assert not [name for name in found if name.startswith(("shard", "mix", "a_shard", "b_mix"))]
    assert found[-1] == "ablate"


def test_what_a_threshold_is_compared_on_is_measured_once() -> None:
    found = names(recipe(QUALITY), recipe(STRICT))
    assert [name for name in found if "measures" in name] == ["a_filter.measures"]
    assert "a_filter.verdict" in found and "b_filter.verdict" in found


def test_what_is_measured_on_text_that_one_recipe_has_edited_is_measured_again() -> None:
    c4 = {"filter": {"name": "lines", "rules": [{"c4": {}}]}}
    found = names(recipe(QUALITY), recipe(c4, STRICT))
    assert [name for name in found if "_filter.measures" in name] == [
        "a_filter.measures",
        "b_filter.measures@c4",
    ]


def test_the_comparison_is_a_recipe_that_can_be_written_down_and_read_again() -> None:
    made = ablation_recipe(recipe(QUALITY), recipe(STRICT, "redact"), Ablate(size="64k", tokens=5000))
    again = parse_recipe(json.loads(json.dumps(made.canonical())))
    assert again.canonical() == made.canonical()
    assert [s.name for s in compile_recipe(again)] == [s.name for s in compile_recipe(made)]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (recipe(seed=1), recipe(seed=2), "seed is 1 in one recipe and 2 in the other"),
        (recipe(inputs=[{"path": "a"}]), recipe(inputs=[{"path": "b"}]), "different inputs"),
        (recipe(), parse_recipe({"stages": [{"extract": {"with": "resiliparse"}}]}), "extract differently"),
        (recipe({"ablate": {}}), recipe(), "ablate cannot be ablated"),
    ],
)
def test_recipes_that_are_not_about_the_same_documents_are_refused(
    first: Recipe, second: Recipe, message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        ablation_recipe(first, second, Ablate())


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (Ablate(seeds=1), "one seed is not an experiment"),
        (Ablate(holdout=0.0), "holdout is 0.0"),
        (Ablate(holdout=1.0), "holdout is 1.0"),
        (Ablate(size="2M"), "no proxy has size '2M'; known: 15M, 1M"),
        (Ablate(tokens=10), "one row has 256; give it more"),
        (Ablate(targets={"prose": "x"}), "give the same"),
        (Ablate(b=("mix",)), "ablate.b: mix has no part in an ablation"),
        (Ablate(b=("redact", "redact")), "ablate.b: two stages are called 'redact'"),
        (Ablate(b=("redakt",)), "ablate.b.0: no stage is called 'redakt'; did you mean 'redact'"),
        (Ablate(most_overlap=2.0), "most_overlap is 2"),
    ],
)
def test_what_no_data_can_make_right_is_said_before_the_first_stage(how: Ablate, message: str) -> None:
    made = ablation_recipe(recipe(), recipe(), Ablate())
    wrong = replace(made, stages=(*made.stages[:-1], replace(made.stages[-1], config=how)))
    with pytest.raises(RecipeError, match=message):
        compile_recipe(wrong)


def test_nothing_follows_an_ablation_and_it_makes_its_own_shards() -> None:
    for wrong in (["ablate", "redact"], [{"shard": {"tokenizer": {"train": "bpe"}}}, "ablate"]):
        with pytest.raises(RecipeError, match="ablate comes once, last, and without shard"):
            recipe(*wrong)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A drops junk, B drops `aside` pages; pages of `again` are near copies of pages that all keep, `twin` exact ones of junk."""
    folder = tmp_path_factory.mktemp("compared")
    kept, bad = pages("kept", 60), junk(20)
    twins = [replace(page, kind="twin") for page in bad[:5]]
    crawl = write_crawl(folder, [*kept, *copies(kept[:30], "again"), *pages("aside", 20), *bad, *twins])
    first = write_recipe(folder, "a", DROPS.format("junk"))
    second = write_recipe(folder, "b", DROPS.format("aside"))
    done = corpusmill(
        *("ablate", first, second, "--input", f"web={crawl}", "--out", folder / "out"),
        *(*SMALL, "--holdout", "0.3", "--workers", "2", "--json"),
    )
    return folder / "out", json.loads(done.stdout)


def kinds(urls: list[str]) -> Counter[str]:
    return Counter(url.split("//")[1].split(".")[0] for url in urls)


def urls(out: Path, stage: str, component: str) -> list[str]:
    folder = Path(str(Run(out).out / Run(out).state.stage(stage).folder))  # type: ignore[union-attr]
    files = sorted(folder.glob(f"{component}/docs-*.parquet"))
    return [url for file in files for url in pq.read_table(file, columns=["url"])["url"].to_pylist()]


PARTS = ("both.a", "both.b", "one")


def test_every_document_is_with_those_who_keep_it(compared: tuple[Path, dict[str, Any]]) -> None:
    out, found = compared
    for side, alone in (("a", {"aside": 20}), ("b", {"junk": 20})):
        of = {
            part: kinds(
                urls(out, f"ablate.{side}.write", part) + urls(out, f"ablate.{side}.write", f"holdout/{part}")
            )
            for part in PARTS
        }
        assert of["one"] == alone
        assert of["both.a"] + of["both.b"] == {"kept": 60, "again": 30, "twin": 5}
        assert of["both.a"] and of["both.b"]
    assert found["kept_by_both"] == 95
    assert {name: each["documents"] for name, each in found["recipes"].items()} == {"A": 115, "B": 115}


def test_both_are_measured_on_the_same_documents_that_neither_trains_on_nor_on_their_copies(
    compared: tuple[Path, dict[str, Any]],
) -> None:
    out, _ = compared
    held = {
        side: [urls(out, f"ablate.{side}.write", f"holdout/{part}") for part in PARTS[:2]] for side in "ab"
    }
    assert held["a"] == held["b"] and all(held["a"])
    away = {url for part in held["a"] for url in part}
    # A page, its near copy, and an exact copy of junk are held out together or not at all, whoever keeps the one or the other.
    for side in "ab":
        trained = {url for part in PARTS for url in urls(out, f"ablate.{side}.write", part)}
        assert not trained & away
        for one, other, count in (("kept", "again", 30), ("junk", "twin", 5)):
            pairs = [(f"https://{one}.example/{n}", f"https://{other}.example/{n}") for n in range(count)]
            assert not [pair for pair in pairs if pair[0] in trained and pair[1] in away]
            assert not [pair for pair in pairs if pair[1] in trained and pair[0] in away]
    assert any("again" in url for url in away)


def test_trainings_are_on_equal_tokens_and_only_what_both_keep_counts(
    compared: tuple[Path, dict[str, Any]],
) -> None:
    _, found = compared
    # Whole batches of rows of 32 tokens, less what is padding or has no target: about one token a document.
    for each in found["recipes"].values():
        assert 0.9 * 3000 <= each["trained_tokens"] <= 3000
        assert each["epochs"] == pytest.approx(3000 / each["tokens"], rel=0.05)
    assert [(each["target"], each["counts"]) for each in found["targets"]] == [
        ("kept by both, words of A", True),
        ("kept by both, words of B", True),
        ("kept by A alone", False),
        ("kept by B alone", False),
    ]
    counted = [each for each in found["targets"] if each["counts"]]
    assert found["gain"]["gain"] == pytest.approx(np.mean([each["gain"] for each in counted]), abs=1e-6)
    assert found["seeds"] == 2


def test_what_stands_is_shown_as_a_table_and_not_made_again(
    compared: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    out, found = compared
    folder = out.parent
    again = corpusmill(
        *(
            "ablate",
            folder / "a.yaml",
            folder / "b.yaml",
            "--input",
            f"web={folder}/web.jsonl.gz",
            "--out",
            out,
        ),
        *(*SMALL, "--holdout", "0.3", "--workers", "2"),
    )
    assert "kept by B alone" in again.stdout and "watched" in again.stdout
    assert f"verdict: {found['verdict']}: {found['reason']}" in again.stdout
    assert not [line for line in again.stderr.splitlines() if '"task_done"' in line]


def test_what_is_compared_can_be_run_by_its_own_recipe_and_not_exported_as_one(
    compared: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    out, found = compared
    again = corpusmill("run", out / "recipe.yaml", "--out", out, "--workers", "2")
    assert f"verdict: {found['verdict']}" in again.stdout
    assert not [line for line in again.stderr.splitlines() if '"task_done"' in line]
    refused = corpusmill("export", out, "--to", tmp_path / "text", expect=2)
    assert "compares two recipes and has the text of both" in refused.stderr


TARGETS = {"targets": {"x": True, "y": False}, "unigrams": {"x": 9.0, "y": 9.0}, "same": False}


def trials(gains: list[float], loss: float = 2.0) -> Trials:
    """A reaches `loss` at every seed on 50 documents of 100 bytes, B that less the seed's gain; y is the other way round."""
    x = np.full((2, len(gains), 50), 100 * loss)
    y = x.copy()
    for seed, better in enumerate(gains):
        # Documents differ a little, or there would be nothing to tell chance by.
        x[1, seed] -= 100 * better * np.linspace(0.9, 1.1, 50)
        y[1, seed] += 100 * better
    return Trials(
        "",
        ("A", "B"),
        tuple(range(len(gains))),
        {"x": x, "y": y},
        {"x": np.full(50, 100.0), "y": np.full(50, 100.0)},
    )


@pytest.mark.parametrize(
    ("gains", "more", "verdict", "words"),
    [
        ([0.10, 0.11, 0.12], {}, "B", "B is better by 0.1100 bits per byte"),
        ([-0.10, -0.11, -0.12], {}, "A", "A is better by 0.1100 bits per byte"),
        ([0.10, -0.08, 0.02], {}, "no_evidence", "which may be chance"),
        ([0.10, 0.02, 0.07], {}, "no_evidence", "seeds would settle a gain of this size"),
        ([0.10, 0.11, 0.12], {"same": True}, "no_evidence", "both recipes keep the same text"),
        ([0.10, 0.11, 0.12], {"unigrams": {"x": 1.5, "y": 9.0}}, "no_evidence", "have not begun to learn"),
        ([0.0, 0.0, 0.0], {}, "no_evidence", "which may be chance"),
    ],
)
def test_a_recipe_is_named_when_the_interval_leaves_no_doubt_on_targets_that_count(
    gains: list[float], more: dict[str, Any], verdict: str, words: str
) -> None:
    found = trials(gains)
    total = gain(found, "B", "A", {"x": 1.0, "y": 0.0})
    word, reason = verdict_of(found, total, TARGETS | more)
    assert word == verdict
    assert words in reason
