"""What a search found, for people: the tables of `corpusmill mix stats|design|run|fit|propose|verify`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from corpusmill.jobs.searches import Found, read_verdict
from corpusmill.jobs.tables import beside, interval, table_lines
from corpusmill.shards.mixture import PPB

if TYPE_CHECKING:
    from corpusmill.pipeline.run import Run

MOST_COLUMNS = 8
"""Components whose weights a table of mixtures spells out; of more, the largest."""


def stats_lines(found: Found) -> list[str]:
    budget = found["budget_tokens"]
    total = sum(each["tokens"] for each in found["components"])
    rows = [
        {
            "component": each["name"],
            "tokens": f"{each['tokens']:,}",
            "share": _percent(each["tokens"] / total),
            "bytes/token": f"{each['bytes'] / max(1, each['tokens']):.2f}",
            "kind": each["synthetic"]
            if not each["generation"]
            else f"{each['synthetic']} {each['generation']}",
            "max epochs": f"{each['max_epochs']:g}",
            "most weight": _percent(min(each["most"], each["max_epochs"] * each["tokens"] / budget)),
            "least": _percent(each["least"]),
            "protected": "yes" if each["protected"] else "",
            "copies": _copies(found["clusters"].get(each["name"])),
        }
        for each in found["components"]
    ]
    targets = [
        {
            "target": each["name"],
            "importance": f"{each['weight']:g}",
            "tokens": f"{each['tokens']:,}",
            "bytes": f"{each['bytes']:,}",
            "floor": _floor(each),
        }
        for each in found["targets"]
    ]
    return [
        *table_lines(rows, False),
        f"budget: {budget:,} tokens, {budget / total:.2f} times what there is",
        "",
        *table_lines(targets, False),
        *distance_lines(found["distances"]),
    ]


def _copies(clusters: Mapping[str, Any] | None) -> str:
    """How many documents of the input one of the component stands for; nothing where no dedup said it."""
    return f"{clusters['mean_size']:.2f}, at most {clusters['largest']}" if clusters else ""


def distance_lines(distances: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """How far each synthetic component is from natural text, which stands in brackets behind each figure."""
    rows = [
        {
            "synthetic": name,
            "natural": ", ".join(each["against"]),
            "told apart": _beside(each["auc"]),
            "different words": _beside({side: values[0] for side, values in each["distinct"].items()}),
            "pairs": _beside({side: values[1] for side, values in each["distinct"].items()}),
            "repeated": _beside(each["self_repetition"]),
        }
        for name, each in distances.items()
        if "unknown" not in each
    ]
    unknown = [f"{name}: {each['unknown']}" for name, each in distances.items() if "unknown" in each]
    if rows:
        about = "told apart: 0.5 a classifier cannot, 1 always; words and pairs: different ones to all; repeated: 4-grams that other documents have too; (natural text)"
        return ["", *table_lines(rows, False), about, *unknown]
    return ["", *unknown] if unknown else []


def _beside(values: Mapping[str, float]) -> str:
    return f"{values['synthetic']:.3f} ({values['natural']:.3f})"


def _floor(target: Mapping[str, Any]) -> str:
    if target["worsening"] is not None:
        return f"may get {target['worsening']:g} bits per byte worse"
    return "may not get worse" if target["protected"] else ""


def design_lines(found: Found) -> list[str]:
    rows = [
        {
            "run": each["name"],
            "role": each["role"],
            "seed": each["seed"],
            **_weights(found["components"], each["weights_ppb"], _shown(found["components"], found["runs"])),
        }
        for each in found["runs"]
    ]
    return [*table_lines(rows, False), *found["notes"]]


def _shown(components: Sequence[str], mixtures: Sequence[Mapping[str, Any]]) -> list[int]:
    """Places of the components that a table has room for: those with the most weight anywhere."""
    most = [max(each["weights_ppb"][place] for each in mixtures) for place in range(len(components))]
    order = sorted(range(len(components)), key=lambda place: (-most[place], place))
    return sorted(order[:MOST_COLUMNS])


def _weights(components: Sequence[str], ppb: Sequence[int], shown: Iterable[int]) -> dict[str, str]:
    own = ("run", "role", "seed")
    return {beside(components[place], own): _percent(ppb[place] / PPB) for place in shown}


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def records_lines(found: Found) -> list[str]:
    runs: dict[str, dict[str, Any]] = {}
    for each in found["records"]:
        row = runs.setdefault(each["run"], {"run": each["run"], "seed": each["seed"]})
        row[beside(each["target"], ("run", "seed"))] = f"{each['bits_per_byte']:.4f}"
    return [*table_lines(runs.values(), False), "bits per byte, lower is better"]


def fit_lines(found: Found) -> list[str]:
    rows = [
        {
            "target": each["target"],
            "family": each["family"],
            "share": _percent(each["share"]),
            **{key: _number(each[key]) for key in ("rho", "rmse", "skill", "regret", "optimism", "control")},
        }
        for each in found["table"]
    ]
    lines = [
        *table_lines(rows, False),
        "on mixtures a fit had not seen; share: of the stack; rho: rank correlation; rmse, regret, optimism: in the unit of the losses; control: rho on shuffled losses",
    ]
    lines += [f"{family} was not fitted: {reason}" for family, reason in found["left_out"].items()]
    lines += [_noise_line(target, found) for target in found["targets"]]
    if found.get("effects"):
        lines += ["", *effect_lines(found["effects"])]
    return lines


def _noise_line(target: str, found: Found) -> str:
    noise, spread = found["noise"][target], found["spread"][target]
    if noise is None:
        return f"{target}: no mixture was repeated, so nobody knows how much a run scatters"
    verdict = (
        ""
        if spread > 2 * noise
        else ": mixtures differ hardly more than seeds do, train longer or larger proxies"
    )
    return f"{target}: mixtures differ by {spread:.4f} (standard deviation), seeds by {noise:.4f}{verdict}"


def effect_lines(effects: Sequence[Mapping[str, Any]]) -> list[str]:
    """The ablation table: a row a component and way, a column a target."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for each in effects:
        row = rows.setdefault(
            (each["component"], each["way"]),
            {
                "component": each["component"],
                "weight": f"{_percent(each['before'])} -> {_percent(each['after'])}",
            },
        )
        row[beside(each["target"], ("component", "weight"))] = interval(
            each["change"], each["low"], each["high"]
        )
    return [
        *table_lines(rows.values(), False),
        "change of bits per byte (+: worse) and its 95 % interval; one comparison in twenty lies outside by chance",
    ]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def proposal_lines(found: Found) -> list[str]:
    mixtures = [*found["baselines"], *found["candidates"]]
    names = [each["name"] for each in mixtures]
    shown = _shown(found["components"], mixtures)
    epochs_of = found.get("epochs_of")
    rows = []
    for place in shown:
        name = found["components"][place]
        row = {"component": name}
        for each in mixtures:
            share = each["weights_ppb"][place] / PPB
            row[each["name"]] = _percent(share) + (f", {share * epochs_of[name]:.2f} ep" if epochs_of else "")
        rows.append(row)
    rows.append(
        {
            "component": "expected loss",
            **{n: _number(e["total"]) for n, e in zip(names, mixtures, strict=True)},
        }
    )
    rows.append(
        {
            "component": "  give or take",
            **{n: _number(e["spread"]) for n, e in zip(names, mixtures, strict=True)},
        }
    )
    lines = [*table_lines(rows, False), "lower is better; ep: epochs" if epochs_of else "lower is better"]
    lines += [f"{each['name']}: {each['how']}" for each in found["candidates"]]
    free = found["unguarded"]
    wish = sorted(zip(found["components"], free["weights_ppb"], strict=True), key=lambda each: -each[1])[:3]
    said = ", ".join(f"{name} {_percent(ppb / PPB)}" for name, ppb in wish)
    return [
        *lines,
        f"without limits and guards the fits would take {said}, {free['distance']:.2f} from the nearest run (sqrt of weights): a diagnostic, not a candidate",
    ]


