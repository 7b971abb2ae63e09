"""The audit of finished shards: how its measures are spread in each component, the documents that stand out, the most frequent ids.

Shards are random draws of their component, so a few tell of all: at most SHARDS sidecars and BLOCKS blocks of each are read, evenly
chosen, and how many of how many is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.pipeline.errors import ShardError
from corpusmill.shards.audit import AUDIT
from corpusmill.shards.kept_out import KEPT_OUT_FILE
from corpusmill.shards.plan_file import find_plan, read_plan
from corpusmill.shards.reader import ComponentReader, Shards
from corpusmill.shards.sidecar import Sidecar
from corpusmill.shards.words import Words

SHARDS = 64
BLOCKS = 64
QUANTILES = (0.5, 0.9, 0.99, 0.999, 1.0)
IDS = 20

MEASURES = tuple(name for name in AUDIT.names if name != "period")
"""Columns that tell one document from another; the period only says more of a run."""


@dataclass(frozen=True)
class Audited:
    """A component. `quantiles` and `worst` (documents with the highest values, as columns of the sidecar) are by measure.

    `padding` is a share of all targets, `split` of all documents; `ids` are (id, what it spells or None, share of tokens).
    """

    component: str
    documents: int
    tokens: int
    padding: float
    split: float
    shards_read: int
    shards: int
    quantiles: dict[str, list[float]]
    worst: dict[str, list[dict[str, Any]]]
    ids: list[tuple[int, str | None, float]]


def audited(path: str | Path, worst: int = 3) -> list[Audited]:
    """Every component of the plan at `path`. Raises ShardError for shards without an audit."""
    return [_component(reader, worst) for reader in Shards(path).components]


def kept_out(path: str | Path) -> pa.Table:
    """What the audit kept out of the shards of the plan at `path`, all runs together (shards/kept_out.py); None is an empty table."""
    place = find_plan(path)
    folders = (PurePosixPath(component.folder) for component in read_plan(place).components)
    # Beside the components, and above those that are held out; "." is the plan's own folder.
    names = sorted({str(above / KEPT_OUT_FILE) for folder in folders for above in list(folder.parents)[:2]})
    files = [place.parent / name for name in names]
    tables = [pq.read_table(pa.BufferReader(file.read_bytes())) for file in files if file.is_file()]
    return pa.concat_tables(tables) if tables else pa.table({"reason": pa.array([], pa.string())})


def _component(reader: ComponentReader, worst: int) -> Audited:
    manifest = reader.manifest
    chosen = _evenly(len(manifest.shards), SHARDS)
    table = pa.concat_tables([_measured(reader, shard) for shard in chosen])
    targets = int(reader.blocks["tokens"].astype(np.int64).sum())
    return Audited(
        manifest.name,
        manifest.documents,
        manifest.tokens,
        1 - targets / (manifest.rows * manifest.sequence_length),
        manifest.split_documents / max(1, manifest.documents),
        len(chosen),
        len(manifest.shards),
        {name: np.quantile(table[name].to_numpy(), QUANTILES, method="higher").tolist() for name in MEASURES},
        {name: _highest(table, name, worst) for name in MEASURES},
        _frequent(reader),
    )


def _measured(reader: ComponentReader, shard: int) -> pa.Table:
    sidecar = Sidecar(reader, shard)
    names = sidecar.file.schema_arrow.names
    if missing := [name for name in AUDIT.names if name not in names]:
        raise ShardError(f"{sidecar.path} has no {missing[0]}: it was made without an audit; shard again")
    return sidecar.file.read(columns=["id", "url", "tokens", *AUDIT.names])


def _highest(table: pa.Table, name: str, count: int) -> list[dict[str, Any]]:
    order = np.argsort(-table[name].to_numpy().astype(np.float64), kind="stable")[:count]
    rows: list[dict[str, Any]] = table.take(pa.array(order)).to_pylist()
    return [row | {"id": row["id"].hex()} for row in rows]


def _frequent(reader: ComponentReader) -> list[tuple[int, str | None, float]]:
    """The most frequent ids of some blocks, padding left out."""
    manifest = reader.manifest
    counts = np.zeros(manifest.vocab_size, np.int64)
    for block in _evenly(len(reader.first_row), BLOCKS):
        view = reader.view(block)
        offsets, ends = view.lists("doc_ends")
        real = ends[offsets[1:] - 1].astype(np.int64)
        counts += np.bincount(view.tokens.reshape(-1), minlength=manifest.vocab_size)
        counts[manifest.eos] -= int((view.tokens.shape[1] - real).sum())
    spell = _words(reader)
    top = [int(number) for number in np.argsort(-counts, kind="stable")[:IDS] if counts[number]]
    return [(n, None if spell is None else spell.text([n]), int(counts[n]) / int(counts.sum())) for n in top]


def _words(reader: ComponentReader) -> Words | None:
    """None for a tokenizer whose vocabulary cannot be read without its library."""
    try:
        return Words(reader.tokenizer.read_bytes())
    except (OSError, ValueError):
        return None


def _evenly(count: int, most: int) -> list[int]:
    return sorted({i * count // min(count, most) for i in range(min(count, most))})


def by_reason(table: pa.Table) -> Mapping[str, int]:
    """How many documents each limit kept out, most first."""
    counted = table["reason"].value_counts().to_pylist()
    return {
        each["values"]: each["counts"] for each in sorted(counted, key=lambda e: (-e["counts"], e["values"]))
    }
