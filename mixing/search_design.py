"""Stages of a search that say which runs are made: `mix.design`, once no target is found in a component, and with two rounds `mix.design2`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import ClassVar

from corpusmill.mixing.caps import Caps
from corpusmill.mixing.constraints import check
from corpusmill.mixing.design import make_design, second_round
from corpusmill.mixing.overlap import refuse
from corpusmill.mixing.search_leaks import overlaps_of, units_by_component, windows_of
from corpusmill.mixing.search_records import one_unit, read_all
from corpusmill.mixing.search_study import exact, read_study
from corpusmill.mixing.study import decode_design, encode
from corpusmill.mixing.threads import one_thread
from corpusmill.pipeline.engine.results import canonical
from corpusmill.pipeline.engine.stage import Inputs, Result, SetOperation, TaskIO, Unit

DESIGN_FILE = "design.json"
LEAKS_FILE = "leaks.json"


@dataclass(frozen=True)
class MakeDesign(SetOperation):
    """One unit: the design as a file for people, and in the result for the stage that lays out its runs. RecipeError for targets that leak."""

    stats: str
    caps: Caps
    runs: int | None
    rounds: int
    repeats: int
    ablation: bool
    current: dict[str, float] | None
    leaks: str
    shards: str
    most_overlap: float
    eval_tokens: int
    seed: int

    libraries: ClassVar[tuple[str, ...]] = ("numpy", "scipy")

    def units(self, inputs: Inputs) -> list[Unit]:
        units = units_by_component(inputs, self.leaks)
        parts = sorted(number for numbers in units.values() for number in numbers)
        return [Unit(0, 1, {"leaks": units}, tuple(parts))]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        study = read_study(io, self.stats)
        windows = windows_of(study, io.folder(self.shards), self.eval_tokens)
        overlaps = overlaps_of(io, self.leaks, unit.fields["leaks"], windows)
        refuse(overlaps, self.most_overlap)
        io.write_bytes(LEAKS_FILE, canonical([asdict(each) for each in overlaps]), rows=len(overlaps))
        bounds = study.bounds(self.caps)
        check(bounds)
        with one_thread():
            design = make_design(
                study.components,
                bounds,
                self.seed,
                self.runs,
                self.repeats,
                self.ablation,
                study.budget_rows,
                exact(study.components, self.current),
                1 / self.rounds,
            )
        io.write_bytes(DESIGN_FILE, encode(design), rows=len(design.runs))
        return io.result(rows=len(design.runs), extra={"design": asdict(design)})


@dataclass(frozen=True)
class SecondDesign(SetOperation):
    """One unit: the whole design as a file for people, and in the result the runs that it adds for the stage that lays them out."""

    stats: str
    design: str
    runs: str
    caps: Caps
    count: int | None
    families: tuple[str, ...] | None
    seed: int

    libraries: ClassVar[tuple[str, ...]] = ("numpy", "scipy", "scikit-learn")

    def units(self, inputs: Inputs) -> list[Unit]:
        return [one_unit(inputs, self.runs)]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        from corpusmill.mixing.design import total_runs
        from corpusmill.mixing.fit import fit_swarm
        from corpusmill.mixing.records import swarm_of

        study = read_study(io, self.stats)
        design = decode_design(io.read_bytes(self.design, DESIGN_FILE), DESIGN_FILE)
        swarm = swarm_of(read_all(io, unit), study.names, study.target_names)
        importance = [target.weight for target in study.targets]
        with one_thread():
            fits = fit_swarm(swarm, self.seed, self.families, control=False)
            more = total_runs(study.components, self.count) - len(design.mixtures())
            bounds = study.bounds(self.caps)
            made = second_round(
                design, bounds, more, self.seed, lambda points: fits.total(points, importance)
            )
        io.write_bytes(DESIGN_FILE, encode(made), rows=len(made.runs))
        new = replace(made, runs=())
        runs = [asdict(run) for run in made.runs[len(design.runs) :]]
        return io.result(rows=len(runs), extra={"design": {**asdict(new), "runs": runs}})
