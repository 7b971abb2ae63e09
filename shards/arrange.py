"""Which slices make which shard: laid out by the driver from the scatter's counts alone, before a token is read.

Components in the order of their names, key ranges in their order, so shard, document and row numbers are the same however the
scatter was cut into units. Costs a few integers for each slice.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corpusmill.pipeline.engine.stage import Result
from corpusmill.pipeline.errors import BudgetError, ShardError
from corpusmill.shards.components import HOLDOUT, SMALL_BLOCKS, Key, component_names, merge_small, slugs

MOST_OVERSIZE = 4
"""A shard of more than this many times `shard_bytes` is refused: a worker's memory goes with it."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Slices:
    """A shard: key ranges [low, high) of `ranges`, from scatter files in runs [first, behind the last); tokens with boundaries."""

    low: int
    high: int
    ranges: int
    files: tuple[tuple[int, int], ...]
    documents: int
    tokens: int
    first_doc: int


@dataclass(frozen=True)
class Arranged:
    """A component and its shards; `keys` are the values of the `by` columns that it holds."""

    name: str
    slug: str
    keys: tuple[Key, ...]
    shards: tuple[Slices, ...]


def arrange(
    results: Mapping[int, Result], by: tuple[str, ...], least_tokens: int, shard_tokens: int
) -> list[Arranged]:
    """All components with their shards, those held out last; ShardError when no document was kept."""
    members, held = _members(results, by, least_tokens)
    if held and not members:
        raise ShardError("holdout keeps back every document, so there is nothing to train on: lower it")
    if not members:
        raise ShardError(
            "nothing to shard: no document with a token was kept; "
            "the ledger (`corpusmill show OUT`) says which stage dropped them, and by how much"
        )
    names = component_names({*members, *held})
    folders = slugs(names.values())
    ordered = sorted(names.items(), key=lambda item: item[1])

    def arranged(prefix: str, of: Mapping[Key, list[Key]]) -> list[Arranged]:
        return [
            Arranged(
                prefix + name,
                prefix + folders[name],
                tuple(of[key]),
                tuple(_shards(prefix + name, of[key], results, shard_tokens)),
            )
            for key, name in ordered
            if key in of
        ]

    return [*arranged("", members), *arranged(f"{HOLDOUT}/", held)]


def _members(
    results: Mapping[int, Result], by: tuple[str, ...], least_tokens: int
) -> tuple[dict[Key, list[Key]], dict[Key, list[Key]]]:
    """Component -> the keys that form it, for training and held out. Only documents with a token are scattered, so none is empty.

    What is held out follows the component that its documents would have been in.
    """
    tokens: dict[Key, int] = {}
    for result in results.values():
        for key, counts in zip(result.extra["components"], result.extra["tokens"], strict=True):
            tokens[tuple(key)] = tokens.get(tuple(key), 0) + sum(counts)
    members: dict[Key, list[Key]] = {}
    held: dict[Key, list[Key]] = {}
    # By the length, not by the word: a value of the data may be any word.
    merged = merge_small({key: n for key, n in tokens.items() if len(key) == len(by)}, by, least_tokens)
    for key in sorted(tokens):
        bare = key[: len(by)]
        (members if bare == key else held).setdefault(merged.get(bare, bare), []).append(key)
    small = sum(len(keys) for keys in members.values() if len(keys) > 1)
    if small:
        log.warning(
            "%d components under %d blocks were merged into the rest of their source", small, SMALL_BLOCKS
        )
    return members, held


def _shards(name: str, keys: list[Key], results: Mapping[int, Result], shard_tokens: int) -> list[Slices]:
    documents, tokens, files = _totals(keys, results)
    shards: list[Slices] = []
    first_doc = 0
    for low, high in cut_ranges(tokens, shard_tokens):
        count = sum(tokens[low:high])
        if count > MOST_OVERSIZE * shard_tokens:
            raise BudgetError(
                f"a shard of {name} would hold {count} tokens, over {MOST_OVERSIZE} times what shard_bytes allows: "
                "raise shard_bytes in the recipe (a worker needs about three times as much memory)"
            )
        shards.append(Slices(low, high, len(tokens), files, sum(documents[low:high]), count, first_doc))
        first_doc += shards[-1].documents
    return shards


def cut_ranges(tokens: Sequence[int], limit: int) -> list[tuple[int, int]]:
    """Consecutive key ranges of up to `limit` tokens together; one that has more stands alone; all of them empty: none."""
    cuts = [0]
    size = 0
    for place, count in enumerate(tokens):
        if size and count and size + count > limit:
            cuts.append(place)
            size = 0
        size += count
    cuts.append(len(tokens))
    return [(low, high) for low, high in itertools.pairwise(cuts) if sum(tokens[low:high])]


def _totals(
    keys: list[Key], results: Mapping[int, Result]
) -> tuple[list[int], list[int], tuple[tuple[int, int], ...]]:
    """Documents and tokens by key range over all files, and the files that hold any, as runs."""
    wanted = set(keys)
    documents: list[int] = []
    tokens: list[int] = []
    files: list[int] = []
    for number, result in sorted(results.items()):
        for place, key in enumerate(result.extra["components"]):
            if tuple(key) in wanted:
                documents = _added(documents, result.extra["documents"][place])
                tokens = _added(tokens, result.extra["tokens"][place])
                files.append(number)
    return documents, tokens, _runs(sorted(set(files)))


def _added(total: list[int], more: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(total, more, strict=True)] if total else list(more)


def _runs(numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return tuple(runs)
