"""Scatter: kept text becomes token ids, cut by component and by range of the shuffle key.

Key = xxh3-64(id, seed): sorting by it is the full shuffle. A file holds a record batch for each (component, key range), in
this order; its schema lists the components, its result the documents and tokens of every slice. Tokens carry their
boundary. Costs what the tokenizer costs, by the reference 12 CPU seconds for 39 MB of text; 0.5 GB for a unit of 22 million tokens.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from corpusmill.pipeline.engine.layout import consecutive
from corpusmill.pipeline.engine.place import place_of
from corpusmill.pipeline.engine.shuffle import slices
from corpusmill.pipeline.engine.stage import WORKER_BYTES, Area, Inputs, Result, SetOperation, TaskIO, Unit
from corpusmill.pipeline.errors import ModelError, RecipeError
from corpusmill.pipeline.text.checked import Checked, Differs
from corpusmill.pipeline.text.choice import fast_engine, switch_off, switched_off
from corpusmill.shards.audit import AUDIT, Audit, audit, id_flags
from corpusmill.shards.components import HELD, Key
from corpusmill.shards.holdout import held_out
from corpusmill.shards.kept_out import KEPT_OUT, list_name, refused
from corpusmill.shards.layout import TOKENIZER_FILE, Boundary
from corpusmill.shards.vocabulary import loaded

log = logging.getLogger(__name__)

RANGES_PER_SHARD = 4
"""Key ranges that make up a full shard: shards end at range borders, so one is 75 to 100 % full."""

TOKEN_BYTES_PER_STORED = 4
"""Bound on bytes of tokens a byte of stored documents (zstd at about 1:3, 4 letters a token, 4 bytes an id: 3)."""

MOST_RANGES = 4096

GROUP_SHARE = 4
"""A unit takes partitions up to this part of `partition_bytes` in stored documents (64 of 256 MB): its tokens are held in memory."""

COMPONENTS = b"components"
"""Key of the schema metadata that lists a file's components."""


FAST_BYTES = 1 << 20
"""Stored bytes of a unit from which the fast engine pays: its battery takes as long as the reference for a few MB of text."""

FAST_MEMORY = 768 << 20
"""What both engines may take beside the texts: FAST_GROWTH, their vocabularies, and a batch."""


@dataclass(frozen=True)
class Tokenized:
    """Records a row group, the component of each record, what the audit kept out, and what is counted beside."""

    tables: list[pa.Table]
    keys: list[Key]
    refused: list[pa.Table]
    counts: Counter[str]


