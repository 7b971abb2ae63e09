"""Write: gather a component's key ranges, sort them by key, pack them into a shard with its sidecar, checksums and counts.

Shards and documents are numbered from the counts of the scatter's slices before anything is read, and rows when all are packed, so
each shard is written alone and in any order. Memory: twice to three times the shard (its stream, its file, its slices), whatever the
corpus; 5 to 10 ns a token.
"""

from __future__ import annotations

import io as streams
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpusmill.pipeline.binary import halves
from corpusmill.pipeline.engine.merge import chosen
from corpusmill.pipeline.engine.stage import (
    WORKER_BYTES,
    Area,
    Inputs,
    Result,
    SetOperation,
    TaskIO,
    Unit,
)
from corpusmill.pipeline.errors import ShardError
from corpusmill.shards.arrange import arrange
from corpusmill.shards.audit import AUDIT
from corpusmill.shards.components import HOLDOUT, SMALL_BLOCKS
from corpusmill.shards.kept_out import KEPT_OUT_FILE, gather
from corpusmill.shards.layout import (
    BLOCKS_FILE,
    DOCS,
    MANIFEST,
    TOKENIZER_FILE,
    Boundary,
    Packing,
    block_table,
)
from corpusmill.shards.pack import Rows, doc_starts, lay_rows, pack_shard, place
from corpusmill.shards.scatter import components_of, file_name
from corpusmill.shards.sealed import component_files

DOCS_ROW_GROUP = 8192

log = logging.getLogger(__name__)

KEPT_OUT_BYTES = 256
"""A line of the list of documents that the audit kept out: mostly its address."""


