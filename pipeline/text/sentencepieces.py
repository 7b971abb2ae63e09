"""SentencePiece `.model` files, unigram and BPE, as tokenizer.json.

The file is a protocol buffer of few fields, read here. Text goes through the model's table of characters, its blanks become "▁",
one in front of all, and words begin at a "▁": where no piece crosses such a border, cutting there changes no id and makes time
linear. Merges of BPE are found as for rank files. What has no counterpart in a tokenizer.json is refused by name.

Two things differ from the library. A table of characters is applied by `tokenizers` to a letter with its marks as one, so rare
clusters of marks come out otherwise (16 of 900 odd strings, no page; models that keep text as it is have no table). A unigram model adds 32-bit scores over a whole text there and 64-bit ones over a word here: equal on what the tests try, but of two
readings of a word that are as good to seven digits, a long text may get the other one. 32,000 pieces take about 1 s.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from corpusmill.pipeline.errors import ModelError
from corpusmill.pipeline.text.rank_files import BPE, HEAD, added_token, encode_settings, merged

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM_MODEL, BPE_MODEL = 1, 2

MARK = "\u2581"
"""What stands for a blank in pieces."""


@dataclass(frozen=True)
class Piece:
    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class Model:
    """What is used of a `.model` file; fields that it leaves out have the format's defaults."""

    pieces: tuple[Piece, ...]
    kind: int
    byte_fallback: bool
    suffix: bool  # the "▁" of a word stands behind it
    table: bytes  # of characters; empty: they stay as they are
    prefix: bool  # a "▁" is put in front of the text
    trim: bool  # blanks at both ends go, runs of them become one
    escape: bool  # blanks become "▁"


def from_model(content: bytes, where: str) -> bytes:
    """tokenizer.json of a `.model` file."""
    model = read_model(content, where)
    _refuse(model, where)
    kinds: dict[int, list[tuple[int, Piece]]] = {}
    for number, piece in enumerate(model.pieces):
        kinds.setdefault(piece.kind, []).append((number, piece))
    added = [
        added_token(piece.text, number, special=kind != USER_DEFINED)
        for kind in (UNKNOWN, CONTROL, USER_DEFINED)
        for number, piece in kinds.get(kind, [])
    ]
    settings = {
        **HEAD,
        "added_tokens": sorted(added, key=lambda token: token["id"]),
        "normalizer": {"type": "Sequence", "normalizers": list(_normalizers(model))},
        "pre_tokenizer": _words(model, where),
        "decoder": _decoder(model),
        "model": _unigram(model) if model.kind == UNIGRAM_MODEL else _bpe(model),
    }
    return encode_settings(settings)


def _refuse(model: Model, where: str) -> None:
    wrong = None
    if model.kind not in (UNIGRAM_MODEL, BPE_MODEL):
        wrong = "is of words or characters, not unigram or BPE"
    elif model.suffix or not model.escape:
        wrong = "treats blanks in a way that tokenizer.json cannot say"
    elif any(piece.kind == UNUSED for piece in model.pieces):
        wrong = "has pieces marked as unused"
    elif sum(piece.kind == UNKNOWN for piece in model.pieces) != 1:
        wrong = "has no single piece for the unknown"
    elif len({piece.text for piece in model.pieces}) < len(model.pieces):
        wrong = "has a piece twice"
    if wrong:
        raise ModelError(f"{where} {wrong}; give a tokenizer.json made for it")