@dataclass(frozen=True)
class Scatter(SetOperation):
    """One file a unit; a unit is some consecutive partitions. `measures` go along into the docs sidecar."""

    seed: int
    tokenizer: str  # the stage that holds tokenizer.json
    by: tuple[str, ...]
    measures: tuple[str, ...]
    shard_bytes: int
    boundary: Boundary = "eos"
    audit: Audit = field(default_factory=Audit)
    holdout: float = 0.0
    clusters: str | None = None  # the stage whose `cluster` says what is held out together

    version: ClassVar[int] = 3
    libraries: ClassVar[tuple[str, ...]] = ("tokenizers",)
    area: ClassVar[Area] = "text"
    rate: ClassVar[float] = 1e6
    temporary: ClassVar[bool] = True

    def units(self, inputs: Inputs) -> list[Unit]:
        stored = {
            part: sum(file.size_bytes for file in result.files)
            for part, result in sorted(inputs.results("documents").items())
        }
        (made,) = inputs.results(self.tokenizer).values()
        fields = {
            "eos": made.extra["eos_token"],
            "ranges": range_count(sum(stored.values()), self.shard_bytes),
            **dict(zip(("before", "after"), self._around(made.extra), strict=True)),
        }
        # Slices of many small partitions would be too small to read.
        groups = consecutive(stored, inputs.partition_bytes // GROUP_SHARE)
        return [
            Unit(index, sum(stored[part] for part in parts), fields, parts)
            for index, parts in enumerate(groups)
        ]

    def _around(self, made: Mapping[str, Any]) -> tuple[list[int], list[int]]:
        """Ids before and behind each document."""
        if self.boundary in ("bos", "both") and made["bos"] is None:
            raise ModelError(
                f"{self.tokenizer}: boundary is {self.boundary}, but there is no single begin-of-text token with a usual name; "
                f"name one of the special tokens as {self.tokenizer}.bos"
            )
        return (
            [made["bos"]] if self.boundary in ("bos", "both") else [],
            [made["eos"]] if self.boundary in ("eos", "both") else [],
        )

    def worker_memory(self, unit: Unit) -> int:
        """Tokens of all its partitions, as they come, as one table, and in order."""
        engines = FAST_MEMORY if unit.weight >= FAST_BYTES else 0
        return WORKER_BYTES + engines + 3 * TOKEN_BYTES_PER_STORED * unit.weight

    def run(self, unit: Unit, io: TaskIO) -> Result:
        ranges: int = unit.fields["ranges"]
        found = self._tokenized(unit, io)
        keys, counts = found.keys, found.counts
        if found.refused:
            batches = pa.concat_tables(found.refused).combine_chunks().to_batches()
            io.write_arrow(list_name(unit.index), batches, KEPT_OUT)
        told: dict[str, Any] = {"kept_out": sum(table.num_rows for table in found.refused)}
        if not keys:
            return io.result(counts=counts, extra=told | {"components": [], "documents": [], "tokens": []})
        table = pa.concat_tables(found.tables).combine_chunks()
        found.tables.clear()  # or a third copy of all tokens stays in memory below
        components = sorted(set(keys))
        bucket = _buckets(table, keys, components, ranges)
        schema = table.schema.with_metadata({COMPONENTS: json.dumps(components).encode()})
        io.write_arrow(
            file_name(unit.index), slices(table.cast(schema), bucket, len(components) * ranges), schema
        )
        lengths = pc.list_value_length(table["tokens"]).to_numpy()
        documents, tokens = _sums(bucket, lengths, len(components), ranges)
        told |= {"components": components, "documents": documents.tolist(), "tokens": tokens.tolist()}
        return io.result(rows=table.num_rows, counts=counts, extra=told)

    def _tokenized(self, unit: Unit, io: TaskIO) -> Tokenized:
        """All documents of a unit; by the reference alone when the fast engine is not to be had, or turns out wrong."""
        tokenizer = loaded(io.read_bytes(self.tokenizer, TOKENIZER_FILE), unit.fields["eos"])
        engine = fast_engine(tokenizer, io.metrics) if unit.weight >= FAST_BYTES else None
        checked = Checked(tokenizer, engine)
        try:
            found = self._encoded(unit, io, checked)
        except Differs as error:
            switch_off(tokenizer, io.metrics, error)
            io.used({"mismatches": 1})
            return self._encoded(unit, io, Checked(tokenizer))
        io.used({"by_engine": checked.documents, "cross_checked": checked.cross_checked})
        return found

    def _encoded(self, unit: Unit, io: TaskIO, checked: Checked) -> Tokenized:
        flags = id_flags(io.read_bytes(self.tokenizer, TOKENIZER_FILE), checked.tokenizer.vocab_size)
        found = Tokenized([], [], [], Counter({"empty": 0, "tokens": 0}))
        for rows, clusters in self._rows(unit.parts, io):
            texts = rows["text"].to_pylist()
            ids, lengths = checked.encode(texts, rows["id"].to_pylist())
            text_bytes = np.array([len(text.encode()) for text in texts], np.int64)
            audited = audit(ids, lengths, text_bytes, *flags)
            reasons = self.audit.reasons(audited)
            stays = (lengths > 0) & np.asarray(reasons.is_null())
            found.counts.update(f"kept_out.{reason}" for reason in reasons.drop_null().to_pylist())
            found.counts["empty"] += int(np.count_nonzero(lengths == 0))
            found.counts["tokens"] += int(lengths[stays].sum())
            if reasons.null_count < len(reasons):
                found.refused.append(refused(rows, origin_of(rows), audited, reasons, lengths))
            ids, lengths = framed(ids, lengths, unit.fields["before"], unit.fields["after"])
            found.tables.append(self._records(rows, audited, ids, lengths).filter(pa.array(stays)))
            named = keys_of(rows, clusters, self.by, self.seed, self.holdout)
            found.keys.extend(key for key, stay in zip(named, stays.tolist(), strict=True) if stay)
        return found

    def _rows(self, parts: Sequence[int], io: TaskIO) -> Iterator[tuple[pa.Table, pa.ChunkedArray | None]]:
        """Kept rows, and the cluster of each where something says it."""
        columns = list(dict.fromkeys(["id", "text", "url", "source", "origin", *self.by, *self.measures]))
        for part in parts:
            found = None if self.clusters is None else io.layer(self.clusters, part, ["cluster"])["cluster"]
            for numbers, rows in io.rows(part, columns, kept=True):
                yield rows, None if found is None else found.take(pa.array(numbers))

    def seal(self, results: Mapping[int, Result], inputs: Inputs) -> dict[str, bytes]:
        """Nothing to stand with the units: says here, in the driver, when the fast engine was not used."""
        for why in switched_off(place_of(inputs.root) / "metrics"):
            log.warning("%s: tokenized by the reference, which takes longer: %s", self.tokenizer, why)
        return {}

    def _records(
        self, rows: pa.Table, audited: pa.Table, ids: npt.NDArray[Any], lengths: npt.NDArray[np.int64]
    ) -> pa.Table:
        names = rows["id"].to_pylist()
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return pa.table(
            {
                "key": pa.array([xxhash.xxh3_64_intdigest(name, self.seed) for name in names], pa.uint64()),
                "id": rows["id"],
                "url": rows["url"].cast(pa.large_string()),
                **origin_of(rows),
                "digest": pa.array(
                    [xxhash.xxh3_128_digest(text.encode()) for text in rows["text"].to_pylist()], pa.binary()
                ),
                "source": rows["source"].cast(pa.string()),
                **{name: audited[name] for name in AUDIT.names},
                **{name: rows[name] for name in self.measures},
                "tokens": pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(ids)),
            }
        )


