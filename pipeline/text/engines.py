"""What turns text into ids: HF `tokenizers`, the reference, and `fastokens`, many times as fast; a third is our own (byte_level.py).

An engine is used for a vocabulary after it has passed the battery (battery.py) on that very vocabulary, and is watched while it
works (checked.py). Neither reads a special token from text: `<|endoftext|>` on a page is letters.

`Fast` remembers words it has seen; it is made anew when it has grown by FAST_GROWTH. fastokens 0.3.5 stops before: a process held
443 MiB after 75 and after 150 MB of words that never repeat, both engines and cl100k's vocabulary included.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.errors import ModelError

Ids = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]

Encoded = tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]
"""Ids of all texts end to end, and how many each has."""

FAST = "fastokens"
"""The distribution of an engine that does what ours cannot; where it is not installed the reference does that."""

FAST_GROWTH = 512 << 20
"""Bytes that the fast engine may come to hold before it is made anew."""

FAST_INPUT = 256 << 20
"""Bytes of text after which it is made anew where the system does not say what a process holds."""


class Engine(Protocol):
    """`name` has the version in it; `any_length` says that time grows with the length of a text, whatever it is."""

    name: str
    any_length: bool

    def encode(self, texts: Sequence[str]) -> Encoded: ...


class HuggingFace:
    """The reference: `tokenizers` on one thread, without padding, truncation or tokens of its own."""

    any_length = True

    def __init__(self, content: bytes, where: str) -> None:
        one_thread()
        from tokenizers import Tokenizer as Loaded

        self.name = f"tokenizers {importlib.metadata.version('tokenizers')}"
        try:
            self.settings: dict[str, Any] = json.loads(content)
            self._loaded = Loaded.from_str(content.decode())
            special = self._loaded.get_added_tokens_decoder()
            self.content = out_of_reach(content, self.settings)
            if self.content is not content:
                self._loaded = Loaded.from_str(self.content.decode())
        except Exception as error:  # the library raises plain Exception
            raise ModelError(f"{where} is no tokenizer.json that `tokenizers` can read: {error}") from error
        model = self.settings["model"]
        if model.get("dropout"):
            raise ModelError(f"{where}: BPE dropout is {model['dropout']}, so ids are random; set it to null")
        self._loaded.encode_special_tokens = True
        self._loaded.no_padding()
        self._loaded.no_truncation()
        self._where = where
        self.added = {token.content: number for number, token in special.items()}
        self.special = {token.content: number for number, token in sorted(special.items()) if token.special}
        self.unknown = self._unknown(model)
        self.vocab_size = 1 + max([*self._loaded.get_vocab().values(), *special], default=-1)
        self.lossless = _lossless(self.settings)

    def _unknown(self, model: dict[str, Any]) -> int | None:
        """Id of what the vocabulary cannot spell: the one special token that text may become."""
        if model.get("unk_token") is None:
            number: int | None = model.get("unk_id")
            return number
        named: int | None = self._loaded.token_to_id(model["unk_token"])
        return named

    def encode(self, texts: Sequence[str]) -> Encoded:
        try:
            encodings = self._loaded.encode_batch_fast(list(texts), add_special_tokens=False)
        except Exception as error:  # the library raises plain Exception
            raise ModelError(
                f"{self._where} cannot encode a text ({error}); use a byte-level tokenizer, or one with a token for the unknown"
            ) from error
        # One text at a time: as Python integers a token takes up to 40 bytes.
        parts = [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]
        lengths = np.array([len(part) for part in parts], dtype=np.int64)
        return (np.concatenate(parts) if parts else np.zeros(0, np.uint32)), lengths

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._loaded.decode(list(ids), skip_special_tokens=False))

    def words(self, text: str) -> list[str]:
        """What the pretokenizer makes of a text."""
        return [word for word, _ in self._loaded.pre_tokenizer.pre_tokenize_str(text)]


class Fast:
    """`fastokens` on one thread. Raises ModelError where it cannot read the vocabulary."""

    any_length = False

    def __init__(self, content: bytes) -> None:
        one_thread()
        self.name = fast_name()
        self.rebuilt = 0
        self._content = without_last_specials(content).decode()
        self._load()

    def _load(self) -> None:
        from fastokens import Tokenizer as Loaded

        try:
            self._loaded = Loaded.from_json_str(self._content)
            self._loaded.no_padding()
            self._loaded.no_truncation()
        except BaseException as error:  # it may panic, which is no Exception
            if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
                raise
            raise ModelError(f"{self.name} cannot read this vocabulary: {error}") from error
        self._grown = self._seen = 0

    def encode(self, texts: Sequence[str]) -> Encoded:
        self._bound()
        before = resident_bytes()
        try:
            ids, offsets = self._loaded.encode_batch_flat(
                list(texts), add_special_tokens=False, split_special_tokens=True
            )
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
                raise
            raise ModelError(f"{self.name} cannot encode a text: {error}") from error
        found = np.frombuffer(ids, np.uint32)
        self._seen += sum(map(len, texts))
        self._grown += resident_bytes() - before - found.nbytes
        ends = np.frombuffer(offsets, np.uint64).astype(np.int64)
        return found, ends[1:] - ends[:-1]

    def _bound(self) -> None:
        if self._grown > FAST_GROWTH or (self._seen > FAST_INPUT and not resident_bytes()):
            del self._loaded  # before the new one comes, or both would be held
            self._load()
            self.rebuilt += 1


def fast_name() -> str:
    """The fast engine with its version; "" where it is not installed."""
    try:
        return f"{FAST} {importlib.metadata.version(FAST)}"
    except importlib.metadata.PackageNotFoundError:
        return ""


def resident_bytes() -> int:
    """What this process holds in memory; 0 where the system does not say."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def out_of_reach(content: bytes, settings: dict[str, Any]) -> bytes:
    """tokenizer.json with special tokens where no text leads: Unigram finds any entry of its vocabulary in text, special or not.

    Such entries get names with a blank in front, and by then every blank of a text is a "▁".
    """
    model = settings["model"]
    if model["type"] != "Unigram" or not _blanks_are_marks(settings):
        return content
    names = {token["content"] for token in settings.get("added_tokens", []) if token["special"]}
    unknown = model.get("unk_id")
    vocab = [
        [f" {piece}" if piece in names or number == unknown else piece, score]
        for number, (piece, score) in enumerate(model["vocab"])
    ]
    others = [token for token in settings["added_tokens"] if not token["special"]]
    return json.dumps(
        {**settings, "model": {**model, "vocab": vocab}, "added_tokens": others, "post_processor": None},
        ensure_ascii=False,
    ).encode()


