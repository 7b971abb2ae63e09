"""What a tokenizer.json can have wrong without a word from `tokenizers`: ids that are not one token's own, and letters that it drops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corpusmill.pipeline.errors import ModelError
from corpusmill.pipeline.text.engines import flat_steps
from corpusmill.pipeline.text.rank_files import byte_letters

MOST_IDS = 1 << 24
"""Tables of a vocabulary and of a proxy's last layer are as long as its ids go; published ones go to 0.3 million."""


def refuse_ids(settings: dict[str, Any], added: Mapping[str, int], where: str) -> None:
    """ModelError where ids go too far, two tokens share one, or the library has another for an added token."""
    vocab = settings["model"]["vocab"]
    token_of: dict[int, str] = {}
    for token, number in vocab.items() if isinstance(vocab, dict) else ():
        if number >= MOST_IDS:
            raise ModelError(
                f"{where}: model.vocab gives {token!r} id {number}, and ids go to {MOST_IDS - 1}; number its tokens from 0 on"
            )
        if number in token_of:
            raise ModelError(
                f"{where}: model.vocab gives id {number} to both {token_of[number]!r} and {token!r}; get the file again"
            )
        token_of[number] = token
    for place, token in enumerate(settings.get("added_tokens") or ()):
        content, number, given = token["content"], token["id"], added.get(token["content"])
        if number != given:
            raise ModelError(
                f"{where}: added_tokens[{place}], {content!r}, has id {number}, but `tokenizers` makes it {given}: it counts on from "
                "the vocabulary; put the token into model.vocab with its id"
            )


def loses(settings: dict[str, Any]) -> str:
    """What keeps a BPE vocabulary from spelling every text, where `tokenizers` drops such letters; "" for nothing."""
    model = settings["model"]
    if model["type"] != "BPE" or model.get("unk_token") in model["vocab"]:
        return ""
    letters = byte_letters()
    if any(
        step["type"] == "ByteLevel" for step in flat_steps(settings.get("pre_tokenizer"), "pretokenizers")
    ):
        missing = next((byte for byte in UTF8 if letters[byte] not in model["vocab"]), None)
    elif model.get("byte_fallback"):
        missing = next((byte for byte in UTF8 if f"<0x{byte:02X}>" not in model["vocab"]), None)
    else:
        return "tokens for some letters only"
    return "" if missing is None else f"no token for byte {missing:#04x}"


UTF8 = [byte for byte in range(0xF5) if byte not in (0xC0, 0xC1)]
"""The bytes that occur in it."""
