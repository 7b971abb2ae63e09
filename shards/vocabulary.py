"""The shards' tokenizer: a vocabulary file that is given, made a tokenizer.json if it is none, or byte-level BPE trained on what the recipe keeps.

Either way `tokenizer.json` stands in the stage's folder, so later stages depend on its content and never on where it came from.
Training reads partitions in keyed order until it holds READ_FACTOR times the sample, then takes the documents with the lowest keys.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import InitVar, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import xxhash

from corpusmill.pipeline.engine.stage import WORKER_BYTES, Area, Inputs, Result, SetOperation, TaskIO, Unit
from corpusmill.pipeline.errors import ModelError, ShardError
from corpusmill.pipeline.text.tokenizer import Tokenizer, choose_bos, train_bpe
from corpusmill.pipeline.text.vocabularies import as_tokenizer_json
from corpusmill.shards.layout import TOKENIZER_FILE

logger = logging.getLogger(__name__)

READ_FACTOR = 4
"""Text read for a training sample, as a multiple of it: partitions in keyed order are a draw of their own, so a few suffice."""


@dataclass(frozen=True)
class GivenTokenizer(SetOperation):
    """A vocabulary file, checked and as tokenizer.json; `sha256` is the file's. Where it lies is no field, so moving it makes nothing anew."""

    sha256: str
    eos: str | None = None
    bos: str | None = None
    pattern: str | None = None
    special: dict[str, int] | None = None
    path: InitVar[str] = ""

    libraries: ClassVar[tuple[str, ...]] = ("tokenizers",)
    area: ClassVar[Area] = "layers"

    def __post_init__(self, path: str) -> None:
        object.__setattr__(self, "_path", path)

    def models(self) -> dict[str, str]:
        return {TOKENIZER_FILE: self.sha256}

    def _content(self) -> tuple[bytes, str]:
        """tokenizer.json, and what the file was."""
        path: str = getattr(self, "_path")  # noqa: B009  (set in __post_init__, unknown to the type checker)
        content, sha256 = read_tokenizer(path)
        if sha256 != self.sha256:
            raise ModelError(f"{path} changed while the recipe ran; run it again")
        special = None if self.special is None else tuple(self.special.items())
        return _converted(content, path, self.pattern, special)

    def units(self, inputs: Inputs) -> list[Unit]:
        content, kind = self._content()
        tokenizer = Tokenizer(content, self.eos, getattr(self, "_path"))  # noqa: B009
        original = {"original": kind, "original_sha256": self.sha256}
        return [Unit(0, 1, facts(tokenizer, self.bos) | original)]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        return io.result(extra=unit.fields)

    def seal(self, results: Mapping[int, Result], inputs: Inputs) -> dict[str, bytes]:
        return {TOKENIZER_FILE: self._content()[0]}


