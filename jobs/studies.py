"""Searches without a recipe: a folder with the runs of another trainer, fitted and proposed from.

FOLDER/runs.parquet     `corpusmill mix import` writes it (mixing/records.py)
FOLDER/study.json       optional, by hand: components with their sizes and limits, targets with their importance (mixing/study.py)
FOLDER/fit.json, proposal.json     `corpusmill mix fit FOLDER`, `mix propose FOLDER`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from corpusmill.mixing.caps import bounds_of
from corpusmill.mixing.constraints import Bounds, check, simplex
from corpusmill.mixing.design import baseline_weights
from corpusmill.mixing.fit import Fits, fit_swarm
from corpusmill.mixing.imported import import_runs
from corpusmill.mixing.propose import propose
from corpusmill.mixing.records import encode_records, read_records, swarm_of
from corpusmill.mixing.search_fit import FIT_FILE, PROPOSAL_FILE, described, proposed
from corpusmill.mixing.search_study import STUDY_FILE
from corpusmill.mixing.study import Component, Target, decode_study
from corpusmill.mixing.swarm import Floats, Swarm
from corpusmill.pipeline.engine.results import canonical
from corpusmill.pipeline.engine.store import put
from corpusmill.pipeline.errors import InputError

RUNS_FILE = "runs.parquet"

SEED = 17

CANDIDATES = 3


def import_into(file: Path, losses: Path | None, folder: Path, unit: str) -> str:
    """Runs of CSV files into the folder; what to do next."""
    records = import_runs(file, losses, unit=unit)
    put(folder / RUNS_FILE, encode_records(records))
    runs, targets = ({getattr(record, name) for record in records} for name in ("run", "target"))
    components = len(records[0].components)
    return (
        f"{len(runs)} runs of {components} components on {len(targets)} targets: {folder / RUNS_FILE}\n"
        f"next: corpusmill mix fit {folder}"
    )


def fit_folder(folder: Path) -> dict[str, Any]:
    swarm, _, _ = _opened(folder)
    found = described(swarm, fit_swarm(swarm, SEED))
    put(folder / FIT_FILE, canonical(found))
    return found


def propose_folder(folder: Path) -> dict[str, Any]:
    """Without a study every mixture is allowed, the prior is the mean of the runs, and all targets count the same."""
    swarm, components, targets = _opened(folder)
    fits: Fits = fit_swarm(swarm, SEED, control=False)
    bounds = bounds_of(components, None) if components else simplex(swarm.components)
    check(bounds)
    baselines = _baselines(swarm, components, bounds)
    prior = next(iter(baselines.values()))
    of_name = {target.name: target for target in targets}
    aims = [of_name.get(name, Target(name)) for name in swarm.targets]
    proposal = propose(
        fits,
        swarm,
        bounds,
        prior,
        [aim.weight for aim in aims],
        baselines,
        [aim.allowed for aim in aims],
        CANDIDATES,
        SEED,
    )
    found = proposed(proposal, fits, prior)
    put(folder / PROPOSAL_FILE, canonical(found))
    return found


def _opened(folder: Path) -> tuple[Swarm, tuple[Component, ...], tuple[Target, ...]]:
    records = read_records(folder / RUNS_FILE)
    path = folder / STUDY_FILE
    if not path.is_file():
        return swarm_of(records), (), ()
    components, targets = decode_study(path.read_bytes(), str(path))
    for target in targets:
        if target.name not in {record.target for record in records}:
            raise InputError(f"{path}: no run has measured target {target.name!r}")
    return swarm_of(records, [each.name for each in components]), components, targets


def _baselines(swarm: Swarm, components: tuple[Component, ...], bounds: Bounds) -> dict[str, Floats]:
    if components:
        made = baseline_weights(components, bounds)
        return {name: np.array(made[name]) / 1e9 for name in ("proportional", "uniform")}
    count = len(swarm.components)
    return {"mean of the runs": swarm.weights.mean(axis=0), "uniform": np.full(count, 1 / count)}