def _normalizers(model: Model) -> Iterator[dict[str, Any]]:
    if model.table:
        yield {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(model.table).decode()}
    if model.trim:
        yield {"type": "Replace", "pattern": {"Regex": r"\A +| +\z"}, "content": ""}
        yield {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    if model.prefix:
        yield {"type": "Prepend", "prepend": MARK}
    yield {"type": "Replace", "pattern": {"String": " "}, "content": MARK}


def _words(model: Model, where: str) -> dict[str, Any] | None:
    """The cut before each run of marks, if no piece crosses it."""
    texts = [piece.text for piece in model.pieces if piece.kind == NORMAL]
    steps = []
    if not any(MARK in text.lstrip(MARK) for text in texts):
        steps.append(_split(f"{MARK}+[^{MARK}]*|[^{MARK}]+", "Isolated"))
    if model.byte_fallback and model.kind == UNIGRAM_MODEL:
        # Unigram finds every entry in text; a page that spells "<0x0A>" means these six letters.
        if any("<0" in text for text in texts):
            raise ModelError(
                f"{where} has pieces with '<0' in them, so what pages spell like '<0x0A>' cannot be told from bytes; "
                "give a tokenizer.json made for it"
            )
        steps.append(_split("<(?=0x[0-9A-F]{2}>)", "MergedWithPrevious"))
    return {"type": "Sequence", "pretokenizers": steps} if steps else None


def _split(pattern: str, behavior: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def _decoder(model: Model) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": MARK}, "content": " "}]
    if model.byte_fallback:
        steps.append({"type": "ByteFallback"})
    steps.append({"type": "Fuse"})
    if model.prefix:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}


def _unigram(model: Model) -> dict[str, Any]:
    unknown = next(number for number, piece in enumerate(model.pieces) if piece.kind == UNKNOWN)
    return {
        "type": "Unigram",
        "unk_id": unknown,
        "vocab": [[piece.text, piece.score] for piece in model.pieces],
        "byte_fallback": model.byte_fallback,
    }


def _bpe(model: Model) -> dict[str, Any]:
    scores = {piece.text: piece.score for piece in model.pieces if piece.kind == NORMAL}
    # Equal scores: the piece that stands first.
    order = {text: place for place, text in enumerate(sorted(scores, key=lambda text: -scores[text]))}
    merges = [
        parts
        for text, place in order.items()
        if len(text) > 1 and len(parts := merged(list(text), order, place)) == 2
    ]
    return {
        **BPE,
        "unk_token": next(piece.text for piece in model.pieces if piece.kind == UNKNOWN),
        "fuse_unk": True,
        "byte_fallback": model.byte_fallback,
        "vocab": {piece.text: number for number, piece in enumerate(model.pieces)},
        "merges": merges,
    }


def read_model(content: bytes, where: str) -> Model:
    try:
        fields = list(_fields(content))
        pieces = tuple(_piece(value) for number, value in fields if number == 1)
        trainer, normalizer = (dict(_fields(_last(fields, number))) for number in (2, 3))
        model = Model(
            pieces=pieces,
            kind=trainer.get(3, UNIGRAM_MODEL),
            byte_fallback=bool(trainer.get(35, 0)),
            suffix=bool(trainer.get(24, 0)),
            table=bytes(normalizer.get(2, b"")),
            prefix=bool(normalizer.get(3, 1)),
            trim=bool(normalizer.get(4, 1)),
            escape=bool(normalizer.get(5, 1)),
        )
    except (ValueError, IndexError, TypeError, struct.error) as error:
        raise ModelError(
            f"{where} is no tokenizer.json, tiktoken file or SentencePiece model ({error}); give one of these"
        ) from error
    if not pieces:
        raise ModelError(
            f"{where} is no tokenizer.json, tiktoken file or SentencePiece model; give one of these"
        )
    return model


def _last(fields: list[tuple[int, Any]], number: int) -> bytes:
    return next((value for found, value in reversed(fields) if found == number), b"")


def _piece(data: bytes) -> Piece:
    fields = dict(_fields(data))
    (score,) = struct.unpack("<f", fields.get(2, bytes(4)))
    return Piece(fields[1].decode(), score, fields.get(3, NORMAL))


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of a message: integers for varints, bytes for all else."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            if kind != 2:
                raise ValueError(f"wire type {kind}")
            size, at = _varint(data, at)
        if at + size > len(data):
            raise ValueError("it is cut")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number without end")
