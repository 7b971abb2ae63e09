"""Stages of a search that make proxies: counts for the screen (`mix.screen`), and a unit a run (`mix.runs`, `mix.trials`).

A run's records are committed when it ends, so a search that was killed goes on with the runs that are missing. They hold
no times: the same recipe gives the same bytes on any number of workers.

The screen as a proxy: its components are samples of documents, cut into PARTS; a seed takes one part of each, so that seeds differ as
samples of documents do, and no part serves the design and the verdict both.
"""

from __future__ import annotations

import io as streams
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from corpusmill.mixing.design import VERIFY_SEEDS
from corpusmill.mixing.records import Record, bits_per_byte, encode_records
from corpusmill.mixing.screen import Counts, Screen, Tables
from corpusmill.mixing.search import DESIGN_PARTS, PARTS
from corpusmill.mixing.search_study import Study, read_study
from corpusmill.mixing.study import DesignRun, Proxy, Target
from corpusmill.mixing.texts import on_disk
from corpusmill.mixing.threads import one_thread
from corpusmill.pipeline.engine.files import part_name
from corpusmill.pipeline.engine.layout import TASK_SECONDS
from corpusmill.pipeline.engine.place import Place, place_of
from corpusmill.pipeline.engine.results import canonical
from corpusmill.pipeline.engine.stage import WORKER_BYTES, Inputs, Result, SetOperation, TaskIO, Unit
from corpusmill.pipeline.engine.store import hash_bytes
from corpusmill.pipeline.errors import RunError
from corpusmill.pipeline.registry import build

if TYPE_CHECKING:
    from corpusmill.mixing.proxy import Training, View


@dataclass(frozen=True)
class Screening(SetOperation):
    """A unit a component: how often the targets' n-grams occur in each part of a sample of it."""

    stats: str
    shards: str
    sample_tokens: int
    eval_tokens: int

    libraries: ClassVar[tuple[str, ...]] = ("numpy",)

    def units(self, inputs: Inputs) -> list[Unit]:
        slugs = _trained(inputs, self.stats)
        return [
            Unit(number, 4 * self.sample_tokens, {"slug": slug}, (number,))
            for number, slug in enumerate(slugs)
        ]

    def worker_memory(self, unit: Unit) -> int:
        """The sample, and of the targets 40 bytes an n-gram of four orders, beside eight a part."""
        return WORKER_BYTES + 8 * self.sample_tokens + 4 * (40 + 8 * PARTS) * self.eval_tokens

    def run(self, unit: Unit, io: TaskIO) -> Result:
        from corpusmill.mixing.texts import first_documents, open_component

        study = read_study(io, self.stats)
        tables = tables_of(study, io.folder(self.shards), self.eval_tokens)
        reader = open_component(io.folder(self.shards) / unit.fields["slug"])
        documents = first_documents(reader, self.sample_tokens).tokens
        ends = np.linspace(0, len(documents), PARTS + 1).astype(np.int64)
        # Fewer documents than parts: neighbours share one.
        parts = [
            tables.count(np.concatenate(documents[first : max(last, first + 1)]))
            for first, last in zip(np.minimum(ends[:-1], len(documents) - 1), ends[1:], strict=True)
        ]
        table = np.array([np.concatenate([[part.tokens], *part.orders]) for part in parts])
        buffer = streams.BytesIO()
        np.save(buffer, table.astype(np.int32))
        io.write_bytes(part_name(unit.index), buffer.getvalue(), rows=len(documents))
        return io.result(rows=len(documents), counts={"tokens": int(table[:, 0].sum())})


def _trained(inputs: Inputs, stats: str) -> list[str]:
    """Folders of the components, in the order of their names."""
    facts = [result.extra for result in inputs.results(stats).values()]
    held = [each for each in facts if "slug" in each and not each["target"]]
    return [each["slug"] for each in sorted(held, key=lambda each: str(each["name"]))]


