"""The filter stage: which layers a list of rules becomes, and what the verdict names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from runs import corpusmill

from corpusmill.filters.measures import StopWords
from corpusmill.pipeline.chain import compile_recipe
from corpusmill.pipeline.documents import DOCUMENTS
from corpusmill.pipeline.engine.stage import Edit, Measure, Stage
from corpusmill.pipeline.engine.task import load_class
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.judge import Judge
from corpusmill.pipeline.recipe import parse_recipe
from corpusmill.pipeline.registry import RULES, name_of

FINEWEB: list[Any] = [
    {"language": {"keep": ["en"]}},
    "gopher_repetition",
    "gopher_quality",
    {"c4": {"require_terminal_punctuation": False}},
    "fineweb_quality",
]


def stages(*filters: Any) -> list[Stage]:
    chain = compile_recipe(parse_recipe({"stages": ["extract", *({"filter": rules} for rules in filters)]}))
    return [stage for stage in chain if not stage.name.startswith(("documents", "ledger"))]


def run(rules: list[Any], texts: list[str], **columns: list[str]) -> list[dict[str, Any]]:
    """The verdict of a filter over texts, its stages run one after the other on one table."""
    table = pa.table({"text": pa.array(texts, pa.large_string()), **columns})
    verdict: list[dict[str, Any]] = []
    for stage in stages(rules):
        if isinstance(stage.operation, Measure):
            measured = stage.operation.measure(table)
            for name in measured.column_names:
                table = table.append_column(name + stage.suffix, measured[name])
        elif isinstance(stage.operation, Edit):
            edited = stage.operation.edit(table).to_pylist()
            after = [
                old if new is None else new
                for old, new in zip(table["text"].to_pylist(), edited, strict=True)
            ]
            table = table.set_column(
                table.column_names.index("text"), "text", pa.array(after, pa.large_string())
            )
        elif isinstance(stage.operation, Judge):
            verdict = stage.operation.judge(table).to_pylist()
    return verdict


def test_fineweb_is_six_layers_and_one_pass_over_each_text() -> None:
    found = stages(FINEWEB)
    assert [stage.name for stage in found] == [
        "filter.language", "filter.measures", "filter.c4_measures", "filter.c4", "filter.measures@c4", "filter.verdict",
    ]  # fmt: skip
    assert [stage.suffix for stage in found] == ["", "", "", "", "@c4", ""]
    assert found[1].text == () and found[4].text == ("filter.c4",)
    measures = [cut.measure for _, cut in found[-1].operation.cuts]  # type: ignore[attr-defined]
    assert measures[:3] == ["language", "language_score", "chars"]
    assert measures[-5:] == [
        "lines@c4", "terminal_line_share@c4", "short_line_share@c4", "dup_line_char_share_of_lines@c4", "newline_ratio@c4",
    ]  # fmt: skip


def test_rules_after_c4_judge_the_edited_text() -> None:
    """A page whose menu would fail FineWeb's short lines; C4 takes the menu out first."""
    story = [
        f"Sentence number {word} of a story that is told at some length."
        for word in "one two three four five six".split()
    ]
    text = "\n".join([*["Home"] * 1, *(f"Menu {letter}" for letter in "abcdefghijklmnopq"), *story])
    with_c4 = run([{"c4": {}}, "fineweb_quality"], [text])
    without = run(["fineweb_quality"], [text])
    assert with_c4[0]["kept"] and not without[0]["kept"]
    assert without[0]["reason"] == "fineweb_quality.short_line_share.at_most"


def test_the_reason_is_the_first_cut_in_recipe_order_and_all_hits_are_kept() -> None:
    rules: list[Any] = [{"gopher_quality": {}}, {"gopher_repetition": {}}]
    (forward,) = run(rules, ["x x x x x x x x"])
    (backward,) = run(rules[::-1], ["x x x x x x x x"])
    assert forward["reason"] == "gopher_quality.words.at_least"
    assert backward["reason"].startswith("gopher_repetition.top_2gram")
    assert forward["cuts_hit"].bit_count() == backward["cuts_hit"].bit_count() > 2


def test_when_limits_a_rule_to_rows_of_a_source_or_language() -> None:
    rules = [{"gopher_quality": {"when": {"source": ["web", "news"]}}}]
    verdict = run(rules, ["too short"] * 3, source=["web", "books", "news"])
    assert [row["kept"] for row in verdict] == [False, True, False]


def test_when_limits_the_edit_of_a_rule_too() -> None:
    """Lines are taken out of web pages only: the same text fails for its short lines where it was left as it is."""
    story = "\n".join(f"Sentence number {n} of a story that is told at some length." for n in range(6))
    text = "\n".join([*(f"Menu {letter}" for letter in "abcdefghijklmnopq"), story])
    rules: list[Any] = [{"c4": {"when": {"source": ["web"]}}}, "fineweb_quality"]
    verdict = run(rules, [text, text], source=["web", "books"])
    assert [row["reason"] for row in verdict] == [None, "fineweb_quality.short_line_share@c4.at_most"]


def test_when_of_an_edit_reads_measures_of_earlier_layers() -> None:
    edit = stages([{"language": {}}, {"c4": {"when": {"language": ["en"]}}}])[2]
    assert (edit.name, edit.columns) == ("filter.c4", {"language": "filter.language"})


