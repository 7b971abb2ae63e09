"""The report of a search as one page: no scripts, nothing fetched, all that comes from data escaped.

It opens from a disk and can be sent by mail. Its content security policy lets in nothing but the one style sheet, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from corpusmill.jobs.search_charts import Interval, Point, bar, forest, scatter
from corpusmill.jobs.search_report import report_of
from corpusmill.jobs.search_style import STYLE
from corpusmill.shards.mixture import PPB

if TYPE_CHECKING:
    from corpusmill.pipeline.engine.place import Place
    from corpusmill.pipeline.run import Run

Found = dict[str, Any]

REPORTS = "reports"  # below OUT

MEANS = {
    "verified": "A candidate was better than every baseline at the largest proxy, corrected for all comparisons. It ships.",
    "no_evidence": "No candidate was shown to be better than every baseline, so the best baseline ships. That is a result.",
    "refused": "What was proposed lowers a target beyond what is allowed. The best baseline ships.",
    "order_flips": "One size of proxy says better, another worse, so neither is trusted. The best baseline ships.",
}

WAYS = {"without": "left out", "more": "boosted"}


def page_of(report: Found) -> str:
    """HTML of a report (search_report.py)."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    sections = (
        _verdict(report),
        _warnings(report),
        _section("Weights", _weights(report)),
        _section("Gains", _gains(report)),
        _section("Each component left out and boosted", _ablation(report)),
        _section("Predicted and measured", _fits(report)),
        _section("Loss against weight", _curves(report)),
        _section("What it cost", _cost(report)),
    )
    word = t(report["verdict"]["evidence"]["verdict"])
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>Mixture weights: {word}</title>'
        f"<style>{STYLE}</style></head>\n<body><main>\n" + "\n".join(sections) + "\n</main></body></html>\n"
    )


def write_report(run: Run, name: str) -> tuple[Found, tuple[Place, Place]]:
    """OUT/reports/<name>.json and .html of a search whose mix stage is called `name`; the report, and where both are."""
    report = report_of(run, name)
    data, page = (run.out / REPORTS / f"{name}.{kind}" for kind in ("json", "html"))
    data.put(json.dumps(report, indent=1, ensure_ascii=False).encode() + b"\n")
    page.put(page_of(report).encode())
    return report, (data, page)


def t(value: object) -> str:
    """Text from data."""
    return escape(str(value), quote=True)


