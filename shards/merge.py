"""Scatter files of tokens, merged where their slices are small: components in order, in each its key ranges."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from corpusmill.pipeline.engine.arrow_files import ArrowFile
from corpusmill.pipeline.engine.merge import Merge, Slice
from corpusmill.pipeline.engine.stage import Area, FileRecord, Result
from corpusmill.shards.components import Key
from corpusmill.shards.scatter import COMPONENTS, components_of, file_name


@dataclass(frozen=True)
class MergeTokens(Merge):
    """A merged file has the components of all its files."""

    area: ClassVar[Area] = "text"
    file_name = staticmethod(file_name)

    def sliced(self, result: Result) -> tuple[FileRecord, ...]:
        """All but the list of what the audit kept out."""
        return tuple(file for file in result.files if file.name == file_name(result.unit))

    def slices(self, extra: Mapping[str, Any]) -> int:
        return sum(map(len, extra["documents"]))

    def together(self, extras: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Documents and tokens of each slice, added up."""
        total: dict[Key, dict[str, list[int]]] = {}
        for extra in extras:
            for place, key in enumerate(extra["components"]):
                more = {name: extra[name][place] for name in ("documents", "tokens")}
                had = total.get(tuple(key))
                total[tuple(key)] = (
                    {name: [a + b for a, b in zip(had[name], more[name], strict=True)] for name in more}
                    if had
                    else more
                )
        ordered = sorted(total)
        return {
            "components": [list(key) for key in ordered],
            "documents": [total[key]["documents"] for key in ordered],
            "tokens": [total[key]["tokens"] for key in ordered],
        }

    def lay_out(self, files: Sequence[ArrowFile]) -> tuple[pa.Schema, list[list[Slice]]]:
        held = [components_of(file.schema) for file in files]
        ranges = files[0].num_record_batches // len(held[0])
        components = sorted({key for keys in held for key in keys})
        holders = {
            key: [(file, keys.index(key)) for file, keys in enumerate(held) if key in keys]
            for key in components
        }
        schema = files[0].schema.with_metadata({COMPONENTS: json.dumps(components).encode()})
        places = [
            [(file, place * ranges + each) for file, place in holders[key]]
            for key in components
            for each in range(ranges)
        ]
        return schema, places
