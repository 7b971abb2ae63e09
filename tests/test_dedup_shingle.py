# ruff: noqa: RUF001 (texts in other scripts)
"""The specification in plain Python, the compiled loops and datasketch say the same."""

from __future__ import annotations

import datasketch
import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import COLLECTIONS

from corpusmill.dedup import shingle
from corpusmill.dedup.signatures import CONTENT, SHINGLES, SIGNATURE, WORDS, Signatures

TEXTS = [
    "The quick brown fox jumps over the lazy dog, and then it sleeps until the morning comes.",
    "Ein Straßenverkäufer überquerte die große Brücke; danach ging er — wie immer — nach Hause.",
    "Быстрая коричневая лиса прыгает через ленивую собаку, а потом спит до самого утра.",
    "敏捷的棕色狐狸跳过了懒狗。然后它一直睡到早上，什么也没有发生。",
    "素早い茶色の狐がのろまな犬を飛び越える。カタカナとひらがな、漢字も。",
    "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ แล้วก็นอนหลับไปจนถึงเช้า",
    "الثعلب البني السريع يقفز فوق الكلب الكسول ثم ينام حتى يأتي الصباح الجديد",
    "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है और फिर सुबह तक सोती रहती है",
    "빠른 갈색 여우가 게으른 개를 뛰어넘고 아침이 올 때까지 잠을 잔다 그리고 일어난다",
    "İstanbul ȺBC K naïve café ﬁne ½ Ⅷ ²x",
    "abcdefgh abcdefghijklmnop abcdefg a " * 200,
    "soft\u00adhyphen zero\u200dwidth \ufeffmark 👩‍👩‍👧 emoji 🎉 done",
    "short text",
    "",
    "!!! ... ???",
]

texts = st.lists(st.text(st.characters(codec="utf-8"), max_size=60), max_size=12)
words = st.lists(
    st.sampled_from(["a", "b", "cat", "Dog", "日", "本", "ก็", "é", "x" * 17, "-", "8"]), max_size=40
)


def column(values: list[str]) -> pa.Array:
    return pa.array(values, pa.large_string())


def test_signatures_equal_datasketch_with_the_published_hash() -> None:
    for hashes in (112, 128, 7):
        signed = shingle.sign(column(TEXTS), 5, hashes)
        for row, text in enumerate(TEXTS):
            sketch = datasketch.MinHash(hashes, seed=1, scheme="affine32", hashfunc=shingle.shingle_hash)
            for each in shingle.shingles(text, 5):
                sketch.update(each)
            assert signed.signatures[row].tolist() == sketch.hashvalues.tolist(), text


def test_signatures_equal_datasketch_on_sentences_of_twelve_languages() -> None:
    folder = COLLECTIONS / "text" / "pud"
    if not folder.is_dir():
        pytest.skip(f"no parallel sentences in {folder}")
    files = sorted(folder.glob("*.txt"))
    texts = ["\n".join(file.read_text("utf-8").splitlines()[:60]) for file in files]
    assert len(texts) == 12
    signed = shingle.sign(column(texts), 5, 112)
    for row, text in enumerate(texts):
        sketch = datasketch.MinHash(112, seed=1, scheme="affine32", hashfunc=shingle.shingle_hash)
        sketch.update_batch(shingle.shingles(text, 5))
        assert signed.signatures[row].tolist() == sketch.hashvalues.tolist(), files[row].name


@given(words, st.integers(1, 7))
def test_loops_agree_with_the_specification(chosen: list[str], ngram: int) -> None:
    text = " ".join(chosen)
    spelled = shingle.shingles(text, ngram)
    signed = shingle.sign(column([text]), ngram, 8)
    normalised = shingle.normalise(text)
    assert signed.words[0] == len(normalised.split())
    assert signed.shingles[0] == len(spelled)
    assert signed.content[0] == xxhash.xxh3_128_digest(
        normalised.encode() if normalised else b"\0" + text.encode()
    )
    values, ends = shingle.shingle_sets(column([text]), ngram)
    assert values[: ends[1]].tolist() == sorted({shingle.shingle_hash64(each) for each in spelled})


@given(texts)
@settings(max_examples=60)
def test_any_text_is_normalised_alike_in_python_and_compiled(values: list[str]) -> None:
    signed = shingle.sign(column(values), 5, 4)
    for row, text in enumerate(values):
        normalised = shingle.normalise(text)
        assert signed.words[row] == len(normalised.split())
        if normalised:
            assert signed.content[row] == xxhash.xxh3_128_digest(normalised.encode())


