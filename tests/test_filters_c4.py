"""C4: which lines stay, what is counted, what the edited text is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.filters.c4 import C4
from corpusmill.pipeline.errors import RecipeError

KEEP_ALL: dict[str, Any] = {
    "require_terminal_punctuation": False,
    "remove_citations": False,
    "min_words_per_line": None,
    "max_word_length": None,
    "drop_javascript": False,
    "drop_policy": False,
}


def rows(texts: list[str | None]) -> pa.Table:
    return pa.table({"text": pa.array(texts, pa.large_string())})


def left(text: str, **fields: Any) -> str:
    """The edited text under rules of which only `fields` are on."""
    (edited,) = C4(**{**KEEP_ALL, **fields}).edit().edit(rows([text])).to_pylist()
    return text if edited is None else str(edited)


def counts(text: str, **fields: Any) -> dict[str, int]:
    (operation,) = C4(**{**KEEP_ALL, **fields}).measures()
    (row,) = operation.measure(rows([text])).to_pylist()
    return {name.removeprefix("c4_"): value for name, value in row.items()}


@pytest.mark.parametrize("end", [".", "?", "!", '"', "'"])
def test_lines_stay_that_end_in_terminal_punctuation(end: str) -> None:
    text = f"stays{end}\ngoes\ngoes too,\ngoes…\ngoes...\n.{end}"
    expected = [f"stays{end}", f".{end}"]
    assert left(text, require_terminal_punctuation=True) == "\n".join(expected)


def test_lines_stay_that_have_enough_words_between_spaces() -> None:
    assert left("one two three\none two\n\na-b c", min_words_per_line=3) == "one two three"
    assert left("one two three\none two", min_words_per_line=2) == "one two three\none two"


def test_lines_go_that_have_a_word_longer_than_the_longest_allowed() -> None:
    assert left("x" * 10 + "\n" + "y" * 11 + " z", max_word_length=10) == "x" * 10


def test_lines_go_that_name_javascript_or_a_policy_in_any_case() -> None:
    text = "Please enable JavaScript now\nOur Terms of Use apply\nThis site USES COOKIES\nall is well"
    assert left(text, drop_javascript=True) == "\n".join(text.split("\n")[1:])
    assert left(text, drop_policy=True) == "Please enable JavaScript now\nall is well"
    for phrase in (
        "terms of use",
        "privacy policy",
        "cookie policy",
        "uses cookies",
        "use of cookies",
        "use cookies",
    ):
        assert left(f"a {phrase} b", drop_policy=True) == ""
    assert left("terms and uses of a cookie", drop_policy=True) == "terms and uses of a cookie"


def test_citations_are_taken_out_and_other_brackets_left() -> None:
    text = "a[1] b[23][4] c[] d[edit] e[citation needed] f[٣] [x] [1a] [1"
    assert left(text, remove_citations=True) == "a b c d e f [x] [1a] [1"


def test_words_are_counted_before_citations_go_and_the_end_is_looked_at_after() -> None:
    assert left("one two [1]", remove_citations=True, min_words_per_line=3) == "one two"
    assert (
        left("it ends here.[1]\nit ends here. [1]", remove_citations=True, require_terminal_punctuation=True)
        == "it ends here."
    )


def test_lines_are_cut_at_every_line_break_and_stripped() -> None:
    assert left("  a \r\nb\x0bc\u2028\u00a0d\x85e\n\n") == "a\n\nb\nc\nd\ne".replace("\n\n", "\n")
    assert left("a\n\n\nb") == "a\n\n\nb"


def test_lorem_ipsum_and_braces_are_counted_on_lines_that_reach_them() -> None:
    text = "Lorem IPSUM dolor sit\nlorem ipsum\nif (x) { return; }\nthis { is javascript"
    found = counts(text, min_words_per_line=3, drop_javascript=True)
    assert (found["lorem_ipsum"], found["curly_brackets"]) == (1, 1)
    assert (found["lines"], found["lines_kept"]) == (4, 2)


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        ("", 0),
        ("no stop", 1),
        ("One. Two. Three.", 3),
        ('He said "Stop!" and went. Then he came?! Yes.', 4),
        ("Mr. Smith of the U.S. said so.", 1),
        ("Wait... what", 1),
        ("一。二。三。", 3),
        ("a.b", 1),
    ],
)
def test_sentences_of_a_line(line: str, sentences: int) -> None:
    assert counts(line)["sentences"] == sentences


def test_cuts_at_and_beyond_their_thresholds() -> None:
    lorem, curly, sentences = C4().cuts()
    assert (lorem.measure, lorem.at_most) == ("c4_lorem_ipsum", 0)
    assert (curly.measure, curly.at_most) == ("c4_curly_brackets", 0)
    assert (sentences.measure, sentences.at_least) == ("c4_sentences", 5)
    assert C4(drop_lorem_ipsum=False, drop_curly_brackets=False, min_sentences=None).cuts() == ()
    with pytest.raises(RecipeError, match="below 0"):
        C4(min_sentences=-1)


def test_null_means_unchanged_and_an_emptied_text_is_empty() -> None:
    texts = ["One line that stays here.", "gone", None, "One line that stays here.\n"]
    assert C4().edit().edit(rows(texts)).to_pylist() == [None, "", None, "One line that stays here."]


LINE = st.sampled_from(
    [
        "one two three.",
        "x",
        " a b c! ",
        "use cookies now.",
        "see [1] it.",
        "é中 \U0001f600 ok.",
        "{ a b c.",
        "",
    ]
)


@settings(deadline=None)  # the first example compiles
@given(st.lists(LINE, max_size=12), st.sampled_from(["\n", "\r\n", "\u2028", "\x0b"]))
def test_the_edited_text_is_the_lines_that_stay(lines: list[str], gap: str) -> None:
    stays = {"one two three.": "one two three.", " a b c! ": "a b c!", "see [1] it.": "see  it.",
             "é中 \U0001f600 ok.": "é中 \U0001f600 ok.", "{ a b c.": "{ a b c."}  # fmt: skip
    text = gap.join(lines)
    (edited,) = C4().edit().edit(rows([text])).to_pylist()
    assert (text if edited is None else edited) == "\n".join(stays[line] for line in lines if line in stays)


@settings(deadline=None)  # the first example compiles
@given(st.lists(st.text(alphabet="ab. [1]{\n\r\u2028é", max_size=60) | st.none(), max_size=8), st.data())
def test_edits_do_not_depend_on_type_slice_chunks_or_neighbours(
    texts: list[str | None], data: st.DataObject
) -> None:
    rule = C4(min_words_per_line=1)
    whole = rule.edit().edit(rows(texts)).to_pylist()
    cut = data.draw(st.integers(0, len(texts)))
    column = pa.array(texts, data.draw(st.sampled_from([pa.string(), pa.large_string(), pa.string_view()])))
    chunks = pa.table({"text": pa.chunked_array([column[:cut], column[cut:]], column.type)})
    assert rule.edit().edit(chunks).to_pylist() == whole
    assert rule.edit().edit(rows(texts).slice(cut)).to_pylist() == whole[cut:]
    (measure,) = rule.measures()
    assert measure.measure(chunks).to_pylist() == measure.measure(rows(texts)).to_pylist()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("unit", ["[", "[1", "lorem ipsu", "a\n", ".", "use cookie ", "\r", "[edit"])
def test_hostile_texts_of_a_million_characters_are_edited_in_linear_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    assert left(text, remove_citations=True) == text.replace("\r", "\n").strip()


def test_a_row_edited_twice_stays_as_it_is() -> None:
    text = "A first line of words. [1]\nshort\nA second line, longer than that.\nThis page uses cookies."
    once = left(text, remove_citations=True, min_words_per_line=3, drop_policy=True)
    assert once == "A first line of words. \nA second line, longer than that."
    assert left(once, remove_citations=True, min_words_per_line=3, drop_policy=True) == once.replace(
        " \n", "\n"
    )
