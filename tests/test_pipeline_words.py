"""The splitter: what is one word, and that no character is lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.text.words import EXCEPTIONS, LONGEST, SLOTS, UNITS, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (" \n\t ", ""),
        ("(Hello!)", "( Hello ! )"),
        ('"Yes," he said.', '" Yes , " he said .'),
        ("don't can't cannot gonna I'm she'll", "do n't ca n't can not gon na I 'm she 'll"),
        ("John's dogs'", "John 's dogs '"),
        ("Mr. Smith lives in the U.S. today.", "Mr. Smith lives in the U.S. today ."),
        ("It ends in NATO. And so", "It ends in NATO . And so"),
        ("well-known and/or 3-4 a-1 2x3", "well - known and/or 3 - 4 a-1 2x3"),
        ("one.Two three.four", "one . Two three.four"),
        ("wait... what..? so…", "wait ... what .. ? so …"),
        (
            "see http://example.com/a,b?c=d, or x@example.org.",
            "see http://example.com/a,b?c=d , or x@example.org .",
        ),
        ("5km 10% $5 5$ US$5 +7 7+", "5 km 10 % $ 5 5 $ US$ 5 +7 7 +"),
        ("10:30 a:b a,b 1,000", "10:30 a : b a , b 1,000"),
        ("this—that this--that", "this — that this -- that"),
        ("done:) :-( x", "done :) :-( x"),
        ("😀😀 ok😀", "😀 😀 ok 😀"),
        ("#tag @name *bold*", "# tag @name * bold *"),
    ],
)
def test_english_is_cut_as_the_rules_say(text: str, expected: str) -> None:
    assert words(text) == expected.split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我爱你。好", "我 爱 你 。 好"),
        ("カタカナとGPT-4", "カ タ カ ナ と GPT-4"),
        ("ภาษาไทย", "ภ า ษ า ไ ท ย"),
        ("กิน", "กิ น"),
        ("한국어 말", "한국어 말"),
    ],
)
def test_scripts_without_spaces_are_cut_by_letter_with_its_marks(text: str, expected: str) -> None:
    assert words(text) == expected.split()


def test_marks_stay_inside_words() -> None:
    assert words("हिन्दी cafe\u0301 é") == ["हिन्दी", "cafe\u0301", "é"]


@settings(deadline=None)  # the first example compiles
@given(st.text() | st.text(alphabet="a.B-'’,:)( \n1$…中กิ@/s+", max_size=60))  # noqa: RUF001
def test_words_together_are_the_text_without_its_white_space(text: str) -> None:
    assert "".join(words(text)) == "".join(text.split())


@settings(deadline=None)  # the first example compiles
@given(st.lists(st.text(alphabet="aB.-'):(1$中 ", min_size=1, max_size=20), max_size=8))
def test_words_of_pieces_between_spaces_do_not_depend_on_their_neighbours(pieces: list[str]) -> None:
    assert words(" ".join(pieces)) == [word for piece in pieces for word in words(piece)]


def test_exceptions_fit_the_table_that_looks_them_up() -> None:
    assert all(sum(lengths) == len(word) <= LONGEST for word, lengths in EXCEPTIONS.items())
    assert all(max(lengths) < 16 for lengths in EXCEPTIONS.values())
    assert len(EXCEPTIONS) + len(UNITS.split()) < SLOTS / 4


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "unit",
    ["(", ")", ".", "'", "-", "a@", "a.", "a-", "5k", ":)", "a=", "://", "@a.b", "[1", "…", "n't", "中", "ิ"],
)
def test_a_hostile_piece_of_half_a_million_characters_is_cut_in_linear_time(unit: str) -> None:
    text = unit * (500_000 // len(unit))
    assert "".join(words(text)) == text
