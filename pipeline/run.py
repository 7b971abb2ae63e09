"""A finished (or half-finished) run, for reading: tables, the ledger, single documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.pipeline.documents import DOCUMENTS
from corpusmill.pipeline.engine.failures import Failure, failed_rows, failures_of
from corpusmill.pipeline.engine.files import Files, Task, part_name
from corpusmill.pipeline.engine.layout import Hashes
from corpusmill.pipeline.engine.manifest import Manifest, read_manifest
from corpusmill.pipeline.engine.place import Where, place_of
from corpusmill.pipeline.engine.stage import Unit
from corpusmill.pipeline.engine.state import StageState, State, need_state
from corpusmill.pipeline.errors import InputError, RecipeError
from corpusmill.pipeline.registry import suggestion


class Run:
    """The layers in force below `out`, joined by row."""

    def __init__(self, out: Where) -> None:
        self.out = place_of(out)
        self.state: State = need_state(self.out)

    def stages(self, kind: str | None = None) -> list[StageState]:
        return [stage for stage in self.state.stages if kind in (None, stage.kind)]

    def manifest(self, stage: str) -> Manifest:
        found = self.state.stage(stage)
        if found is None:
            raise RecipeError(
                f"{self.out} has no stage {stage!r}; {suggestion(stage, [each.name for each in self.state.stages])}"
            )
        manifest = read_manifest(self.out / found.folder)
        if manifest is None:
            raise InputError(f"{self.out / found.folder} has no manifest: run the same command again")
        return manifest

    def ledger(self) -> list[tuple[str, dict[str, int]]]:
        """(stage, counts) in order; counts hold `in`, `kept`, `dropped.<reason>`, `failed.<reason>`."""
        return [
            (stage.own["fields"]["stage"], self.manifest(stage.name).counts)
            for stage in self.stages("ledger")
        ]

    def failures(self) -> Iterator[Failure]:
        """Rows that an exception or a backstop stopped in any layer in force, also those that an earlier verdict had dropped."""
        files = self.files()
        for stage in self.state.stages:
            if stage.kind in ("documents", "measure", "edit"):
                results = self.manifest(stage.name).results
                parts = [part for part in sorted(results) if failures_of(results[part])]
                yield from failed_rows(files, stage.name, parts)

    def records(self) -> dict[str, int]:
        """What extract counted beside rows: records by type, damage, refused files."""
        return self.manifest("documents").counts

    def measures(self) -> dict[str, str]:
        """Measure -> the stage that holds it."""
        found: dict[str, str] = {}
        for stage in self.state.stages:
            found.update(stage.columns)
        for stage in self.stages("measure"):
            part = next(iter(self.manifest(stage.name).results), None)
            if part is not None:
                names = pq.read_schema((self.out / stage.folder / part_name(part)).random()).names
                found.update({name: stage.name for name in names if name != "failed"})
        return found

    @cached_property
    def sources(self) -> dict[str, tuple[str, str]]:
        """Name that can be asked for -> (stage, column there). The ledger's `reason` and `stage` win over the layers' own."""
        found: dict[str, tuple[str, str]] = {name: (stage, name) for name, stage in self.measures().items()}
        for stage in self.state.stages:
            if stage.kind == "judge":
                found[f"cuts_hit@{stage.name}"] = (stage.name, "cuts_hit")
            if stage.name.endswith(".verdict") and stage.kind == "set":
                for name in ("kept_id", "score", "cluster", "cluster_size"):
                    found[name] = (stage.name, name)
        ledgers = self.stages("ledger")
        if ledgers:
            found.update({name: (ledgers[-1].name, name) for name in ("state", "stage", "reason")})
        return found

    def partitions(self) -> list[int]:
        return sorted(self.manifest("documents").results)

    def recorded(self, columns: Sequence[str]) -> Hashes:
        """The hashes of the files that these columns are read from, by their manifests."""
        named = {self.sources[name][0] for name in columns if name in self.sources}
        ledgers = [stage.name for stage in self.stages("ledger")][-1:]
        read = sorted({"documents", *ledgers, *named, *(stage.name for stage in self.stages("edit"))})
        return Hashes({name: self.manifest(name) for name in read})

    def files(self, hashes: dict[str, dict[str, str]] | None = None) -> Files:
        """A reader of the text after all edits, with the last ledger; files with `hashes` are checked against them."""
        edits = tuple(stage.name for stage in reversed(self.stages("edit")))
        ledgers = self.stages("ledger")
        task = Task(
            root=str(self.out),
            stage="",
            operation="",
            fields={},
            folders={stage.name: stage.folder for stage in self.state.stages},
            seed=self.state.seed,
            text=edits,
            ledger=ledgers[-1].name if ledgers else None,
            hashes=hashes or {},
        )
        return Files(task, Unit(0, 0))

    def tables(self, columns: Sequence[str] | None = None, which: str = "kept") -> Iterator[pa.Table]:
        """A table a partition. `columns`: document columns (text with all edits applied), measures, or `state`, `stage`, `reason`
        of the ledger, `kept_id`, `score`, `cluster`, `cluster_size` of a dedup verdict. `which`: kept, dropped or all."""
        columns = columns or ["id", "url", "source", "text"]
        recorded = self.recorded(columns)
        for part in self.partitions():
            hashes = recorded.of([Unit(part, 0, parts=(part,))])
            yield partition_table(self, part, columns, which, hashes)

    def table(self, columns: Sequence[str] | None = None, kept: bool = True) -> pa.Table:
        """All partitions as one table, in order; for what fits in memory."""
        return pa.concat_tables(list(self.tables(columns, "kept" if kept else "all")))

    def to_ray_dataset(self, columns: Sequence[str] | None = None, kept: bool = True) -> Any:
        """The same rows as a lazy `ray.data.Dataset`, a block a partition, read by the workers of the Ray that this process is connected to."""
        from corpusmill.pipeline.engine.ray_dataset import dataset

        return dataset(self, columns, kept)


def partition_table(
    run: Run,
    part: int,
    columns: Sequence[str],
    which: str,
    hashes: dict[str, dict[str, str]] | None = None,
) -> pa.Table:
    """The asked columns of one partition, only rows that are kept, dropped (or failed), or all.

    DamagedError for a file whose bytes are not those that `hashes` (by stage and name) say.
    """
    import numpy as np

    if which not in ("kept", "dropped", "all"):
        raise RecipeError(f"which rows: {which!r} is none of kept, dropped, all")
    files = run.files(hashes)
    sources = run.sources
    unknown = [name for name in columns if name not in DOCUMENTS.names and name not in sources]
    if unknown:
        raise RecipeError(f"no column {unknown[0]!r}; {suggestion(unknown[0], {*DOCUMENTS.names, *sources})}")
    layers = {
        name: files.layer(sources[name][0], part, [sources[name][1]])[sources[name][1]]
        for name in columns
        if name in sources
    }
    stored = [name for name in columns if name not in layers]
    table = files.whole(part, stored) if stored else None
    joined = pa.table({name: layers[name] if name in layers else table[name] for name in columns})  # type: ignore[index]
    if which == "all":
        return joined
    keep = files.kept(part)
    return joined.take(pa.array(np.flatnonzero(keep if which == "kept" else ~keep)))


def find_document(run: Run, wanted: str) -> tuple[int, int]:
    """(partition, row) of a document named by its id in hex or by its url."""
    files = run.files()
    for part in run.partitions():
        table = files.documents(part, ["id", "url"])
        for row, (key, url) in enumerate(zip(table["id"].to_pylist(), table["url"].to_pylist(), strict=True)):
            if key.hex() == wanted or url == wanted:
                return part, row
    raise InputError(f"no document has the id or url {wanted!r} in {run.out}")


def describe_document(run: Run, wanted: str) -> dict[str, Any]:
    """Everything the run knows of one document: columns, measures, verdict, evidence."""
    part, row = find_document(run, wanted)
    columns = [*DOCUMENTS.names, *(name for name in run.sources if name not in DOCUMENTS.names)]
    described: dict[str, Any] = partition_table(run, part, columns, "all").slice(row, 1).to_pylist()[0]
    return described
