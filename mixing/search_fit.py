"""Stages of a search after its runs: what follows from them (`mix.fit`), what to try (`mix.propose`), what came of it (`mix.verify`).

Each is one unit of seconds. The proposal fits again instead of reading models: they are no JSON, and the same runs give the same fit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from corpusmill.mixing.caps import Caps
from corpusmill.mixing.records import swarm_of
from corpusmill.mixing.search_design import DESIGN_FILE
from corpusmill.mixing.search_records import one_unit, read_all, read_runs
from corpusmill.mixing.search_study import Study, read_study
from corpusmill.mixing.study import Proxy, decode_design
from corpusmill.pipeline.engine.results import canonical
from corpusmill.pipeline.engine.stage import Inputs, Result, SetOperation, TaskIO, Unit
from corpusmill.shards.mixture import PPB

if TYPE_CHECKING:
    from corpusmill.mixing.fit import Fits
    from corpusmill.mixing.propose import Proposal
    from corpusmill.mixing.swarm import Floats, Swarm

FIT_FILE = "fit.json"
PROPOSAL_FILE = "proposal.json"
VERDICT_FILE = "verdict.json"

SCREEN_ALONE = "the screen alone verifies nothing: train proxies (verify: proxies)"
"""It orders mixtures like small models only when it was told how much they learn, so it chooses what to try and not what to ship."""

DIGITS = 9  # significant ones of what is written for people

LIBRARIES = ("numpy", "scipy", "scikit-learn")


def plain(value: Any) -> Any:
    """For JSON: numbers that are none are null, the others have so many digits that they differ only where it matters."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None
    return value


def described(swarm: Swarm, fits: Fits) -> dict[str, Any]:
    """Fits for people and JSON."""
    found: dict[str, Any] = plain(
        {
            "unit": swarm.unit,
            "runs": len(swarm.weights),
            "mixtures": int(swarm.groups.max()) + 1,
            "targets": swarm.targets,
            "noise": dict(zip(swarm.targets, swarm.noise.tolist(), strict=True)),
            "spread": dict(zip(swarm.targets, np.nanstd(swarm.losses, axis=0).tolist(), strict=True)),
            "table": fits.table(),
            "left_out": fits.left_out(),
        }
    )
    return found


def proposed(proposal: Proposal, fits: Fits, prior: Floats) -> dict[str, Any]:
    """A proposal for people and JSON; `effects`: how a target's loss rises per unit of each component's weight, at the prior."""
    from corpusmill.mixing.propose import effects

    slopes = effects(fits.predict, prior)
    found: dict[str, Any] = plain(
        {
            "components": fits.components,
            **asdict(proposal),
            "regrets": [[strength, regret] for strength, regret in proposal.regrets.items()],
            "effects": {fit.target: slopes[:, place] for place, fit in enumerate(fits.targets)},
        }
    )
    return found


@dataclass(frozen=True)
class Fit(SetOperation):
    """The table of fits, what leaving each component out and boosting it did, and whether proxies say anything at all."""

    design: str
    runs: tuple[str, ...]
    families: tuple[str, ...] | None
    counted: tuple[str, ...]  # targets with a weight above 0; none are named: all
    proxy: str
    seed: int

    version: ClassVar[int] = 2
    libraries: ClassVar[tuple[str, ...]] = LIBRARIES

    def units(self, inputs: Inputs) -> list[Unit]:
        first = next(iter(inputs.results(self.runs[0]).values()))
        unit = one_unit(inputs, *self.runs)
        return [replace(unit, fields={**unit.fields, "unigrams": first.extra.get("unigrams", {})})]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        from corpusmill.mixing.effects import effects_of
        from corpusmill.mixing.fit import fit_swarm
        from corpusmill.mixing.signals import need_signal, signals

        design = decode_design(io.read_bytes(self.design, DESIGN_FILE), DESIGN_FILE)
        records = read_all(io, unit)
        swarm = swarm_of(records, design.components)
        said = signals(swarm, unit.fields["unigrams"])
        need_signal(said, self.counted or swarm.targets, self.proxy)
        fits = fit_swarm(swarm, self.seed, self.families)
        found = described(swarm, fits) | {
            "effects": plain([asdict(effect) for effect in effects_of(design, records, swarm)]),
            "signals": plain([asdict(signal) for signal in said]),
        }
        io.write_bytes(FIT_FILE, canonical(found), rows=len(found["table"]))
        stacks = {row["target"]: row for row in found["table"] if row["family"] == "stack"}
        kept = ("runs", "mixtures")
        quality = {name: {key: row[key] for key in ("rho", "regret")} for name, row in stacks.items()}
        return io.result(extra={**{key: found[key] for key in kept}, "fit": quality})


