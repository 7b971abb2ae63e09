"""Leaks: how much of a target stands word for word in a training component.

    windows = Windows.of({"books": documents})       # documents: arrays of token ids
    seen = windows.seen(rows_of_web)                  # one pass over a component; parts are joined by `|`
    overlaps = windows.overlaps("web", seen)
    refuse(overlaps, limit=0.1)

A token of a target is hit when it lies in a run of `window` tokens that a component has too. Runs of 13 words are what decontamination
takes for a copy; 24 tokens are 13 to 18 words of English, with vocabularies of 4,096 to 50,000. Licences and menus are
runs too: what counts is the share of the target, and a document is hit when half of it is.

Only the targets' runs are held (8 bytes each, and 4 MiB), whatever the components' sizes. Rows of shards are taken as they lie: of a
copy that the end of a row cuts, each part is found that has a whole run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.errors import RecipeError

Hashes = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

WINDOW = 24

HIT = 0.5
"""Share of a document's tokens from which the document is a copy, and not one that quotes."""

CHUNK = 1 << 18  # tokens hashed at once

SIEVE_BITS = 22  # most runs are turned away by one look into 4 MiB


@dataclass(frozen=True)
class Overlap:
    """Of one target with one component. `short` documents have fewer tokens than a run: nothing is said of them, and they count nowhere."""

    target: str
    component: str
    documents: int
    hit_documents: int
    tokens: int
    hit_tokens: int
    short: int

    @property
    def document_share(self) -> float:
        return self.hit_documents / self.documents if self.documents else 0.0

    @property
    def token_share(self) -> float:
        return self.hit_tokens / self.tokens if self.tokens else 0.0


@dataclass(frozen=True)
class _Target:
    """`places`: of each run of all documents, one after the other, its place among the hashes."""

    name: str
    lengths: Indices  # of the documents that have a run
    places: Indices
    short: int


@dataclass(frozen=True)
class Windows:
    """All runs of all targets."""

    window: int
    hashes: Hashes  # sorted, each once
    sieve: Flags
    targets: tuple[_Target, ...]

    @classmethod
    def of(cls, targets: Mapping[str, Sequence[npt.NDArray[Any]]], window: int = WINDOW) -> Windows:
        """From token ids of whole documents."""
        if window < 1:
            raise RecipeError(f"overlap: a run has at least 1 token, not {window}")
        long = {
            name: [np.asarray(each) for each in documents if len(each) >= window]
            for name, documents in targets.items()
        }
        hashed = {
            name: np.concatenate([np.zeros(0, np.uint64), *(_hashes(each, window) for each in documents)])
            for name, documents in long.items()
        }
        hashes = np.unique(np.concatenate([np.zeros(0, np.uint64), *hashed.values()]))
        sieve = np.zeros(1 << SIEVE_BITS, np.bool_)
        sieve[_sieve_place(hashes)] = True
        found = tuple(
            _Target(
                name,
                np.array([len(each) for each in long[name]], np.int64),
                np.searchsorted(hashes, hashed[name]),
                len(targets[name]) - len(long[name]),
            )
            for name in targets
        )
        return cls(window, hashes, sieve, found)

    def seen(self, tokens: npt.NDArray[Any]) -> Flags:
        """Which runs of targets occur in a run of tokens, or in rows of them."""
        found = np.zeros(len(self.hashes), np.bool_)
        rows = np.atleast_2d(tokens)
        if not len(self.hashes) or rows.shape[1] < self.window:
            return found
        height = max(1, CHUNK // rows.shape[1])
        for top in range(0, len(rows), height):
            for left in range(0, rows.shape[1] - self.window + 1, CHUNK):
                piece = rows[top : top + height, left : left + CHUNK + self.window - 1]
                hashes = _hashes(piece, self.window).ravel()
                hashes = hashes[self.sieve[_sieve_place(hashes)]]
                place = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
                found[place[self.hashes[place] == hashes]] = True
        return found

    def overlaps(self, component: str, seen: Flags) -> list[Overlap]:
        """Of every target with a component whose runs are `seen`."""
        return [self._overlap(target, component, seen) for target in self.targets]

    def _overlap(self, target: _Target, component: str, seen: Flags) -> Overlap:
        starts = np.concatenate([[0], np.cumsum(target.lengths)])
        runs = np.concatenate([[0], np.cumsum(target.lengths - self.window + 1)])
        # A run that is seen begins a stretch of `window` tokens that are hit: +1 where it begins, -1 behind its end.
        hits = np.flatnonzero(seen[target.places])
        document = np.searchsorted(runs, hits, side="right") - 1
        first = starts[document] + hits - runs[document]
        edges = np.bincount(first, minlength=starts[-1] + 1) - np.bincount(
            first + self.window, minlength=starts[-1] + 1
        )
        hit = np.concatenate([[0], np.cumsum(np.cumsum(edges[:-1]) > 0)])
        of_document = hit[starts[1:]] - hit[starts[:-1]]
        return Overlap(
            target.name,
            component,
            len(target.lengths),
            int(np.count_nonzero(of_document >= HIT * target.lengths)),
            int(starts[-1]),
            int(hit[-1]),
            target.short,
        )


def refuse(overlaps: Iterable[Overlap], limit: float) -> None:
    """RecipeError that names every target and component with more than `limit` of the target's tokens in common."""
    over = sorted(
        (each for each in overlaps if each.token_share > limit),
        key=lambda each: (-each.token_share, each.target, each.component),
    )
    if over:
        lines = [
            f"target {each.target} and component {each.component} share {each.token_share:.1%} of the target's tokens "
            f"({each.hit_documents} of {each.documents} documents at least by half)"
            for each in over
        ]
        raise RecipeError(
            "\n".join(lines)
            + f"\nmore than {limit:.1%} would reward weights for the leak: take these documents out of the component (dedup before shard "
            "keeps copies of held-out documents out), choose another target, or raise the limit"
        )


_STEP = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def _hashes(tokens: npt.NDArray[Any], window: int) -> Hashes:
    """Of every run along the last axis: a polynomial over mixed ids, put together from runs of 1, 2, 4 … tokens."""
    power = _mixed(tokens.astype(np.uint64) + np.uint64(1))  # runs of `length` tokens
    length, done, total = 1, 0, None
    while True:
        if window & length:
            part = power[..., done:]
            total = part if total is None else _joined(total, part, length)
            done += length
        if done == window:
            assert total is not None
            return total
        power = _joined(power, power[..., length:], length)
        length *= 2


def _joined(left: Hashes, right: Hashes, length: int) -> Hashes:
    """Hashes of runs that `right`, of `length` tokens, goes on with."""
    step = np.uint64(pow(_STEP, length, _MASK + 1))
    return np.asarray(left[..., : right.shape[-1]] * step + right)


def _mixed(values: Hashes) -> Hashes:
    """All bits of an id into all of its hash (the finish of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))


def _sieve_place(hashes: Hashes) -> Indices:
    return (hashes >> np.uint64(64 - SIEVE_BITS)).astype(np.int64)