def tables_of(study: Study, shards: Place, eval_tokens: int) -> Tables:
    """The targets' documents as n-grams."""
    from corpusmill.mixing.texts import first_documents, open_component, sizes_of

    documents, sizes = {}, {}
    vocabulary = 0
    for target in study.targets:
        reader = open_component(study.place(shards, target.name))
        documents[target.name] = first_documents(reader, eval_tokens).tokens
        sizes[target.name] = sizes_of(reader, documents[target.name])
        vocabulary = reader.manifest.vocab_size
    return Tables.of(documents, sizes, vocabulary)


@dataclass(frozen=True)
class Runs(SetOperation):
    """A unit a proxy and run of the design that the stage `design` has in its result; a Parquet file of records each."""

    design: str
    stats: str
    shards: str
    screen: str | None
    proxies: tuple[Proxy, ...]
    eval_tokens: int

    libraries: ClassVar[tuple[str, ...]] = ("numpy", "scipy", "pyarrow")

    def units(self, inputs: Inputs) -> list[Unit]:
        (made,) = inputs.results(self.design).values()
        runs = made.extra["design"]["runs"]
        parts = tuple(range(len(made.extra["design"]["components"])))
        pairs = [(number, run) for number in range(len(self.proxies)) for run in runs]
        return [
            Unit(index, weight_of(self.proxies[number], self.rate), {"proxy": number, "run": run}, parts)
            for index, (number, run) in enumerate(pairs)
        ]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        proxy = self.proxies[unit.fields["proxy"]]
        run: DesignRun = build(DesignRun, unit.fields["run"], f"{self.design}: run")
        study = read_study(io, self.stats)
        extra: dict[str, Any] = {"run": run.name, "proxy": unit.fields["proxy"]}
        if proxy.kind == "screen":
            records = self._screened(proxy, run, study, io)
        elif proxy.kind == "decoder":
            records, extra["unigrams"] = self._trained(proxy, run, study, io)
        else:
            records = self._commanded(proxy, run, study, io)
        io.write_bytes(part_name(unit.index), encode_records(records), rows=len(records))
        return io.result(rows=len(records), extra=extra)

    def _trained(
        self, proxy: Proxy, run: DesignRun, study: Study, io: TaskIO
    ) -> tuple[list[Record], dict[str, float]]:
        """Records, and what token frequencies alone would reach on each target."""
        from corpusmill.mixing.train import train

        view, training, weights = self._reads(proxy, run, study, io)
        records = train(view, training, weights, run.seed, run.name, proxy.device)
        return records, {each.name: each.unigram_bits_per_byte() for each in view.targets}

    def _commanded(self, proxy: Proxy, run: DesignRun, study: Study, io: TaskIO) -> list[Record]:
        """What another trainer says; in a folder that goes afterwards, so that an attempt never meets what another has left."""
        from corpusmill.mixing.command import Command

        assert proxy.command is not None  # Proxy.check
        view, training, weights = self._reads(proxy, run, study, io)
        shards = io.folder(self.shards)
        folders = {each.name: str(study.place(shards, each.name)) for each in study.targets}
        same = hash_bytes(
            canonical([proxy.hash, run.weights_ppb, run.seed, str(shards), study.budget_tokens])
        )
        kept = on_disk(io.metrics / "proxies" / same)
        command = Command(proxy.command, proxy.name or "")
        with TemporaryDirectory(prefix="corpusmill-run-", ignore_cleanup_errors=True) as folder:
            found = command.run(
                view, training, weights, run.seed, run.name, Path(folder), folders,
                kept if isinstance(kept, Path) else None,
            )  # fmt: skip
        of_name = {target.name: target for target in study.targets}
        return [_in_bytes(record, of_name[record.target]) for record in found]

    def _reads(
        self, proxy: Proxy, run: DesignRun, study: Study, io: TaskIO
    ) -> tuple[View, Training, dict[str, int]]:
        """What a trained proxy reads and is measured on, how long it learns, and its weights."""
        from corpusmill.mixing.held import read_held
        from corpusmill.mixing.proxy import Training, View

        assert proxy.tokens is not None  # Proxy.check
        shards = io.folder(self.shards).absolute()  # a command starts in another folder
        held = tuple(
            read_held(target.name, on_disk(study.place(shards, target.name)), self.eval_tokens)
            for target in study.targets
        )
        view = View.of(on_disk(shards), {name: study.slugs[name] for name in study.names}, held)
        training = Training(proxy.size, proxy.tokens, study.budget_tokens, self.eval_tokens)
        return view, training, dict(zip(study.names, run.weights_ppb, strict=True))

    def _screened(self, proxy: Proxy, run: DesignRun, study: Study, io: TaskIO) -> list[Record]:
        assert self.screen is not None  # search.py puts the stage there for a recipe with such a proxy
        folders = tuple(str(io.folder(stage)) for stage in (self.stats, self.shards, self.screen))
        known = _Known(folders, self.eval_tokens, _part(run.seed - io.seed), study, io, self.screen)
        screen = _screen(known)
        with one_thread():
            bits = screen.document_bits(run.weights()[None], float(proxy.learnt))
        tables = screen.tables
        sizes = np.split(tables.size_bytes, np.cumsum(tables.documents)[:-1])
        return [
            Record(
                run=run.name,
                target=target.name,
                components=study.names,
                requested_ppb=run.weights_ppb,
                bits_per_byte=bits_per_byte(bits[target.name][0], sizes[place].astype(np.int64)),
                seed=run.seed,
                proxy=proxy.hash,
                eval_tokens=target.tokens,
                eval_bytes=target.bytes,
                document_bits=bits[target.name][0],
                document_bytes=sizes[place].astype(np.int64),
            )
            for place, target in enumerate(study.targets)
        ]


