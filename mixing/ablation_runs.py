"""The trainings of an ablation of recipes (mixing/ablation.py): one a recipe and seed, on equal tokens, from equal first weights.

A recipe reads what it keeps in proportion, and of what is held out nothing, nor any duplicate of it. Trainings of one seed begin with the
same weights and read by the same permutations: they compare in pairs. All are measured on the same documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from corpusmill.mixing.ablation_sides import ALONE, SHARED_A, SHARED_B, SIDES, shards_of, training_of
from corpusmill.mixing.held import target_hashes
from corpusmill.mixing.proxy import Training, worker_bytes
from corpusmill.mixing.records import Record, encode_records
from corpusmill.mixing.weights import in_ppb, proportional
from corpusmill.pipeline.engine.files import part_name
from corpusmill.pipeline.engine.layout import TASK_SECONDS
from corpusmill.pipeline.engine.place import readable
from corpusmill.pipeline.engine.stage import Inputs, Result, SetOperation, TaskIO, Unit
from corpusmill.pipeline.errors import RecipeError, ShardError
from corpusmill.shards.components import HOLDOUT
from corpusmill.shards.layout import read_manifest
from corpusmill.shards.mixture import PPB


@dataclass(frozen=True)
class TrainSides(SetOperation):
    """A unit a recipe and seed; a Parquet file of records each, in which a recipe is a mixture of nothing but itself."""

    a: str
    b: str
    leaks: str | None
    targets: dict[str, str]
    training: Training
    seeds: int
    device: str
    most_overlap: float
    seed: int

    libraries: ClassVar[tuple[str, ...]] = ("numpy", "pyarrow", "torch")

    def models(self) -> dict[str, str]:
        return target_hashes(self.targets)

    def worker_memory(self, unit: Unit) -> int:
        return worker_bytes(self.training.shape)

    def units(self, inputs: Inputs) -> list[Unit]:
        if self.leaks is not None:
            self._need_no_leaks(result.extra for result in inputs.results(self.leaks).values())
        shards = {side: shards_of(inputs, getattr(self, side)) for side in SIDES}
        for side, name in SIDES.items():
            if not training_of(shards[side]):
                raise ShardError(f"recipe {name} keeps nothing to train on: look at what drops its documents")
        targets = self._targets(inputs, shards)
        units: list[Unit] = []
        for number in range(self.seeds):
            for side in SIDES:
                fields = {
                    "side": side,
                    "seed": self.seed + number,
                    "components": training_of(shards[side]),
                    "targets": targets,
                }
                units.append(Unit(len(units), int(TASK_SECONDS * self.rate), fields))
        return units

    def _need_no_leaks(self, found: Iterable[Mapping[str, Any]]) -> None:
        shares = [
            (share, target, each["recipe"]) for each in found for target, share in each["shares"].items()
        ]
        for share, target, recipe in sorted(shares, reverse=True):
            if share > self.most_overlap:
                raise RecipeError(
                    f"target {target}: {share:.1%} of its tokens stand in what recipe {recipe} keeps, so that whoever keeps the copies wins by them: "
                    "give another target, or take its documents out of the inputs (most_overlap says how much may be)"
                )

    def _targets(self, inputs: Inputs, shards: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
        """Where each lies, and whether it counts: given ones if there are any, else what both keep. The others are watched."""
        given = [{"name": name, "path": path, "counts": True} for name, path in sorted(self.targets.items())]
        first = next(iter(training_of(shards["a"]).values()))
        tokenizer = read_manifest(inputs.root / inputs.folder(self.a) / first).tokenizer_sha256
        for name, path in self.targets.items():
            if read_manifest(readable(path)).tokenizer_sha256 != tokenizer:
                raise RecipeError(
                    f"target {name} was tokenized with another tokenizer than is given here: make its shards with the same"
                )
        held = [
            ("a", SHARED_A, "kept by both, words of A", not given),
            ("b", SHARED_B, "kept by both, words of B", not given),
            ("a", ALONE, "kept by A alone", False),
            ("b", ALONE, "kept by B alone", False),
        ]
        found = [
            {"name": name, "side": side, "slug": shards[side][f"{HOLDOUT}/{part}"], "counts": counts}
            for side, part, name, counts in held
            if f"{HOLDOUT}/{part}" in shards[side]
        ]
        if not any(each["counts"] for each in (*given, *found)):
            raise ShardError(
                "of the documents that both recipes keep none is held out, so there is nothing neutral to measure on: raise holdout, or give targets"
            )
        return [*given, *found]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        from corpusmill.mixing.held import read_held
        from corpusmill.mixing.proxy import View, plan_of
        from corpusmill.mixing.texts import on_disk
        from corpusmill.mixing.train import train

        fields = unit.fields
        folders = {side: on_disk(io.folder(getattr(self, side))) for side in SIDES}
        held = tuple(
            read_held(
                each["name"],
                on_disk(readable(each["path"])) if "path" in each else folders[each["side"]] / each["slug"],
                self.training.eval_tokens,
            )
            for each in fields["targets"]
        )
        view = View.of(folders[fields["side"]], fields["components"], held)
        weights = in_ppb(proportional({manifest.name: manifest.rows for _, manifest in view.components}))
        name = f"{SIDES[fields['side']]} @{fields['seed']}"
        trained = train(view, self.training, weights, fields["seed"], name, self.device)
        records = [_of_side(record, fields["side"]) for record in trained]
        io.write_bytes(part_name(unit.index), encode_records(records), rows=len(records))
        plan = plan_of(view, self.training, weights, fields["seed"])
        assert plan.samples is not None  # a training ends
        extra = {
            "side": fields["side"],
            "targets": fields["targets"],
            "tokens": sum(manifest.tokens for _, manifest in view.components),
            "epochs": plan.samples / sum(each.epoch_rows for each in plan.components),
            "unigrams": {each.name: each.unigram_bits_per_byte() for each in held},
        }
        return io.result(rows=len(records), extra=extra)


def _of_side(record: Record, side: str) -> Record:
    return replace(
        record,
        components=tuple(SIDES.values()),
        requested_ppb=whole(side, PPB),
        realised_tokens=whole(side, sum(record.realised_tokens)),
    )


def whole(side: str, amount: int) -> tuple[int, ...]:
    return tuple(amount if each == side else 0 for each in SIDES)
