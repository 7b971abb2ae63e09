"""Run records: what each proxy run said of each target, kept as Parquet; the evidence of a mixture.

One row a run and target:

    run               name of the run in its design
    target            name of the validation set
    seed              of the run
    proxy             hash of all that makes a proxy but mixture and seed: losses compare only where it is equal
    components        names, in order
    requested_ppb     weights in parts of 10^9, of each component
    realised_tokens   tokens that the run really read, of each component; empty if nobody counted
    bits_per_byte     loss per byte of the original text: compares across tokenizers; null if bytes are not known
    loss              nats a token, or what an import gave
    eval_tokens, eval_bytes   what the target has; null if not known
    document_bits, document_bytes   of every document of the target, in its order; empty if nobody kept them
    flops             of the training; null if not known (seconds are not here: they would differ between runs of the same bytes)

Realised tokens are kept by component, so that evidence outlives a later merge of components.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.mixing.swarm import Floats, Ints, Swarm, in_turn, make_swarm
from corpusmill.pipeline.errors import InputError
from corpusmill.pipeline.registry import suggestion
from corpusmill.shards.mixture import PPB

SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("target", pa.string()),
        ("seed", pa.int64()),
        ("proxy", pa.string()),
        ("components", pa.list_(pa.string())),
        ("requested_ppb", pa.list_(pa.int64())),
        ("realised_tokens", pa.list_(pa.int64())),
        ("bits_per_byte", pa.float64()),
        ("loss", pa.float64()),
        ("eval_tokens", pa.int64()),
        ("eval_bytes", pa.int64()),
        ("document_bits", pa.list_(pa.float64())),
        ("document_bytes", pa.list_(pa.int64())),
        ("flops", pa.float64()),
    ]
)

PLAIN = [name for name in SCHEMA.names if not name.startswith("document_")]


@dataclass(frozen=True, eq=False)
class Record:
    """What one run said of one target. None: not known."""

    run: str
    target: str
    components: tuple[str, ...]
    requested_ppb: tuple[int, ...]
    loss: float | None = None
    bits_per_byte: float | None = None
    seed: int = 0
    proxy: str = ""
    realised_tokens: tuple[int, ...] = ()
    eval_tokens: int | None = None
    eval_bytes: int | None = None
    document_bits: Floats = field(default_factory=lambda: np.empty(0))
    document_bytes: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    flops: float | None = None

    def weights(self) -> Floats:
        """Shares as they were read, where that was counted, else as they were asked for."""
        parts = np.array(self.realised_tokens or self.requested_ppb, np.float64)
        found: Floats = parts / parts.sum()
        return found


def bits_per_byte(document_bits: Floats, document_bytes: Ints) -> float:
    """All bits over all bytes: long documents count by their length."""
    return float(document_bits.sum() / document_bytes.sum())


def encode_records(records: Iterable[Record]) -> bytes:
    """The same bytes for the same records in any order."""
    rows = sorted(records, key=lambda record: (record.run, record.target))
    columns = {name: [_plain(getattr(row, name)) for row in rows] for name in SCHEMA.names}
    buffer = io.BytesIO()
    table = pa.table(columns, schema=SCHEMA)
    pq.write_table(table, buffer, compression="zstd", use_dictionary=["run", "target", "proxy"])
    return buffer.getvalue()


def _plain(value: object) -> object:
    """None for nan: a missing number is null in the file."""
    if isinstance(value, float) and math.isnan(value):
        return None
    return list(value) if isinstance(value, tuple) else value


def read_records(path: Path) -> list[Record]:
    """Of a file; InputError names it if it is none of ours."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); run the design first") from error
    return decode_records(data, str(path))


def decode_records(data: bytes, where: str) -> list[Record]:
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read()
    except pa.ArrowInvalid as error:
        raise InputError(f"{where} is not a Parquet file of run records ({error})") from error
    if missing := [name for name in SCHEMA.names if name not in table.column_names]:
        raise InputError(f"{where}: no column {missing[0]}: it does not hold run records")
    bits, sizes = table["document_bits"], table["document_bytes"]
    # A Python row a run and target is cheap; the lists of documents are not, and stay arrays.
    plain: list[dict[str, Any]] = table.select(PLAIN).to_pylist()
    found = []
    for place, row in enumerate(plain):
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in row.items()
        }
        values["document_bits"] = bits[place].values.to_numpy(zero_copy_only=False)
        values["document_bytes"] = sizes[place].values.to_numpy(zero_copy_only=False)
        found.append(Record(**values))
    return found


def swarm_of(
    records: Sequence[Record],
    components: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    proxy: str | None = None,
) -> Swarm:
    """The numeric view of records of one proxy: all components and targets they name, or the ones given, in that order.

    Bits per byte if every record has them, else losses as they are: the two are never mixed.
    """
    chosen = [record for record in records if proxy is None or record.proxy == proxy]
    if not chosen:
        raise InputError("there are no run records" + (f" of proxy {proxy}" if proxy else ""))
    if len(proxies := sorted({record.proxy for record in chosen})) > 1:
        raise InputError(
            f"runs of {len(proxies)} proxies ({', '.join(proxies)}): their losses do not compare; name one"
        )
    names = tuple(components or chosen[0].components)
    sets = tuple(targets or sorted({record.target for record in chosen}))
    for record in chosen:
        _check(record, names, sets)
    runs = {record.run: record for record in sorted(chosen, key=lambda record: record.run)}
    row = {run: place for place, run in enumerate(runs)}
    per_byte = all(record.bits_per_byte is not None for record in chosen)
    losses = np.full((len(runs), len(sets)), np.nan)
    for record in chosen:
        place = row[record.run], sets.index(record.target)
        if np.isfinite(losses[place]):
            raise InputError(f"run {record.run} says two things of {record.target}; keep one record")
        value = record.bits_per_byte if per_byte else record.loss
        if value is None:
            raise InputError(
                f"run {record.run} has bits_per_byte of {record.target} and no loss, others have a loss alone: the two are never one fit"
            )
        losses[place] = value
    weights = np.array([_in_order(record, record.weights(), names) for record in runs.values()])
    asked = np.array([_in_order(record, np.array(record.requested_ppb), names) for record in runs.values()])
    groups = in_turn(np.unique(asked, axis=0, return_inverse=True)[1].reshape(-1))
    return make_swarm(names, sets, weights, losses, groups, "bits_per_byte" if per_byte else "loss")


def _check(record: Record, names: tuple[str, ...], sets: tuple[str, ...]) -> None:
    for name in record.components:
        if name not in names:
            raise InputError(f"run {record.run}: no component is called {name!r}; {suggestion(name, names)}")
    if missing := [name for name in names if name not in record.components]:
        raise InputError(f"run {record.run} says nothing of component {missing[0]}; give it weight 0")
    if record.target not in sets:
        raise InputError(
            f"run {record.run}: no target is called {record.target!r}; {suggestion(record.target, sets)}"
        )
    if sum(record.requested_ppb) != PPB:
        raise InputError(f"run {record.run}: requested_ppb add up to {sum(record.requested_ppb)}, not {PPB}")


def _in_order(record: Record, values: Floats | Ints, names: tuple[str, ...]) -> list[float]:
    place = {name: number for number, name in enumerate(record.components)}
    return [float(values[place[name]]) for name in names]
