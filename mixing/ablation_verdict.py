"""The verdict of an ablation of recipes (mixing/ablation.py): by how much one is better than the other, on each target and on those that count.

The better recipe is named when the 95 % interval of the gain, over seeds and documents (mixing/gains.py), leaves no doubt; else
the word is `no_evidence`. So it is when models have not begun to learn: their order would look like one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from corpusmill.mixing.ablation_runs import whole
from corpusmill.mixing.ablation_sides import SIDES, shards_of
from corpusmill.mixing.search_fit import plain
from corpusmill.mixing.search_records import read_runs
from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.engine.results import canonical
from corpusmill.pipeline.engine.stage import Inputs, Result, SetOperation, TaskIO, Unit
from corpusmill.shards.layout import read_manifest
from corpusmill.shards.mixture import PPB

if TYPE_CHECKING:
    from corpusmill.mixing.gains import Gain, Trials

ABLATION_FILE = "ablation.json"


@dataclass(frozen=True)
class Compare(SetOperation):
    """The gain of B over A on each target and on those that count together, and what follows."""

    sides: str
    runs: str
    a: str
    b: str

    libraries: ClassVar[tuple[str, ...]] = ("numpy", "scipy")

    def units(self, inputs: Inputs) -> list[Unit]:
        counts: dict[str, int] = {}
        for result in inputs.results(self.sides).values():
            for name, count in result.counts.items():
                counts[name] = counts.get(name, 0) + count
        hashes = [
            {
                name: read_manifest(inputs.root / inputs.folder(stage) / slug).hash
                for name, slug in shards_of(inputs, stage).items()
            }
            for stage in (self.a, self.b)
        ]
        runs = inputs.results(self.runs)
        first = {result.extra["side"]: result.extra for _, result in sorted(runs.items(), reverse=True)}
        fields = {
            "documents": counts,
            "same": hashes[0] == hashes[1],
            "targets": {each["name"]: each["counts"] for each in first["a"]["targets"]},
            "unigrams": first["a"]["unigrams"],
            "sides": {side: {key: first[side][key] for key in ("tokens", "epochs")} for side in SIDES},
        }
        return [Unit(0, 1, fields, tuple(sorted(runs)))]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        from corpusmill.mixing.gains import gain, trials_of
        from corpusmill.mixing.threads import one_thread

        fields = unit.fields
        records = read_runs(io, self.runs, unit.parts)
        trials = trials_of(records, {name: whole(side, PPB) for side, name in SIDES.items()}, "")
        importance = {name: float(counts) for name, counts in fields["targets"].items()}
        with one_thread():
            total = gain(trials, "B", "A", importance)
            single = [gain(trials, "B", "A", importance, target) for target in importance]
            verdict, reason = verdict_of(trials, total, fields)
        found = plain(
            {
                "verdict": verdict,
                "reason": reason,
                "gain": _described(total, trials, importance, fields),
                "targets": [
                    _described(each, trials, {each.target: 1.0}, fields) | {"target": each.target}
                    for each in single
                ],
                "kept_by_both": fields["documents"]["both"],
                "recipes": {
                    name: {
                        "documents": fields["documents"][side],
                        **fields["sides"][side],
                        "trained_tokens": max(record.realised_tokens[place] for record in records),
                    }
                    for place, (side, name) in enumerate(SIDES.items())
                },
                "seeds": total.seeds,
            }
        )
        io.write_bytes(ABLATION_FILE, canonical(found))
        return io.result(extra={"verdict": verdict})


def _described(
    found: Gain, trials: Trials, importance: Mapping[str, float], fields: Mapping[str, Any]
) -> dict[str, Any]:
    shown = {
        key: value for key, value in asdict(found).items() if key in ("gain", "low", "high", "documents")
    }
    shown |= {name: trials.loss(name, importance) for name in SIDES.values()}
    if found.target:
        shown |= {"counts": fields["targets"][found.target], "unigrams": fields["unigrams"][found.target]}
    return shown


def verdict_of(trials: Trials, total: Gain, fields: Mapping[str, Any]) -> tuple[str, str]:
    """The recipe that is better beyond the interval, if one is; why, for people."""
    from corpusmill.mixing.gains import gain
    from corpusmill.mixing.verify import advice

    counted = {name: 1.0 for name, counts in fields["targets"].items() if counts}
    said = f"({total.low:+.4f} to {total.high:+.4f}, {total.seeds} seeds)"
    if fields["same"]:
        return "no_evidence", "both recipes keep the same text"
    if all(
        min(trials.loss(side, {name: 1.0}) for side in SIDES.values()) >= fields["unigrams"][name]
        for name in counted
    ):
        return "no_evidence", (
            "no model predicts a target better than the frequencies of its tokens alone do: they have not begun to learn, give more tokens"
        )
    if total.low > 0:
        return "B", f"B is better by {total.gain:.4f} bits per byte {said}"
    if total.high < 0:
        return "A", f"A is better by {-total.gain:.4f} bits per byte (B: {said[1:]}"
    ahead = total if total.gain > 0 else gain(trials, "A", "B", counted)
    return (
        "no_evidence",
        f"B differs by {total.gain:+.4f} bits per byte {said}, which may be chance{advice(ahead, 1)}",
    )


def read_ablation(folder: Place) -> dict[str, Any]:
    """What the last stage found."""
    found: dict[str, Any] = json.loads((folder / ABLATION_FILE).read_bytes())
    return found