@dataclass(frozen=True)
class TrainedTokenizer(SetOperation):
    """Byte-level BPE over about `sample_bytes` of kept text, chosen by hash(seed, id)."""

    seed: int
    vocab: int
    sample_bytes: int
    eos: str
    bos: str | None = None  # a special token of its own, where documents begin with one

    libraries: ClassVar[tuple[str, ...]] = ("tokenizers",)
    area: ClassVar[Area] = "layers"

    def units(self, inputs: Inputs) -> list[Unit]:
        parts = sorted(
            inputs.results("documents"),
            key=lambda part: xxhash.xxh3_64_intdigest(f"{self.seed}/{part}".encode()),
        )
        return [Unit(0, READ_FACTOR * self.sample_bytes, {"order": parts}, tuple(sorted(parts)))]

    def worker_memory(self, unit: Unit) -> int:
        """Up to twice the sample as strings of up to four bytes a letter, then its words with their counts and places."""
        return WORKER_BYTES + 8 * self.sample_bytes

    def run(self, unit: Unit, io: TaskIO) -> Result:
        texts, used = self._sample(unit.fields["order"], io)
        if not texts:
            raise ShardError(
                "no document was kept, so there is no text to train a tokenizer on; "
                "the ledger (`corpusmill show OUT`) says which stage dropped them all"
            )
        content = train_bpe(texts, self.vocab, self.eos, [] if self.bos is None else [self.bos])
        io.write_bytes(TOKENIZER_FILE, content)
        counts = {"documents": len(texts), "text_bytes": used}
        return io.result(rows=len(texts), counts=counts, extra=facts(Tokenizer(content, self.eos), self.bos))

    def seal(self, results: Mapping[int, Result], inputs: Inputs) -> dict[str, bytes]:
        (made,) = results.values()
        if made.extra["vocab_size"] < self.vocab:
            logger.warning(
                "shard.tokenizer: %d bytes of text gave %d entries, not %d",
                made.counts["text_bytes"],
                made.extra["vocab_size"],
                self.vocab,
            )
        return {}

    def _sample(self, order: list[int], io: TaskIO) -> tuple[list[str], int]:
        """Texts by key, with their bytes; at most twice the sample is held at a time."""
        found: list[tuple[int, bytes, str, int]] = []
        held = seen = 0
        for key, name, text, size in self._texts(order, io):
            found.append((key, name, text, size))
            held, seen = held + size, seen + size
            if held > 2 * self.sample_bytes:
                found, held = _lowest(found, self.sample_bytes)
            if seen > READ_FACTOR * self.sample_bytes:
                break
        found, held = _lowest(found, self.sample_bytes)
        return [text for _, _, text, _ in found], held

    def _texts(self, order: list[int], io: TaskIO) -> Iterator[tuple[int, bytes, str, int]]:
        for part in order:
            for _, rows in io.rows(part, ["id", "text"], kept=True):
                for name, text in zip(rows["id"].to_pylist(), rows["text"].to_pylist(), strict=True):
                    if text:
                        yield xxhash.xxh3_64_intdigest(name, self.seed), name, text, len(text.encode())


def _lowest(
    found: list[tuple[int, bytes, str, int]], limit: int
) -> tuple[list[tuple[int, bytes, str, int]], int]:
    """The documents with the lowest keys up to `limit` bytes, at least one, and their bytes."""
    kept: list[tuple[int, bytes, str, int]] = []
    size = 0
    for item in sorted(found, key=lambda item: item[:2]):
        if kept and size + item[3] > limit:
            break
        kept.append(item)
        size += item[3]
    return kept, size


@lru_cache(maxsize=1)
def _converted(
    content: bytes, path: str, pattern: str | None, special: tuple[tuple[str, int], ...] | None
) -> tuple[bytes, str]:
    """Once for the units and the seal of a stage: a large vocabulary takes seconds."""
    return as_tokenizer_json(content, path, pattern, None if special is None else dict(special))


def read_tokenizer(path: str) -> tuple[bytes, str]:
    """Content and sha256 of a vocabulary file."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ModelError(
            f"tokenizer {path} cannot be read ({error.strerror}); give the path of a vocabulary file, or train one"
        ) from error
    return content, hashlib.sha256(content).hexdigest()


def facts(tokenizer: Tokenizer, bos: str | None) -> dict[str, Any]:
    """What later stages and manifests say about a tokenizer; `bos` is None when it has no single begin of text."""
    special = tokenizer.special
    begin = choose_bos(special, bos, "the tokenizer")
    return {
        "sha256": tokenizer.sha256,
        "vocab_size": tokenizer.vocab_size,
        "dtype": tokenizer.dtype.name,
        "eos": tokenizer.eos,
        "eos_token": tokenizer.eos_token,
        "bos": None if begin is None else special[begin],
    }


@lru_cache(maxsize=1)
def loaded(content: bytes, eos: str) -> Tokenizer:
    """One tokenizer a worker: loading a large one takes seconds."""
    return Tokenizer(content, eos)
