"""Our own engine: words cut as the regular expressions cut them, pairs merged as `tokenizers` merges them, memory that stays."""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_runs import vocabulary_of
from tokenizers import Regex, pre_tokenizers

from corpusmill.pipeline.errors import ModelError
from corpusmill.pipeline.text import byte_level, cutting
from corpusmill.pipeline.text.battery import differs, first_difference, pages, strings
from corpusmill.pipeline.text.byte_level import ByteLevel
from corpusmill.pipeline.text.engines import HuggingFace
from corpusmill.pipeline.text.pretokens import SHAPES, flags_of_characters, shape_of, word_end
from corpusmill.pipeline.text.rank_files import PATTERNS, byte_letters, from_ranks
from corpusmill.pipeline.text.remembered import LINE, lines
from corpusmill.pipeline.text.short_words import short_end
from corpusmill.pipeline.text.tokenizer import train_bpe
from corpusmill.pipeline.text.vectors import BYTES

EOS = "<|endoftext|>"
PATTERN_NAMES = list(PATTERNS)
REGULAR = list(SHAPES)


@cache
def trained() -> dict[str, Any]:
    """A vocabulary as we train it, whose merges alone count."""
    found: dict[str, Any] = json.loads(train_bpe(list(pages(400_000)), 2500))
    return found


@cache
def rank_file() -> bytes:
    """Its tokens as ranks, and one that no merging leads to."""
    byte_of = {letter: byte for byte, letter in enumerate(byte_letters())}
    tokens = [bytes(map(byte_of.__getitem__, token)) for token in trained()["model"]["vocab"] if token != EOS]
    return b"".join(
        base64.b64encode(token) + f" {rank}\n".encode() for rank, token in enumerate([*tokens, b"zqxjkv"])
    )


@cache
def both(pattern: str) -> tuple[HuggingFace, ByteLevel]:
    """The reference and our engine, for ranks whose words are cut by `pattern`."""
    reference = HuggingFace(from_ranks(rank_file(), "ranks", pattern), "ranks")
    return reference, ByteLevel(reference.content)


def assert_equal(reference: HuggingFace, engine: ByteLevel, texts: list[str]) -> None:
    place = differs(reference.encode(texts), engine.encode(texts))
    assert place is None, ascii(texts[place or 0][:200])


@numba.njit
def walk(data: Any, end: Any, flags: Any, shape: Any, stops: Any, short: Any) -> Any:
    i, found = 0, 0
    while i < end:
        stops[found] = word_end(data, i, end, flags, shape)
        short[found] = short_end(data, i, end, shape)
        i = stops[found]
        found += 1
    return found


def walked(text: str, pattern: str) -> tuple[list[int], int]:
    """Where words end, and of how many `short_end` knew it; it has to know the same or nothing."""
    data = np.frombuffer(text.encode() + bytes(BYTES), np.uint8).copy()
    size = len(data) - BYTES
    stops, short = np.zeros(size, np.int64), np.zeros(size, np.int64)
    count = walk(data, size, flags_of_characters(), SHAPES[pattern], stops, short)
    stops, short = stops[:count], short[:count]
    starts = np.concatenate([[0], stops])[:-1]
    differ = (short != stops) & (short != starts)
    assert not differ.any(), text.encode()[starts[differ.argmax()] :][:BYTES]
    return stops.tolist(), int((short == stops).sum())


def ends_of_words(text: str, pattern: str) -> list[int]:
    return walked(text, pattern)[0]


odd_letters = st.sampled_from(
    "abSsTtlLvVeErRdDmM'''  \n\r\t/.!1\u0661漢é\u0301\u00a0\u01c5\u02b0K\u017f🙂\u2028\u0085"
)


@pytest.mark.parametrize("pattern", REGULAR)
@settings(max_examples=300, deadline=None)
@given(text=st.text(odd_letters, max_size=40) | st.text(max_size=40))
def test_words_end_where_the_regular_expression_ends_them(pattern: str, text: str) -> None:
    cut = pre_tokenizers.Split(Regex(pattern), "isolated").pre_tokenize_str(text)
    lengths = [len(word.encode()) for word, _ in cut]
    assert ends_of_words(text, pattern) == np.cumsum(lengths, dtype=int).tolist()