def test_when_names_a_language_measured_before_an_edit() -> None:
    rules: list[Any] = [{"language": {}}, {"c4": {}}, {"fineweb_quality": {"when": {"language": ["en"]}}}]
    judge = stages(rules)[-1].operation
    assert judge.cuts[-1][1].only == {"language": ("en",)}  # type: ignore[attr-defined]
    assert judge.cuts[-1][1].measure == "newline_ratio@c4"  # type: ignore[attr-defined]


def test_one_rule_a_language_with_stop_words_of_its_own_shares_one_pass() -> None:
    rules: list[Any] = [
        {"language": {}},
        {"gopher_quality": {"when": {"language": ["en"]}}},
        {"gopher_quality": {"when": {"language": ["fr"]}, "stop_words": ["le", "la"]}},
    ]
    found = stages(rules)
    assert [stage.name for stage in found] == ["filter.language", "filter.measures", "filter.verdict"]
    french = StopWords(("le", "la"))
    assert {"stop_words", french.column()} < set(found[1].operation.schema().names)  # type: ignore[attr-defined]


def test_a_second_filter_uses_an_equal_layer_of_the_same_text_again() -> None:
    found = stages({"name": "one", "rules": ["gopher_quality"]}, {"name": "two", "rules": ["gopher_quality"]})
    assert [stage.name for stage in found] == ["one.measures", "one.verdict", "two.verdict"]


def test_a_filter_after_an_edit_measures_the_edited_text_under_its_name() -> None:
    found = stages(
        {"name": "one", "rules": ["gopher_quality", "c4"]}, {"name": "two", "rules": ["gopher_quality"]}
    )
    assert [stage.name for stage in found][-2:] == ["two.measures@c4", "two.verdict"]


def test_urls_are_measured_once_whatever_the_text() -> None:
    found = stages(["c4", {"url": {"domains": ["bad.com"]}}])
    assert [stage.name for stage in found] == [
        "filter.c4_measures",
        "filter.c4",
        "filter.url",
        "filter.verdict",
    ]
    assert found[2].suffix == "" and found[2].text == ()


def test_two_sets_of_fields_for_one_measure_are_refused() -> None:
    with pytest.raises(RecipeError, match="two rules want url"):
        stages([{"url": {"domains": ["a.com"]}}, {"url": {"domains": ["b.com"]}}])


def test_a_filter_that_can_drop_nothing_is_refused() -> None:
    with pytest.raises(RecipeError, match="every cut of its rules is off"):
        stages([{"language": {"at_least": None}}])


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ({"words": ["5"]}, "when.words: words holds int64"),
        ({"language_score": ["5"]}, "when.language_score: language_score holds double"),
        ({"date": ["2026-03-01"]}, "when.date: date holds timestamp"),
        ({"source": []}, "when.source lists no value"),
        ({"langauge": ["en"]}, "needs the measure 'langauge'"),
    ],
)
@pytest.mark.parametrize("rule", ["fineweb_quality", "c4"])
def test_when_takes_columns_of_text_and_at_least_a_value(
    rule: str, when: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        stages([{"language": {}}, "gopher_quality", {rule: {"when": when}}])


def test_every_registered_rule_is_a_dataclass_that_names_itself() -> None:
    for name, path in RULES.items():
        rule = load_class(path)()
        assert name_of(rule, RULES) == name
        fields = {column for operation in rule.measures() for column in operation.schema().names}
        assert {cut.measure for cut in rule.cuts()} <= fields
        assert not fields & set(DOCUMENTS.names)
        json.dumps([cut.reason(name) for cut in rule.cuts()])


def test_unknown_fields_are_refused_with_a_suggestion() -> None:
    with pytest.raises(RecipeError, match="min_wrods: unknown key; did you mean 'min_words'"):
        stages([{"gopher_quality": {"min_wrods": 5}}])


def test_a_filter_without_an_edit_leaves_the_text_alone() -> None:
    assert [stage.text for stage in stages(["gopher_quality", "gopher_repetition"])] == [(), ()]


def test_whole_recipe_from_foreign_lines_to_verdicts(tmp_path: Path, language_model: Path) -> None:
    """Through the engine: JSON Lines in, reasons out, the ledger adds up."""
    good = (
        "The river has been low since the spring, and the mill that stood on its bank for two hundred years has stopped.\n"
        "People in the village still bring their grain to the old house, where a motor does what the water used to do.\n"
        "They have asked the council to clear the channel, but nobody can say what that would cost or who should pay.\n"
        "Until then, the wheel will be a home for ducks, and children will learn to swim in the quiet pool behind it.\n"
        "It is said that the miller will come back when the rain does. Nobody has seen him since the end of May."
    )
    texts = [
        good,
        "Der Fluss ist seit dem Frühling niedrig, und die alte Mühle am Ufer steht still. " * 3,
        "too short",
        good + " { }",
    ]
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8"
    )
    recipe = {"stages": ["extract", {"filter": FINEWEB}], "inputs": [{"path": str(tmp_path / "in.jsonl")}]}
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    corpusmill("run", tmp_path / "recipe.yaml", "--out", tmp_path / "out", "--workers", "1")
    layers = sorted((tmp_path / "out" / "layers" / "filter.verdict").glob("*/part-*.parquet"))
    reasons = [row for path in layers for row in pq.read_table(path)["reason"].to_pylist()]
    assert reasons == [
        None,
        "language.language.one_of",
        "gopher_repetition.top_2gram_char_share.at_most",  # "too short" is one 2-gram, all of the text
        "c4.c4_curly_brackets.at_most",
    ]
