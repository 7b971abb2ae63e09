"""The stage of a search that looks for targets inside components (`mix.leaks`): a mixture would be rewarded for what it copies.

A unit a shard, read whole once; its file says which runs of targets it has. The design joins them and refuses (mixing/overlap.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from corpusmill.mixing.overlap import Flags, Overlap, Windows
from corpusmill.mixing.search_study import Study, read_study
from corpusmill.pipeline.engine.files import part_name
from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.engine.stage import WORKER_BYTES, Inputs, Result, SetOperation, TaskIO, Unit
from corpusmill.shards.components import HOLDOUT


@dataclass(frozen=True)
class Leaks(SetOperation):
    stats: str
    shards: str
    eval_tokens: int

    libraries: ClassVar[tuple[str, ...]] = ("numpy",)

    def units(self, inputs: Inputs) -> list[Unit]:
        shards = [result.extra for _, result in sorted(inputs.results(self.shards).items())]
        training = [each for each in shards if "slug" in each and not each["slug"].startswith(f"{HOLDOUT}/")]
        return [
            Unit(number, 4 * each["tokens"], {"slug": each["slug"], "shard": each["shard"]})
            for number, each in enumerate(training)
        ]

    def worker_memory(self, unit: Unit) -> int:
        """The targets with two hashes a token; of the shard a block at a time."""
        return WORKER_BYTES + 64 * self.eval_tokens

    def run(self, unit: Unit, io: TaskIO) -> Result:
        from corpusmill.mixing.texts import open_component

        folder = io.folder(self.shards)
        windows = windows_of(read_study(io, self.stats), folder, self.eval_tokens)
        reader = open_component(folder / unit.fields["slug"])
        seen = np.zeros(len(windows.hashes), np.bool_)
        for block in np.flatnonzero(reader.blocks["shard"] == unit.fields["shard"]).tolist():
            seen |= windows.seen(reader.view(block).tokens)
        io.write_bytes(part_name(unit.index), np.packbits(seen).tobytes(), rows=len(seen))
        return io.result(
            counts={"seen": int(np.count_nonzero(seen))}, extra={"component": reader.manifest.name}
        )


def windows_of(study: Study, shards: Place, eval_tokens: int) -> Windows:
    """The targets' runs of tokens."""
    from corpusmill.mixing.texts import first_documents, open_component

    return Windows.of(
        {
            target.name: first_documents(open_component(study.place(shards, target.name)), eval_tokens).tokens
            for target in study.targets
        }
    )


def units_by_component(inputs: Inputs, leaks: str) -> dict[str, list[int]]:
    """Which units of the stage are of which component."""
    found: dict[str, list[int]] = {}
    for number, result in sorted(inputs.results(leaks).items()):
        found.setdefault(result.extra["component"], []).append(number)
    return found


def overlaps_of(
    io: TaskIO, leaks: str, units: Mapping[str, Sequence[int]], windows: Windows
) -> list[Overlap]:
    """Of every target with every component, all its shards together."""
    found: list[Overlap] = []
    for component, numbers in units.items():
        seen: Flags = np.zeros(len(windows.hashes), np.bool_)
        for number in numbers:
            packed = np.frombuffer(io.read_bytes(leaks, part_name(number)), np.uint8)
            seen |= np.unpackbits(packed, count=len(seen)).astype(np.bool_)
        found += windows.overlaps(component, seen)
    return found