@dataclass(frozen=True)
class Write(SetOperation):
    """One shard a unit."""

    tokenizer: str  # the stages it reads
    scatter: str
    merge: str
    by: tuple[str, ...]
    measures: tuple[str, ...]
    sequence_length: int
    block_bytes: int
    shard_bytes: int
    boundary: Boundary = "eos"
    packing: Packing = "concat"
    holdout: bool = False  # whether documents are held out

    version: ClassVar[int] = 3
    libraries: ClassVar[tuple[str, ...]] = ("pyarrow",)
    area: ClassVar[Area] = "shards"
    least_blocks: ClassVar[int] = SMALL_BLOCKS  # of a component, where it has others to be merged with

    def units(self, inputs: Inputs) -> list[Unit]:
        (made,) = inputs.results(self.tokenizer).values()
        stage = chosen(inputs, self.scatter, self.merge)
        results = inputs.results(stage)
        dtype = np.dtype(made.extra["dtype"])
        least = self.least_blocks * self.block_bytes // dtype.itemsize
        units: list[Unit] = []
        for component in arrange(results, self.by, least, self.shard_bytes // dtype.itemsize):
            place = {
                "stage": stage,
                "component": component.name,
                "slug": component.slug,
                "keys": [list(key) for key in component.keys],
            }
            for number, shard in enumerate(component.shards):
                fields = (
                    place | {"dtype": dtype.name, "eos": made.extra["eos"], "shard": number} | asdict(shard)
                )
                units.append(Unit(len(units), shard.tokens * dtype.itemsize, fields))
        if self.holdout and not any(unit.fields["slug"].startswith(f"{HOLDOUT}/") for unit in units):
            raise ShardError(
                f"holdout keeps back none of {sum(unit.fields['documents'] for unit in units):,} documents: raise it, or leave it out"
            )
        scattered = inputs.results(self.scatter)
        listed = [number for number, result in sorted(scattered.items()) if result.extra["kept_out"]]
        if listed:
            weight = KEPT_OUT_BYTES * sum(scattered[number].extra["kept_out"] for number in listed)
            units.append(Unit(len(units), weight, {"kept_out": listed}))
        return units

    def worker_memory(self, unit: Unit) -> int:
        """Its tokens as read, in order, and as the file's bytes, which padding may make many."""
        if "kept_out" in unit.fields:
            return WORKER_BYTES + 4 * unit.weight
        length = self.sequence_length
        tokens, documents = unit.fields["tokens"], unit.fields["documents"]
        rows = tokens // length + (documents if self.packing == "pad" else tokens // length)
        stored = unit.weight if self.packing == "concat" else rows * unit.weight * (length + 1) // tokens
        return WORKER_BYTES + 2 * unit.weight + stored

    def run(self, unit: Unit, io: TaskIO) -> Result:
        if "kept_out" in unit.fields:
            data, count = gather(io, self.scatter, unit.fields["kept_out"])
            io.write_bytes(KEPT_OUT_FILE, data, rows=count)
            return io.result(rows=count, counts={"kept_out": count})
        batches = self._gather(unit.fields, io)
        order, records = _sorted_records(batches)
        lengths = pc.list_value_length(records["tokens"]).to_numpy()
        starts = doc_starts(lengths[order])
        if len(order) != unit.fields["documents"] or starts[-1] != unit.fields["tokens"]:
            raise ShardError(
                f"slices of {unit.fields['component']} hold {len(order)} documents and {starts[-1]} tokens, their counts say "
                f"{unit.fields['documents']} and {unit.fields['tokens']}: delete the folder of stage {unit.fields['stage']} and run again"
            )
        rows = lay_rows(self.packing, lengths[order], self.sequence_length)
        stream = self._stream(unit.fields, batches, order, starts)
        part, slug = unit.fields["shard"], unit.fields["slug"]
        first_doc, eos = unit.fields["first_doc"], unit.fields["eos"]
        data = pack_shard(stream, starts, rows, first_doc, self.sequence_length, self.block_bytes, eos)
        io.write_bytes(f"{slug}/part-{part:05d}.arrow", data, rows=len(rows))
        blocks = block_table(pa.py_buffer(data), part)
        docs = self._docs(records.drop_columns(["tokens"]), lengths, order, rows, unit.fields)
        io.write_bytes(f"{slug}/docs-{part:05d}.parquet", docs, rows=len(order))
        extra = {name: unit.fields[name] for name in ("component", "slug", "shard", "documents", "tokens")}
        extra |= {
            "rows": len(rows),
            "split": rows.split(lengths[order]),
            "blocks": [list(block.values()) for block in blocks.to_pylist()],
        }
        return io.result(
            rows=len(rows), counts={"documents": len(order), "tokens": unit.fields["tokens"]}, extra=extra
        )

    def _gather(self, fields: dict[str, Any], io: TaskIO) -> list[pa.RecordBatch]:
        """This shard's slices, mapped and not yet read, in the order of files and ranges."""
        low, high, ranges = (fields[name] for name in ("low", "high", "ranges"))
        keys = {tuple(key) for key in fields["keys"]}
        batches = []
        for first, last in fields["files"]:
            for number in range(first, last):
                reader = io.open_arrow(fields["stage"], file_name(number))
                for component, key in enumerate(components_of(reader.schema)):
                    if key in keys:
                        batches += [reader.get_batch(component * ranges + each) for each in range(low, high)]
        return [batch for batch in batches if batch.num_rows]

    def _stream(
        self,
        fields: dict[str, Any],
        batches: list[pa.RecordBatch],
        order: npt.NDArray[np.int64],
        starts: npt.NDArray[np.int64],
    ) -> npt.NDArray[Any]:
        targets = np.empty(len(order), dtype=np.int64)
        targets[order] = starts[:-1]
        stream = np.empty(fields["tokens"], np.dtype(fields["dtype"]))
        first = 0
        for batch in batches:
            column = batch["tokens"]
            here = targets[first : first + batch.num_rows]
            place(stream, column.flatten().to_numpy(), pc.list_value_length(column).to_numpy(), here)
            first += batch.num_rows
        return stream

    def _docs(
        self,
        records: pa.Table,
        lengths: npt.NDArray[np.int64],
        order: npt.NDArray[np.int64],
        rows: Rows,
        fields: dict[str, Any],
    ) -> bytes:
        """The sidecar, in the order of the shard."""
        ordered = records.take(pa.array(order))
        columns = {
            "doc": fields["first_doc"] + np.arange(len(order)),
            "tokens": lengths[order],
            "first_row": rows.begins(len(order)),
        }
        known = pa.table(
            [ordered[name] if name not in columns else pa.array(columns[name]) for name in DOCS.names],
            names=DOCS.names,
        )
        table = known.cast(DOCS)
        for name in (*AUDIT.names, *self.measures):
            table = table.append_column(ordered.schema.field(name), ordered[name])
        sink = streams.BytesIO()
        pq.write_table(
            table,
            sink,
            compression="zstd",
            compression_level=3,
            row_group_size=DOCS_ROW_GROUP,
            use_dictionary=[name for name in ("file", "source", "language") if name in table.column_names],
            write_statistics=["doc", "first_row"],
        )
        return sink.getvalue()

    def seal(self, results: Mapping[int, Result], inputs: Inputs) -> dict[str, bytes]:
        """Manifest and blocks of each component, and the one tokenizer of all; says which sources have no part in them."""
        missing = self._missing_sources(inputs)
        if missing:
            log.warning(
                "%s: no document of source %s is in the shards: none was kept, or none has tokens",
                self.scatter.partition(".")[0],
                ", ".join(missing),
            )
        (made,) = inputs.results(self.tokenizer).values()
        shards: dict[str, list[Result]] = {}
        for result in results.values():
            if "slug" in result.extra:  # else the list of what was kept out
                shards.setdefault(result.extra["slug"], []).append(result)
        sealed = {TOKENIZER_FILE: (inputs.root / inputs.folder(self.tokenizer) / TOKENIZER_FILE).read_bytes()}
        for slug, parts in sorted(shards.items()):
            manifest, blocks = component_files(
                parts, self.sequence_length, self.boundary, self.packing, made.extra
            )
            sealed |= {f"{slug}/{MANIFEST}": manifest, f"{slug}/{BLOCKS_FILE}": blocks}
        return sealed

    def _missing_sources(self, inputs: Inputs) -> list[str]:
        """Sources of the inputs that no component is made of, where components are told by source."""
        if "source" not in self.by:
            return []
        at = self.by.index("source")
        scattered = inputs.results(self.scatter).values()
        there = {key[at] for result in scattered for key in result.extra["components"]}
        return sorted({file.source for file in inputs.files} - there)


def _sorted_records(batches: list[pa.RecordBatch]) -> tuple[npt.NDArray[np.int64], pa.Table]:
    """Order by (key, id), and all records as they lie: tokens stay where they are mapped."""
    records = pa.Table.from_batches(batches)
    high, low = halves(records["id"])
    order = np.lexsort((low, high, records["key"].to_numpy()))
    return order.astype(np.int64), records
