"""How stages of a search read what runs said: the records of whole stages, by unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from corpusmill.mixing.records import Record, decode_records
from corpusmill.pipeline.engine.files import part_name
from corpusmill.pipeline.engine.stage import Inputs, TaskIO, Unit


def read_runs(io: TaskIO, stage: str, parts: Iterable[int]) -> list[Record]:
    """The records of runs of a stage."""
    return [
        record for part in parts for record in decode_records(io.read_bytes(stage, part_name(part)), stage)
    ]


def one_unit(inputs: Inputs, *stages: str) -> Unit:
    """A unit that reads all runs of the stages: `runs` says which they are."""
    runs = {stage: sorted(inputs.results(stage)) for stage in stages}
    return Unit(0, 1, {"runs": runs}, tuple(sorted({part for parts in runs.values() for part in parts})))


def read_all(io: TaskIO, unit: Unit) -> list[Record]:
    """What `one_unit` has asked for, stage by stage."""
    runs: Mapping[str, list[int]] = unit.fields["runs"]
    return [record for stage, parts in runs.items() for record in read_runs(io, stage, parts)]