GAINS = "gain: bits per byte less than the baseline (+: better) and its 95 % interval"


def verdict_lines(found: Found) -> list[str]:
    rows = [
        {
            "proxy": each["size"],
            "candidate": each["candidate"],
            "against": each["baseline"],
            "target": each["target"] or "all",
            "gain": interval(each["gain"], each["low"], each["high"]),
            "seeds": each["seeds"],
        }
        for each in found.get("gains", [])
    ]
    promised = [
        f"{each['mixture']}: the fit promised {each['predicted']:+.4f}, measured {interval(each['measured'], each['low'], each['high'])}"
        for each in found.get("promises", [])
    ]
    judged = [f"{each['candidate']}: {each['verdict']}: {each['reason']}" for each in found.get("judged", [])]
    evidence = found["evidence"]
    weights = ", ".join(f"{name} {_percent(ppb / PPB)}" for name, ppb in found["weights_ppb"].items())
    return [
        *([*table_lines(rows, False), GAINS] if rows else ()),
        *promised,
        *judged,
        "",
        f"verdict: {evidence['verdict']}: {evidence['reason']}",
        f"ships: {evidence['weights']}: {weights}",
    ]


def applied_lines(run: Run, name: str) -> list[str]:
    return [
        *verdict_lines(read_verdict(run, name)),
        f"written: {run.out / 'mixture.yaml'}, {run.out / 'shards/plan.json'}",
    ]


LINES: dict[str, Callable[[Found], list[str]]] = {
    "stats": stats_lines,
    "design": design_lines,
    "run": records_lines,
    "fit": fit_lines,
    "propose": proposal_lines,
    "verify": verdict_lines,
}
