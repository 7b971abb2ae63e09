"""TextMeasures against definitions written out in plain Python, and its independence of how rows are stored and batched."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.filters.measures import GOPHER_STOP_WORDS, StopWords, TextMeasures
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.text import chars
from corpusmill.pipeline.text.words import words

# Few letters, so that lines, paragraphs and n-grams repeat.
TEXT = st.text(alphabet="ab the.…#-•!,1 \n\n\n\r\x0b\u2028é中", max_size=200) | st.lists(
    st.sampled_from(["the cat", "a b c", "x", "", " ", "- of", "…", "The end."]), max_size=30
).map("\n".join)


def measured(texts: Sequence[str | None], operation: TextMeasures = TextMeasures()) -> list[dict[str, float]]:  # noqa: B008
    return operation.measure(pa.table({"text": pa.array(texts, pa.large_string())})).to_pylist()


def share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def flag(char: str, flag: int) -> bool:
    return bool(chars.CLASS[ord(char)] & flag)


def doubled(items: list[str]) -> tuple[int, int]:
    """(items that stood before, their characters)"""
    again = [item for i, item in enumerate(items) if item in items[:i]]
    return len(again), sum(map(len, again))


def top(pieces: list[str], n: int) -> int:
    grams = [" ".join(pieces[i : i + n]) for i in range(len(pieces) - n + 1)]
    if not grams:
        return 0
    gram, count = Counter(grams).most_common(1)[0]
    return len(gram) * count


def repeated(pieces: list[str], n: int) -> int:
    seen = set()
    found = i = 0
    while i + n <= len(pieces):
        gram = tuple(pieces[i : i + n])
        if gram in seen:
            found += sum(map(len, gram))
            i += n
        else:
            seen.add(gram)
            i += 1
    return found


def by_definition(text: str) -> dict[str, float]:
    pieces = words(text)
    spoken = [word for word in pieces if not all(flag(char, chars.BARE) for char in word)]
    lines = [line for line in text.split("\n") if line.strip()]
    paragraphs = [part for part in re.split(r"\n{2,}", text.strip()) if part.strip()]
    shown = text.splitlines()
    found = {
        "chars": len(text),
        "words": len(spoken),
        "symbols": len(pieces) - len(spoken),
        "mean_word_length": share(sum(map(len, spoken)), len(spoken)),
        "hash_ratio": share(text.count("#"), len(pieces)),
        "ellipsis_ratio": share(text.count("...") + text.count("…"), len(pieces)),
        "bullet_line_share": share(sum(line.lstrip().startswith(("•", "-")) for line in shown), len(shown)),
        "ellipsis_line_share": share(sum(line.rstrip().endswith(("...", "…")) for line in shown), len(shown)),
        "alpha_word_share": share(sum(any(map(str.isalpha, word)) for word in pieces), len(pieces)),
        "stop_words": len(set(pieces) & set(GOPHER_STOP_WORDS)),
        "lines": len(lines),
        "terminal_line_share": share(sum(flag(line[-1], chars.TERMINAL) for line in lines), len(lines)),
        "newline_ratio": share(text.count("\n"), len(pieces)),
        "short_line_share": share(sum(len(line) <= 30 for line in lines), len(lines)),
        "dup_line_share": share(doubled(lines)[0], len(lines)),
        "dup_line_char_share": share(doubled(lines)[1], len(text)),
        "dup_line_char_share_of_lines": share(doubled(lines)[1], len(text.replace("\n", ""))),
        "dup_paragraph_share": share(doubled(paragraphs)[0], len(paragraphs)),
        "dup_paragraph_char_share": share(doubled(paragraphs)[1], len(text)),
    }
    found |= {f"top_{n}gram_char_share": share(top(pieces, n), len(text)) for n in (2, 3, 4)}
    return found | {f"dup_{n}gram_char_share": share(repeated(pieces, n), len(text)) for n in range(5, 11)}


@settings(max_examples=300, deadline=None)
@given(st.lists(TEXT, max_size=5))
def test_every_measure_is_what_its_definition_says(texts: list[str]) -> None:
    assert measured(texts) == [by_definition(text) for text in texts]


def test_values_worked_out_by_hand() -> None:
    (row,) = measured(["The cat sat. # x\n\nThe cat sat. # x\n- of the…\n"])
    # Words: The cat sat . # x | The cat sat . # x | - of the …; symbols: . # . # - and the ellipsis.
    assert (row["words"], row["symbols"], row["chars"]) == (10, 6, 45)
    assert row["mean_word_length"] == (3 + 3 + 3 + 1 + 3 + 3 + 3 + 1 + 2 + 3) / 10
    assert (row["hash_ratio"], row["ellipsis_ratio"]) == (2 / 16, 1 / 16)
    assert row["alpha_word_share"] == 10 / 16
    assert (row["lines"], row["dup_line_share"], row["newline_ratio"]) == (3, 1 / 3, 4 / 16)
    assert (row["dup_line_char_share"], row["dup_line_char_share_of_lines"]) == (16 / 45, 16 / 41)
    assert (row["bullet_line_share"], row["ellipsis_line_share"]) == (
        1 / 4,
        1 / 4,
    )  # the blank line counts here
    assert row["stop_words"] == 2  # of, the; "The" is another spelling
    assert (row["terminal_line_share"], row["short_line_share"]) == (0, 1)


def test_an_empty_text_measures_nothing_and_null_stays_null() -> None:
    empty, null = measured(["", None])
    assert set(empty.values()) == {0}
    assert set(null.values()) == {None}


def test_blank_lines_are_no_duplicates() -> None:
    """Thirty different paragraphs between blank lines, one kind with white space in the blank lines, repeat nothing."""
    for gap in ("\n\n", "\n \n", "\n\t\n   \n"):
        (row,) = measured([gap.join(f"Paragraph number {n} says something else." for n in range(30))])
        assert row["lines"] == 30
        assert {row[name] for name in row if name.startswith(("dup_line", "dup_paragraph"))} == {0}


LAYOUTS = [pa.string(), pa.large_string(), pa.string_view()]


@settings(deadline=None)  # the first example compiles
@given(st.lists(TEXT | st.none(), min_size=1, max_size=8), st.data())
def test_measures_do_not_depend_on_type_slice_chunks_or_neighbours(
    texts: list[str | None], data: st.DataObject
) -> None:
    whole = measured(texts)
    kind = data.draw(st.sampled_from(LAYOUTS))
    a = data.draw(st.integers(0, len(texts)))
    b = data.draw(st.integers(a, len(texts)))
    cut = data.draw(st.integers(0, len(texts)))
    column = pa.array(texts, kind)
    chunks = pa.chunked_array([column[:cut], column[cut:]], kind)
    assert TextMeasures().measure(pa.table({"text": chunks})).to_pylist() == whole
    assert TextMeasures().measure(pa.table({"text": column}).slice(a, b - a)).to_pylist() == whole[a:b]
    assert [row for text in texts for row in measured([text])] == whole


def test_no_rows_give_an_empty_table_of_the_schema() -> None:
    table = TextMeasures().measure(pa.table({"text": pa.array([], pa.large_string())}))
    assert (table.num_rows, table.schema) == (0, TextMeasures().schema())
    assert all(b"about" in field.metadata for field in table.schema)


def test_stop_word_lists_are_counted_apart_in_one_pass() -> None:
    french = StopWords(("le", "la", "et"))
    loose = StopWords(("THE", "le"), any_case=True)
    both = TextMeasures(stop_words=(french,)).joined(TextMeasures(stop_words=(loose, StopWords())))
    (row,) = measured(["The cat et le chien et LE the of"], both)
    assert (row["stop_words"], row[french.column()], row[loose.column()]) == (2, 2, 2)
    assert len({"stop_words", french.column(), loose.column()}) == 3


def test_the_order_of_a_stop_word_list_does_not_matter() -> None:
    assert StopWords(("le", "la")) == StopWords(("la", "le", "la"))


def test_short_lines_of_other_lengths_are_columns_of_their_own() -> None:
    operation = TextMeasures(short_lines=(30,)).joined(TextMeasures(short_lines=(3,)))
    (row,) = measured(["abc\nabcd\n\n" + "x" * 31], operation)
    assert (row["short_line_share"], row["short_line_share_3"]) == (2 / 3, 1 / 3)


def test_too_many_stop_words_and_another_splitter_are_refused() -> None:
    with pytest.raises(RecipeError, match="1000 words"):
        TextMeasures(stop_words=(StopWords(tuple(map(str, range(1001)))),))
    with pytest.raises(RecipeError, match="splitter english-0"):
        TextMeasures(splitter="english-0")


@pytest.mark.timeout(300)
def test_a_text_is_read_as_far_as_the_window_and_its_length_is_known() -> None:
    (row,) = measured(["ab " * 1_000_000])
    assert row["chars"] == 3_000_000
    assert row["words"] == (1 << 21) // 3 + 1  # the window ends inside a word
    assert row["mean_word_length"] == pytest.approx(2)
    assert row["dup_5gram_char_share"] == pytest.approx(2 / 3, abs=1e-4)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("unit", ["a", "\n", ".", "[1", "a\n", "a b\n\n", "a@", "中", "\u0300", "\U0001f600"])
def test_hostile_texts_of_a_million_characters_are_measured_in_linear_time(unit: str) -> None:
    (row,) = measured([unit * (1_000_000 // len(unit))])
    assert row["chars"] == 1_000_000 // len(unit) * len(unit)
