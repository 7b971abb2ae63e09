"""tiktoken and SentencePiece files: the ids of their own libraries, on the battery and on whatever hypothesis finds."""

from __future__ import annotations

import base64
import contextlib
import io
import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Loaded

from corpusmill.pipeline.errors import ModelError
from corpusmill.pipeline.text.battery import pages, strings
from corpusmill.pipeline.text.engines import HuggingFace
from corpusmill.pipeline.text.rank_files import PATTERNS, byte_letters, from_ranks, merged
from corpusmill.pipeline.text.tokenizer import Tokenizer, train_bpe
from corpusmill.pipeline.text.vocabularies import as_tokenizer_json

tiktoken = pytest.importorskip("tiktoken")
sentencepiece = pytest.importorskip("sentencepiece")

EOS = "<|endoftext|>"
TRAINING = list(pages(400_000))


@cache
def ranks() -> dict[bytes, int]:
    """Tokens of a trained vocabulary by rank, and one that no merging leads to."""
    byte_of = {letter: byte for byte, letter in enumerate(byte_letters())}
    vocab = json.loads(train_bpe(TRAINING, 2500))["model"]["vocab"]
    tokens = sorted((number, token) for token, number in vocab.items() if token != EOS)
    found = [bytes(byte_of[letter] for letter in token) for _, token in tokens]
    return {token: rank for rank, token in enumerate([*found, b"zqxjkv"])}


def rank_file(tokens: dict[bytes, int]) -> bytes:
    return b"".join(base64.b64encode(token) + f" {rank}\n".encode() for token, rank in tokens.items())


@cache
def patterns() -> dict[str, str]:
    """tiktoken's own, by our names."""
    from tiktoken_ext import openai_public as public

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(public, "load_tiktoken_bpe", lambda *_, **__: {})
        made = {
            name: getattr(public, f"{name}_base")()["pat_str"] for name in ("r50k", "p50k", "cl100k", "o200k")
        }
    return {**made, "gpt2": made["r50k"]}


@cache
def both(name: str) -> tuple[Any, HuggingFace]:
    theirs = tiktoken.Encoding(name, pat_str=patterns()[name], mergeable_ranks=ranks(), special_tokens={})
    return theirs, HuggingFace(from_ranks(rank_file(ranks()), "ranks", name), name)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_rank_file_has_tiktoken_s_ids(name: str) -> None:
    theirs, ours = both(name)
    texts = [*strings([EOS]), *list(pages(200_000)), "zqxjkv zqxjkvs"]
    ids, lengths = ours.encode(texts)
    at = 0
    for text, length in zip(texts, lengths.tolist(), strict=True):
        assert ids[at : at + length].tolist() == theirs.encode_ordinary(text), ascii(text)
        at += length
    assert ranks()[b"zqxjkv"] in ids


@pytest.mark.parametrize("name", ["gpt2", "cl100k", "o200k"])
@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet=st.sampled_from("ab'sStT1 \n\r\t.!漢é\u0301\u00a0\u017fK/🙂"), max_size=30))
def test_words_are_cut_as_tiktoken_cuts_them(name: str, text: str) -> None:
    theirs, ours = both(name)
    assert ours.encode([text])[0].tolist() == theirs.encode_ordinary(text)


@settings(max_examples=100, deadline=None)
@given(
    tokens=st.lists(
        st.binary(min_size=2, max_size=6).map(lambda value: bytes(97 + b % 2 for b in value)), unique=True
    ),
    text=st.text(alphabet="ab", max_size=40),
)
def test_any_ranks_merge_as_tiktoken_merges_them(tokens: list[bytes], text: str) -> None:
    found = {bytes([byte]): byte for byte in range(256)} | {t: 256 + at for at, t in enumerate(tokens)}
    theirs = tiktoken.Encoding("x", pat_str=patterns()["gpt2"], mergeable_ranks=found, special_tokens={})
    ours = HuggingFace(from_ranks(rank_file(found), "x", "gpt2"), "x")
    assert ours.encode([text])[0].tolist() == theirs.encode_ordinary(text)


def test_a_token_comes_of_what_lower_ranks_leave_of_it() -> None:
    found = {b"a": 0, b"b": 1, b"c": 2, b"bc": 3, b"ab": 4, b"abc": 5}
    assert merged([b"a", b"b", b"c"], found, 5) == [b"a", b"bc"]


def test_special_tokens_are_those_of_the_encoding_or_those_that_are_named() -> None:
    full = {bytes([byte]): byte for byte in range(256)}
    full |= {number.to_bytes(3, "big"): number for number in range(256, 50_256)}
    gpt2 = Tokenizer(from_ranks(rank_file(full), "r50k_base.tiktoken"))
    assert (gpt2.special, gpt2.vocab_size) == ({EOS: 50_256}, 50_257)
    other = Tokenizer(from_ranks(rank_file(ranks()), "x", "cl100k"))
    assert other.special == {EOS: len(ranks())}
    named = Tokenizer(
        from_ranks(rank_file(ranks()), "x", r"\p{L}+|\P{L}+", {"<end>": 5000, "<begin>": 5002}), "<end>"
    )
    assert (named.special, named.vocab_size) == ({"<end>": 5000, "<begin>": 5002}, 5003)
    assert not set(named.encode(["a <end> b", "<begin>"])[0].tolist()) & {5000, 5002}


