"""The documents behind samples, the most suspicious first: what to look at when a loss has jumped.

Suspicion is the largest of three shares, each of which ordinary text keeps low:

    run       r / (r + 32) for the longest run r of one token      natural text: runs of 1 to 4
    rare      ids in the upper half of the vocabulary, which was learned last and is seen least, beyond the samples' median document
    garbled   letters that are none: U+FFFD, controls, private use, unassigned

Shares count 16 more than there is, so that a piece of three tokens accuses nobody. They are taken from the tokens at hand, the
pieces of the document in the samples asked for. A run that the audit of tokens noted elsewhere in the document counts as well,
also one that repeats several tokens.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from corpusmill.shards.locate import Located, Piece, locate
from corpusmill.shards.reader import ComponentReader, Shards
from corpusmill.shards.sidecar import Origin
from corpusmill.shards.words import Words

HALF_RUN = 32
SPARE = 16
LONG_RUN = 8  # from here on the text around is that of the run, else the beginning
AROUND = 40  # tokens of text before the place, and twice as many behind

_NO_LETTERS = {"Cc", "Co", "Cn", "Cs"}


@dataclass(frozen=True)
class Sighting:
    """A piece of the document: tokens `start` .. `end` - 1 of a sample are its tokens `token` .."""

    sample: int
    epoch: int
    shard: str
    block: int
    row: int
    start: int
    end: int
    token: int
    quarantined: bool


@dataclass(frozen=True)
class Suspect(Origin):
    """A document. `longest_run`, `rare` and `garbled` are of its tokens in these samples, `scores` of all of it; `text` is what stands around its longest run, or its beginning, None where no tokenizer.json tells."""

    suspicion: float
    component: str
    document: int
    tokens: int
    longest_run: int
    rare: float
    garbled: float
    text: str | None
    scores: dict[str, Any]
    pieces: tuple[Sighting, ...]


@dataclass
class _Seen:
    """What the samples hold of one document."""

    first: Piece
    places: list[Sighting] = field(default_factory=list)
    ids: list[list[int]] = field(default_factory=list)


def suspects(path: str | Path | Shards, at: int, until: int | None = None) -> list[Suspect]:
    """Documents of samples `at` .. `until` - 1 (one when `until` is None); raises CursorError beyond the plan's end."""
    shards = path if isinstance(path, Shards) else Shards(path)
    located = locate(shards, at, until)
    rows = shards.tokens(shards.order.samples(at, at + len(located)))
    seen: dict[tuple[str, int], _Seen] = {}
    places = {reader.component.name: i for i, reader in enumerate(shards.components)}
    for sample, row in zip(located, rows.tolist(), strict=True):
        hidden = shards.hidden.tokens(places[sample.component], sample.row, sample.sample)
        for piece in sample.pieces:
            found = seen.setdefault((sample.component, piece.document), _Seen(piece))
            found.places.append(_sighting(sample, piece, hidden))
            found.ids.append(row[piece.start : piece.end])
    words = {reader.component.name: _words(reader) for reader in shards.components}
    sizes = {reader.component.name: reader.manifest.vocab_size for reader in shards.components}
    rare = {key: _rare(found, sizes[key[0]]) for key, found in seen.items()}
    usual = median(rare.values())
    judged = [
        _judged(key[0], found, words[key[0]], rare[key], max(0.0, rare[key] - usual))
        for key, found in seen.items()
    ]
    return sorted(judged, key=lambda each: (-each.suspicion, each.pieces[0].sample, each.pieces[0].start))


def _sighting(sample: Located, piece: Piece, hidden: set[int]) -> Sighting:
    gone = not hidden.isdisjoint(range(piece.start, piece.end))
    where = (sample.sample, sample.epoch, sample.shard, sample.block, sample.row)
    return Sighting(*where, piece.start, piece.end, piece.token, gone)


def _rare(seen: _Seen, vocab_size: int) -> float:
    tokens = [token for ids in seen.ids for token in ids]
    return sum(token >= vocab_size // 2 for token in tokens) / (len(tokens) + SPARE)


def _judged(component: str, seen: _Seen, words: Words | None, rare: float, excess: float) -> Suspect:
    runs = [_longest_run(ids) for ids in seen.ids]
    run, at = max(runs, key=lambda found: found[0])
    # A row may cut a letter: what is left of it at an end is no fault of the text.
    texts = [words.text(ids).strip("\N{REPLACEMENT CHARACTER}") for ids in seen.ids] if words else []
    wrong = sum(_is_garbled(letter) for text in texts for letter in text)
    garbled = wrong / (sum(map(len, texts)) + SPARE)
    audited = seen.first.scores  # shards/audit.py; shards of other programs may lack its columns
    worst = max(run, *(int(audited.get(name) or 0) for name in ("longest_run", "periodic_run")))
    suspicion = max(worst / (worst + HALF_RUN), excess, garbled)
    ids = seen.ids[[length for length, _ in runs].index(run)] if run >= LONG_RUN else seen.ids[0]
    begin = max(0, at - AROUND) if run >= LONG_RUN else 0
    return Suspect(
        **seen.first.origin(),
        suspicion=round(suspicion, 4),
        component=component,
        document=seen.first.document,
        tokens=sum(map(len, seen.ids)),
        longest_run=run,
        rare=round(rare, 4),
        garbled=round(garbled, 4),
        text=words.text(ids[begin : begin + 3 * AROUND]) if words else None,
        scores=seen.first.scores,
        pieces=tuple(seen.places),
    )


def _longest_run(ids: list[int]) -> tuple[int, int]:
    """(length, place of its first token) of the longest run of one token."""
    values = np.array(ids)
    starts = np.concatenate([[0], np.flatnonzero(values[1:] != values[:-1]) + 1])
    lengths = np.diff(np.append(starts, len(values)))
    longest = int(np.argmax(lengths))
    return int(lengths[longest]), int(starts[longest])


def _is_garbled(letter: str) -> bool:
    if letter in "\n\r\t":
        return False
    return letter == "\N{REPLACEMENT CHARACTER}" or unicodedata.category(letter) in _NO_LETTERS


def _words(reader: ComponentReader) -> Words | None:
    """What its tokenizer.json says; None where it is missing or of a kind that we cannot spell. Raises ShardError for another one."""
    if not reader.tokenizer.is_file():
        return None
    data = reader.read_tokenizer()
    try:
        return Words(data)
    except ValueError:
        return None
