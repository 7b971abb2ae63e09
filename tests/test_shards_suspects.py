"""The most suspicious documents come first, with text that the tokenizer's own library would give."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from shard_samples import VOCAB, Sample, documents, small_shards, write_component, write_shards
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from corpusmill.pipeline.errors import ShardError
from corpusmill.shards import hide, locate, suspects
from corpusmill.shards.layout import MANIFEST, PLAN_FILE, TOKENIZER_FILE
from corpusmill.shards.plan import PPB, Phase, compile_plan
from corpusmill.shards.plan_file import read_plan
from corpusmill.shards.sidecar import Wanted
from corpusmill.shards.words import Words

TEXTS = [
    "Grüße aus Köln, said the old man; \n\tand “left” for good.",
    "def f(x):\n    return x ** 2  # 平方\n",
    "🤷🏽‍♀️ emoji, e\u0301 and नमस्ते",
]


def trained(kind: str) -> Tokenizer:
    """A small tokenizer of each kind that people use."""
    if kind == "byte level":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=["<|end|>"])
    elif kind == "byte fallback":
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
        tokenizer.normalizer = normalizers.Sequence([normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        )
        tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
        trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=tokens)
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
        tokenizer.decoder = decoders.Metaspace(prepend_scheme="never")
        trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=["<unk>"], unk_token="<unk>")
    tokenizer.train_from_iterator(TEXTS * 20, trainer)
    return tokenizer


@pytest.mark.parametrize("kind", ["byte level", "byte fallback", "unigram"])
@pytest.mark.parametrize("text", TEXTS)
def test_ids_become_the_text_that_the_library_decodes(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    words = Words(tokenizer.to_str().encode())
    ids = tokenizer.encode(text).ids
    assert words.text(ids) == tokenizer.decode(ids, skip_special_tokens=False) == text


def test_a_cut_letter_and_an_id_beyond_the_vocabulary_are_replacement_characters() -> None:
    tokenizer = trained("byte level")
    words = Words(tokenizer.to_str().encode())
    ids = [
        tokenizer.token_to_id(letter) for letter in "ðŁ"
    ]  # the first two bytes of an emoji, in that vocabulary's letters
    assert set(words.text(ids)) == {"\N{REPLACEMENT CHARACTER}"}
    assert words.text([10**6]) == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"model": {"vocab": 5}}', b"[" * 100_000])
def test_what_is_no_tokenizer_has_no_words(data: bytes) -> None:
    with pytest.raises(ValueError):
        Words(data)


def written(root: Path, texts: Sequence[Sequence[int]], tokenizer: Tokenizer, length: int = 256) -> Path:
    """One component of these documents, in rows of `length` tokens, with that tokenizer."""
    folder, manifest = write_component(root, Sample("web", [texts]), length)
    data = tokenizer.to_str().encode()
    (root / folder).parent.joinpath(TOKENIZER_FILE).write_bytes(data)
    manifest = replace(
        manifest, tokenizer_sha256=hashlib.sha256(data).hexdigest(), vocab_size=tokenizer.get_vocab_size()
    )
    (root / folder / MANIFEST).write_bytes(manifest.encode())
    plan = compile_plan([(folder, manifest)], [Phase(0, {"web": PPB})], seed=1, samples=manifest.rows)
    (root / PLAN_FILE).write_bytes(plan.encode())
    return root


@pytest.mark.parametrize("poison", ["longest_run", "garbled"])
def test_a_planted_poison_comes_first_among_ordinary_texts(tmp_path: Path, poison: str) -> None:
    tokenizer = trained("byte level")
    plain = [tokenizer.encode(text * 3).ids for text in (TEXTS[0], TEXTS[0][5:], TEXTS[0][9:])]
    ids = {
        "longest_run": [*plain[0][:20], *[plain[0][3]] * 200, *plain[0][20:]],
        "garbled": tokenizer.encode("\x01\x02\x03 a \x00\x7f\ue000" * 30).ids,
    }[poison]
    root = written(tmp_path, [*plain, ids, *plain], tokenizer)
    found = suspects(root, 0, read_plan(root / PLAN_FILE).samples)
    assert [
        each.document for each in found if getattr(each, poison) > (0.5 if poison == "garbled" else 8)
    ] == [3]
    assert found[0].url == "https://web.example/3" and found[0].suspicion > found[1].suspicion
    assert len({each.document for each in found}) == len(found) == 7


def test_rare_tokens_stand_out_from_texts_that_follow_zipfs_law(tmp_path: Path) -> None:
    dice = random.Random(5)
    plain = [[int(VOCAB ** dice.random()) for _ in range(300)] for _ in range(6)]  # frequency falls as 1 / id
    odd = [dice.randrange(VOCAB) for _ in range(300)]
    plan = write_shards(tmp_path, [Sample("web", [[*plain[:3], odd, *plain[3:]]])], {"web": PPB}, length=64)
    first, *others = suspects(tmp_path, 0, plan.components[0].rows)
    # Of ids by Zipf's law ln 2 / ln 50,000 = 6 % lie in the upper half, of ids drawn alike one half.
    assert first.document == 3 and 0.4 < first.rare < 0.6
    assert all(other.rare < 0.15 for other in others)


def test_the_text_is_that_around_the_longest_run_else_the_beginning(tmp_path: Path) -> None:
    tokenizer = trained("byte level")
    odd = tokenizer.encode("before it. " + TEXTS[0] * 3 + " just here: " + "Z" * 60 + " and behind").ids
    found = suspects(written(tmp_path, [odd, tokenizer.encode(TEXTS[0]).ids], tokenizer, 512), 0)
    run, plain = found
    assert run.longest_run >= 30 and run.text is not None and "just here: ZZZ" in run.text
    assert "before it" not in run.text
    assert plain.text is not None and plain.text.startswith(TEXTS[0])


def test_every_piece_of_every_document_is_told_once(tmp_path: Path) -> None:
    small_shards(tmp_path, total=300)
    told = {
        (p.sample, p.row, p.start, p.end, p.token, each.id)
        for each in suspects(tmp_path, 20, 60)
        for p in each.pieces
    }
    there = {
        (s.sample, s.row, p.start, p.end, p.token, p.id) for s in locate(tmp_path, 20, 60) for p in s.pieces
    }
    assert told == there
    hide.hide_document(tmp_path, Wanted(url="https://web.example/11"), 0, "odd")
    for each in suspects(tmp_path, 0, 100):
        assert {piece.quarantined for piece in each.pieces} == {each.url == "https://web.example/11"}


def test_a_missing_tokenizer_leaves_the_text_out_and_another_one_is_refused(tmp_path: Path) -> None:
    root = written(tmp_path, documents(1, 9), trained("byte level"))
    path = root / "fp" / TOKENIZER_FILE
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(ShardError, match=r"tokenizer\.json is not the tokenizer"):
        suspects(root, 0)
    path.unlink()
    assert suspects(root, 0)[0].text is None