@pytest.mark.parametrize("pattern", REGULAR)
@settings(max_examples=300, deadline=None)
@given(
    words=st.lists(
        st.sampled_from(
            [
                " ",
                "  ",
                "\n",
                "\r\n",
                "\t",
                "\x0b",
                "\x1f",
                "a",
                "Bc",
                "DE",
                "'s",
                "'",
                "/",
                "--",
                "1",
                "2345",
            ]
        )
        | st.text(odd_letters, max_size=2),
        max_size=40,
    )
)
def test_what_is_known_of_a_word_at_a_glance_is_what_a_look_at_each_letter_says(
    pattern: str, words: list[str]
) -> None:
    text = "".join(words) + "." * BYTES
    cut = pre_tokenizers.Split(Regex(pattern), "isolated").pre_tokenize_str(text)
    assert ends_of_words(text, pattern) == np.cumsum([len(word.encode()) for word, _ in cut]).tolist()


@pytest.mark.parametrize("pattern", REGULAR)
def test_every_three_characters_of_ascii_are_cut_at_a_glance_as_letter_by_letter(pattern: str) -> None:
    kinds = "aB1 \t\r\n./'\x0b\x1c\x7f"
    every = "".join(
        f"{a}{b}{c}{d}" for a in map(chr, range(128)) for b in kinds for c in kinds for d in "aZ 7,"
    )
    found, known = walked(every, pattern)
    assert known > 0.8 * len(found)


@pytest.mark.parametrize("pattern", REGULAR)
def test_every_character_is_cut_as_the_regular_expression_cuts_it(pattern: str) -> None:
    codes = [
        code
        for code in (
            *range(0x3200),
            *range(0xA000, 0xAC10),
            *range(0xF900, 0x10000),
            *range(0x10000, 0x1FC00, 7),
        )
    ]
    text = "".join(f"{chr(code)}a1.{chr(code)} B{chr(code)}\n" for code in codes)
    cut = pre_tokenizers.Split(Regex(pattern), "isolated").pre_tokenize_str(text)
    assert ends_of_words(text, pattern) == np.cumsum([len(word.encode()) for word, _ in cut]).tolist()


@pytest.mark.parametrize("pattern", PATTERN_NAMES)
def test_ids_are_the_reference_s_on_odd_strings_and_pages(pattern: str) -> None:
    reference, engine = both(pattern)
    texts = [*strings([EOS]), *pages(300_000), "zqxjkv zqxjkvs", ""]
    for _ in range(2):  # what it remembers changes nothing
        assert_equal(reference, engine, texts)
    assert engine.encode([])[0].size == 0


def test_a_vocabulary_that_we_trained_passes_the_battery() -> None:
    reference = HuggingFace(vocabulary_of(600), "trained")
    assert first_difference(reference, ByteLevel(reference.content), reference.special) is None


@settings(max_examples=200, deadline=None)
@given(
    tokens=st.lists(
        st.binary(min_size=2, max_size=6).map(lambda value: bytes(97 + b % 2 for b in value)), unique=True
    ),
    text=st.text(alphabet="ab", max_size=60),
    whole=st.booleans(),
)
def test_any_merges_are_done_as_the_reference_does_them(tokens: list[bytes], text: str, whole: bool) -> None:
    found = [*(bytes([byte]) for byte in range(256)), *tokens]
    ranks = b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(found))
    made = json.loads(from_ranks(ranks, "x", "gpt2"))
    made["model"]["ignore_merges"] = whole
    reference = HuggingFace(json.dumps(made).encode(), "x")
    assert_equal(reference, ByteLevel(reference.content), [text])


