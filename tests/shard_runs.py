"""Runs the stages of `shard`, `mix` and others over documents made in a test, without extract, workers or a recipe file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from corpusmill.pipeline.chain import Chain, up_to
from corpusmill.pipeline.documents import DOCUMENTS, document_id
from corpusmill.pipeline.engine.files import Files, Task
from corpusmill.pipeline.engine.fingerprint import fingerprint, own_ingredients
from corpusmill.pipeline.engine.layout import Inputs, folder_of, units_of
from corpusmill.pipeline.engine.manifest import Manifest, write_manifest
from corpusmill.pipeline.engine.stage import SetOperation, Stage, Unit
from corpusmill.pipeline.engine.store import put
from corpusmill.pipeline.engine.task import run_task, task_from_json, task_of
from corpusmill.pipeline.kinds import Kind


@dataclass(frozen=True)
class Document:
    text: str
    source: str = "web"
    number: int = 0
    date: datetime | None = None

    @property
    def id(self) -> bytes:
        return document_id(self.source, f"{self.source}.jsonl", self.number)


def documents(texts: Iterable[str], source: str = "web") -> list[Document]:
    return [Document(text, source, number) for number, text in enumerate(texts)]


def document_table(rows: Sequence[Document]) -> pa.Table:
    values = [
        {
            "id": row.id,
            "text": row.text,
            "url": f"https://{row.source}.example/{row.number}",
            "source": row.source,
            "date": row.date,
            "origin": {"file": f"{row.source}.jsonl", "offset": row.number, "length": len(row.text)},
        }
        for row in rows
    ]
    return pa.Table.from_pylist(values, schema=DOCUMENTS)


def vocabulary_of(size: int) -> bytes:
    """A byte-level vocabulary with `size` entries, the end of text among them."""
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Loaded

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, *(f"filler{i}" for i in range(size - 1 - len(alphabet)))]
    loaded = Loaded(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    loaded.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    loaded.decoder = decoders.ByteLevel()
    loaded.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    return str(loaded.to_str()).encode()


class Run:
    """The stages that `configs` append, each run to its manifest below `out`."""

    def __init__(
        self,
        out: Path,
        partitions: Sequence[Sequence[Document]],
        *configs: Any,
        seed: int = 17,
        names: Sequence[str] = ("shard", "mix"),
        kinds: Mapping[str, Kind] | None = None,
        until: str | None = None,
    ) -> None:
        self.out, self.seed = out, seed
        self.folders = {"documents": "text/documents/0"}
        self.manifests: dict[str, Manifest] = {}
        self.inputs = Inputs((), 1 << 16, out, self.manifests, self.folders)
        self.chain = Chain(seed, kinds or {})
        self.chain.set("documents", SetOperation())
        self.chain.verdict(stage="extract")
        for config, name in zip(configs, names, strict=False):
            config.extend(self.chain, name)
        self._write_documents(partitions)
        for stage in up_to(self.chain.stages, until)[1:]:
            self._run(stage)

    def _write_documents(self, partitions: Sequence[Sequence[Document]]) -> None:
        results = {}
        for part, rows in enumerate(partitions):
            files = Files(Task(str(self.out), "documents", "", {}, self.folders, self.seed), Unit(part, 0))
            files.write_documents(part, document_table(rows))
            results[part] = files.result(rows=len(rows))
        self.manifests["documents"] = write_manifest(
            self.out / self.folders["documents"], "documents", "0", {}, results, {}
        )

    def _run(self, stage: Stage) -> None:
        operation = stage.operation
        own = own_ingredients(stage, self.seed)
        print_of = fingerprint(own, {name: self.manifests[name].content for name in stage.reads})
        folder = self.folders[stage.name] = folder_of(stage, print_of)
        results = {}
        for unit in units_of(stage, self.inputs):
            task = task_of(stage, self.out, self.folders, self.seed, [unit])
            task = task_from_json(json.dumps(asdict(task)))  # what a worker sees
            results.update({result.unit: result for result in run_task(task)})
        of_set = isinstance(operation, SetOperation)
        sealed = operation.seal(results, self.inputs) if of_set else {}
        for name, data in sealed.items():
            put(self.out / folder / name, data)
        self.manifests[stage.name] = write_manifest(
            self.out / folder, stage.name, print_of, own, results, sealed
        )
        for name, target in (operation.publish() if of_set else {}).items():
            put(self.out / target, (self.out / folder / name).read_bytes())

    def folder(self, stage: str) -> Path:
        return self.out / self.folders[stage]

    def files(self, stage: str) -> Mapping[str, bytes]:
        """Every file of a stage but the engine's own."""
        folder = self.folder(stage)
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("_"))
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
