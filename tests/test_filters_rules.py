"""The published rules: at each threshold a text passes, beyond it the text is cut for that reason."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pyarrow as pa
import pytest

from corpusmill.filters.fineweb import FineWebQuality
from corpusmill.filters.gopher import GopherQuality, GopherRepetition
from corpusmill.filters.measures import TextMeasures
from corpusmill.filters.rule import FilterRule
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.judge import MAX_CUTS, Judge


def only(kind: Any, *names: str, **fields: Any) -> FilterRule:
    """The rule with all thresholds off but the named ones."""
    bounds = [name for name in kind.__dataclass_fields__ if name.startswith(("min_", "max_"))]
    rule: FilterRule = kind(**{name: None for name in bounds if name not in names}, **fields)
    return rule


def hits(rule: FilterRule, text: str) -> list[str]:
    """`measure.bound` of every cut that the text hits."""
    (operation,) = rule.measures()
    judge = Judge(tuple(("r", cut) for cut in rule.cuts()))
    verdict = judge.judge(operation.measure(pa.table({"text": pa.array([text], pa.large_string())})))
    mask = verdict["cuts_hit"][0].as_py()
    assert not mask >> MAX_CUTS, "a measure is null or not a number"
    return [name.removeprefix("r.") for bit, name in enumerate(judge.reasons()) if mask >> bit & 1]


def lines(different: int, same: int, text: str = "A line of some words, number {}.") -> str:
    """`different` lines, then the first of them `same` more times."""
    each = [text.format(chr(ord("a") + n)) for n in range(different)]
    return "\n".join([*each, *[each[0]] * same])


@pytest.mark.parametrize(
    ("name", "passes", "fails", "reason"),
    [
        ("min_words", "word " * 50, "word " * 49 + ", . !", "words.at_least"),
        ("max_words", "word " * 100_000, "word " * 100_001, "words.at_most"),
        ("min_mean_word_length", "ab abcd .", "ab abc .", "mean_word_length.at_least"),
        ("max_mean_word_length", "a" * 9 + " " + "b" * 11, "a" * 9 + " " + "b" * 12, "mean_word_length.at_most"),
        ("max_hash_ratio", "a b c d e f g h i #", "a b c d e f g h #", "hash_ratio.at_most"),
        ("max_ellipsis_ratio", "a b c d e f g h i …", "a b c d e f g h ...", "ellipsis_ratio.at_most"),
        ("max_bullet_lines", "- a\n • b\n" * 4 + "-c\nd", "- a\n • b\n" * 5, "bullet_line_share.at_most"),
        ("max_ellipsis_lines", "a…\n" * 3 + "b\n" * 7, "a... \n" * 4 + "b\n" * 6, "ellipsis_line_share.at_most"),
        ("min_alpha_words", "a b c d e f g h 1 !", "a b c d e f g 1 !", "alpha_word_share.at_least"),
        ("min_stop_words", "the be", "the the The Of", "stop_words.at_least"),
    ],
)  # fmt: skip
def test_gopher_quality_at_and_beyond_each_threshold(name: str, passes: str, fails: str, reason: str) -> None:
    rule = only(GopherQuality, name)
    assert hits(rule, passes) == []
    assert hits(rule, fails) == [reason]


@pytest.mark.parametrize(
    ("name", "passes", "fails", "reason"),
    [
        ("max_duplicate_lines", lines(7, 3), lines(6, 4), "dup_line_share.at_most"),
        ("max_duplicate_paragraphs", lines(7, 3).replace("\n", "\n\n"), lines(6, 4).replace("\n", "\n\n"), "dup_paragraph_share.at_most"),
        # 2 of 10 characters, line breaks included, stand in lines that repeat; then 2 of 9.
        ("max_duplicate_line_characters", "ab\nab\nabcd", "ab\nab\nabc", "dup_line_char_share.at_most"),
        ("max_duplicate_paragraph_characters", "ab\n\nab\n\ncd", "ab\n\nab\n\nc", "dup_paragraph_char_share.at_most"),
        # "a b" twice is 6 of 30 characters; of 29.
        ("max_top_2gram_characters", "a b a b " + "z" * 22, "a b a b " + "z" * 21, "top_2gram_char_share.at_most"),
        # "a b c" twice is 10 of 56 characters, under 0.18; 10 of 55.
        ("max_top_3gram_characters", "a b c a b c " + "z" * 44, "a b c a b c " + "z" * 43, "top_3gram_char_share.at_most"),
        # "a b c d" twice is 14 of 88 characters, under 0.16; 14 of 87.
        ("max_top_4gram_characters", "a b c d a b c d " + "z" * 72, "a b c d a b c d " + "z" * 71, "top_4gram_char_share.at_most"),
    ],
)  # fmt: skip
def test_gopher_repetition_at_and_beyond_each_threshold(
    name: str, passes: str, fails: str, reason: str
) -> None:
    rule = only(GopherRepetition, name)
    assert hits(rule, passes) == []
    assert hits(rule, fails) == [reason]


@pytest.mark.parametrize(("n", "most"), [(5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10)])
def test_repeated_long_ngrams_at_and_beyond_each_threshold(n: int, most: float) -> None:
    """n words of one letter stand twice: n characters repeat, spaces do not count, and the length of the text decides."""
    rule = only(GopherRepetition, f"max_duplicate_{n}gram_characters")
    twice = " ".join([*"abcdefghij"[:n], *"abcdefghij"[:n]]) + " "
    length = math.ceil(n / most - 1e-9)
    assert hits(rule, twice.ljust(length, "z")) == []
    assert hits(rule, twice.ljust(length - 1, "z")) == [f"dup_{n}gram_char_share.at_most"]


@pytest.mark.parametrize(
    ("name", "passes", "fails", "reason"),
    [
        ("min_terminal_lines", "a.\n" * 3 + "b\n" * 22, "a.\n" * 2 + "b.\x20\n" + "b\n" * 22, "terminal_line_share.at_least"),
        ("max_short_lines", "a\n" * 67 + ("b" * 31 + "\n") * 33, "a\n" * 67 + "b" * 30 + "\n" + ("c" * 31 + "\n") * 32, "short_line_share.at_most"),
        # One character of a hundred that are no newline; of 99.
        ("max_duplicate_line_characters", "a\na\n\n" + "b" * 98, "a\na\n\n" + "b" * 97, "dup_line_char_share_of_lines.at_most"),
        ("max_newline_ratio", "a b c d\n\n\ne f g h i j", "a b c d\n\n\ne f g h i", "newline_ratio.at_most"),
    ],
)  # fmt: skip
def test_fineweb_quality_at_and_beyond_each_threshold(
    name: str, passes: str, fails: str, reason: str
) -> None:
    rule = only(FineWebQuality, name)
    assert hits(rule, passes) == []
    assert hits(rule, fails) == [reason]


def test_an_empty_text_is_cut_whatever_is_off() -> None:
    assert hits(only(GopherRepetition), "") == ["chars.at_least"]
    assert hits(only(FineWebQuality), " \n ") == ["lines.at_least"]
    assert hits(only(GopherQuality), "") == []


def test_every_reason_of_a_text_is_told_not_only_the_first() -> None:
    assert hits(GopherQuality(), "# ## …") == [
        "words.at_least",
        "mean_word_length.at_least",
        "hash_ratio.at_most",
        "ellipsis_ratio.at_most",
        "ellipsis_line_share.at_most",
        "alpha_word_share.at_least",
        "stop_words.at_least",
    ]


def test_stop_words_can_be_another_list_in_any_case() -> None:
    rule = only(GopherQuality, "min_stop_words", stop_words=("le", "la", "et"), stop_words_any_case=True)
    assert hits(rule, "Le chat ET la souris") == []
    assert len(hits(rule, "the be to of le")) == 1


def test_the_length_of_a_short_line_is_a_field() -> None:
    text = "a" * 40 + "\n" + "b" * 41
    assert hits(only(FineWebQuality, "max_short_lines", short_line_length=39), text) == []
    assert (
        hits(FineWebQuality(max_short_lines=0.4, short_line_length=40), text)[0]
        == "terminal_line_share.at_least"
    )
    assert "short_line_share_40.at_most" in hits(
        FineWebQuality(max_short_lines=0.4, short_line_length=40), text
    )


@pytest.mark.parametrize("kind", [GopherQuality, GopherRepetition, FineWebQuality])
def test_cuts_name_measures_that_the_rule_computes_and_null_is_off(kind: Any) -> None:
    (operation,) = kind().measures()
    assert {cut.measure for cut in kind().cuts()} <= set(operation.schema().names)
    assert all(cut.measure in ("chars", "lines") for cut in only(kind).cuts())
    assert dataclasses.is_dataclass(kind())


def test_thresholds_that_can_not_be_meant_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"GopherRepetition.max_top_2gram_characters: 20 is no share"):
        GopherRepetition(max_top_2gram_characters=20)
    with pytest.raises(RecipeError, match=r"GopherQuality.min_words: -1 is below 0; null turns the cut off"):
        GopherQuality(min_words=-1)
    with pytest.raises(RecipeError, match="no share"):
        FineWebQuality(max_short_lines=999)


def test_defaults_are_the_published_ones() -> None:
    bounds = {
        (cut.measure, "min" if cut.at_least is not None else "max"): cut.at_least
        if cut.at_least is not None
        else cut.at_most
        for rule in (GopherRepetition(), GopherQuality(), FineWebQuality())
        for cut in rule.cuts()
    }
    assert bounds == {
        ("chars", "min"): 1, ("lines", "min"): 1,
        ("dup_paragraph_share", "max"): 0.3, ("dup_paragraph_char_share", "max"): 0.2,
        ("dup_line_share", "max"): 0.3, ("dup_line_char_share", "max"): 0.2,
        ("top_2gram_char_share", "max"): 0.2, ("top_3gram_char_share", "max"): 0.18, ("top_4gram_char_share", "max"): 0.16,
        ("dup_5gram_char_share", "max"): 0.15, ("dup_6gram_char_share", "max"): 0.14, ("dup_7gram_char_share", "max"): 0.13,
        ("dup_8gram_char_share", "max"): 0.12, ("dup_9gram_char_share", "max"): 0.11, ("dup_10gram_char_share", "max"): 0.1,
        ("words", "min"): 50, ("words", "max"): 100_000, ("mean_word_length", "min"): 3, ("mean_word_length", "max"): 10,
        ("hash_ratio", "max"): 0.1, ("ellipsis_ratio", "max"): 0.1, ("bullet_line_share", "max"): 0.9,
        ("ellipsis_line_share", "max"): 0.3, ("alpha_word_share", "min"): 0.8, ("stop_words", "min"): 2,
        ("terminal_line_share", "min"): 0.12, ("short_line_share", "max"): 0.67, ("dup_line_char_share_of_lines", "max"): 0.01,
        ("newline_ratio", "max"): 0.3,
    }  # fmt: skip


def test_a_whole_page_of_plain_english_passes_all_rules() -> None:
    text = (
        "The river has been low since the spring, and the mill that stood on its bank for two hundred years has stopped.\n"
        "People in the village still bring their grain to the old house, where a motor does what the water used to do.\n"
        "They have asked the council to clear the channel, but nobody can say what that would cost or who should pay.\n"
        "Until then, the wheel will be a home for ducks, and children will learn to swim in the quiet pool behind it."
    )
    for rule in (GopherRepetition(), GopherQuality(), FineWebQuality()):
        assert hits(rule, text) == []
    assert TextMeasures().measure(pa.table({"text": [text]}))["lines"].to_pylist() == [4]