@dataclass(frozen=True)
class TorchRuns(Runs):
    """Runs of which some are decoders."""

    libraries: ClassVar[tuple[str, ...]] = (*Runs.libraries, "torch")

    def worker_memory(self, unit: Unit) -> int:
        from corpusmill.mixing.proxy import SIZES, worker_bytes

        size = self.proxies[unit.fields["proxy"]].size
        return worker_bytes(None if size is None else SIZES[size])


def weight_of(proxy: Proxy, rate: float) -> int:
    """What is trained is a task of its own: it is committed when it ends, and not with others."""
    return 1 if proxy.kind == "screen" else int(TASK_SECONDS * rate)


def runs_of(proxies: tuple[Proxy, ...]) -> type[Runs]:
    """The operation that makes them."""
    return TorchRuns if any(proxy.kind == "decoder" for proxy in proxies) else Runs


def _in_bytes(record: Record, target: Target) -> Record:
    """What a trainer said, with the target's size where it named none; RunError for a loss that cannot be compared."""
    if record.bits_per_byte is None:
        raise RunError(
            f"run {record.run}: target {record.target} has a loss and no bits_per_byte; a search needs these: bits of the text's tokens / its bytes"
        )
    if record.eval_bytes is None:
        return replace(record, eval_bytes=target.bytes, eval_tokens=target.tokens)
    return record


def _part(seed: int) -> int:
    """Of the samples; `seed` counts from the recipe's."""
    return DESIGN_PARTS + seed - VERIFY_SEEDS if seed >= VERIFY_SEEDS else seed


@dataclass(frozen=True)
class _Known:
    """What a screen is made from, known by the folders' names, which are hashes of what lies there."""

    folders: tuple[str, ...]
    eval_tokens: int
    part: int
    study: Study = field(compare=False)
    io: TaskIO = field(compare=False)
    stage: str = field(compare=False)


@lru_cache(maxsize=2)
def _screen(known: _Known) -> Screen:
    """Kept for the next unit of the task: it takes longer to make than to ask."""
    tables = _tables(replace(known, part=0))
    ends = np.cumsum([1, *(len(grams.hashes) for grams in tables.grams)])
    counts = []
    for place in range(len(known.study.components)):
        table = np.load(streams.BytesIO(known.io.read_bytes(known.stage, part_name(place))))
        row = table[known.part].astype(np.int64)
        counts.append(Counts(int(row[0]), tuple(np.split(row, ends[:-1])[1:])))
    return Screen.of(tables, counts)


@lru_cache(maxsize=1)
def _tables(known: _Known) -> Tables:
    return tables_of(known.study, place_of(known.folders[1]), known.eval_tokens)
