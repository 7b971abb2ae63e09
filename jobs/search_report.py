"""A search as one JSON value: what was weighed, run, fitted, proposed and verified, what it cost, and what speaks against trusting it.

    OUT/reports/mix.json    this, with schema `corpusmill/mix-report/v1` (docs/mixing.md has its keys)
    OUT/reports/mix.html    the same as a page (search_page.py)

All comes from the files of the run. Predictions out of fold are made again, as `mix.propose` does: fits are no JSON, and the same
runs give the same fit (14 targets and 34 runs: 8 CPU s). Names are a user's data and stay as they are; the page escapes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from corpusmill.jobs.search_warnings import warnings_of
from corpusmill.jobs.searches import (
    Found,
    file_of_stage,
    read_design,
    read_fit,
    read_stats,
    read_verdict,
    records_of_design,
)
from corpusmill.mixing.records import Record, decode_records, swarm_of
from corpusmill.mixing.search_fit import plain
from corpusmill.mixing.swarm import in_turn
from corpusmill.pipeline.engine.files import part_name
from corpusmill.pipeline.engine.metrics import read_lines
from corpusmill.shards.mixture import PPB

if TYPE_CHECKING:
    from corpusmill.mixing.fit import Fits, TargetFit
    from corpusmill.mixing.swarm import Floats, Swarm
    from corpusmill.pipeline.run import Run

SCHEMA = "corpusmill/mix-report/v1"

CURVE = 25
"""Points of a curve of loss against a component's weight."""


def report_of(run: Run, name: str) -> Found:
    """All of it; `name` is that of the recipe's mix stage."""
    study, verdict = read_stats(run, name), read_verdict(run, name)
    proposal: Found = file_of_stage(run, f"{name}.propose", "proposal.json")
    names = [each["name"] for each in study["components"]]
    importance = {each["name"]: each["weight"] for each in study["targets"]}
    records = records_of_design(run, name)
    swarm = swarm_of(records, names, list(importance))
    fits = _fits(run, name, swarm)
    total = np.array(list(importance.values())) / sum(importance.values())
    report: Found = {
        "schema": SCHEMA,
        "unit": swarm.unit,
        "verdict": verdict,
        "budget_tokens": study["budget_tokens"],
        "components": [_component(each, study["budget_tokens"], proposal, names) for each in study["components"]],
        "targets": [_target(each, read_fit(run, name)) for each in study["targets"]],
        "mixtures": _mixtures(proposal, names, verdict, _trials(run, name, importance)),
        "design": read_design(run, name)["notes"],
        "runs": _runs(read_design(run, name), swarm, fits, total, records),
        "fits": read_fit(run, name)["table"],
        "left_out": read_fit(run, name)["left_out"],
        "ablation": read_fit(run, name)["effects"],
        "curves": _curves(fits, swarm, names, np.array(proposal["baselines"][0]["weights_ppb"]) / PPB, total),
        "unguarded": proposal["unguarded"],
        "leaks": _leaks(run, name),
        "cost": costs(run, name),
    }  # fmt: skip
    found: Found = plain(report)
    return {**found, "warnings": warnings_of(found)}


def _fits(run: Run, name: str, swarm: Swarm) -> Fits:
    from corpusmill.mixing.fit import fit_swarm

    state = run.state.stage(f"{name}.fit")
    assert state is not None
    fields = state.own["fields"]
    return fit_swarm(swarm, fields["seed"], fields["families"], control=False)


def _component(facts: Mapping[str, Any], budget: int, proposal: Found, names: Sequence[str]) -> Found:
    """With how often it is read by each mixture."""
    place = names.index(facts["name"])
    once = budget / max(1, facts["tokens"])
    read = {
        each["name"]: each["weights_ppb"][place] / PPB * once
        for each in (*proposal["baselines"], *proposal["candidates"])
    }
    return {**facts, "epochs": read}


def _target(facts: Mapping[str, Any], fit: Found) -> Found:
    """With what its losses say (mixing/signals.py)."""
    said = next(each for each in fit["signals"] if each["target"] == facts["name"])
    return {**facts, **{key: said[key] for key in ("says", "spread", "noise", "best", "unigram")}}


def _mixtures(proposal: Found, names: Sequence[str], verdict: Found, measured: Found) -> list[Found]:
    """Baselines, then candidates: what was expected of each and what larger proxies measured."""
    return [
        {
            "name": each["name"],
            "kind": kind,
            "ships": verdict["evidence"]["weights"] == each["name"],
            "how": each["how"],
            "weights_ppb": dict(zip(names, each["weights_ppb"], strict=True)),
            "predicted": each["total"],
            "spread": each["spread"],
            "measured": measured.get(each["name"], {}),
        }
        for kind, found in (("baseline", proposal["baselines"]), ("candidate", proposal["candidates"]))
        for each in found
    ]


