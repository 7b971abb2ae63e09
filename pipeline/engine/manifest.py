"""Commits and manifests: what is done, and what it consists of.

    <stage folder>/_commits/<round>-<first>-<last>-<hash>.json   one a task, written by the worker after the data it names
    <stage folder>/_manifest.parquet                     a row a unit: files, rows, counts, extra; sorted, no times, no hosts
    <stage folder>/_manifest.json                        fingerprint and its ingredients, totals, content hash
    <stage folder>/_spent                                the files of a temporary stage are gone; its manifest stays

Data without a commit is garbage. Commits go when the manifest stands. Only the driver reads any of these.
"""

from __future__ import annotations

import io
import json
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from corpusmill.pipeline.engine.place import Place, Where, place_of
from corpusmill.pipeline.engine.results import Packed, Stored, canonical, result_from_json, result_to_json
from corpusmill.pipeline.engine.stage import Result
from corpusmill.pipeline.engine.store import TEMPORARY, hash_bytes
from corpusmill.pipeline.errors import RunError

TABLE = "_manifest.parquet"
HEAD = "_manifest.json"
SPENT = "_spent"
COMMITS = "_commits"


@dataclass(frozen=True)
class Manifest:
    """A finished stage. `content` is the hash of all its results: what later fingerprints are made of.

    It holds totals only; its table is read when `results` are asked for. Those used last stay in memory, others while someone holds them.
    """

    stage: str
    fingerprint: str
    ingredients: dict[str, Any]
    rows: int
    counts: dict[str, int]
    sealed: dict[str, str]
    content: str
    table: Place
    table_xxh3: str
    _held: list[weakref.ref[Stored]] = field(default_factory=list, repr=False, compare=False)

    @property
    def results(self) -> Stored:
        """Unit -> result; each call reads the table unless the results of an earlier one are still in use."""
        held = self._held[0]() if self._held else None
        return self.hold(_read_table(self.table, self.table_xxh3)) if held is None else held

    def hold(self, data: bytes) -> Stored:
        """Its results from the bytes of its table."""
        # No Arrow threads: one that still holds these Python bytes when the interpreter ends aborts the process (seen in 1 of 10).
        table = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False).read(use_threads=False)
        held = Stored(table)
        self._held[:] = [weakref.ref(held)]
        _RECENT.append(held)
        return held


_RECENT: deque[Stored] = deque(maxlen=3)
"""A stage is asked for its results several times while it ends, and its ledger with it."""


def total_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sums of the counts of many units, by name in order."""
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def write_commit(folder: Where, results: list[Result], again: int = 0) -> None:
    """Declare the units of one task done. The name follows from the units, so a retry overwrites its own record.

    `again` counts the rounds of `SetOperation.check`: a unit that was laid out anew overrides its first result.
    """
    body = canonical([result_to_json(result) for result in results])
    name = f"{again}-{results[0].unit:06d}-{results[-1].unit:06d}-{hash_bytes(body)[:12]}.json"
    (place_of(folder) / COMMITS / name).put(body)


def read_commits(folder: Where) -> Packed:
    """Unit -> result of all tasks that finished, by one listing; a record that was cut or changed counts for nothing.

    One that goes between listing and reading was dropped by another driver, whose manifest stands: its units are done once more.
    """
    commits = place_of(folder) / COMMITS
    names = sorted(
        name for name in commits.sizes() if name.endswith(".json") and not name.startswith(TEMPORARY)
    )
    done = Packed()
    for name, body in zip(names, commits.read_all(names), strict=True):
        if body is not None and name.endswith(f"-{hash_bytes(body)[:12]}.json"):
            done.update((value["unit"], result_from_json(value)) for value in json.loads(body))
    return done


def drop_commits(folder: Where) -> None:
    """The commits of a stage whose manifest stands."""
    (place_of(folder) / COMMITS).remove_tree()


def write_manifest(
    folder: Where,
    stage: str,
    fingerprint: str,
    ingredients: dict[str, Any],
    results: Mapping[int, Result],
    sealed: Mapping[str, bytes],
) -> Manifest:
    """Write table and head (the head last: it is what makes the stage stand), then drop the commits."""
    folder = place_of(folder)
    packed = results if isinstance(results, Packed) else Packed(results)
    hashes = {name: hash_bytes(data) for name, data in sorted(sealed.items())}
    table = packed.table()
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    (folder / TABLE).put(buffer.getvalue())
    files = table["files"].combine_chunks().values
    head = {
        "stage": stage,
        "fingerprint": fingerprint,
        "ingredients": ingredients,
        "units": table.num_rows,
        "rows": pc.sum(table["rows"]).as_py() or 0,
        "size_bytes": pc.sum(files.field("size_bytes")).as_py() or 0,
        "counts": total_counts(json.loads(counts) for counts in table["counts"].to_pylist()),
        "sealed": hashes,
        "content": _content(packed, hashes),
        "table_xxh3": hash_bytes(buffer.getvalue()),
    }
    head["head_xxh3"] = hash_bytes(canonical(head))
    (folder / HEAD).put(json.dumps(head, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n")
    drop_commits(folder)
    return _manifest(folder, head)


def _content(results: Packed, sealed: Mapping[str, str]) -> str:
    """The hash of the canonical JSON of `[results by unit, sealed]`, piece by piece."""
    digest = xxhash.xxh3_128(b"[[")
    for number, body in enumerate(results.bodies()):
        digest.update(b"," + body if number else body)
    digest.update(b"]," + canonical(dict(sealed)) + b"]")
    return digest.hexdigest()


def _manifest(folder: Place, head: Mapping[str, Any]) -> Manifest:
    return Manifest(
        stage=head["stage"],
        fingerprint=head["fingerprint"],
        ingredients=head["ingredients"],
        rows=head["rows"],
        counts=head["counts"],
        sealed=head["sealed"],
        content=head["content"],
        table=folder / TABLE,
        table_xxh3=head["table_xxh3"],
    )


def read_manifest(folder: Where) -> Manifest | None:
    """The manifest of a finished stage; None when there is none or when table or head is not as it was written."""
    folder = place_of(folder)
    try:
        data, head = (folder / TABLE).read_bytes(), json.loads((folder / HEAD).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:  # cut or overwritten: not by us, the stage is made again
        return None
    if not isinstance(head, dict) or head.pop("head_xxh3", None) != hash_bytes(canonical(head)):
        return None
    if hash_bytes(data) != head["table_xxh3"]:
        return None
    manifest = _manifest(folder, head)
    manifest.hold(data)
    return manifest


def _read_table(path: Place, known: str) -> bytes:
    """The bytes of a manifest's table, as long as it is the one that its head was read with."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    if hash_bytes(data) != known:
        raise RunError(f"{path}: removed or changed while it was in use: run the same command again")
    return data


def damaged_units(sizes: Mapping[str, int], results: Mapping[int, Result]) -> list[int]:
    """Units with a file that is missing or has another length than its record, by `Place.sizes` of the stage's folder
    (contents are checked where they are read, and by `corpusmill verify`)."""
    return [
        unit
        for unit, result in results.items()
        if any(sizes.get(file.name) != file.size_bytes for file in result.files)
    ]
