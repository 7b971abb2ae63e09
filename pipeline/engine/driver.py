"""The driver: stages in order, each reused where its manifest stands and run where it does not.

It reads manifests, never data (but for messages); results are held for the stage in work, those of others are read when they are used. Kill it at any moment: the same command goes on
from the commits that stand, and ends with the bytes of an undisturbed run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from corpusmill.pipeline.chain import compile_recipe, up_to
from corpusmill.pipeline.engine import silence
from corpusmill.pipeline.engine import state as states
from corpusmill.pipeline.engine.adopt import adopt
from corpusmill.pipeline.engine.budgets import Watch
from corpusmill.pipeline.engine.claim import claim
from corpusmill.pipeline.engine.execution import Execution
from corpusmill.pipeline.engine.fingerprint import fingerprint, own_ingredients
from corpusmill.pipeline.engine.inputs import find_inputs
from corpusmill.pipeline.engine.layout import (
    Inputs,
    folder_of,
    kind_of,
    units_of,
)
from corpusmill.pipeline.engine.local import Stop
from corpusmill.pipeline.engine.manifest import (
    COMMITS,
    HEAD,
    SPENT,
    TABLE,
    Manifest,
    damaged_units,
    drop_commits,
    read_manifest,
    write_commit,
    write_manifest,
)
from corpusmill.pipeline.engine.metrics import Meter, note_driver
from corpusmill.pipeline.engine.place import Place, place_of
from corpusmill.pipeline.engine.replay import Replay
from corpusmill.pipeline.engine.roles import Reporter, Runner
from corpusmill.pipeline.engine.stage import InputFile, Result, SetOperation, Stage, Unit
from corpusmill.pipeline.engine.standing import done_in, is_damaged, publish, spend, spendable
from corpusmill.pipeline.engine.tries import Tries
from corpusmill.pipeline.errors import DamagedError, RunError
from corpusmill.pipeline.ledger import Ledger
from corpusmill.pipeline.recipe import Recipe

MENDS = 10
"""Damaged files that are made again for one stage before the run stops: more says that the disk is dying."""


@dataclass
class Driver:
    """One run of one recipe into one folder."""

    out: Place
    recipe: Recipe
    runner: Runner
    reporter: Reporter
    sample: float | None = None
    limit: int | None = None
    update: bool = False
    stop: Stop | None = None
    files: Sequence[InputFile] | None = None  # None: those that the recipe's inputs name
    replay: Replay = field(default_factory=Replay)
    until: str | None = None  # the last stage to run; None: all
    stages: list[Stage] = field(default_factory=list, init=False)
    manifests: dict[str, Manifest] = field(default_factory=dict, init=False)
    folders: dict[str, str] = field(default_factory=dict, init=False)
    _adopting: bool = field(default=True, init=False)
    _spent: set[str] = field(default_factory=set, init=False)  # temporary stages whose files this run removed

    def __post_init__(self) -> None:
        self.out = place_of(self.out)  # a path is taken as well

    def run(self) -> None:
        """Run what is not there yet, and write run.json."""
        self.out.sweep()
        files = find_inputs(self.recipe.inputs, str(self.out)) if self.files is None else self.files
        self.stages = up_to(compile_recipe(self.recipe, self.sample, self.limit), self.until)
        self.replay.need_stages([stage.name for stage in self.stages])
        # Models and libraries of every stage are looked at before the first one starts: a missing one costs seconds, not hours.
        self._own = {stage.name: own_ingredients(stage, self.recipe.seed) for stage in self.stages}
        self._inputs = Inputs(files, self.recipe.partition_bytes, self.out, self.manifests, self.folders)
        described = states.describe_inputs(files)
        self._claim = claim(self.out, self.recipe, described, self._own, self.update)
        self._work = Execution(
            self.out,
            self.recipe.seed,
            self.runner,
            self.reporter,
            self.stop,
            self.replay,
            self.manifests,
            self.folders,
        )
        self._watch = Watch(self.recipe, self.manifests, self._work.reader, self.reporter.warn)
        self._tries = Tries(self.replay, self._work.reader, self.reporter.warn)
        for line in silence.unknown_sources(self.stages, {file.source for file in files}):
            self.reporter.warn(line)
        state = states.State(described, [], self.recipe.seed, False)
        for stage in self.stages:
            self._ensure_from_whole_files(stage)
            state = replace(state, stages=[*state.stages, self._state_of(stage)])
            self._claim.save(state)  # before its budgets are judged: what stopped a run can be looked at
            self._watch.judge(stage)
            self._speak_of(stage)
            self._spend()
        self._tries.end(self.out)
        if self.until is None:  # else what an earlier run has in force behind it stays so
            self._claim.save(replace(state, complete=True))
        self.out.flush()

    def _speak_of(self, stage: Stage) -> None:
        """Say what is missing from the results of a stage without being an error of it."""
        operation = stage.operation
        if stage.name == "documents" and isinstance(operation, SetOperation) and not operation.probes:
            barren = silence.barren_files(self.manifests["documents"].results)
            silence.need_documents(self.manifests["documents"].counts, barren, len(self._inputs.files))
            if barren:
                self.reporter.warn(silence.barren_message(barren, len(self._inputs.files), self.out))
        if isinstance(operation, Ledger) and self.manifests[stage.name].counts["in"]:
            ledgers = [
                (each.operation.stage, self.manifests[each.name].counts)
                for each in self.stages
                if isinstance(each.operation, Ledger) and each.name in self.manifests
            ]
            if lost := silence.nothing_kept(ledgers, self.out):
                self.reporter.warn(lost)

    def _state_of(self, stage: Stage) -> states.StageState:
        manifest = self.manifests[stage.name]
        return states.StageState(
            name=stage.name,
            kind=kind_of(stage),
            folder=self.folders[stage.name],
            fingerprint=manifest.fingerprint,
            content=manifest.content,
            own=self._own[stage.name],
            text=list(stage.text),
            ledger=stage.ledger,
            columns=stage.columns,
            reads=list(stage.reads),
        )

    def _ensure_from_whole_files(self, stage: Stage) -> None:
        """Ensure a stage; what its tasks find damaged on the way is made again, and the stage goes on."""
        for left in reversed(range(MENDS)):
            try:
                return self._ensure(stage)
            except DamagedError as damage:
                if not left or damage.stage not in self.manifests:
                    raise
                self._mend(damage)

    def _mend(self, damage: DamagedError) -> None:
        """Drop a damaged file of an earlier stage and have its unit make it once more; what it says has to be what it said."""
        stage = next(stage for stage in self.stages if stage.name == damage.stage)
        was = self.manifests[stage.name].content
        file = self.out / self.folders[stage.name] / damage.name
        self.reporter.warn(f"{file}: its bytes were not those that had been written: it is made again")
        file.unlink()
        self._adopting = False  # what was taken over by a link may be damaged where it came from, too
        self._ensure_from_whole_files(stage)
        self._need_same(stage, was)

    def _ensure(self, stage: Stage) -> None:
        """Reuse the stage's manifest, or make it."""
        contents = {name: self.manifests[name].content for name in stage.reads}
        reads = contents
        if stage.name == "documents":
            reads = {f"{item['source']}/{item['relative']}": item["identity"] for item in self._claim.inputs}
            reads["partition_bytes"] = str(self.recipe.partition_bytes)
        print_of = fingerprint(self._own[stage.name], reads)
        folder = folder_of(stage, print_of)
        self.folders[stage.name] = folder
        started = time.perf_counter()
        manifest = read_manifest(self.out / folder)
        why = self._claim.why(stage, self._own[stage.name], contents)
        sizes = (self.out / folder).sizes() if manifest is not None else {}
        redo = manifest is not None and self._tries.redo(stage, manifest)
        if manifest is not None and not redo and not is_damaged(self.out / folder, manifest, sizes):
            if any(
                name.startswith(COMMITS) for name in sizes
            ):  # of a driver killed between manifest and commits
                drop_commits(self.out / folder)
            if SPENT in sizes and sizes.keys() <= {SPENT, TABLE, HEAD, *manifest.sealed}:
                self._spent.add(stage.name)
            self.manifests[stage.name] = manifest
            self._publish(stage)
            self._tries.need_all(stage, self.manifests[stage.name])
            self.reporter.stage_ended(stage, manifest, time.perf_counter() - started, True, why)
            return
        others = self._make_or_take(stage, print_of, reads)
        self._tries.need_all(stage, self.manifests[stage.name])
        self.reporter.stage_ended(
            stage, self.manifests[stage.name], time.perf_counter() - started, others, why
        )

    def _make_or_take(self, stage: Stage, print_of: str, reads: Mapping[str, str]) -> bool:
        """Make the stage; whether another driver on this OUT did meanwhile.

        It may then have removed the temporary files that our tasks still read: what failed them is no failure if the stage stands.
        """
        try:
            self._make(stage, print_of, reads)
            return False
        except (RunError, OSError):
            folder = self.out / self.folders[stage.name]
            made = read_manifest(folder)
            if made is None or is_damaged(folder, made, folder.sizes()):
                raise
        self.manifests[stage.name] = made
        self._publish(stage)
        return True

    def _make(self, stage: Stage, print_of: str, reads: Mapping[str, str]) -> None:
        """Run the stage's missing units, check, seal, and write the manifest."""
        folder = self.out / self.folders[stage.name]
        for name in stage.reads:
            self._materialise(name)
        meter = Meter(helpers=False)
        if (folder / SPENT).is_file():
            (folder / SPENT).unlink()
        self._spent.discard(stage.name)
        operation = stage.operation
        units = {unit.index: unit for unit in units_of(stage, self._inputs)}
        done = done_in(folder)
        for unit in done.keys() - units.keys():
            del done[unit]
        for unit in damaged_units(folder.sizes(), done) if done else ():
            del done[unit]
        for unit in self._tries.units(stage, done):
            del done[unit]
        done.update(self._adopt(stage, [unit for index, unit in sorted(units.items()) if index not in done]))
        todo = [unit for index, unit in sorted(units.items()) if index not in done]
        self.reporter.stage_began(stage, len(units), len(done))
        if todo:
            operation.warm()
        done.update(self._work.run(stage, todo, 0, self._watch.gauge(stage, units, done)))
        sealed: dict[str, bytes] = {}
        if isinstance(operation, SetOperation):
            for again in range(1, 4):
                redo = operation.check(units, done)
                if not redo:
                    break
                done.update(self._work.run(stage, redo, again, self._watch.gauge(stage, (), {})))
            else:
                raise RunError(f"stage {stage.name}: units do not fit together after three rounds")
            sealed = operation.seal(done, self._inputs)
            for name, data in sorted(sealed.items()):
                (folder / name).put(data)
        folder.sweep()
        ingredients = {**self._own[stage.name], "reads": dict(reads)}
        self.manifests[stage.name] = write_manifest(folder, stage.name, print_of, ingredients, done, sealed)
        self._publish(stage)
        note_driver(self.out, stage.name, self.folders[stage.name], meter.usage())

    def _adopt(self, stage: Stage, units: Sequence[Unit]) -> dict[int, Result]:
        """Units that the run in force has made from the same bytes, whatever their number was there."""
        if not self._adopting:
            return {}
        folder, own = self.folders[stage.name], self._own[stage.name]
        found = adopt(
            self.out,
            stage,
            folder,
            own,
            units,
            self.manifests,
            self._inputs.files,
            self._claim.old,
            {name: manifest for name, (manifest, _) in self._tries.replaced.items()},
        )
        for unit in self._tries.units(stage, found):
            del found[unit]
        if found:
            write_commit(self.out / folder, [found[unit] for unit in sorted(found)])
        return found

    def _materialise(self, name: str) -> None:
        """Make the files of a spent temporary stage again, since a reader of it has to run."""
        folder = self.out / self.folders[name]
        # No head: it was being made again when damage in what it reads sent this stage back to its start.
        if (folder / SPENT).is_file() or not (folder / HEAD).is_file():
            stage = next(stage for stage in self.stages if stage.name == name)
            old = self.manifests[name]
            folder.unlink_all([HEAD, TABLE])
            self._make(stage, old.fingerprint, old.ingredients["reads"])
            self._need_same(stage, old.content)

    def _need_same(self, stage: Stage, content: str) -> None:
        """What others have read a stage as before, it has to be after it was made again."""
        if self.manifests[stage.name].content != content:
            folder = self.out / self.folders[stage.name]
            raise RunError(
                f"stage {stage.name} gave other results when it was made again: {folder} may be damaged, or of a corpusmill under development; delete it and run again"
            )

    def _publish(self, stage: Stage) -> None:
        publish(self.out, self.out / self.folders[stage.name], stage, self._claim.need)

    def _spend(self) -> None:
        """Drop the files of temporary stages all of whose readers stand."""
        for stage in spendable(self.stages, self.manifests):
            if stage.name not in self._spent:
                spend(self.out / self.folders[stage.name], self.manifests[stage.name])
                self._spent.add(stage.name)
