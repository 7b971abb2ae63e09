"""Token ids: special strings stay text, long texts are cut without changing an id, training gives the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_runs import vocabulary_of
from tokenizers import AddedToken, Regex, models, pre_tokenizers
from tokenizers import Tokenizer as Loaded

from corpusmill.pipeline.errors import ModelError
from corpusmill.pipeline.text import cutting
from corpusmill.pipeline.text.cutting import splits_lines
from corpusmill.pipeline.text.tokenizer import Tokenizer, train_bpe

EOS = "<|endoftext|>"
WORDS = [
    "the quick brown fox",
    "jumps over",
    "naïve café",
    "Straße",
    "東京都",
    "don't",
    "1234 5678",
    "a<b>c",
    "   ",
    "x = y;",
]
TEXTS = [" ".join(WORDS[i % len(WORDS) :] + WORDS[: i % 7]) + "\n" * (i % 4) for i in range(200)]

# What long texts are made of: everything that could make a cut show.
PARTS = [
    "a",
    "B",
    "ß",
    "東",
    "1",
    " ",
    "  ",
    "\n",
    "\n\n",
    "\r\n",
    "\t",
    ".",
    "'s",
    "'",
    "x\ny",
    "!\nz",
    "\u00a0",
    "\u0301",
    "🙂",
    "\x1c",
    EOS,
]

LINES_END_WORDS = r" ?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@pytest.fixture(scope="module")
def trained() -> bytes:
    return train_bpe(TEXTS, 600)


def with_split(content: bytes, pattern: str) -> bytes:
    """The same vocabulary behind another pretokenizer."""
    loaded = Loaded.from_str(content.decode())
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    loaded.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    return str(loaded.to_str()).encode()


def reference_ids(content: bytes, text: str) -> list[int]:
    """The library on the whole text, with special tokens spelled out as text."""
    loaded = Loaded.from_str(content.decode())
    loaded.encode_special_tokens = True
    ids: list[int] = loaded.encode(text, add_special_tokens=False).ids
    return ids


def test_a_special_string_in_text_is_text(trained: bytes) -> None:
    tokenizer = Tokenizer(trained)
    ids, lengths = tokenizer.encode([f"a {EOS} b", EOS, ""])
    assert tokenizer.eos not in ids
    assert lengths.tolist()[2] == 0
    assert tokenizer.reference.decode(ids[: lengths[0]].tolist()) == f"a {EOS} b"


@given(st.lists(st.sampled_from(PARTS), max_size=30))
def test_no_text_gives_a_special_id_and_every_text_comes_back(parts: list[str]) -> None:
    content = train_once()
    tokenizer = Tokenizer(content)
    text = "".join(parts)
    ids, lengths = tokenizer.encode([text])
    assert tokenizer.eos not in ids
    assert lengths.sum() == len(ids)
    assert tokenizer.reference.decode(ids.tolist()) == text


@pytest.mark.parametrize("pattern", [None, LINES_END_WORDS], ids=["plain", "lines end words"])
@settings(deadline=None)
@given(parts=st.lists(st.sampled_from(PARTS), max_size=200))
def test_cutting_a_long_text_changes_no_id(pattern: str | None, parts: list[str]) -> None:
    content = train_once() if pattern is None else with_split(train_once(), pattern)
    text = "".join(parts)
    tokenizer = Tokenizer(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "PIECE", 8)
        pieces = tokenizer.cutter.pieces(text)
        assert "".join(pieces) == text
        assert tokenizer.encode([text])[0].tolist() == reference_ids(content, text)


def test_lines_are_cut_into_pieces_of_a_megabyte_at_most() -> None:
    text = "some words on a line\n" * 200_000
    pieces = Tokenizer(train_once()).cutter.pieces(text)
    assert "".join(pieces) == text
    assert len(pieces) > 3
    assert max(map(len, pieces)) <= cutting.PIECE


def test_two_megabytes_without_a_space_are_whole_and_come_back() -> None:
    tokenizer = Tokenizer(train_once())
    text = "abcdefghij" * 200_000
    ids, _ = tokenizer.encode([text])
    assert tokenizer.cutter.pieces(text) == [text]
    assert tokenizer.reference.decode(ids.tolist()) == text


@pytest.mark.slow
def test_sixteen_megabytes_get_the_ids_of_their_lines() -> None:
    tokenizer = Tokenizer(train_once())
    lines = ["the quick brown fox jumps over the lazy dog\n"] * 380_000
    whole, _ = tokenizer.encode(["".join(lines)])
    one, _ = tokenizer.encode(lines[:1])
    assert np.array_equal(whole, np.tile(one, len(lines)))


@pytest.mark.parametrize(
    "change",
    [
        {
            "pre_tokenizer": {
                "type": "ByteLevel",
                "add_prefix_space": True,
                "trim_offsets": True,
                "use_regex": True,
            }
        },
        {
            "pre_tokenizer": {
                "type": "Metaspace",
                "replacement": "▁",
                "prepend_scheme": "first",
                "split": True,
            }
        },
        {"normalizer": {"type": "Prepend", "prepend": "▁"}},
        {"pre_tokenizer": None},
    ],
)
def test_tokenizers_that_look_at_a_text_as_a_whole_get_it_whole(
    trained: bytes, change: dict[str, object]
) -> None:
    assert splits_lines(json.loads(trained))
    assert not splits_lines({**json.loads(trained), **change})


def test_padding_and_truncation_of_the_file_are_switched_off(trained: bytes) -> None:
    loaded = Loaded.from_str(trained.decode())
    loaded.enable_truncation(4)
    loaded.enable_padding(length=16)
    text = " ".join(WORDS)
    ids, _ = Tokenizer(str(loaded.to_str()).encode()).encode([text, "x"])
    assert ids.tolist() == reference_ids(trained, text) + reference_ids(trained, "x")


def test_training_gives_the_same_bytes_in_another_process(trained: bytes) -> None:
    script = (
        "import sys, json; from corpusmill.pipeline.text.tokenizer import train_bpe; "
        "sys.stdout.buffer.write(train_bpe(json.load(sys.stdin), 600))"
    )
    again = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps(TEXTS).encode(), capture_output=True, check=True
    )
    assert again.stdout == trained
    assert Tokenizer(trained).vocab_size <= 600


@pytest.mark.parametrize(("size", "dtype"), [(65_536, "uint16"), (65_537, "uint32")])
def test_ids_are_16_bits_wide_up_to_65536_entries(size: int, dtype: str) -> None:
    tokenizer = Tokenizer(vocabulary_of(size))
    assert (tokenizer.vocab_size, tokenizer.dtype.name, tokenizer.eos) == (size, dtype, size - 1)


def test_the_end_of_text_is_found_or_asked_for(trained: bytes) -> None:
    loaded = Loaded.from_str(trained.decode())
    loaded.add_special_tokens([AddedToken("</s>", special=True)])
    both = str(loaded.to_str()).encode()
    with pytest.raises(ModelError, match=r"eos \(candidates: '<\|endoftext\|>', '</s>'\)"):
        Tokenizer(both)
    assert Tokenizer(both, "</s>").eos_token == "</s>"
    with pytest.raises(ModelError, match="no special token '<end>'"):
        Tokenizer(both, "<end>")


def test_random_and_broken_tokenizers_are_refused(trained: bytes) -> None:
    settings_of = json.loads(trained)
    settings_of["model"]["dropout"] = 0.1
    with pytest.raises(ModelError, match="ids are random"):
        Tokenizer(json.dumps(settings_of).encode())
    with pytest.raises(ModelError, match=r"mine\.json is no tokenizer"):
        Tokenizer(b"{}", where="mine.json")


def special_of(model: models.Model, *special: str) -> bytes:
    loaded = Loaded(model)
    loaded.pre_tokenizer = pre_tokenizers.Whitespace()
    loaded.add_special_tokens([AddedToken(token, special=True) for token in special])
    return str(loaded.to_str()).encode()


def test_an_end_of_text_that_stands_for_unknown_letters_is_refused(trained: bytes) -> None:
    with pytest.raises(ModelError, match="any page could end its own document"):
        Tokenizer(special_of(models.WordLevel({EOS: 0, "word": 1}, unk_token=EOS), EOS))
    settings_of = json.loads(trained)
    settings_of["model"]["unk_token"] = EOS  # bytes leave nothing unknown
    ids, _ = Tokenizer(json.dumps(settings_of).encode()).encode(["naïve 東京 🙂 \U0010fffd"])
    assert (ids != Tokenizer(trained).eos).all()


@pytest.mark.parametrize(
    "model",
    [
        models.Unigram([("<unk>", 0.0), ("a", -1.0)], unk_id=0),
        models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>"),
    ],
)
def test_unknown_letters_may_become_the_token_for_the_unknown(model: models.Model) -> None:
    ids, lengths = Tokenizer(special_of(model, "<unk>", "</s>")).encode(["a", "東"])
    assert (ids.tolist(), lengths.tolist()) == ([1, 0], [1, 1])


@pytest.mark.parametrize(
    "model",
    [models.Unigram([("a", -1.0)]), models.WordLevel({"a": 0}, unk_token="<unk>")],
)
def test_a_vocabulary_that_stops_at_unknown_letters_is_refused(model: models.Model) -> None:
    with pytest.raises(ModelError, match="cannot encode a text"):
        Tokenizer(special_of(model, "</s>"))


def test_a_vocabulary_of_nothing_is_refused() -> None:
    with pytest.raises(ModelError, match="candidates: none"):
        Tokenizer(str(Loaded(models.BPE()).to_str()).encode())


def test_a_vocabulary_smaller_than_its_bytes_is_refused() -> None:
    with pytest.raises(ModelError, match="257"):
        train_bpe(TEXTS, 256)


def test_a_byte_level_vocabulary_without_a_byte_is_refused_instead_of_losing_letters() -> None:
    settings = json.loads(train_once())
    number = settings["model"]["vocab"].pop("q")
    settings["model"]["vocab"]["no letter"] = number
    settings["model"]["merges"] = [pair for pair in settings["model"]["merges"] if "q" not in "".join(pair)]
    content = json.dumps(settings).encode()
    assert Loaded.from_str(content.decode()).encode("q").ids == []
    with pytest.raises(ModelError, match="no token for byte 0x71"):
        Tokenizer(content)


_CONTENT: list[bytes] = []


def train_once() -> bytes:
    """Trained at first use: hypothesis and fixtures of a module do not go together."""
    if not _CONTENT:
        _CONTENT.append(train_bpe(TEXTS, 600))
    return _CONTENT[0]