def components_of(schema: pa.Schema) -> list[Key]:
    """The components of a scatter file, in the order of its slices."""
    return [tuple(key) for key in json.loads(schema.metadata[COMPONENTS])]


def origin_of(rows: pa.Table) -> dict[str, pa.Array]:
    """File, offset and length in the inputs."""
    origin = rows["origin"].combine_chunks()
    return {name: pc.struct_field(origin, name) for name in ("file", "offset", "length")}


def file_name(unit: int) -> str:
    return f"tokens-{unit:05d}.arrow"


def range_count(stored_bytes: int, shard_bytes: int) -> int:
    """A power of two: fixed ranges of the key, so fine that RANGES_PER_SHARD of them never pass a shard by the bound above."""
    wanted = -(-stored_bytes * TOKEN_BYTES_PER_STORED * RANGES_PER_SHARD // shard_bytes)
    return min(MOST_RANGES, 1 << max(0, wanted - 1).bit_length())


def component_keys(rows: pa.Table, by: Sequence[str]) -> list[Key]:
    """The component of each row; a null value is the word none. RecipeError for bytes and lists, which name nothing."""
    for name in by:
        kind = rows.schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind):
            raise RecipeError(
                f"components.by: {name!r} is a column of {kind}; a component is told by text, a number, a date or true/false"
            )
    columns = [pc.fill_null(rows[name].cast(pa.string()), "none").to_pylist() for name in by]
    return list(zip(*columns, strict=True))


def keys_of(
    rows: pa.Table, clusters: pa.ChunkedArray | None, by: Sequence[str], seed: int, holdout: float
) -> list[Key]:
    """The component of each row; what is held out has HELD behind it."""
    keys = component_keys(rows, by)
    if not holdout:
        return keys
    names = rows["id"].to_pylist()
    groups = [None] * len(names) if clusters is None else clusters.to_pylist()
    return [
        (*key, HELD) if held_out(name, group, seed, holdout) else key
        for key, name, group in zip(keys, names, groups, strict=True)
    ]


def _buckets(table: pa.Table, keys: list[Key], components: list[Key], ranges: int) -> npt.NDArray[np.int64]:
    place = {key: index for index, key in enumerate(components)}
    component = np.array([place[key] for key in keys], dtype=np.int64)
    bits = ranges.bit_length() - 1
    key = table["key"].to_numpy()
    # a shift by all 64 bits is undefined, hence two shifts
    place_in_key = (key >> np.uint64(1)) >> np.uint64(63 - bits)
    return np.asarray(component * ranges + place_in_key.astype(np.int64))


def framed(
    ids: npt.NDArray[Any], lengths: npt.NDArray[np.int64], before: Sequence[int], after: Sequence[int]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Documents that lie end to end, and their lengths, with `before` and `after` around each; one without tokens gets neither."""
    if not before and not after:
        return ids, lengths
    ends, full = np.cumsum(lengths), lengths > 0
    around = np.array([*before, *after], dtype=ids.dtype)
    places = np.stack([ends - lengths] * len(before) + [ends] * len(after), axis=1)[full]
    values = np.tile(around, len(places))
    return np.insert(ids, places.reshape(-1), values), lengths + full * len(around)


def _sums(
    bucket: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64], components: int, ranges: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Documents and tokens (boundaries included) a slice, [component, range]; exact, as floats would not be."""
    documents = np.bincount(bucket, minlength=components * ranges).astype(np.int64)
    total = np.zeros(components * ranges, dtype=np.int64)
    np.add.at(total, bucket, tokens)
    return documents.reshape(components, ranges), total.reshape(components, ranges)
