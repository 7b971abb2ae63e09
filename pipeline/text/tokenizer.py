"""Text to token ids: one adapter, by the reference or by an engine that gives the same ids (engines.py).

A page may spell `<|endoftext|>`, but only we write that id: special tokens in text are read as plain text, and every batch
is checked for ids of special tokens. A text over 1 MB is cut where the pretokenizer cuts anyway, so time grows with length
and the ids stay those of the whole (cutting.py).

One core, the reference: 1.7 to 3.4 MB/s of English-like text with GPT-2's vocabulary, 2 MB without a space in 1.0 s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.errors import ModelError
from corpusmill.pipeline.text import cutting
from corpusmill.pipeline.text.cutting import Cutter
from corpusmill.pipeline.text.engines import Engine, HuggingFace, Ids, one_thread
from corpusmill.pipeline.text.soundness import loses, refuse_ids

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


class Tokenizer:
    """A tokenizer.json in memory. Raises ModelError when it cannot serve: not readable, random, no single end-of-text token."""

    def __init__(self, content: bytes, eos: str | None = None, where: str = "tokenizer.json") -> None:
        self.reference = HuggingFace(content, where)
        refuse_ids(self.reference.settings, self.reference.added, where)
        self.cutter = Cutter(self.reference)
        self.sha256 = hashlib.sha256(content).hexdigest()
        self.vocab_size = self.reference.vocab_size
        self.special = self.reference.special
        self.eos_token = choose_eos(self.special, eos, where)
        self.eos = self.special[self.eos_token]
        self.dtype = np.dtype(np.uint16 if self.vocab_size <= 1 << 16 else np.uint32)
        self._forbidden = np.zeros(self.vocab_size, dtype=np.bool_)
        unknown = self.reference.unknown
        self._forbidden[[number for number in self.special.values() if number != unknown]] = True
        self._forbidden[self.eos] = True
        self._first_forbidden = int(np.argmax(self._forbidden))
        if self.eos == unknown and self.eos in self.reference.encode([UNSPELT])[0]:
            raise ModelError(
                f"{where}: {self.eos_token!r} also stands for what the vocabulary cannot spell, so any page could end its own "
                "document; name another special token as eos"
            )
        self._refuse_leaks(where)
        if why := loses(self.reference.settings):
            raise ModelError(
                f"{where} has {why}, and none for what it cannot spell: letters of pages would be lost; "
                "get the file again, or use another vocabulary"
            )

    def _refuse_leaks(self, where: str) -> None:
        for token, number in self.special.items():
            ids, _ = self.reference.encode([token])
            if self._forbidden[ids].any():
                raise ModelError(
                    f"{where}: the text {token!r} still becomes special token {number}, so a page could end its own document; "
                    "use a tokenizer whose special tokens cannot be reached from text"
                )

    def encode(self, texts: Sequence[str], engine: Engine | None = None) -> tuple[Ids, npt.NDArray[np.int64]]:
        """Ids of all texts in one array, and how many each has. No special token is added or read from text.

        By `engine`, or by the reference; what cannot be cut and is too long for an engine is the reference's.
        """
        parts: list[npt.NDArray[Any]] = []
        largest = -1
        lengths = np.zeros(len(texts), dtype=np.int64)
        for owners, pieces in self._batches(texts):
            long = max(map(len, pieces)) > cutting.PIECE
            able = self.reference if engine is None or (long and not engine.any_length) else engine
            ids, sizes = able.encode(pieces)
            largest = max(largest, int(ids.max(initial=0)))
            if largest >= self.vocab_size:
                raise ModelError(
                    f"id {largest} came out of text, the vocabulary ends at {self.vocab_size - 1}"
                )
            parts.append(ids.astype(self.dtype, copy=False))
            np.add.at(lengths, owners, sizes)
        flat = parts[0] if len(parts) == 1 else np.concatenate([*parts, np.zeros(0, dtype=self.dtype)])
        # Special tokens mostly stand behind all others: then no id needs to be looked at a second time.
        if largest >= self._first_forbidden and self._forbidden[flat].any():
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
            for piece in self.cutter.pieces(text):
                if pieces and size + len(piece) > BATCH_CHARACTERS:
                    yield owners, pieces
                    owners, pieces, size = [], [], 0
                owners.append(owner)
                pieces.append(piece)
                size += len(piece)
        if pieces:
            yield owners, pieces


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
    one_thread()
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