def _section(title: str, body: str) -> str:
    return f"<section><h2>{title}</h2>{body}</section>"


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], figures: int = 1) -> str:
    """Cells are HTML already. The first cell names its row; columns from `figures` on hold figures."""
    head = "".join(
        f'<th scope="col"{" class=figure" if place >= figures else ""}>{each}</th>'
        for place, each in enumerate(heads)
    )
    body = []
    for row in rows:
        cells = "".join(
            each
            if each.startswith("<td")
            else f"<td{' class=figure' if place >= figures else ''}>{each}</td>"
            for place, each in enumerate(row[1:], 1)
        )
        body.append(f'<tr><th scope="row">{row[0]}</th>{cells}</tr>')
    return (
        f'<div class="wide"><table><caption>{caption}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _verdict(report: Found) -> str:
    evidence = report["verdict"]["evidence"]
    word = evidence["verdict"]
    seen = " and ".join(t(size) for size in evidence["verified_on"])
    facts = f"<p>{t(evidence['reason'])}</p><p>Ships: <strong>{t(evidence['weights'])}</strong>. Proxies of the verdict: {seen}."
    runs = f" Runs of the design: {evidence['runs']} on {evidence['mixtures']} mixtures.</p>"
    return f'<h1>Mixture weights</h1><div class="verdict {t(word)}"><p class="word">{t(word)}</p><p>{MEANS.get(word, "")}</p>{facts}{runs}</div>'


def _warnings(report: Found) -> str:
    if not report["warnings"]:
        return _section("What speaks against it", "<p>Nothing that the figures could show.</p>")
    items = "".join(
        f"<li><code>{t(each['kind'])}</code> {_about(each['about'])}{t(each['text'])}</li>"
        for each in report["warnings"]
    )
    return _section("What speaks against it", f"<ul>{items}</ul>")


def _about(name: str) -> str:
    return f"<strong>{t(name)}</strong>: " if name else ""


def _weights(report: Found) -> str:
    mixtures = report["mixtures"]
    heads = ["component", "tokens", "kind"] + [
        f"{t(each['name'])}{' (ships)' if each['ships'] else ''}<br><small>{each['kind']}</small>"
        for each in mixtures
    ]
    most = max((ppb for each in mixtures for ppb in each["weights_ppb"].values()), default=PPB) or PPB
    rows = []
    for each in report["components"]:
        kind = "natural" if each["synthetic"] == "none" else f"{each['synthetic']} {each['generation']}"
        cells = [
            f"{bar(mixture['weights_ppb'][each['name']] / most)}<br>{100 * mixture['weights_ppb'][each['name']] / PPB:.2f} %"
            f" <small>{each['epochs'][mixture['name']]:.2f} ep</small>"
            for mixture in mixtures
        ]
        kind += ", protected" if each["protected"] else ""
        rows.append([t(each["name"]), f"{each['tokens']:,}", t(kind), *cells])
    losses = [["expected loss", "", "", *(_loss(each["predicted"], each["spread"]) for each in mixtures)]]
    for size in report["verdict"]["evidence"]["verified_on"]:
        measured = [_loss(each["measured"].get(size)) for each in mixtures]
        losses.append([f"measured, {t(size)}", "", "", *measured])
    budget = f"{report['budget_tokens']:,} tokens are to be read; ep: how often a component is read. Losses: {t(report['unit'])}, lower is better."
    return table(budget, heads, [*rows, *losses])


def _loss(value: float | None, spread: float | None = None) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" + ("" if spread is None else f" <small>± {spread:.4f}</small>")


def _gains(report: Found) -> str:
    verdict = report["verdict"]
    gains = verdict.get("gains", ())
    if not gains:
        return "<p>Nothing but baselines was proposed, so there was nothing to compare.</p>"
    sizes = verdict["evidence"]["verified_on"]
    parts = []
    for candidate in dict.fromkeys(each["candidate"] for each in gains):
        own = [each for each in gains if each["candidate"] == candidate]
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


def _ablation(report: Found) -> str:
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
    level = round(
        4 * (abs(effect["change"]) / most) ** 0.5
    )  # so that one large effect leaves the others visible
    sure = effect["low"] is not None and (effect["low"] > 0 or effect["high"] < 0)
    number = f"{effect['change']:+.4f}"
    shade = f"{'worse' if effect['change'] > 0 else 'better'}{level}"
    return f'<td class="figure {shade}" title="{_reach(effect)}">{f"<strong>{number}</strong>" if sure else number}</td>'


def _fits(report: Found) -> str:
    charts = []
    for target in report["targets"]:
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
        + table("The stack, out of fold", heads, stacks)
        + f"<details><summary>All families</summary>{table('All families, out of fold', heads, rows)}</details>{left}"
    )


def _curves(report: Found) -> str:
    charts = []
    for place, each in enumerate(report["components"]):
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
    )


def _cost(report: Found) -> str:
    rows = [
        [
            t(each["stage"]),
            f"{each['units']:,}",
            f"{each['cpu_seconds']:,.1f}",
            f"{each['cpu_seconds_a_unit']:.2f}",
            f"{each['peak_bytes'] / 1e6:,.0f} MB",
        ]
        for each in report["cost"]
    ]
    total = sum(each["cpu_seconds"] for each in report["cost"])
    return table(
        f"{total:,.0f} CPU seconds in all. In mix.runs, mix.runs2 and mix.trials a unit is a proxy run.",
        ["stage", "units", "CPU s", "CPU s a unit", "memory"],
        rows,
    )