@dataclass(frozen=True)
class Propose(SetOperation):
    """Candidates with what the fits expect of them, and the runs that would show them better than the baselines."""

    stats: str
    runs: tuple[str, ...]
    caps: Caps
    families: tuple[str, ...] | None
    count: int
    seeds: int
    current: dict[str, float] | None
    seed: int

    version: ClassVar[int] = 2
    libraries: ClassVar[tuple[str, ...]] = LIBRARIES

    def units(self, inputs: Inputs) -> list[Unit]:
        return [one_unit(inputs, *self.runs)]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        from corpusmill.mixing.design import verification
        from corpusmill.mixing.fit import fit_swarm
        from corpusmill.mixing.propose import propose

        study = read_study(io, self.stats)
        swarm = swarm_of(read_all(io, unit), study.names, study.target_names)
        fits = fit_swarm(swarm, self.seed, self.families, control=False)
        baselines = _different(study.baselines(self.caps, self.current))
        weights = {name: np.array(ppb) / PPB for name, ppb in baselines.items()}
        prior = next(iter(weights.values()))
        proposal = propose(
            fits,
            swarm,
            study.bounds(self.caps),
            prior,
            [target.weight for target in study.targets],
            weights,
            [target.allowed for target in study.targets],
            self.count,
            self.seed,
        )
        candidates = {
            each.name: each.weights_ppb
            for each in proposal.candidates
            if each.weights_ppb not in baselines.values()
        }
        made = verification(study.names, candidates, baselines, self.seeds, self.seed)
        written = canonical(proposed(proposal, fits, prior))
        io.write_bytes(PROPOSAL_FILE, written, rows=len(candidates))
        extra = {"design": asdict(made), "candidates": candidates, "baselines": baselines}
        return io.result(rows=len(candidates), extra=extra)


def _different(baselines: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Without those that are the same mixture as one before."""
    found: dict[str, tuple[int, ...]] = {}
    for name, ppb in baselines.items():
        if ppb not in found.values():
            found[name] = ppb
    return found


@dataclass(frozen=True)
class Judge(SetOperation):
    """The verdict, and the weights that ship."""

    stats: str
    propose: str
    fit: str
    trials: str
    sizes: tuple[Proxy, ...]

    version: ClassVar[int] = 2
    libraries: ClassVar[tuple[str, ...]] = LIBRARIES

    def units(self, inputs: Inputs) -> list[Unit]:
        (proposed,) = inputs.results(self.propose).values()
        (fitted,) = inputs.results(self.fit).values()
        mixtures = {name: proposed.extra[name] for name in ("candidates", "baselines")}
        sizes: list[list[int]] = [[] for _ in self.sizes]
        for number, result in sorted(inputs.results(self.trials).items()):
            sizes[result.extra["proxy"]].append(number)
        fields = {**mixtures, "fit": fitted.extra, "sizes": sizes}
        return [replace(one_unit(inputs, self.trials), fields=fields)]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        from corpusmill.mixing.gains import trials_of
        from corpusmill.mixing.threads import one_thread
        from corpusmill.mixing.verify import Blame, verify

        study = read_study(io, self.stats)
        proposal = json.loads(io.read_bytes(self.propose, PROPOSAL_FILE))
        candidates, baselines = (
            {name: tuple(ppb) for name, ppb in unit.fields[kind].items()}
            for kind in ("candidates", "baselines")
        )
        mixtures = {**baselines, **candidates}
        trials = [
            trials_of(read_runs(io, self.trials, parts), mixtures, proxy.title)
            for proxy, parts in zip(self.sizes, unit.fields["sizes"], strict=True)
        ]
        importance = {target.name: target.weight for target in study.targets}
        if not candidates:
            best = min(baselines, key=lambda name: (trials[-1].loss(name, importance), name))
            reason = "the fits propose nothing but baselines"
            return self._shipped(
                baselines[best],
                study,
                unit,
                io,
                {"verdict": "no_evidence", "weights": best, "reason": reason},
                {},
            )
        blame = Blame(
            study.names,
            {name: np.array(ppb) / PPB for name, ppb in mixtures.items()},
            {target: np.array(slopes) for target, slopes in proposal["effects"].items()},
        )
        predicted = {
            each["name"]: each["total"] for each in (*proposal["baselines"], *proposal["candidates"])
        }
        with one_thread():
            verdict = verify(trials, list(candidates), list(baselines), study.targets, blame, predicted)
        if all(proxy.kind == "screen" for proxy in self.sizes) and verdict.verdict == "verified":
            verdict = replace(
                verdict,
                verdict="no_evidence",
                ship=verdict.baseline,
                reason=f"{SCREEN_ALONE} ({verdict.reason})",
            )
        return self._shipped(mixtures[verdict.ship], study, unit, io, verdict.evidence(), verdict.as_dict())

    def _shipped(
        self,
        ppb: tuple[int, ...],
        study: Study,
        unit: Unit,
        io: TaskIO,
        evidence: Mapping[str, Any],
        verdict: Mapping[str, Any],
    ) -> Result:
        said = {**evidence, **unit.fields["fit"], "verified_on": [proxy.title for proxy in self.sizes]}
        weights = dict(zip(study.names, ppb, strict=True))
        written = {"verdict": evidence["verdict"], "weights_ppb": weights, "evidence": said, **verdict}
        io.write_bytes(VERDICT_FILE, canonical(plain(written)))
        # A plan counts whole epochs: what a component may be read beyond them its bounds keep from it.
        epochs = {each.name: math.ceil(each.max_epochs) for each in study.components}
        kinds = {
            each.name: [each.synthetic, each.generation]
            for each in study.components
            if each.synthetic != "none"
        }
        extra = {"weights_ppb": weights, "max_epochs": epochs, "evidence": plain(said), "kinds": kinds}
        return io.result(extra=extra)
