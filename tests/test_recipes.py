"""The built-in recipes are what their heads say: order and every value that differs from a default, pinned from the publications."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pydantic")
from corpusmill.pipeline.chain import compile_recipe
from corpusmill.pipeline.recipe import Recipe, builtin_names, load_recipe


def order(recipe: Recipe) -> list[str]:
    return [stage.key for stage in recipe.stages]


def rules(recipe: Recipe) -> list[str]:
    return [
        type(rule).__name__ for stage in recipe.stages if stage.key == "filter" for rule in stage.config.rules
    ]


def config(recipe: Recipe, key: str) -> Any:
    return next(stage.config for stage in recipe.stages if stage.key == key)


def rule(recipe: Recipe, kind: str) -> Any:
    return next(
        rule
        for stage in recipe.stages
        if stage.key == "filter"
        for rule in stage.config.rules
        if type(rule).__name__ == kind
    )


@pytest.mark.parametrize("name", ["demo", "fineweb", "fineweb2"])
def test_a_built_in_recipe_is_listed_and_parses(name: str) -> None:
    assert name in builtin_names()
    assert load_recipe(name).stages[0].key == "extract"


def test_fineweb_filters_before_it_deduplicates_and_redacts_last() -> None:
    recipe = load_recipe("fineweb")
    assert order(recipe) == ["extract", "filter", "dedup", "redact"]
    assert rules(recipe) == ["Url", "Language", "GopherRepetition", "GopherQuality", "C4", "FineWebQuality"]


def test_fineweb2_deduplicates_before_it_judges_quality() -> None:
    recipe = load_recipe("fineweb2")
    assert order(recipe) == ["extract", "filter", "dedup", "filter", "redact"]
    assert rules(recipe) == ["Url", "Language", "GopherRepetition", "FineWebQuality", "GopherQuality"]


def test_fineweb_is_english_and_within_each_dump() -> None:
    recipe = load_recipe("fineweb")
    language, dedup = rule(recipe, "Language"), config(recipe, "dedup")
    assert (language.keep, language.at_least) == (("en",), 0.65)
    assert (dedup.bands, dedup.rows, dedup.ngram, dedup.scope) == (14, 8, 5, "source")
    assert config(load_recipe("fineweb2"), "dedup").scope == "global"


def test_the_values_of_fineweb_are_the_published_ones() -> None:
    recipe = load_recipe("fineweb")
    repetition = rule(recipe, "GopherRepetition")
    assert [
        repetition.max_duplicate_paragraphs,
        repetition.max_duplicate_paragraph_characters,
        repetition.max_duplicate_lines,
        repetition.max_duplicate_line_characters,
    ] == [0.3, 0.2, 0.3, 0.2]
    assert [getattr(repetition, f"max_top_{n}gram_characters") for n in (2, 3, 4)] == [0.2, 0.18, 0.16]
    duplicated = [getattr(repetition, f"max_duplicate_{n}gram_characters") for n in range(5, 11)]
    assert duplicated == [0.15, 0.14, 0.13, 0.12, 0.11, 0.1]
    quality = rule(recipe, "GopherQuality")
    assert (quality.min_words, quality.max_words) == (50, 100_000)
    assert (quality.min_mean_word_length, quality.max_mean_word_length) == (3, 10)
    assert (quality.max_hash_ratio, quality.max_ellipsis_ratio, quality.min_alpha_words) == (0.1, 0.1, 0.8)
    assert (quality.max_bullet_lines, quality.max_ellipsis_lines, quality.min_stop_words) == (0.9, 0.3, 2)
    c4 = rule(recipe, "C4")
    assert not c4.require_terminal_punctuation
    assert (c4.min_sentences, c4.min_words_per_line, c4.max_word_length) == (5, 3, 1000)
    assert c4.remove_citations and c4.drop_javascript and c4.drop_policy
    assert c4.drop_lorem_ipsum and c4.drop_curly_brackets
    fineweb = rule(recipe, "FineWebQuality")
    assert (fineweb.min_terminal_lines, fineweb.max_short_lines, fineweb.short_line_length) == (
        0.12,
        0.67,
        30,
    )
    assert (fineweb.max_duplicate_line_characters, fineweb.max_newline_ratio) == (0.01, 0.3)


def test_fineweb2_switches_off_what_its_pipeline_sets_to_zero() -> None:
    recipe = load_recipe("fineweb2")
    repetition, fineweb = rule(recipe, "GopherRepetition"), rule(recipe, "FineWebQuality")
    assert repetition.max_duplicate_paragraphs is None
    assert repetition.max_duplicate_paragraph_characters is None
    assert repetition.max_duplicate_line_characters is None
    assert repetition.max_duplicate_lines == 0.3
    assert (fineweb.max_short_lines, fineweb.max_duplicate_line_characters) == (None, 0.1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fineweb", ["filter.verdict", "dedup.verdict", "redact"]),
        (
            "fineweb2",
            ["language.verdict", "dedup.verdict", "quality.verdict", "redact"],
        ),
    ],
)
def test_compiled_stages_run_in_the_order_of_the_recipe(name: str, expected: list[str]) -> None:
    names = [stage.name for stage in compile_recipe(load_recipe(name).with_inputs(["a.warc.gz"]))]
    assert [name for name in names if name in expected] == expected
    assert names[0] == "documents"