def test_two_ways_to_one_token_merge_when_the_reference_merges_them() -> None:
    found = [bytes([byte]) for byte in range(256)]
    letters = byte_letters()
    vocab = {letters[token[0]]: number for number, token in enumerate(found)}
    for token in ("bc", "abc", "ab", "cd", "abcd"):
        vocab[token] = len(vocab)
    merges = [["a", "bc"], ["c", "d"], ["b", "c"], ["a", "b"], ["ab", "c"], ["ab", "cd"], ["abc", "d"]]
    made = trained() | {"model": trained()["model"] | {"vocab": vocab, "merges": merges}, "added_tokens": []}
    reference = HuggingFace(json.dumps(made).encode(), "x")
    texts = ["abc", "abcd", "aabcbcd", "bcabcdabcc", "abababcdcd"]
    assert_equal(reference, ByteLevel(reference.content), texts)


def test_words_longer_than_any_that_is_remembered_are_the_reference_s_too() -> None:
    reference, engine = both("cl100k")
    for text in (
        "ab" * 150_000,
        "=" * 40_000,
        "漢字" * 20_000,
        " " * 33 + "a" * 33,
        "é" * 16 + "x",
        "0" * 1000,
    ):
        assert_equal(reference, engine, [text, "short", text])


def test_words_longer_than_a_piece_of_text_are_the_reference_s_too() -> None:
    reference, engine = both("gpt2")
    size = cutting.PIECE + 7
    letters = np.random.default_rng(5).integers(97, 123, size, dtype=np.uint8).tobytes().decode()
    assert_equal(reference, engine, [letters, "東京都" * (size // 3)])


def test_a_full_memory_forgets_words_and_no_ids_change(monkeypatch: pytest.MonkeyPatch) -> None:
    reference, _ = both("o200k")
    monkeypatch.setattr(byte_level, "CACHE_BYTES", 64 * 64)
    monkeypatch.setattr(byte_level, "ROWS", 2)
    small = ByteLevel(reference.content)
    for _ in range(2):
        assert_equal(reference, small, list(pages(300_000)))


def test_entries_fill_whole_lines_of_memory() -> None:
    made = lines(1 << 12, LINE)
    assert made.shape == ((1 << 12) // (8 * LINE), LINE)
    assert made.ctypes.data % 64 == 0


def test_texts_without_utf8_are_refused() -> None:
    with pytest.raises(ModelError, match="surrogates not allowed"):
        both("gpt2")[1].encode(["\ud800"])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"normalizer": {"type": "NFC"}}, "changes text first"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "no kernel"),
        ({"pre_tokenizer": None}, "no kernel"),
        (
            {
                "pre_tokenizer": {
                    "type": "ByteLevel",
                    "add_prefix_space": True,
                    "trim_offsets": True,
                    "use_regex": True,
                }
            },
            "no kernel",
        ),
        ({"added_tokens": [{"id": 7, "content": "a", "special": False}]}, "tokens of its own"),
        ({"model": {"type": "Unigram", "vocab": []}}, "is Unigram"),
    ],
)
def test_vocabularies_of_another_kind_are_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        ByteLevel(json.dumps(trained() | change).encode())


def test_a_vocabulary_without_a_byte_is_refused() -> None:
    made = json.loads(json.dumps(trained()))
    del made["model"]["vocab"]["Ġ"]
    with pytest.raises(ModelError, match="cannot read"):
        ByteLevel(json.dumps(made).encode())


def test_a_regular_expression_that_is_merely_like_a_known_one_has_no_shape() -> None:
    split = {"type": "Split", "pattern": {"Regex": PATTERNS["cl100k"].words + "|x"}, "behavior": "Isolated"}
    level = {"type": "ByteLevel", "use_regex": False}
    assert shape_of({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]}}) is None
    split["pattern"] = {"Regex": PATTERNS["cl100k"].words}
    steps = [split, level]
    assert shape_of({"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}) is not None
    inverted = [{**split, "invert": True}, level]
    assert shape_of({"pre_tokenizer": {"type": "Sequence", "pretokenizers": inverted}}) is None
