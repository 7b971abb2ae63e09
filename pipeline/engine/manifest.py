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
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.pipeline.engine.place import Where, place_of
from corpusmill.pipeline.engine.stage import FileRecord, Result
from corpusmill.pipeline.engine.store import TEMPORARY, hash_bytes

TABLE = "_manifest.parquet"
HEAD = "_manifest.json"
SPENT = "_spent"
COMMITS = "_commits"

SCHEMA = pa.schema(
    [
        ("unit", pa.int64()),
        (
            "files",
            pa.list_(
                pa.struct(
                    [
                        ("name", pa.string()),
                        ("rows", pa.int64()),
                        ("size_bytes", pa.int64()),
                        ("xxh3", pa.string()),
                    ]
                )
            ),
        ),
        ("rows", pa.int64()),
        ("counts", pa.string()),
        ("extra", pa.string()),
    ]
)


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no spaces: the form that is hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True)
class Manifest:
    """A finished stage. `content` is the hash of all its results: what later fingerprints are made of."""

    stage: str
    fingerprint: str
    ingredients: dict[str, Any]
    results: dict[int, Result]
    sealed: dict[str, str]
    content: str

    @property
    def rows(self) -> int:
        return sum(result.rows for result in self.results.values())

    @property
    def counts(self) -> dict[str, int]:
        return total_counts(self.results.values())


def total_counts(results: Iterable[Result]) -> dict[str, int]:
    """Sums of the counts of many units, by name in order."""
    total: Counter[str] = Counter()
    for result in results:
        total.update(result.counts)
    return dict(sorted(total.items()))


def result_to_json(result: Result) -> dict[str, Any]:
    return asdict(result)


def result_from_json(value: Mapping[str, Any]) -> Result:
    files = tuple(FileRecord(**file) for file in value["files"])
    return Result(value["unit"], files, value["rows"], dict(value["counts"]), dict(value["extra"]))


def write_commit(folder: Where, results: list[Result], again: int = 0) -> None:
    """Declare the units of one task done. The name follows from the units, so a retry overwrites its own record.

    `again` counts the rounds of `SetOperation.check`: a unit that was laid out anew overrides its first result.
    """
    body = canonical([result_to_json(result) for result in results])
    name = f"{again}-{results[0].unit:06d}-{results[-1].unit:06d}-{hash_bytes(body)[:12]}.json"
    (place_of(folder) / COMMITS / name).put(body)


def read_commits(folder: Where) -> dict[int, Result]:
    """Unit -> result of all tasks that finished, by one listing; a record that was cut or changed counts for nothing.

    One that goes between listing and reading was dropped by another driver, whose manifest stands: its units are done once more.
    """
    commits = place_of(folder) / COMMITS
    names = sorted(
        name for name in commits.sizes() if name.endswith(".json") and not name.startswith(TEMPORARY)
    )
    done: dict[int, Result] = {}
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
    ordered = [results[unit] for unit in sorted(results)]
    hashes = {name: hash_bytes(data) for name, data in sorted(sealed.items())}
    content = hash_bytes(canonical([[result_to_json(result) for result in ordered], hashes]))
    rows = [
        {
            "unit": result.unit,
            "files": [asdict(file) for file in result.files],
            "rows": result.rows,
            "counts": canonical(result.counts).decode(),
            "extra": canonical(result.extra).decode(),
        }
        for result in ordered
    ]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), buffer, compression="zstd")
    (folder / TABLE).put(buffer.getvalue())
    head = {
        "stage": stage,
        "fingerprint": fingerprint,
        "ingredients": ingredients,
        "units": len(ordered),
        "rows": sum(result.rows for result in ordered),
        "size_bytes": sum(file.size_bytes for result in ordered for file in result.files),
        "counts": total_counts(ordered),
        "sealed": hashes,
        "content": content,
        "table_xxh3": hash_bytes(buffer.getvalue()),
    }
    head["head_xxh3"] = hash_bytes(canonical(head))
    (folder / HEAD).put(json.dumps(head, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n")
    drop_commits(folder)
    return Manifest(
        stage, fingerprint, ingredients, {result.unit: result for result in ordered}, hashes, content
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
    results = {}
    # No Arrow threads: one that still holds these Python bytes when the interpreter ends aborts the process (seen in 1 of 10).
    table = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False).read(use_threads=False)
    for row in table.to_pylist():
        value = {**row, "counts": json.loads(row["counts"]), "extra": json.loads(row["extra"])}
        results[row["unit"]] = result_from_json(value)
    return Manifest(
        head["stage"], head["fingerprint"], head["ingredients"], results, head["sealed"], head["content"]
    )


def damaged_units(sizes: Mapping[str, int], results: Mapping[int, Result]) -> list[int]:
    """Units with a file that is missing or has another length than its record, by `Place.sizes` of the stage's folder
    (contents are checked where they are read, and by `corpusmill verify`)."""
    return [
        unit
        for unit, result in results.items()
        if any(sizes.get(file.name) != file.size_bytes for file in result.files)
    ]
