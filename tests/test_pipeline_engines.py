"""The fast engine: the reference's ids or none of it; special strings stay text; what it remembers is bounded."""

from __future__ import annotations

import json
import multiprocessing
import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shard_runs import vocabulary_of
from tokenizers import AddedToken, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Loaded

from corpusmill.pipeline.engine.place import place_of
from corpusmill.pipeline.errors import ModelError
from corpusmill.pipeline.text import choice, engines
from corpusmill.pipeline.text.battery import differs, first_difference, is_odd, pages, strings
from corpusmill.pipeline.text.byte_level import ByteLevel
from corpusmill.pipeline.text.checked import EVERY, FIRST, ODD_FACTOR, Checked, Differs, is_drawn
from corpusmill.pipeline.text.choice import fast_engine, switch_off, switched_off
from corpusmill.pipeline.text.engines import Encoded, Engine, Fast, HuggingFace, resident_bytes
from corpusmill.pipeline.text.tokenizer import Tokenizer, train_bpe

pytest.importorskip("fastokens")

EOS = "<|endoftext|>"
GPT2 = Path(__file__).parents[2] / "shared" / "data" / "tokenizers" / "gpt2"


class Wrong:
    """The reference, but for one text."""

    name = "wrong 1.0"
    any_length: bool = False

    def __init__(self, reference: Engine, text: str) -> None:
        self.reference, self.text = reference, text

    def encode(self, texts: Sequence[str]) -> Encoded:
        return self.reference.encode(["" if text == self.text else text for text in texts])


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    return Tokenizer(train_bpe(list(pages(300_000)), 3000))


@pytest.fixture(scope="module")
def fast(trained: Tokenizer) -> Fast:
    return Fast(trained.reference.content)


def test_the_battery_holds_what_engines_were_wrong_about() -> None:
    found = strings([EOS])
    assert len(found) > 800
    joined = "".join(found)
    for odd in (
        "\x00",
        "\ufeff",
        "\u200d",
        "\u0301",
        "\u202e",
        "\u0662",
        "'\u017f",
        "\u2028",
        "\ue000",
        "\U0010ffff",
        "\r\n",
    ):
        assert odd in joined
    assert found == strings([EOS])
    assert len({text for text in found if EOS in text}) >= 9
    texts = list(pages())
    assert sum(len(text.encode()) for text in texts) >= 2 << 20
    assert texts == list(pages())


def test_the_fast_engine_gives_the_reference_s_ids(trained: Tokenizer, fast: Fast) -> None:
    assert first_difference(trained.reference, fast, trained.special) is None


def test_the_battery_finds_an_engine_that_is_wrong_on_one_string(trained: Tokenizer) -> None:
    odd = strings(trained.special)[-1]
    found = first_difference(trained.reference, Wrong(trained.reference, odd), trained.special)
    assert found == ascii(odd[:80])


def test_the_first_text_that_differs_is_named() -> None:
    wanted = np.array([1, 2, 3, 4], np.uint32), np.array([2, 0, 2])
    assert differs(wanted, (wanted[0].astype(np.uint16), wanted[1])) is None
    assert differs(wanted, (np.array([1, 2, 3, 5]), np.array([2, 0, 2]))) == 2
    assert differs(wanted, (np.array([1, 2, 3, 4]), np.array([2, 1, 1]))) == 1
    assert differs(wanted, (np.array([1, 2]), np.array([2, 0]))) is not None


@pytest.mark.parametrize(
    "added", [[], [AddedToken("word", special=False), AddedToken("<tool>", special=True)]]
)
def test_special_strings_are_text_to_both_engines_and_other_added_tokens_are_not(
    trained: Tokenizer, added: list[AddedToken]
) -> None:
    loaded = Loaded.from_str(trained.reference.content.decode())
    loaded.add_tokens(added)
    tokenizer = Tokenizer(str(loaded.to_str()).encode(), EOS)
    text = f"a {EOS} b <tool> a word of words{EOS}"
    both = [
        tokenizer.encode([text], engine)[0].tolist() for engine in (None, Fast(tokenizer.reference.content))
    ]
    assert both[0] == both[1]
    assert not set(both[0]) & set(tokenizer.special.values())
    assert tokenizer.reference.decode(both[0]) == text
    word = loaded.token_to_id("word")
    assert (word in both[0]) == bool(added)


def test_a_text_too_long_to_cut_is_the_reference_s_where_the_engine_is_not_for_any(
    trained: Tokenizer,
) -> None:
    long, short = "abcdefghij" * 110_000, "short"
    seen: list[str] = []

    class Watched(Wrong):
        def encode(self, texts: Sequence[str]) -> Encoded:
            seen.extend(texts)
            return super().encode(texts)

    ids, lengths = trained.encode([long, short * 400_000, short], Watched(trained.reference, ""))
    assert seen == []
    trained.encode([short], Watched(trained.reference, ""))
    assert seen == [short]
    assert lengths.sum() == len(ids)
    able = Watched(trained.reference, "")
    able.any_length = True
    again, _ = trained.encode([long, short * 400_000, short], able)
    assert seen == [short, long, short * 400_000, short]
    assert np.array_equal(again, ids)