def without_last_specials(content: bytes) -> bytes:
    """tokenizer.json without the special tokens that stand behind all others: text has none, and between them ids may be missing.

    An engine may want ids without gaps.
    """
    settings = json.loads(content)
    vocab = settings["model"].get("vocab")
    added = settings.get("added_tokens", [])
    if settings["model"]["type"] != "BPE" or settings["model"].get("unk_token") is not None:
        return content
    special = {token["content"] for token in added if token["special"]}
    others = [number for piece, number in vocab.items() if piece not in special]
    others += [token["id"] for token in added if not token["special"]]
    last = max(others, default=-1)
    settings["model"]["vocab"] = {p: n for p, n in vocab.items() if n <= last}
    settings["added_tokens"] = [token for token in added if token["id"] <= last]
    return json.dumps({**settings, "post_processor": None}, ensure_ascii=False).encode()


def _blanks_are_marks(settings: dict[str, Any]) -> bool:
    steps = flat_steps(settings.get("normalizer"), "normalizers")
    return any(
        step["type"] == "Replace" and step["pattern"] == {"String": " "} and " " not in step["content"]
        for step in steps
    ) or any(
        step["type"] == "Metaspace" for step in flat_steps(settings.get("pre_tokenizer"), "pretokenizers")
    )


def _lossless(settings: dict[str, Any]) -> bool:
    """Whether every text comes back from its ids: bytes spelt by a vocabulary that has them all, and no normaliser before."""
    from tokenizers.pre_tokenizers import ByteLevel

    steps = flat_steps(settings.get("pre_tokenizer"), "pretokenizers")
    model = settings["model"]
    return (
        not flat_steps(settings.get("normalizer"), "normalizers")
        and model["type"] == "BPE"
        and any(step["type"] == "ByteLevel" and not step.get("add_prefix_space") for step in steps)
        and (settings.get("decoder") or {}).get("type") == "ByteLevel"
        and all(letter in model["vocab"] for letter in ByteLevel.alphabet())
    )


def flat_steps(step: dict[str, Any] | None, inner: str) -> list[dict[str, Any]]:
    """The steps of a normaliser or pretokenizer, sequences opened."""
    if step is None:
        return []
    if step["type"] == "Sequence":
        return [leaf for child in step[inner] for leaf in flat_steps(child, inner)]
    return [step]


def one_thread() -> None:
    """Workers are one a core: a library's own threads would only take them from each other."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("RAYON_NUM_THREADS", "1")
