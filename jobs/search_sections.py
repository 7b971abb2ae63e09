"""Sections of a search's report with charts: gains, the ablation table, fits, loss against weight."""

from __future__ import annotations

from typing import Any

from corpusmill.jobs.search_charts import Interval, Point, forest, scatter
from corpusmill.jobs.search_html import t, table
from corpusmill.shards.mixture import PPB

Found = dict[str, Any]

WAYS = {"without": "left out", "more": "boosted"}

MOST_CHARTS = 24
"""Of a kind: with 600 runs each is 80 kB of page."""


def gains(report: Found) -> str:
    verdict = report["verdict"]
    found = verdict.get("gains", ())
    if not found:
        return "<p>Nothing but baselines was proposed, so there was nothing to compare.</p>"
    sizes = verdict["evidence"]["verified_on"]
    parts = []
    for candidate in dict.fromkeys(each["candidate"] for each in found):
        own = [each for each in found if each["candidate"] == candidate]
        shown = sorted(own, key=lambda each: (each["target"] != "", each["target"], each["baseline"]))
        rows = [
            Interval(
                f"{each['target'] or 'all, against ' + each['baseline']} ({each['size']})",
                each["gain"],
                each["low"],
                each["high"],
                "one" if each["size"] == sizes[-1] else "other",
            )
            for each in shown
        ]
        title = f"Gain of {candidate}, with 95 % intervals"
        parts.append(
            f"<h3>{t(candidate)}</h3>{forest(title, rows, 'bits per byte better than the baseline')}"
        )
    told = [
        [t(each["candidate"]), t(each["verdict"]), f"<td>{t(each['reason'])}</td>"]
        for each in verdict["judged"]
    ]
    promises = [
        [t(each["mixture"]), f"{each['predicted']:+.4f}", f"{each['measured']:+.4f}", _reach(each)]
        for each in verdict["promises"]
    ]
    return "".join(
        [
            "<p>Blue: the largest proxy, which decides. Grey: smaller ones. Single targets are compared with the best baseline.</p>",
            *parts,
            table("Each candidate's verdict", ["candidate", "verdict", "why"], told, 9),
            table(
                f"What the fit promised against {t(verdict['baseline'])}, and what came of it: the best of many predictions is too good",
                ["candidate", "promised", "measured", "interval"],
                promises,
            ),
        ]
    )


def _reach(each: Found) -> str:
    return "" if each["low"] is None or each["high"] is None else f"{each['low']:+.4f} to {each['high']:+.4f}"


def ablation(report: Found) -> str:
    effects = report["ablation"]
    if not effects:
        return "<p>The design had no such runs.</p>"
    targets = [each["name"] for each in report["targets"]]
    most = max(abs(each["change"]) for each in effects) or 1.0
    said = {(each["component"], each["way"], each["target"]): each for each in effects}
    rows = []
    for component, way in dict.fromkeys((each["component"], each["way"]) for each in effects):
        first = next(each for each in effects if (each["component"], each["way"]) == (component, way))
        move = f"{100 * first['before']:.1f} → {100 * first['after']:.1f} %"
        cells = [_heat(said.get((component, way, target)), most) for target in targets]
        rows.append([t(component), f"<td>{WAYS[way]}</td>", move, *cells])
    caption = (
        "Change of each target's loss (above 0: worse) against the proportional mixture with the same seed. Bold: the 95 % interval leaves out 0; "
        "one comparison in twenty does so by chance."
    )
    return table(caption, ["component", "", "weight", *map(t, targets)], rows)


def _heat(effect: Found | None, most: float) -> str:
    """A cell; its shade says what its number says."""
    if effect is None:
        return "<td></td>"
    level = round(4 * (abs(effect["change"]) / most) ** 0.5)  # one large effect leaves the others visible
    sure = effect["low"] is not None and (effect["low"] > 0 or effect["high"] < 0)
    number = f"{effect['change']:+.4f}"
    shade = f"{'worse' if effect['change'] > 0 else 'better'}{level}"
    return f'<td class="figure {shade}" title="{_reach(effect)}">{f"<strong>{number}</strong>" if sure else number}</td>'


def fits(report: Found) -> str:
    charts = []
    for target in report["targets"][:MOST_CHARTS]:
        name = target["name"]
        points = [
            Point(run["out_of_fold"][name], run["losses"][name], run["role"], f"{run['name']} (seed {run['seed']})")
            for run in report["runs"]
            if run["losses"][name] is not None and run["out_of_fold"][name] is not None
        ]  # fmt: skip
        charts.append(scatter(name, points, ("predicted without it", "measured"), diagonal=True))
    keys = ("rho", "rmse", "skill", "regret", "optimism", "control")
    rows = [
        [t(each["target"]), f"<td>{t(each['family'])}</td>", f"{100 * each['share']:.0f} %"]
        + ["" if each[key] is None else f"{each[key]:.4f}" for key in keys]
        for each in report["fits"]
    ]
    stacks = [row for row, each in zip(rows, report["fits"], strict=True) if each["family"] == "stack"]
    heads = ["target", "family", "share", *keys]
    left = "".join(
        f"<p>{t(family)} was not fitted: {t(why)}</p>" for family, why in report["left_out"].items()
    )
    return (
        f'<p>Every run of the design, predicted by fits that had not seen its mixture. Red: baselines, orange: repeats with other seeds.</p><div class="charts">{"".join(charts)}</div>'
        + _rest(len(report["targets"]), "targets")
        + table("The stack, out of fold", heads, stacks)
        + f"<details><summary>All families</summary>{table('All families, out of fold', heads, rows)}</details>{left}"
    )


def curves(report: Found) -> str:
    charts = []
    shipped = report["verdict"]["weights_ppb"]
    order = sorted(enumerate(report["components"]), key=lambda each: -shipped[each[1]["name"]])
    for place, each in sorted(order[:MOST_CHARTS], key=lambda each: each[0]):
        points = [
            Point(100 * run["weights_ppb"][place] / PPB, run["total"], run["role"], f"{run['name']} (seed {run['seed']})")
            for run in report["runs"]
            if run["total"] is not None
        ]  # fmt: skip
        curve = [(100 * point["weight"], point["total"]) for point in report["curves"][each["name"]]]
        charts.append(scatter(each["name"], points, ("weight, %", "total"), curve))
    return (
        "<p>Dots are runs as they were measured, with all else that differed between them. The line is what the fits say when this component's"
        f' weight moves and the others keep their proportions.</p><div class="charts">{"".join(charts)}</div>'
        + _rest(len(report["components"]), "components, those that ship with the most weight")
    )


def _rest(count: int, what: str) -> str:
    """What a page has no room for."""
    return (
        f"<p>{MOST_CHARTS} of {count} {what}; the others are in the JSON.</p>" if count > MOST_CHARTS else ""
    )
