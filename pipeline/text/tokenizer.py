"""Text to token ids: one adapter over HF `tokenizers`, the reference for ids.

A page may spell `<|endoftext|>`, but only we write that id: special tokens in text are read as plain text, and every batch
is checked for ids of special tokens. A text over 1 MB is cut where the pretokenizer cuts anyway, so time grows with length
and the ids stay those of the whole. A faster engine would stand beside `HuggingFace`, with the same ids.

One core: 1.7 to 3.4 MB/s of English-like text with GPT-2's vocabulary, 2 MB without a space in 1.0 s.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.errors import ModelError

Ids = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]

PIECE = 1 << 20
"""Characters above which a text is cut. Pieces are between half of it and all of it where the text has borders."""

BATCH_CHARACTERS = 2 << 20
"""Characters handed to the engine at once: about 200 MB of its own objects."""

SMALLEST_VOCAB = 256 + 1
"""Every byte and the end of text."""

UNSPELT = "\U0010fffd"
"""A character for private use, which nothing but a vocabulary of bytes can spell."""

END_OF_TEXT = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|eos|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "[EOS]",
)
"""Names under which published vocabularies keep their end of text."""

BEGIN_OF_TEXT = (
    "<|begin_of_text|>",
    "<|startoftext|>",
    "<s>",
    "<bos>",
    "<|bos|>",
    "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
    "[BOS]",
)
"""Names under which published vocabularies keep their begin of text."""

# A newline behind a visible character and before a letter: byte-level pretokenizers end a run of blanks there, and no
# pattern of theirs joins a line's end with the letters of the next. With more blanks before it, `\s+(?!\S)` would
# see the end of the text in one case and not in the other.
_BORDER = re.compile(r"(?<=\S)\n(?=[^\W\d_])")
_AROUND = 256  # characters on both sides of a border over which the cut is tried


class Tokenizer:
    """A tokenizer.json in memory. Raises ModelError when it cannot serve: not readable, random, no single end-of-text token."""

    def __init__(self, content: bytes, eos: str | None = None, where: str = "tokenizer.json") -> None:
        self.engine = HuggingFace(content, where)
        self.sha256 = hashlib.sha256(content).hexdigest()
        self.vocab_size = self.engine.vocab_size
        self.eos_token = choose_eos(self.engine.special, eos, where)
        self.eos = self.engine.special[self.eos_token]
        self.dtype = np.dtype(np.uint16 if self.vocab_size <= 1 << 16 else np.uint32)
        self._forbidden = np.zeros(self.vocab_size, dtype=np.bool_)
        self._forbidden[
            [number for number in self.engine.special.values() if number != self.engine.unknown]
        ] = True
        self._forbidden[self.eos] = True
        if self.eos == self.engine.unknown and self.eos in next(self.engine.encode([UNSPELT])):
            raise ModelError(
                f"{where}: {self.eos_token!r} also stands for what the vocabulary cannot spell, so any page could end its own "
                "document; name another special token as eos"
            )
        self._refuse_leaks(where)

    def _refuse_leaks(self, where: str) -> None:
        for token, number in self.engine.special.items():
            (ids,) = self.engine.encode([token])
            if self._forbidden[ids].any():
                raise ModelError(
                    f"{where}: the text {token!r} still becomes special token {number}, so a page could end its own document; "
                    "use a tokenizer whose special tokens cannot be reached from text"
                )

    def encode(self, texts: Sequence[str]) -> tuple[Ids, npt.NDArray[np.int64]]:
        """Ids of all texts in one array, and how many each has. No special token is added or read from text."""
        parts: list[npt.NDArray[Any]] = []
        lengths = np.zeros(len(texts), dtype=np.int64)
        for owners, pieces in self._batches(texts):
            for owner, ids in zip(owners, self.engine.encode(pieces), strict=True):
                parts.append(np.array(ids, dtype=self.dtype))
                lengths[owner] += len(ids)
        flat = np.concatenate(parts) if parts else np.zeros(0, dtype=self.dtype)
        if self._forbidden[flat].any():
            number = int(flat[np.argmax(self._forbidden[flat])])
            raise ModelError(
                f"special token {number} came out of plain text: tokenizer {self.sha256[:12]} cannot be used for web text"
            )
        return flat, lengths

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], list[str]]]:
        owners: list[int] = []
        pieces: list[str] = []
        size = 0
        for owner, text in enumerate(texts):
            for piece in self.engine.pieces(text):
                if pieces and size + len(piece) > BATCH_CHARACTERS:
                    yield owners, pieces
                    owners, pieces, size = [], [], 0
                owners.append(owner)
                pieces.append(piece)
                size += len(piece)
        if pieces:
            yield owners, pieces


class HuggingFace:
    """The engine: `tokenizers` on one thread, without padding, truncation or tokens of its own."""

    def __init__(self, content: bytes, where: str) -> None:
        _one_thread()
        from tokenizers import Tokenizer as Loaded

        try:
            self.settings: dict[str, Any] = json.loads(content)
            self._loaded = Loaded.from_str(content.decode())
        except Exception as error:  # the library raises plain Exception
            raise ModelError(f"{where} is no tokenizer.json that `tokenizers` can read: {error}") from error
        model = self.settings["model"]
        if model.get("dropout"):
            raise ModelError(f"{where}: BPE dropout is {model['dropout']}, so ids are random; set it to null")
        self._loaded.encode_special_tokens = True
        self._loaded.no_padding()
        self._loaded.no_truncation()
        self._where = where
        self.unknown = self._unknown(model)
        self.vocab_size = 1 + max(self._loaded.get_vocab(with_added_tokens=True).values(), default=-1)
        self.special = {
            token.content: number
            for number, token in sorted(self._loaded.get_added_tokens_decoder().items())
            if token.special
        }
        self._cuts = splits_lines(self.settings)

    def _unknown(self, model: dict[str, Any]) -> int | None:
        """Id of what the vocabulary cannot spell: the one special token that text may become."""
        if model.get("unk_token") is None:
            number: int | None = model.get("unk_id")
            return number
        named: int | None = self._loaded.token_to_id(model["unk_token"])
        return named

    def encode(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Ids of each text, one after the other: as Python integers a token takes up to 40 bytes."""
        try:
            encodings = self._loaded.encode_batch_fast(list(texts), add_special_tokens=False)
        except Exception as error:  # the library raises plain Exception
            raise ModelError(
                f"{self._where} cannot encode a text ({error}); use a byte-level tokenizer, or one with a token for the unknown"
            ) from error
        for encoding in encodings:
            yield encoding.ids

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._loaded.decode(list(ids), skip_special_tokens=False))

    def pieces(self, text: str) -> list[str]:
        """`text` cut at safe borders, the first at or after each half of PIECE; whole when it is short or has none."""
        if len(text) <= PIECE or not self._cuts:
            return [text]
        found, start = [], 0
        while len(text) - start > PIECE and (border := self._border(text, start + PIECE // 2)):
            found.append(text[start:border])
            start = border
        return [*found, text[start:]]

    def _border(self, text: str, start: int) -> int:
        """The first safe border from `start` on; 0 when there is none."""
        for match in _BORDER.finditer(text, start):
            place = match.end()
            before, after = text[max(0, place - _AROUND) : place], text[place : place + _AROUND]
            if self._words(before + after) == self._words(before) + self._words(after):
                return place
        return 0

    def _words(self, text: str) -> list[str]:
        return [word for word, _ in self._loaded.pre_tokenizer.pre_tokenize_str(text)]


def splits_lines(settings: dict[str, Any]) -> bool:
    """True for byte-level tokenizers that look at a text piece by piece: no prefix, no normaliser but Unicode's own forms.

    Each cut is tried on the text around it as well; here go those for which that would not show the difference.
    """
    normalizers = _flat(settings.get("normalizer"), "normalizers")
    steps = _flat(settings.get("pre_tokenizer"), "pretokenizers")
    levels = [step for step in steps if step["type"] == "ByteLevel"]
    return (
        all(step["type"] in ("NFC", "NFD", "NFKC", "NFKD") for step in normalizers)
        and all(step["type"] in ("ByteLevel", "Digits") or _plain_split(step) for step in steps)
        and len(levels) == 1
        and not levels[0].get("add_prefix_space")
        and (levels[0].get("use_regex", True) or any(step["type"] == "Split" for step in steps))
        and all(
            token["special"] or not ("\n" in token["content"] or token["lstrip"])
            for token in settings.get("added_tokens", [])
        )
    )


def _plain_split(step: dict[str, Any]) -> bool:
    pattern = step.get("pattern", {}).get("Regex", "(?<")
    return (
        step["type"] == "Split"
        and "(?<" not in pattern
        and "\\A" not in pattern
        and "^" not in pattern.replace("[^", "")
    )


def _flat(step: dict[str, Any] | None, inner: str) -> list[dict[str, Any]]:
    if step is None:
        return []
    if step["type"] == "Sequence":
        return [leaf for child in step[inner] for leaf in _flat(child, inner)]
    return [step]


def choose_eos(special: dict[str, int], eos: str | None, where: str) -> str:
    """The end-of-text token: the one that is named, else the only special token with a usual name."""
    usual = [token for token in END_OF_TEXT if token in special]
    if eos is None and len(usual) == 1:
        return usual[0]
    if eos in special:
        return eos
    names = ", ".join(repr(token) for token in (usual or list(special)[:20])) or "none"
    asked = (
        "has no single end-of-text token with a usual name"
        if eos is None
        else f"has no special token {eos!r}"
    )
    raise ModelError(
        f"{where} {asked}; name one of its special tokens in the recipe as eos (candidates: {names})"
    )


def choose_bos(special: dict[str, int], bos: str | None, where: str) -> str | None:
    """The begin-of-text token: the one that is named, else the only special token with a usual name, else none."""
    usual = [token for token in BEGIN_OF_TEXT if token in special]
    if bos is None:
        return usual[0] if len(usual) == 1 else None
    if bos in special:
        return bos
    names = ", ".join(repr(token) for token in (usual or list(special)[:20])) or "none"
    raise ModelError(f"{where} has no special token {bos!r} to be bos (candidates: {names})")


def train_bpe(
    texts: Iterable[str], vocab: int, eos: str = END_OF_TEXT[0], others: Sequence[str] = ()
) -> bytes:
    """A byte-level BPE tokenizer.json with `vocab` entries (fewer when the text has no more pairs); the same for the same texts.

    Special tokens are `eos`, id 0, and `others`.
    """
    _one_thread()
    from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers
    from tokenizers import Tokenizer as Loaded

    special = list(dict.fromkeys([eos, *others]))
    if vocab < SMALLEST_VOCAB - 1 + len(special):
        raise ModelError(
            f"a byte-level vocabulary needs {SMALLEST_VOCAB - 1 + len(special)} entries at least "
            f"(256 bytes and {', '.join(map(repr, special))}), not {vocab}"
        )
    tokenizer = Loaded(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        min_frequency=2,
        show_progress=False,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in special],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(texts, trainer)
    return (str(tokenizer.to_str(pretty=False)) + "\n").encode()


def _one_thread() -> None:
    """Workers are one a core: the library's own threads would only take them from each other."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("RAYON_NUM_THREADS", "1")
