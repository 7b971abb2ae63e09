"""Topics of text as two stages of the engine: found in a sample, then the nearest of every kept document.

topics.fit   topics of a sample of kept text (filters/topic_model.py)
topics       the nearest topic of every kept document

The sample is drawn by hash(seed, id) from partitions in keyed order, so that it does not depend on how work is cut.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import xxhash

from corpusmill.pipeline.engine.stage import WORKER_BYTES, Area, Inputs, Result, SetOperation, TaskIO, Unit

MODEL_FILE, TOPICS_FILE = "model.arrow", "topics.json"

COLUMN = "topic"

READ_FACTOR = 4
"""Documents read for a sample, as a multiple of it: partitions in keyed order are a draw of their own."""

DOCUMENT_BYTES = 60_000
"""What a document of the sample may take: 16,384 characters of it, their terms and its row."""


def keyed_order(inputs: Inputs, seed: int, sample: int) -> list[Unit]:
    """One unit over all partitions, with the order in which they are read until there are enough documents."""
    parts = sorted(
        inputs.results("documents"), key=lambda part: xxhash.xxh3_64_intdigest(f"{seed}/{part}".encode())
    )
    return [Unit(0, sample * 1000, {"order": parts}, tuple(sorted(parts)))]


def by_partition(inputs: Inputs) -> list[Unit]:
    return [
        Unit(part, sum(file.size_bytes for file in result.files), {}, (part,))
        for part, result in sorted(inputs.results("documents").items())
    ]


@dataclass(frozen=True)
class FitTopics(SetOperation):
    """One unit: the sample is small whatever the corpus."""

    seed: int
    count: int
    sample: int

    version: ClassVar[int] = 2  # a model without topics is a file with one empty batch
    libraries: ClassVar[tuple[str, ...]] = ("numpy", "scipy")
    area: ClassVar[Area] = "layers"
    rate: ClassVar[float] = 1e6

    def units(self, inputs: Inputs) -> list[Unit]:
        return keyed_order(inputs, self.seed, self.sample)

    def worker_memory(self, unit: Unit) -> int:
        return WORKER_BYTES + 2 * self.sample * DOCUMENT_BYTES

    def run(self, unit: Unit, io: TaskIO) -> Result:
        from corpusmill.filters.topic_model import fit_topics

        texts = self._sample(unit.fields["order"], io)
        model = fit_topics(texts, self.count, self.seed)
        used = np.flatnonzero(model.idf)
        width = len(model.topics)
        table = pa.table(
            {
                "bucket": pa.array(used.astype(np.uint32)),
                "idf": pa.array(model.idf[used]),
                "centroids": pa.FixedSizeListArray.from_arrays(
                    pa.array(model.centroids[:, used].T.ravel() if width else np.zeros(0)), max(width, 1)
                )
                if width
                else pa.nulls(len(used), pa.list_(pa.float64(), 1)),
            }
        )
        io.write_arrow(MODEL_FILE, table.to_batches(), table.schema)
        topics = [asdict(topic) for topic in model.topics]
        io.write_bytes(TOPICS_FILE, json.dumps({"topics": topics}, indent=1, ensure_ascii=False).encode())
        return io.result(rows=len(texts), counts={"documents": len(texts), "topics": width})

    def _sample(self, order: list[int], io: TaskIO) -> list[str]:
        from corpusmill.filters.terms import MOST_CHARS

        found: list[tuple[int, bytes, str]] = []
        for part in order:
            for _, rows in io.rows(part, ["id", "text"], kept=True):
                for name, text in zip(rows["id"].to_pylist(), rows["text"].to_pylist(), strict=True):
                    found.append((xxhash.xxh3_64_intdigest(name, self.seed), name, text[:MOST_CHARS]))
            if len(found) > READ_FACTOR * self.sample:
                break
        return [text for _, _, text in sorted(found)[: self.sample]]


@dataclass(frozen=True)
class AssignTopics(SetOperation):
    """A row a document: its topic, null where it is not kept. One partition a unit."""

    fit: str

    libraries: ClassVar[tuple[str, ...]] = ("numpy", "scipy")
    rate: ClassVar[float] = 3e6

    def schema(self) -> pa.Schema:
        about = "name of the nearest topic of the corpus; null where the row was not kept so far"
        return pa.schema([pa.field(COLUMN, pa.string(), metadata={"about": about})])

    def units(self, inputs: Inputs) -> list[Unit]:
        return by_partition(inputs)

    def run(self, unit: Unit, io: TaskIO) -> Result:
        model = _model(io, self.fit)
        (part,) = unit.parts
        found = np.full(len(io.documents(part, ["source"])), None, object)
        for numbers, rows in io.rows(part, ["text"], kept=True):
            found[numbers] = model.assign(rows["text"].to_pylist())
        io.write_layer(part, pa.table([pa.array(found, pa.string())], schema=self.schema()))
        return io.result(rows=len(found), counts={"assigned": int(np.count_nonzero(found != None))})  # noqa: E711


def _model(io: TaskIO, stage: str) -> Any:
    from corpusmill.filters.terms import BUCKETS
    from corpusmill.filters.topic_model import Topic, TopicModel

    reader = io.open_arrow(stage, MODEL_FILE)
    said: Mapping[str, Any] = json.loads(io.read_bytes(stage, TOPICS_FILE))
    topics = tuple(Topic(each["name"], each["documents"], tuple(each["terms"])) for each in said["topics"])
    idf, centroids = np.zeros(BUCKETS), np.zeros((len(topics), BUCKETS))
    for batch in reader.batches():
        bucket = batch["bucket"].to_numpy()
        idf[bucket] = batch["idf"].to_numpy()
        if topics:
            centroids[:, bucket] = batch["centroids"].flatten().to_numpy().reshape(-1, len(topics)).T
    return TopicModel(topics, idf, centroids)
