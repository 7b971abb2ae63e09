"""Scatter: kept text becomes token ids, cut by component and by range of the shuffle key.

Key = xxh3-64(id, seed): sorting by it is the full shuffle. A file holds a record batch for each (component, key range), in
this order; its schema lists the components, its result the documents and tokens of every slice. Tokens carry their
boundary. Costs what the tokenizer costs, by the reference 12 CPU seconds for 39 MB of text; 0.5 GB for a unit of 22 million tokens.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from corpusmill.pipeline.text.engines import FAST
from corpusmill.shards.components import Key
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

Tokenized = tuple[list[pa.Table], list[Key], int, int]
"""Records a row group, the component of each, how many documents have no token, and the tokens of all texts."""


@dataclass(frozen=True)
class Scatter(SetOperation):
    """One file a unit; a unit is some consecutive partitions. `measures` go along into the docs sidecar."""

    seed: int
    tokenizer: str  # the stage that holds tokenizer.json
    by: tuple[str, ...]
    measures: tuple[str, ...]
    shard_bytes: int
    boundary: Boundary = "eos"

    version: ClassVar[int] = 2
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
        tables, keys, empty, text_tokens = self._tokenized(unit, io)
        if not keys:
            return io.result(counts={"empty": empty}, extra={"components": [], "documents": [], "tokens": []})
        table = pa.concat_tables(tables).combine_chunks()
        tables.clear()  # or a third copy of all tokens stays in memory below
        components = sorted(set(keys))
        bucket = _buckets(table, keys, components, ranges)
        schema = table.schema.with_metadata({COMPONENTS: json.dumps(components).encode()})
        io.write_arrow(
            file_name(unit.index), slices(table.cast(schema), bucket, len(components) * ranges), schema
        )
        lengths = pc.list_value_length(table["tokens"]).to_numpy()
        documents, tokens = _sums(bucket, lengths, len(components), ranges)
        return io.result(
            rows=table.num_rows,
            counts={"empty": empty, "tokens": text_tokens},
            extra={"components": components, "documents": documents.tolist(), "tokens": tokens.tolist()},
        )

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
        io.used({f"by_{FAST}": checked.documents, "cross_checked": checked.cross_checked})
        return found

    def _encoded(self, unit: Unit, io: TaskIO, checked: Checked) -> Tokenized:
        tables, keys, empty, text_tokens = [], [], 0, 0
        for rows in self._rows(unit.parts, io):
            ids, lengths = checked.encode(rows["text"].to_pylist(), rows["id"].to_pylist())
            empty += int(np.count_nonzero(lengths == 0))
            text_tokens += len(ids)
            ids, lengths = framed(ids, lengths, unit.fields["before"], unit.fields["after"])
            table = self._records(rows, ids, lengths).filter(pa.array(lengths > 0))
            tables.append(table)
            keys += [
                key for key, length in zip(component_keys(rows, self.by), lengths, strict=True) if length
            ]
        return tables, keys, empty, text_tokens

    def _rows(self, parts: Sequence[int], io: TaskIO) -> Iterator[pa.Table]:
        columns = list(dict.fromkeys(["id", "text", "url", "source", "origin", *self.by, *self.measures]))
        for part in parts:
            for _, rows in io.rows(part, columns, kept=True):
                yield rows

    def seal(self, results: Mapping[int, Result], inputs: Inputs) -> dict[str, bytes]:
        """Nothing to stand with the units: says here, in the driver, when the fast engine was not used."""
        for why in switched_off(place_of(inputs.root) / "metrics"):
            log.warning("%s: tokenized by the reference, which takes longer: %s", self.tokenizer, why)
        return {}

    def _records(self, rows: pa.Table, ids: npt.NDArray[Any], lengths: npt.NDArray[np.int64]) -> pa.Table:
        names = rows["id"].to_pylist()
        origin = rows["origin"].combine_chunks()
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return pa.table(
            {
                "key": pa.array([xxhash.xxh3_64_intdigest(name, self.seed) for name in names], pa.uint64()),
                "id": rows["id"],
                "url": rows["url"].cast(pa.large_string()),
                "file": pc.struct_field(origin, "file"),
                "offset": pc.struct_field(origin, "offset"),
                "length": pc.struct_field(origin, "length"),
                "digest": pa.array(
                    [xxhash.xxh3_128_digest(text.encode()) for text in rows["text"].to_pylist()], pa.binary()
                ),
                "source": rows["source"].cast(pa.string()),
                **{name: rows[name] for name in self.measures},
                "tokens": pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(ids)),
            }
        )


def components_of(schema: pa.Schema) -> list[Key]:
    """The components of a scatter file, in the order of its slices."""
    return [tuple(key) for key in json.loads(schema.metadata[COMPONENTS])]


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
