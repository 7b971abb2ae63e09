"""Who keeps what, in an ablation of recipes (mixing/ablation.py): the documents of both, the shards of each, given targets in them.

Documents that both recipes keep are two components, told by a bit of their ids, and a third has what one of them alone keeps. Of what is
held out of the first the words of recipe A are measured, of the second those of B: where recipes edit text, neither is measured in
its own words alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from corpusmill.mixing.held import target_hashes
from corpusmill.pipeline.engine.place import readable
from corpusmill.pipeline.engine.stage import WORKER_BYTES, Inputs, Result, SetOperation, TaskIO, Unit
from corpusmill.pipeline.ledger import DROPPED, KEPT
from corpusmill.shards.components import HOLDOUT
from corpusmill.shards.write import Write

KEPT_BY = "kept_by"

SHARED_A, SHARED_B, ALONE = "both.a", "both.b", "one"
"""Values of `kept_by`: both recipes (held-out documents are measured in the words of a, or of b), or one of them."""

SIDES = {"a": "A", "b": "B"}
"""Field -> name of a recipe for people, in the order of records' weights."""


@dataclass(frozen=True)
class Sides(SetOperation):
    """A row a document, a partition a unit: kept by either, which is what later stages read, and by whom."""

    a: str  # the ledgers of the recipes
    b: str

    rate: ClassVar[float] = 100e6

    def schema(self) -> pa.Schema:
        about = f"which recipes keep the document: {SHARED_A} and {SHARED_B} (by a bit of its id) both, {ALONE} one; null: none"
        return pa.schema(
            [
                pa.field("state", pa.uint8(), metadata={"about": "0: a recipe keeps it, 1: none does"}),
                pa.field(KEPT_BY, pa.string(), metadata={"about": about}),
            ]
        )

    def units(self, inputs: Inputs) -> list[Unit]:
        return [
            Unit(part, sum(file.size_bytes for file in result.files) // 50, {}, (part,))
            for part, result in sorted(inputs.results("documents").items())
        ]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        (part,) = unit.parts
        ids = io.documents(part, ["id"])["id"].to_pylist()
        a, b = (io.layer(ledger, part, ["state"])["state"].to_numpy() == KEPT for ledger in (self.a, self.b))
        bit = np.array([each[0] & 1 for each in ids], np.bool_)
        kept_by = np.full(len(ids), None, object)
        kept_by[a ^ b] = ALONE
        kept_by[a & b & bit], kept_by[a & b & ~bit] = SHARED_A, SHARED_B
        state = np.where(a | b, KEPT, DROPPED).astype(np.uint8)
        io.write_layer(
            part, pa.table([pa.array(state), pa.array(kept_by, pa.string())], schema=self.schema())
        )
        counts = {"a": int(a.sum()), "b": int(b.sum()), "both": int((a & b).sum())}
        return io.result(rows=len(ids), counts=counts)


@dataclass(frozen=True)
class WriteSide(Write):
    """The shards of a recipe; however small its components are, none is merged with another."""

    least_blocks: ClassVar[int] = 0


def shards_of(inputs: Inputs, stage: str) -> dict[str, str]:
    """Component -> folder below the stage's, held-out ones with their prefix."""
    found = [result.extra for result in inputs.results(stage).values()]
    return {each["component"]: each["slug"] for each in found if "slug" in each}


def training_of(shards: Mapping[str, str]) -> dict[str, str]:
    return {name: slug for name, slug in shards.items() if not name.startswith(f"{HOLDOUT}/")}


@dataclass(frozen=True)
class SideLeaks(SetOperation):
    """A unit a recipe: how much of each given target stands word for word in what it keeps."""

    a: str
    b: str
    targets: dict[str, str]
    eval_tokens: int

    libraries: ClassVar[tuple[str, ...]] = ("numpy",)

    def models(self) -> dict[str, str]:
        return target_hashes(self.targets)

    def units(self, inputs: Inputs) -> list[Unit]:
        units = []
        for number, (side, name) in enumerate(SIDES.items()):
            stage = getattr(self, side)
            slugs = sorted(training_of(shards_of(inputs, stage)).values())
            weight = 2 * sum(result.counts["tokens"] for result in inputs.results(stage).values())
            units.append(Unit(number, weight, {"name": name, "stage": stage, "slugs": slugs}))
        return units

    def worker_memory(self, unit: Unit) -> int:
        """The targets with two hashes a token; of a shard a block at a time."""
        return WORKER_BYTES + 64 * self.eval_tokens * len(self.targets)

    def run(self, unit: Unit, io: TaskIO) -> Result:
        from corpusmill.mixing.overlap import Windows
        from corpusmill.mixing.texts import first_documents, open_component

        windows = Windows.of(
            {
                name: first_documents(open_component(readable(path)), self.eval_tokens).tokens
                for name, path in self.targets.items()
            }
        )
        seen = np.zeros(len(windows.hashes), np.bool_)
        for slug in unit.fields["slugs"]:
            reader = open_component(io.folder(unit.fields["stage"]) / slug)
            for block in range(reader.manifest.blocks):
                seen |= windows.seen(reader.view(block).tokens)
        found = windows.overlaps(unit.fields["name"], seen)
        shares = {each.target: each.token_share for each in found}
        return io.result(rows=len(found), extra={"recipe": unit.fields["name"], "shares": shares})
