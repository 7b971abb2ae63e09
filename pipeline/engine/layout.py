"""Where a stage's files go, and how its work is cut: units, and units to tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corpusmill.pipeline.engine.files import part_name
from corpusmill.pipeline.engine.manifest import Manifest
from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.engine.stage import Edit, InputFile, Measure, Result, SetOperation, Stage, Unit
from corpusmill.pipeline.judge import Judge
from corpusmill.pipeline.ledger import Ledger

TASK_SECONDS = 180.0
"""Aim for a task: long enough that its 0.1 ms to 4 ms of overhead vanish, short enough that a lost one costs little."""

LAYER_RATE = 10e6
"""Bytes of documents a second and core for measures and edits, to group partitions into tasks."""

COLUMNS_SHARE = 50
"""Judges and ledgers read a few columns: about a fiftieth of the documents' bytes."""


@dataclass
class Inputs:
    """What `SetOperation.units` sees (contract in stage.py)."""

    files: Sequence[InputFile]
    partition_bytes: int
    root: Place
    manifests: Mapping[str, Manifest]
    folders: Mapping[str, str]

    def results(self, stage: str) -> Mapping[int, Result]:
        return self.manifests[stage].results

    def folder(self, stage: str) -> str:
        return self.folders[stage]


def units_of(stage: Stage, inputs: Inputs) -> list[Unit]:
    """Units of a set operation by its own layout, else one a partition."""
    if isinstance(stage.operation, SetOperation):
        return stage.operation.units(inputs)
    share = 1 if isinstance(stage.operation, (Measure, Edit)) else COLUMNS_SHARE
    weights = {
        part: sum(file.size_bytes for file in result.files)
        for part, result in inputs.results("documents").items()
    }
    return [Unit(part, weight // share, parts=(part,)) for part, weight in sorted(weights.items())]


def rate_of(stage: Stage) -> float:
    """Bytes of unit weight a second and core."""
    return stage.operation.rate if isinstance(stage.operation, SetOperation) else LAYER_RATE


def kind_of(stage: Stage) -> str:
    """The word of DESIGN for a stage: documents, measure, edit, judge, ledger or set."""
    if stage.name == "documents":
        return "documents"
    kinds = {SetOperation: "set", Measure: "measure", Edit: "edit", Judge: "judge", Ledger: "ledger"}
    return next(word for kind, word in kinds.items() if isinstance(stage.operation, kind))


def folder_of(stage: Stage, print_of: str) -> str:
    """`<area>/<stage>/<fingerprint>`; shards have no stage name, so that all a stream reads lies under `shards/`."""
    area = stage.operation.area
    return f"shards/{print_of}" if area == "shards" else f"{area}/{stage.name}/{print_of}"


def consecutive(sizes: Mapping[int, int], limit: int) -> list[tuple[int, ...]]:
    """Numbers in order, as many to a group as stay within `limit` by their sizes; a larger one makes a group of its own."""
    groups: list[list[int]] = []
    filled = 0
    for number in sorted(sizes):
        if not groups or filled + sizes[number] > limit:
            groups.append([])
            filled = 0
        groups[-1].append(number)
        filled += sizes[number]
    return [tuple(group) for group in groups]


def group_units(units: Sequence[Unit], rate: float, workers: int) -> list[list[Unit]]:
    """Consecutive units in tasks of up to TASK_SECONDS, smaller while that would leave workers idle.

    Outputs are a unit's own, so grouping cannot change bytes.
    """
    total = sum(unit.weight for unit in units)
    aim = min(TASK_SECONDS * rate, total / (4 * workers))
    groups: list[list[Unit]] = []
    weight = float("inf")
    for unit in units:
        if weight >= aim or weight + unit.weight > TASK_SECONDS * rate:
            groups.append([])
            weight = 0
        groups[-1].append(unit)
        weight += unit.weight
    return groups


class Hashes:
    """What tasks have to know of the files that they read whole. It holds the results of the stages that it was made with."""

    def __init__(self, manifests: Mapping[str, Manifest]) -> None:
        self._read = {stage: (manifest.sealed, manifest.results) for stage, manifest in manifests.items()}

    def of(self, units: Sequence[Unit]) -> dict[str, dict[str, str]]:
        """Stage -> file name -> xxh3: the files of the units' partitions, and what stands once a stage.

        Arrow files of shuffles are left out: each of their batches carries its own hash (arrow_files.py).
        """
        found: dict[str, dict[str, str]] = {}
        parts = sorted({part for unit in units for part in unit.parts})
        for stage, (sealed, results) in self._read.items():
            names = dict(sealed)
            alone = [*results] if len(results) == 1 else []
            for number in dict.fromkeys([*parts, *alone]):
                for file in results.files(number):
                    if number in alone or file.name == part_name(number):
                        names[file.name] = file.xxh3
            found[stage] = {name: names[name] for name in names if not name.endswith(".arrow")}
        return found
