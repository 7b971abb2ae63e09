"""tiktoken's `.tiktoken` files as tokenizer.json: each line the base64 of a token's bytes and its rank, which is its id.

Such a file says neither how text is cut into words nor which special tokens there are: a pattern does, one of PATTERNS by its name,
or a regular expression. The pairs that merge are not in it either. A token can only come of the one pair that is left when its own
bytes have been merged by all lower ranks, so that pair is its merge.

GPT-2's 50,257 tokens take 1 s, cl100k's 100,256 take 3 s.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, AnyStr

from corpusmill.pipeline.errors import ModelError

END = "<|endoftext|>"


@dataclass(frozen=True)
class Pattern:
    """How an encoding cuts text into words, the special tokens it has, and the number of ranks for which these ids are meant."""

    words: str
    ranks: int
    special: dict[str, int]


_LETTERS = r"[^\r\n\p{L}\p{N}]?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

PATTERNS = {
    "gpt2": Pattern(_GPT2, 50_256, {END: 50_256}),
    "r50k": Pattern(_GPT2, 50_256, {END: 50_256}),
    "p50k": Pattern(_GPT2, 50_280, {END: 50_256}),
    "cl100k": Pattern(
        # Blanks that end a text are one word, line ends and all, as tiktoken has it.
        rf"{_CONTRACTION}|{_LETTERS}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s+\z|\s*[\r\n]+|\s+(?!\S)|\s+",
        100_256,
        {
            END: 100_257,
            "<|fim_prefix|>": 100_258,
            "<|fim_middle|>": 100_259,
            "<|fim_suffix|>": 100_260,
            "<|endofprompt|>": 100_276,
        },
    ),
    "o200k": Pattern(
        rf"{_LETTERS}{_UPPER}*{_LOWER}+{_CONTRACTION}?|{_LETTERS}{_UPPER}+{_LOWER}*{_CONTRACTION}?|\p{{N}}{{1,3}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        199_998,
        {END: 199_999, "<|endofprompt|>": 200_018},
    ),
}


def is_rank_file(content: bytes) -> bool:
    try:
        token, rank = content.partition(b"\n")[0].split()
        return bool(base64.b64decode(token, validate=True)) and rank.isdigit()
    except (ValueError, binascii.Error):
        return False


def from_ranks(
    content: bytes, where: str, pattern: str | None = None, special: dict[str, int] | None = None
) -> bytes:
    """tokenizer.json of a rank file. Without a pattern the file's name has to begin with one's; `special` are tokens beside the ranks."""
    ranks = read_ranks(content, where)
    name = _pattern_name(where) if pattern is None else pattern
    if not name:
        raise ModelError(
            f"{where}: a tiktoken file does not say how text is cut into words; give pattern: one of {', '.join(PATTERNS)}, "
            "or a regular expression"
        )
    known = PATTERNS.get(name)
    words = name if known is None else known.words
    if special is None:
        fits = known is not None and len(ranks) == known.ranks
        special = known.special if known and fits else {END: max(ranks.values()) + 1}
    _check_special(special, ranks, where)
    return _tokenizer(ranks, words, special)


def read_ranks(content: bytes, where: str) -> dict[bytes, int]:
    """Token -> rank, in the order of ranks."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            try:
                token, rank = line.split()
                ranks[base64.b64decode(token, validate=True)] = int(rank)
            except (ValueError, binascii.Error) as error:
                raise ModelError(
                    f"{where}, line {number}: not the base64 of a token and its rank ({error}); get the file again"
                ) from error
    if len(set(ranks.values())) < len(ranks):
        raise ModelError(f"{where}: two tokens have one rank; get the file again")
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise ModelError(
            f"{where}: no token for byte {missing[0]}, so not every text could be spelt; get the file again"
        )
    return dict(sorted(ranks.items(), key=lambda item: item[1]))


def _pattern_name(where: str) -> str:
    name = where.replace("\\", "/").rpartition("/")[2]
    return next((known for known in PATTERNS if name.startswith(known)), "")


def _check_special(special: dict[str, int], ranks: dict[bytes, int], where: str) -> None:
    taken = set(ranks.values())
    for token, number in special.items():
        if number in taken or number < 0 or list(special.values()).count(number) > 1:
            raise ModelError(
                f"{where}: special token {token!r} has id {number}, which is another token's; name another id"
            )


def _tokenizer(ranks: dict[bytes, int], words: str, special: dict[str, int]) -> bytes:
    letters = byte_letters()
    vocab = {"".join(letters[byte] for byte in token): rank for token, rank in ranks.items()}
    merges = [
        ["".join(letters[byte] for byte in part) for part in pair]
        for token, rank in ranks.items()
        for pair in _pairs(token, ranks, rank)
    ]
    split = {"type": "Split", "pattern": {"Regex": words}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    settings = {
        **HEAD,
        "added_tokens": [added_token(token, number) for token, number in special.items()],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "decoder": level,
        # A word that is a token is that token, whether or not merging leads there.
        "model": {**BPE, "ignore_merges": True, "vocab": {**vocab, **special}, "merges": merges},
    }
    return encode_settings(settings)


def _pairs(token: bytes, ranks: dict[bytes, int], rank: int) -> list[list[bytes]]:
    """The pairs that merge into a token: one, or, where lower ranks do not lead to it, every pair that higher ranks might leave."""
    if len(token) == 1:
        return []
    left = merged([bytes([byte]) for byte in token], ranks, rank)
    if len(left) == 2:
        return [left]
    splits = ([token[:at], token[at:]] for at in range(1, len(token)))
    return [pair for pair in splits if pair[0] in ranks and pair[1] in ranks]


def merged(parts: list[AnyStr], ranks: Mapping[AnyStr, int], below: int) -> list[AnyStr]:
    """What is left of `parts` when neighbours are merged, the lowest rank first, as long as one is under `below`."""
    parts = list(parts)
    while len(parts) > 1:
        pairs = [ranks.get(parts[at] + parts[at + 1], below) for at in range(len(parts) - 1)]
        lowest = min(pairs)
        if lowest >= below:
            break
        at = pairs.index(lowest)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def byte_letters() -> list[str]:
    """The letter that byte-level vocabularies have for each byte: itself where Latin-1 shows it, else one from U+0100 on."""
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in shown]
    return [chr(byte if byte in shown else 0x100 + hidden.index(byte)) for byte in range(256)]


HEAD: dict[str, Any] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": None,
    "post_processor": None,
    "decoder": None,
}
"""What a tokenizer.json has beside its model."""

BPE: dict[str, Any] = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}


def added_token(content: str, number: int, special: bool = True) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": content, **flags, "special": special}


def encode_settings(settings: dict[str, Any]) -> bytes:
    return (json.dumps(settings, ensure_ascii=False, separators=(",", ":")) + "\n").encode()