def _trials(run: Run, name: str, importance: Mapping[str, float]) -> Found:
    """Mixture -> proxy -> total loss, a mean over seeds, of the verdict's runs."""
    stage = f"{name}.trials"
    state = run.state.stage(stage)
    if state is None:
        return {}
    sums: dict[tuple[str, str], list[float]] = {}
    sizes = read_verdict(run, name)["evidence"]["verified_on"]
    for unit, result in sorted(run.manifest(stage).results.items()):
        found = decode_records((run.out / state.folder / part_name(unit)).read_bytes(), stage)
        losses = {each.target: each.bits_per_byte for each in found}
        total = sum(part * float(losses[target] or 0.0) for target, part in importance.items())
        mixture = found[0].run.rpartition(" @")[0]
        sums.setdefault((mixture, sizes[result.extra["proxy"]]), []).append(total / sum(importance.values()))
    measured: Found = {}
    for (mixture, size), totals in sums.items():
        measured.setdefault(mixture, {})[size] = sum(totals) / len(totals)
    return measured


def _runs(design: Found, swarm: Swarm, fits: Fits, total: Floats, records: Sequence[Record]) -> list[Found]:
    """Each run of the design with its losses, and what fits that had not seen its mixture say of them."""
    expected = out_of_fold(fits, swarm)
    order = sorted({record.run for record in records})  # as swarm_of has them
    realised = {record.run: list(record.realised_tokens) for record in records}
    found = []
    for each in design["runs"]:
        if each["name"] not in realised:
            continue
        row = order.index(each["name"])
        found.append(
            {
                **{key: each[key] for key in ("name", "role", "seed", "weights_ppb")},
                "realised_tokens": realised[each["name"]],
                "losses": dict(zip(swarm.targets, swarm.losses[row].tolist(), strict=True)),
                "out_of_fold": dict(zip(swarm.targets, expected[row].tolist(), strict=True)),
                "total": float(swarm.losses[row] @ total),
            }
        )
    return found


def out_of_fold(fits: Fits, swarm: Swarm) -> Floats:
    """What the stack says [runs, targets] of each run without having seen its mixture, as its scores were made; nan where it was not measured."""
    from corpusmill.mixing.threads import one_thread

    found = np.full(swarm.losses.shape, np.nan)
    with one_thread():
        for place, fit in enumerate(fits.targets):
            found[fit.rows, place] = _held_out(fit, swarm, place)
    return found


def _held_out(fit: TargetFit, swarm: Swarm, place: int) -> Floats:
    """Of the rows that measured the target."""
    from corpusmill.mixing.folds import stacked

    mixture = in_turn(swarm.groups[fit.rows])
    first = np.unique(mixture, return_index=True)[1]
    weights, fold = swarm.weights[fit.rows][first], fit.fold[first]
    predicted = {name: np.empty(len(first)) for name in fit.folds[0]}
    for number, models in enumerate(fit.folds):
        for name, model in models.items():
            predicted[name][fold == number] = model.predict(weights[fold == number])
    actual = np.bincount(mixture, swarm.losses[fit.rows, place]) / np.bincount(mixture)
    said: Floats = stacked(predicted, actual, fold)[mixture]
    return said


def _curves(
    fits: Fits, swarm: Swarm, names: Sequence[str], prior: Floats, total: Floats
) -> dict[str, list[Found]]:
    """Component -> points: the predicted total as its weight moves and the others keep the prior's proportions, as far as runs went."""
    found = {}
    for place, name in enumerate(names):
        weights = np.linspace(swarm.weights[:, place].min(), swarm.weights[:, place].max(), CURVE)
        others = prior * (np.arange(len(prior)) != place)
        if not others.sum():
            others = (np.arange(len(prior)) != place).astype(np.float64)
        mixtures = (1 - weights)[:, None] * (others / others.sum())[None]
        mixtures[:, place] = weights
        said = fits.predict(mixtures) @ total
        found[name] = [
            {"weight": weight, "total": loss}
            for weight, loss in zip(weights.tolist(), said.tolist(), strict=True)
        ]
    return found


def _leaks(run: Run, name: str) -> Found:
    """What targets have in common with components, and the limit from which a design is refused."""
    state = run.state.stage(f"{name}.design")
    assert state is not None
    found = [
        {**each, "share": each["hit_tokens"] / each["tokens"] if each["tokens"] else 0.0}
        for each in file_of_stage(run, f"{name}.design", "leaks.json")
        if each["hit_tokens"]
    ]
    order = sorted(found, key=lambda each: (-each["share"], each["target"], each["component"]))
    return {"limit": state.own["fields"]["most_overlap"], "found": order}


def costs(run: Run, name: str) -> list[Found]:
    """Of each stage of the search as it stands: tasks, units, CPU and wall seconds of workers, memory. Differs from run to run."""
    found = []
    for stage in run.state.stages:
        if not stage.name.startswith(f"{name}.") and stage.name != name:
            continue
        path = run.out / "metrics" / f"{stage.name}.jsonl"
        lines = [line for line in read_lines(path) if line.get("folder") == stage.folder]
        units = len({unit for line in lines for unit in line["units"]})
        cpu = sum(line["cpu_seconds"] for line in lines)
        found.append(
            {
                "stage": stage.name,
                "units": units,
                "cpu_seconds": round(cpu, 2),
                "seconds": round(sum(line["seconds"] for line in lines), 2),
                "cpu_seconds_a_unit": round(cpu / units, 3) if units else 0.0,
                "peak_bytes": max((int(line["peak_rss_bytes"]) for line in lines), default=0),
            }
        )
    return found
