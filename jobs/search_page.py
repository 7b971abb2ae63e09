"""The report of a search as one page: no scripts, nothing fetched, all that comes from data escaped.

It opens from a disk and can be sent by mail. Its content security policy lets in nothing but the one style sheet, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

from corpusmill.jobs import search_sections
from corpusmill.jobs.search_charts import bar
from corpusmill.jobs.search_html import section, t, table
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


def page_of(report: Found) -> str:
    """HTML of a report (search_report.py)."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    sections = (
        _verdict(report),
        _warnings(report),
        section("Weights", _weights(report)),
        section("Gains", search_sections.gains(report)),
        section("Each component left out and boosted", search_sections.ablation(report)),
        section("Predicted and measured", search_sections.fits(report)),
        section("Loss against weight", search_sections.curves(report)),
        section("What it cost", _cost(report)),
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


def _verdict(report: Found) -> str:
    evidence = report["verdict"]["evidence"]
    word = evidence["verdict"]
    seen = " and ".join(t(size) for size in evidence["verified_on"])
    facts = f"<p>{t(evidence['reason'])}</p><p>Ships: <strong>{t(evidence['weights'])}</strong>. Proxies of the verdict: {seen}."
    runs = f" Runs of the design: {evidence['runs']} on {evidence['mixtures']} mixtures.</p>"
    return f'<h1>Mixture weights</h1><div class="verdict {t(word)}"><p class="word">{t(word)}</p><p>{MEANS.get(word, "")}</p>{facts}{runs}</div>'


def _warnings(report: Found) -> str:
    if not report["warnings"]:
        return section("What speaks against it", "<p>Nothing that the figures could show.</p>")
    items = "".join(
        f"<li><code>{t(each['kind'])}</code> {_about(each['about'])}{t(each['text'])}</li>"
        for each in report["warnings"]
    )
    return section("What speaks against it", f"<ul>{items}</ul>")


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
