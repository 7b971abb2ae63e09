"""A tokenizer.json whose ids are not its tokens' own, or that drops letters, is refused by the place where that stands."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from tokenizers import Tokenizer as Loaded

from corpusmill.pipeline.errors import ModelError
from corpusmill.pipeline.text.rank_files import byte_letters
from corpusmill.pipeline.text.soundness import MOST_IDS
from corpusmill.pipeline.text.tokenizer import Tokenizer, train_bpe

EOS = "<|endoftext|>"


@cache
def trained() -> bytes:
    return train_bpe(["the quick brown fox, the quick"] * 5, 300)


def changed() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(trained())
    return found


def refused(settings: dict[str, Any], why: str) -> None:
    content = json.dumps(settings)
    Loaded.from_str(content)  # without a word
    with pytest.raises(ModelError, match=rf"^mine\.json.*{why}"):
        Tokenizer(content.encode(), where="mine.json")


def added(content: str, number: int) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": number, "content": content, **flags}


@pytest.mark.parametrize("number", [MOST_IDS, (1 << 32) - 1])
def test_an_id_that_no_table_can_hold_is_named(number: int) -> None:
    settings = changed()
    settings["model"]["vocab"]["far"] = number
    refused(settings, f"'far' id {number}, and ids go to {MOST_IDS - 1}")


def test_the_highest_id_that_is_taken_is_an_id() -> None:
    settings = changed()
    settings["model"]["vocab"]["far"] = MOST_IDS - 1
    assert Tokenizer(json.dumps(settings).encode()).vocab_size == MOST_IDS


def test_an_id_of_two_tokens_is_named_with_both() -> None:
    settings = changed()
    number = settings["model"]["vocab"]["q"]
    settings["model"]["vocab"]["f"] = number
    refused(settings, f"gives id {number} to both 'f' and 'q'")


def test_an_added_token_that_the_library_numbers_otherwise_is_named() -> None:
    settings = changed()
    settings["added_tokens"].append(added("<far>", 5000))
    refused(settings, r"added_tokens\[1\], '<far>', has id 5000, but `tokenizers` makes it \d+")
    settings["model"]["vocab"]["<far>"] = 5000  # as the message says
    assert Tokenizer(json.dumps(settings).encode(), EOS).special["<far>"] == 5000


def test_an_added_token_with_the_id_of_another_is_named() -> None:
    settings = changed()
    settings["added_tokens"].append(added("<end>", settings["model"]["vocab"]["q"]))
    refused(settings, r"added_tokens\[1\], '<end>'")


@pytest.mark.parametrize("merge", [["q", "zz"], ["q", "z"]], ids=["of no token", "into no token"])
def test_a_merge_outside_the_vocabulary_is_named_by_its_place(merge: list[str]) -> None:
    settings = changed()
    settings["model"]["merges"].insert(3, merge)
    with pytest.raises(
        ModelError, match=r"^mine\.json .*Token `q?zz?` out of vocabulary at line 1 column \d+"
    ):
        Tokenizer(json.dumps(settings).encode(), where="mine.json")


def of_letters(**model: Any) -> dict[str, Any]:
    """A vocabulary whose pretokenizer makes no bytes of letters."""
    settings = changed()
    settings["model"] |= model
    return settings | {"pre_tokenizer": {"type": "Whitespace"}, "decoder": None}


def test_letters_that_would_be_lost_in_silence_are_a_reason_to_refuse() -> None:
    settings = of_letters()
    assert Loaded.from_str(json.dumps(settings)).encode("\u2603 \u2603").ids == []
    refused(settings, "tokens for some letters only, and none for what it cannot spell")


def test_a_token_for_the_unknown_has_to_be_in_the_vocabulary() -> None:
    refused(of_letters(unk_token="<unk>"), "tokens for some letters only")
    settings = of_letters(unk_token="<unk>")
    settings["model"]["vocab"]["<unk>"] = 300
    ids, _ = Tokenizer(json.dumps(settings).encode()).encode(["\u2603"])
    assert ids.tolist() == [300]


def test_a_vocabulary_that_falls_back_on_bytes_needs_all_of_them() -> None:
    settings = of_letters(byte_fallback=True)
    settings["model"]["vocab"] |= {f"<0x{byte:02X}>": 300 + byte for byte in range(256) if byte != 0x98}
    assert Loaded.from_str(json.dumps(settings)).encode("\u2603").ids == [], "E2 98 83, of which it lacks one"
    refused(settings, "no token for byte 0x98")
    settings["model"]["vocab"]["<0x98>"] = 300 + 0x98
    ids, _ = Tokenizer(json.dumps(settings).encode()).encode(["\u2603"])
    assert ids.tolist() == [300 + 0xE2, 300 + 0x98, 300 + 0x83]


def test_a_byte_level_vocabulary_needs_all_bytes_even_where_it_names_a_token_that_it_has_not() -> None:
    settings = changed()
    lost = byte_letters()[0x98]
    del settings["model"]["vocab"][lost]
    settings["model"]["unk_token"] = "<unk>"
    with pytest.raises(ModelError, match="no token for byte 0x98"):
        Tokenizer(json.dumps(settings).encode())
