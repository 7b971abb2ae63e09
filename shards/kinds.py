"""The kind of every document's text as a column, for components that are told by it: its source's (pipeline/kinds.py), in one word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from corpusmill.pipeline.engine.stage import Inputs, Result, SetOperation, TaskIO, Unit
from corpusmill.pipeline.kinds import Kind
from corpusmill.shards.components import SYNTHETIC


@dataclass(frozen=True)
class Kinds(SetOperation):
    """A row a document, kept or not. One partition a unit; costs what reading the column `source` costs."""

    kinds: dict[str, Kind]  # of sources that are not just natural

    rate: ClassVar[float] = 500e6

    def schema(self) -> pa.Schema:
        about = "natural, rephrased-GENERATION or generated-GENERATION, with -protected behind it where the input says so"
        return pa.schema([pa.field(SYNTHETIC, pa.string(), metadata={"about": about})])

    def units(self, inputs: Inputs) -> list[Unit]:
        return [
            Unit(part, sum(file.size_bytes for file in result.files), {}, (part,))
            for part, result in sorted(inputs.results("documents").items())
        ]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        (part,) = unit.parts
        sources = io.documents(part, ["source"])["source"].combine_chunks().dictionary_encode()
        words = [kind_of(self.kinds, source).word for source in sources.dictionary.to_pylist()]
        told = pa.DictionaryArray.from_arrays(sources.indices, pa.array(words, pa.string()))
        io.write_layer(part, pa.table([told.cast(pa.string())], schema=self.schema()))
        return io.result(rows=len(told))


def kind_of(kinds: Mapping[str, Kind], source: str) -> Kind:
    return kinds.get(source, Kind())