@pytest.mark.parametrize(
    ("content", "given_", "words"),
    [
        (b"!!! 1\n", ("gpt2", None), "line 1: not the base64"),
        (b"YQ== 1\nYg== 1\n", ("gpt2", None), "one rank"),
        (b"YQ== 1\n", ("gpt2", None), "no token for byte 0"),
        (None, (None, None), "give pattern: one of gpt2, r50k"),
        (None, ("gpt2", {"<end>": 7}), "'<end>' has id 7"),
        (None, ("gpt2", {"<end>": 9000, "<other>": 9000}), "has id 9000"),
    ],
)
def test_a_rank_file_that_cannot_serve_says_why(
    content: bytes | None, given_: tuple[str | None, dict[str, int] | None], words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        from_ranks(rank_file(ranks()) if content is None else content, "mine.tiktoken", *given_)


KINDS: dict[str, dict[str, Any]] = {
    "unigram": {"model_type": "unigram"},
    "unigram with bytes": {
        "model_type": "unigram",
        "byte_fallback": True,
        "normalization_rule_name": "identity",
    },
    "unigram as it stands": {
        "model_type": "unigram",
        "normalization_rule_name": "identity",
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
    },
    "bpe": {"model_type": "bpe"},
    "bpe with bytes": {
        "model_type": "bpe",
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "allow_whitespace_only_pieces": True,
        "split_digits": True,
    },
    "bpe across words": {"model_type": "bpe", "split_by_whitespace": False},
}


@cache
def model(kind: str) -> tuple[Any, bytes]:
    written = io.BytesIO()
    lines = [line for page in TRAINING for line in page.splitlines() if 0 < len(line) < 2000]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines[:3000]),
        model_writer=written,
        vocab_size=2000,
        character_coverage=0.98,
        minloglevel=2,
        num_threads=1,
        **KINDS[kind],
    )
    return sentencepiece.SentencePieceProcessor(model_proto=written.getvalue()), written.getvalue()


def score(theirs: Any, ids: list[int]) -> float:
    return float(sum(theirs.get_score(number) for number in ids))


@pytest.mark.parametrize("kind", KINDS)
def test_a_sentencepiece_model_has_its_library_s_ids(kind: str) -> None:
    theirs, content = model(kind)
    ours = Tokenizer(as_tokenizer_json(content, "m.model")[0])
    normalised = Loaded.from_str(ours.reference.content.decode()).normalizer
    texts = [*strings(["</s>", "<s>", "<unk>"]), *list(pages(100_000))]
    ids, lengths = ours.encode(texts)
    at, clusters, ties = 0, 0, 0
    for text, length in zip(texts, lengths.tolist(), strict=True):
        mine, wanted = ids[at : at + length].tolist(), theirs.encode(text)
        at += length
        if mine == wanted:
            continue
        if "normalization_rule_name" not in KINDS[kind] and normalised.normalize_str(
            text
        ) != theirs.normalize(text):
            clusters += 1
            continue
        # Two readings that are as good, told apart by rounding alone.
        assert kind.startswith("unigram"), ascii(text)
        assert score(theirs, mine) == pytest.approx(score(theirs, wanted), rel=1e-6), ascii(text)
        ties += 1
    assert (clusters <= 20, ties <= 10) == (True, True), (clusters, ties)
    assert (ours.eos, ours.vocab_size) == (theirs.eos_id(), theirs.vocab_size())


def test_a_file_is_told_by_its_content() -> None:
    plain = train_bpe(["a b"], 300)
    assert as_tokenizer_json(plain, "x") == (plain, "tokenizer.json")
    assert as_tokenizer_json(rank_file(ranks()), "cl100k_base.tiktoken")[1] == "tiktoken"
    assert as_tokenizer_json(model("bpe")[1], "x")[1] == "sentencepiece"
    with pytest.raises(ModelError, match="leave them out"):
        as_tokenizer_json(plain, "x", pattern="gpt2")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"\x0a\xff", b"\x0b", b"a text file\n"])
def test_a_file_of_another_kind_is_refused(content: bytes) -> None:
    with pytest.raises(ModelError, match="no tokenizer\\.json, tiktoken file or SentencePiece model"):
        as_tokenizer_json(content, "x")


@given(cut=st.integers(0, 2**20))
def test_a_cut_model_is_refused_or_smaller_but_never_another_error(cut: int) -> None:
    content = model("bpe")[1]
    with contextlib.suppress(ModelError):
        as_tokenizer_json(content[: cut % len(content)], "x")


def test_a_model_of_words_is_refused_by_name() -> None:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c"] * 5),
        model_writer=written,
        vocab_size=6,
        model_type="word",
        minloglevel=2,
    )
    with pytest.raises(ModelError, match="is of words or characters"):
        as_tokenizer_json(written.getvalue(), "x")
