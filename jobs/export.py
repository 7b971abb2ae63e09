"""Export: kept, dropped or all documents, edits applied, chosen columns, to jsonl.zst or Parquet.

An operation like any other, run by the engine: resumable, a file a partition, the same bytes for any number of workers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from corpusmill.jobs.tables import plain
from corpusmill.pipeline.documents import ROW_GROUP
from corpusmill.pipeline.engine.files import Files, part_name
from corpusmill.pipeline.engine.fingerprint import fingerprint, own_ingredients
from corpusmill.pipeline.engine.local import LocalRunner, Stop
from corpusmill.pipeline.engine.manifest import (
    COMMITS,
    Manifest,
    damaged_units,
    read_commits,
    read_manifest,
    write_manifest,
)
from corpusmill.pipeline.engine.place import Place, Where, place_of
from corpusmill.pipeline.engine.results import Packed
from corpusmill.pipeline.engine.stage import Result, SetOperation, Stage, TaskIO, Unit
from corpusmill.pipeline.engine.task import task_of
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.run import Run, partition_table

COMPARISON = "corpusmill.mixing.ablation_verdict:Compare"
"""The operation that a comparison of recipes ends with."""


@dataclass(frozen=True)
class Export(SetOperation):
    """`out` is the run's folder, `columns` as in Run.tables; ids are written as hex in JSON, as 16 bytes in Parquet."""

    out: str
    columns: tuple[str, ...]
    which: Literal["kept", "dropped", "all"] = "kept"
    format: Literal["jsonl.zst", "parquet"] = "jsonl.zst"

    def run(self, unit: Unit, io: TaskIO) -> Result:
        (part,) = unit.parts
        assert isinstance(io, Files)
        table = partition_table(Run(self.out), part, self.columns, self.which, io.task.hashes)
        if self.format == "parquet":
            io.write_parquet(part_name(part), table, ROW_GROUP, with_text=True)
        else:
            io.write_bytes(f"part-{part:05d}.jsonl.zst", to_jsonl_zst(table), table.num_rows)
        return io.result(rows=table.num_rows)


def to_jsonl_zst(table: pa.Table) -> bytes:
    """One zstd frame of JSON lines, UTF-8, keys in column order."""
    import zstandard

    compressor = zstandard.ZstdCompressor(level=3, write_content_size=True)
    lines = (
        json.dumps({key: plain(value) for key, value in row.items()}, ensure_ascii=False)
        for row in table.to_pylist()
    )
    return compressor.compress("".join(line + "\n" for line in lines).encode())


def export(out: Where, to: Where, columns: list[str], which: str, format: str, workers: int | None) -> str:
    """Write one file a partition into `to`; returns a line that says what was written. Raises RecipeError for an unknown column."""
    from corpusmill.jobs.run import cores  # the driver comes along, of which the workers have no use

    out, to = place_of(out).absolute(), place_of(to).absolute()
    run = Run(out)
    if not run.state.complete:
        raise RecipeError(f"{out} is not finished: run the same command again before exporting")
    if run.state.stages[-1].own["operation"] == COMPARISON:
        raise RecipeError(
            f"{out} compares two recipes and has the text of both: run the one to be exported by itself"
        )
    known = run.recorded(columns).of
    for part in run.partitions()[:1]:
        hashes = known([Unit(part, 0, parts=(part,))])
        # A wrong column is an error before anything is written.
        partition_table(run, part, columns, which, hashes)
    stage = Stage("export", Export(str(out), tuple(columns), which, format))  # type: ignore[arg-type]
    own = own_ingredients(stage, run.state.seed)
    own["fields"].pop("out")
    print_of = fingerprint(own, {each.name: each.content for each in run.state.stages})
    standing, done = _standing(to, print_of)
    if standing is None or len(done) < len(standing.results):
        (to / COMMITS / print_of).put(b"")
        units = [Unit(part, 1_000_000, parts=(part,)) for part in run.partitions() if part not in done]
        tasks = [
            task_of(stage, to, {"export": ""}, run.state.seed, [unit], hashes=known([unit])) for unit in units
        ]
        with Stop() as stop, LocalRunner(workers or cores()) as runner:
            for finished in runner.run(tasks, stop):
                done.update({result.unit: result for result in finished.results})
        to.sweep()
        standing = write_manifest(to, "export", print_of, own, done, {})
    size = sum(file.size_bytes for result in standing.results.values() for file in result.files)
    return (
        f"{standing.rows:,} {which} documents in {len(standing.results)} files, {size / 1e6:.1f} MB, in {to}"
    )


def _standing(to: Place, print_of: str) -> tuple[Manifest | None, Packed]:
    """The manifest of this export, if it was finished, and what is whole of it; RecipeError where anything else lies in `to`.

    A file with the fingerprint for its name says whose commits these are, while there is no manifest to say it.
    """
    to.check(write=True)
    standing = read_manifest(to)
    to.sweep()
    sizes = to.sizes()
    if standing is not None and standing.fingerprint != print_of:
        raise RecipeError(f"{to} holds another export: choose another folder or delete it")
    if standing is None and not (to / COMMITS / print_of).is_file() and sizes:
        raise RecipeError(
            f"{to} holds something else or another export, begun: choose another folder or delete it"
        )
    done = read_commits(to) if standing is None else Packed(standing.results)
    for part in damaged_units(sizes, done):
        del done[part]
    return standing, done