def names(count: int) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in range(count)]


def test_a_wrong_document_that_is_drawn_is_found_and_one_that_is_not_is_not(trained: Tokenizer) -> None:
    texts = [f"page number {number}" for number in range(6000)]
    ids = names(len(texts))
    drawn = [place for place in range(FIRST, len(texts)) if is_drawn(ids[place], texts[place])]
    assert len(drawn) == pytest.approx(len(texts) / EVERY, abs=5)
    spared = next(place for place in range(FIRST, len(texts)) if place not in drawn)
    for place in (0, FIRST - 1, drawn[0], drawn[-1]):
        with pytest.raises(Differs) as found:
            Checked(trained, Wrong(trained.reference, texts[place])).encode(texts, ids)
        assert found.value.document == ids[place]
    checked = Checked(trained, Wrong(trained.reference, texts[spared]))
    checked.encode(texts, ids)
    assert (checked.documents, checked.cross_checked) == (len(texts), FIRST + len(drawn))


def test_the_draw_is_by_the_id_alone_and_heavier_on_odd_documents() -> None:
    ids = names(40_000)
    plain = sum(is_drawn(name, "plain words") for name in ids)
    odd = sum(is_drawn(name, "<|im_start|>") for name in ids)
    assert plain == pytest.approx(40, abs=25)
    assert odd == pytest.approx(40 * ODD_FACTOR, abs=50)
    for text in ("\x07", "漢字", "हिन्दी", "🙂", "a\u0301", "<|x", "a" * 100_001):
        assert is_odd(text)
    for text in ("Plain words, “quoted” \u2013 naïve café.\n", "Ελληνικά", "Русский текст"):
        assert not is_odd(text)


def test_an_engine_that_fails_on_a_text_differs(trained: Tokenizer) -> None:
    class Failing(Wrong):
        def encode(self, texts: Sequence[str]) -> Encoded:
            raise ModelError("stack overflow")

    with pytest.raises(Differs, match="stack overflow"):
        Checked(trained, Failing(trained.reference, "")).encode(["a"], names(1))


def test_a_vocabulary_that_loses_text_is_refused_where_it_claims_not_to(trained: Tokenizer) -> None:
    class Lossy(HuggingFace):
        def decode(self, ids: Sequence[int]) -> str:
            return super().decode(ids).replace("b", "")

    tokenizer = Tokenizer(trained.reference.content)
    assert tokenizer.reference.lossless
    tokenizer.reference = Lossy(trained.reference.content, "t.json")
    with pytest.raises(ModelError, match="does not come back from its ids"):
        Checked(tokenizer, trained.reference).encode(["abc"], names(1))


def test_bytes_that_a_vocabulary_lacks_are_no_promise_to_give_text_back() -> None:
    settings = json.loads(vocabulary_of(300))
    assert HuggingFace(json.dumps(settings).encode(), "t").lossless
    lossy = json.loads(vocabulary_of(300))
    del lossy["model"]["vocab"]["Ġ"]
    assert not HuggingFace(json.dumps(lossy).encode(), "t").lossless
    lower = {**settings, "normalizer": {"type": "Lowercase"}}
    assert not HuggingFace(json.dumps(lower).encode(), "t").lossless