@given(texts, st.integers(0, 12), st.integers(0, 12))
@settings(max_examples=40)
def test_slices_and_chunks_of_a_column_do_not_matter(values: list[str], one: int, two: int) -> None:
    whole = shingle.sign(column(values), 3, 8)
    start, end = sorted((min(one, len(values)), min(two, len(values))))
    sliced = shingle.sign(column(values).slice(start, end - start), 3, 8)
    assert sliced.content == whole.content[start:end]
    assert np.array_equal(sliced.signatures, whole.signatures[start:end])
    chunked = pa.chunked_array([pa.array(values[:start], pa.string()), pa.array(values[start:], pa.string())])
    assert np.array_equal(shingle.sign(chunked, 3, 8).signatures, whole.signatures)


def test_pieces_of_a_large_column_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, sets = shingle.sign(column(TEXTS), 5, 16), shingle.shingle_sets(column(TEXTS), 5)
    monkeypatch.setattr(shingle, "PIECE_BYTES", 100)
    cut, cut_sets = shingle.sign(column(TEXTS), 5, 16), shingle.shingle_sets(column(TEXTS), 5)
    assert np.array_equal(whole.signatures, cut.signatures) and whole.content == cut.content
    assert all(np.array_equal(a, b) for a, b in zip(sets, cut_sets, strict=True))


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("Hello,  World!\n(again)", "hello world again"),
        ("don't e-mail me@x.org", "don t e mail me x org"),
        ("日本語です", "日 本 語 で す"),
        ("iPhone用のケース", "iphone 用 の ケ ー ス"),
        ("ก็ดี", "ก็ ดี"),  # a mark stays with the character before it
        ("co\u00adoperate", "cooperate"),
        ("e\u0301té", "e\u0301té"),
        ("ÀÉ Straße", "àé straße"),
        ("", ""),
        ("—!?", ""),
    ],
)
def test_normalisation(text: str, normalised: str) -> None:
    assert shingle.normalise(text) == normalised


def test_a_text_shorter_than_the_ngram_is_one_shingle() -> None:
    assert shingle.shingles("One two", 5) == [b"one two"]
    assert shingle.shingles("a b c d e f", 5) == [b"a b c d e", b"b c d e f"]
    assert shingle.shingles("...", 5) == []


def test_texts_without_words_have_the_empty_signature_and_their_own_content() -> None:
    signed = shingle.sign(column(["!!!", "???", "", "!!!"]), 5, 8)
    assert (signed.signatures == 0xFFFFFFFF).all() and not signed.shingles.any()
    assert len(set(signed.content)) == 3 and signed.content[0] == signed.content[3]


def test_broken_utf8_separates_words_and_harms_nobody() -> None:
    raw = [b"good words here", b"bad \xff\xc3 byte\xe3\x81", b"\xf4\x90\x80\x80 end", b"more good words"]
    offsets = np.cumsum([0, *map(len, raw)]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(raw))]
    broken = pa.Array.from_buffers(pa.large_string(), len(raw), buffers)
    signed = shingle.sign(broken, 5, 8)
    assert signed.words.tolist() == [3, 2, 1, 3]
    assert signed.content[1] == xxhash.xxh3_128_digest(b"bad byte")


def test_word_hashes_tell_words_of_equal_groups_apart() -> None:
    """Eight bytes make a group; a word of exactly one group is not the word with an empty rest, nor two words."""
    spelled = [b"abcdefgh", b"abcdefgh a", b"abcdefgha", b"abcdefg h", b"a bcdefgh", b"b a", b"a b"]
    assert len({shingle.shingle_hash(each) for each in spelled}) == len(spelled)


def test_the_measure_gives_its_schema_row_for_row() -> None:
    operation = Signatures(ngram=5, hashes=16)
    table = operation.measure(pa.table({"text": column(TEXTS)}))
    assert table.schema == operation.schema() and table.num_rows == len(TEXTS)
    assert all(field.metadata[b"about"] for field in table.schema)
    signed = shingle.sign(column(TEXTS), 5, 16)
    assert table[WORDS].to_pylist() == signed.words.tolist()
    assert table[SHINGLES].to_pylist() == signed.shingles.tolist()
    assert table[CONTENT].to_pylist() == signed.content
    assert np.frombuffer(table[SIGNATURE][3].as_py(), "<u4").tolist() == signed.signatures[3].tolist()


def test_signatures_estimate_the_similarity_of_texts() -> None:
    """Two of 2,000 words that share 1,500: the mean of 1,024 matches is within four standard deviations (0.06) of the truth."""
    shared = [f"s{i}" for i in range(1500)]
    pair = [" ".join(shared + [f"{side}{i}" for i in range(500)]) for side in "ab"]
    sets = [set(shingle.shingles(text, 1)) for text in pair]
    truth = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
    signatures = shingle.sign(column(pair), 1, 1024).signatures
    assert abs(np.mean(signatures[0] == signatures[1]) - truth) < 0.06
