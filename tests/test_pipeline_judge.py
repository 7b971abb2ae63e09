"""Cuts, verdicts and the ledger: which rows are kept, and what is said of the others."""

import json

import numpy as np
import pyarrow as pa
import pytest

from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.judge import MAX_CUTS, Judge
from corpusmill.pipeline.rules import Cut


def judge(cuts: list[tuple[str, Cut]], **columns: object) -> list[dict[str, object]]:
    return Judge(tuple(cuts)).judge(pa.table(columns)).to_pylist()


def test_bounds_are_inclusive_and_the_first_failing_cut_in_recipe_order_is_the_reason() -> None:
    cuts = [
        ("length", Cut("words", at_least=50)),
        ("length", Cut("words", at_most=100)),
        ("links", Cut("links", at_most=3)),
    ]
    rows = judge(cuts, words=[49, 50, 100, 101, 10], links=[0, 3, 3, 0, 9])
    assert [row["kept"] for row in rows] == [False, True, True, False, False]
    assert [row["reason"] for row in rows] == [
        "length.words.at_least",
        None,
        None,
        "length.words.at_most",
        "length.words.at_least",
    ]


def test_all_failing_cuts_are_recorded_not_only_the_first() -> None:
    cuts = [("a", Cut("x", at_least=1)), ("b", Cut("y", at_most=1)), ("c", Cut("y", at_least=1))]
    (row,) = judge(cuts, x=[0], y=[2])
    assert row["cuts_hit"] == 0b011


@pytest.mark.parametrize("value", [None, float("nan")])
def test_a_row_without_a_measure_is_dropped_as_unmeasured_never_kept(value: float | None) -> None:
    (row,) = judge([("a", Cut("x", at_least=0.0))], x=pa.array([value], pa.float64()))
    assert (row["kept"], row["reason"]) == (False, "unmeasured")


def test_choices_and_conditions() -> None:
    cuts = [
        ("language", Cut("language", one_of=("en", "de"))),
        ("strict", Cut("score", at_least=0.9, only={"language": ("de",)})),
        ("ban", Cut("host", none_of=("bad.example",))),
    ]
    rows = judge(
        cuts,
        language=["en", "de", "de", "fr", "en"],
        score=[0.1, 0.8, 0.9, 1.0, 1.0],
        host=["a", "a", "a", "a", "bad.example"],
    )
    assert [row["reason"] for row in rows] == [
        None,
        "strict.score.at_least",
        None,
        "language.language.one_of",
        "ban.host.none_of",
    ]


def test_a_float32_measure_is_compared_with_the_bound_as_written() -> None:
    value = pa.array([np.float32(0.2)], pa.float32())  # 0.200000003 as float64
    (row,) = judge([("a", Cut("x", at_most=0.2))], x=value)
    assert row["kept"] is False


def test_cut_names_stand_in_the_schema() -> None:
    schema = Judge((("a", Cut("x", at_least=1)),)).schema()
    assert json.loads(schema.metadata[b"cuts"]) == ["a.x.at_least"]


def test_more_cuts_than_bits_are_refused() -> None:
    with pytest.raises(RecipeError, match="split it"):
        Judge(tuple(("a", Cut("x", at_least=i)) for i in range(MAX_CUTS + 1)))
    last = Judge(tuple(("a", Cut("x", at_least=i)) for i in range(MAX_CUTS))).judge(
        pa.table({"x": [MAX_CUTS - 2]})
    )
    assert last["cuts_hit"].to_pylist() == [1 << (MAX_CUTS - 1)]