def test_the_battery_runs_once_a_run_and_a_wrong_engine_stays_off(
    trained: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = place_of(tmp_path)
    engine = fast_engine(trained, metrics)
    assert engine is not None
    assert list(switched_off(metrics)) == []
    monkeypatch.setattr(choice, "first_difference", lambda *_: pytest.fail("the battery ran again"))
    assert fast_engine(trained, metrics) is engine
    switch_off(trained, metrics, Differs(b"\x01\x02", "gave other ids"))
    assert fast_engine(trained, metrics) is None
    (why,) = switched_off(metrics)
    assert "gave other ids (document 0102)" in why


def test_a_vocabulary_on_which_the_engine_fails_the_battery_is_the_reference_s(
    trained: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "_loaded", lambda *_: NamedWrong(trained.reference, EOS))
    assert fast_engine(trained, place_of(tmp_path)) is None
    (why,) = switched_off(place_of(tmp_path))
    assert EOS in why


class NamedWrong(Wrong):
    name = "wrong 2.0"


def test_a_vocabulary_that_the_engine_cannot_read_is_the_reference_s(tmp_path: Path) -> None:
    loaded = Loaded(models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>"))
    loaded.pre_tokenizer = pre_tokenizers.Whitespace()
    loaded.add_special_tokens([AddedToken("</s>", special=True)])
    assert fast_engine(Tokenizer(str(loaded.to_str()).encode()), place_of(tmp_path)) is None
    assert len(list(switched_off(place_of(tmp_path)))) == 1


def cut_otherwise() -> Tokenizer:
    """A vocabulary whose words are cut by no published regular expression."""
    settings = json.loads(vocabulary_of(600))
    split = {"type": "Split", "pattern": {"Regex": r"\p{L}+|\P{L}+"}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    settings["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, level]}
    return Tokenizer(json.dumps(settings).encode())


def test_our_own_engine_comes_first_and_an_installed_one_does_what_it_cannot(
    trained: Tokenizer, tmp_path: Path
) -> None:
    assert isinstance(fast_engine(trained, place_of(tmp_path)), ByteLevel)
    other = cut_otherwise()
    for _ in range(2):  # from the battery, then from what it left
        assert isinstance(fast_engine(other, place_of(tmp_path)), Fast)
    assert list(switched_off(place_of(tmp_path))) == []


def test_where_no_engine_is_installed_only_what_ours_cannot_do_is_the_reference_s(
    trained: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "FAST", "an-engine-that-nobody-has")
    assert isinstance(fast_engine(trained, place_of(tmp_path)), ByteLevel)
    assert list(switched_off(place_of(tmp_path))) == []
    assert fast_engine(cut_otherwise(), place_of(tmp_path)) is None
    (why,) = switched_off(place_of(tmp_path))
    assert "no kernel" in why
    assert "pip install" in why


def test_unigram_vocabularies_keep_their_special_entries_out_of_reach() -> None:
    vocab = [
        ("<unk>", 0.0),
        ("</s>", 0.0),
        ("▁a", -1.0),
        ("a", -2.0),
        ("<", -3.0),
        ("/", -3.0),
        ("s", -3.0),
        (">", -3.0),
    ]
    loaded = Loaded(models.Unigram(vocab, unk_id=0))
    loaded.normalizer = normalizers.Replace(" ", "▁")
    loaded.add_special_tokens([AddedToken("<unk>", special=True), AddedToken("</s>", special=True)])
    leaks = loaded.encode("a</s>", add_special_tokens=False).ids
    assert leaks == [3, 1], "which is why"
    tokenizer = Tokenizer(str(loaded.to_str()).encode())
    assert tokenizer.special == {"<unk>": 0, "</s>": 1}
    assert tokenizer.encode(["a</s> a", "<unk>"])[0].tolist() == [3, 4, 5, 6, 7, 2, 4, 0, 7]


def test_gaps_between_special_ids_keep_no_engine_away(trained: Tokenizer, tmp_path: Path) -> None:
    settings = json.loads(trained.reference.content)
    settings["model"]["vocab"] |= {"<end>": 5000, "<other>": 7000}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    settings["added_tokens"] += [
        {"id": 5000, "content": "<end>", **flags},
        {"id": 7000, "content": "<other>", **flags},
    ]
    tokenizer = Tokenizer(json.dumps(settings).encode(), "<end>")
    assert (tokenizer.eos, tokenizer.vocab_size) == (5000, 7001)
    assert fast_engine(tokenizer, place_of(tmp_path)) is not None


def never_repeating(size: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    words = (draw.getrandbits(47) for _ in range(size // 10))
    letters = "abcdefghijklmnopqrstuvwxyzABCDEF"
    spelt = ["".join(letters[word >> shift & 31] for shift in range(0, 45, 5)) for word in words]
    return [" ".join(spelt[at : at + 2000]) for at in range(0, len(spelt), 2000)]


def grown(content: bytes) -> tuple[int, int]:
    """By how many bytes this process grew over texts that never repeat, at most, and how often the engine was made anew."""
    engines.FAST_GROWTH = 8 << 20
    reference, engine = Tokenizer(content).reference, Fast(content)
    start = resident_bytes()
    most = 0
    for seed in range(24):
        texts = never_repeating(1 << 20, seed)
        wanted: Any = reference.encode(texts[:2])
        ids, lengths = engine.encode(texts)
        assert np.array_equal(ids[: lengths[:2].sum()], wanted[0])
        most = max(most, resident_bytes() - start)
    return most, engine.rebuilt


def test_what_the_engine_remembers_is_bounded(trained: Tokenizer) -> None:
    if not resident_bytes():
        pytest.skip("this system does not say what a process holds")
    # In a process of its own: memory that other tests gave back would be taken first, and be no growth.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
        most, rebuilt = fresh.submit(grown, trained.reference.content).result()
    assert rebuilt >= 2
    assert most < 150 << 20, (
        "the bound, what one batch adds, and the vocabulary twice; 24 MB unbounded take over 200"
    )
