"""`corpusmill mix report`: what a search found as JSON and as a page that is safe whatever components are called."""

from __future__ import annotations

import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from runs import corpusmill
from search_world import corpus

from corpusmill.jobs.search_charts import Interval, Point, Scale, forest, scatter
from corpusmill.jobs.search_page import page_of
from corpusmill.jobs.search_warnings import warnings_of
from corpusmill.mixing.scores import spearman
from corpusmill.shards.mixture import PPB

HOSTILE = "<script>alert(1)</script>"

SOURCES = {"web": "web", "books": HOSTILE, "code": 'code" onload="x'}

RECIPE = """
seed: 17
inputs: INPUTS
stages:
  - extract: {}
  - shard: {tokenizer: {train: bpe, vocab: 300}, sequence_length: 64, block_bytes: 1024, holdout: 0.2}
  - mix: {search: {proxy: {learnt: 500}, runs: 14, families: [quadratic, log]}}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """OUT, the report and the page."""
    folder = tmp_path_factory.mktemp("report")
    inputs = []
    for part in corpus({"web": 60, "books": 50, "code": 40}):
        path = folder / f"{part[0].source}.jsonl.gz"
        lines = [
            json.dumps({"text": one.text, "url": f"https://{one.source}.example/{one.number}"})
            for one in part
        ]
        path.write_bytes(gzip.compress("\n".join(lines).encode()))
        inputs.append({"path": str(path), "source": SOURCES[part[0].source]})
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.replace("INPUTS", json.dumps(inputs)))
    out = folder / "out"
    said = corpusmill("mix", "report", recipe, "--out", out, "--workers", "2").stdout
    assert "screen_alone: " in said and "reports/mix.html" in said
    report = json.loads((out / "reports/mix.json").read_bytes())
    return out, report, (out / "reports/mix.html").read_text(encoding="utf-8")


class Page(HTMLParser):
    """Elements with their attributes, and the text between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_names_from_data_are_text_and_nothing_else(made: tuple[Path, dict[str, Any], str]) -> None:
    page = Page(made[2])
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "iframe", "img", "object", "link", "a", "form"}
    for _, attributes in page.elements:
        assert not [key for key in attributes if key.startswith("on") or key in ("style", "href", "src")]
    assert any(HOSTILE in text for text in page.texts), "the name itself is shown"


def test_the_policy_lets_in_the_one_style_sheet(made: tuple[Path, dict[str, Any], str]) -> None:
    import base64
    import hashlib

    policy = next(
        a["content"] or ""
        for tag, a in Page(made[2]).elements
        if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none';")
    (style,) = re.findall(r"<style>(.*?)</style>", made[2], re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy


def test_tables_have_heads_and_charts_say_what_they_are(made: tuple[Path, dict[str, Any], str]) -> None:
    page = Page(made[2])
    heads = [attributes for tag, attributes in page.elements if tag == "th"]
    assert heads and all(attributes.get("scope") in ("col", "row") for attributes in heads)
    charts = [a for tag, a in page.elements if tag == "svg" and a.get("aria-hidden") != "true"]
    assert charts and all(a.get("role") == "img" and a.get("aria-label") for a in charts)
    assert sum(tag == "caption" for tag, _ in page.elements) == sum(
        tag == "table" for tag, _ in page.elements
    )
    assert next(a for tag, a in page.elements if tag == "html")["lang"] == "en"


def test_the_report_repeats_the_mixture_that_ships(made: tuple[Path, dict[str, Any], str]) -> None:
    out, report, _ = made
    mixture = yaml.safe_load((out / "mixture.yaml").read_text())
    assert report["verdict"]["evidence"] == mixture["evidence"]
    (shipped,) = [each for each in report["mixtures"] if each["ships"]]
    assert shipped["weights_ppb"] == mixture["phases"][0]["weights_ppb"]
    for each in report["mixtures"]:
        assert sum(each["weights_ppb"].values()) == PPB
    for each in report["components"]:
        # Budget over tokens, times the weight: what the mixture file derives from rows.
        assert each["epochs"][shipped["name"]] == pytest.approx(
            mixture["derived"]["epochs"][each["name"]], rel=0.05
        )


def test_predictions_out_of_fold_are_those_that_the_fit_was_judged_by(
    made: tuple[Path, dict[str, Any], str],
) -> None:
    report = made[1]
    stacks = {each["target"]: each for each in report["fits"] if each["family"] == "stack"}
    for target, stack in stacks.items():
        mixtures: dict[tuple[int, ...], list[tuple[float, float]]] = {}
        for run in report["runs"]:
            mixtures.setdefault(tuple(run["weights_ppb"]), []).append(
                (run["out_of_fold"][target], run["losses"][target])
            )
        predicted = [runs[0][0] for runs in mixtures.values()]
        actual = [sum(loss for _, loss in runs) / len(runs) for runs in mixtures.values()]
        assert len(mixtures) == stack["mixtures"] == 14
        assert spearman(predicted, actual) == pytest.approx(
            stack["rho"], abs=0.02
        )  # six digits may make ties


def test_measured_totals_differ_by_the_gains_of_the_verdict(made: tuple[Path, dict[str, Any], str]) -> None:
    report = made[1]
    measured = {each["name"]: each["measured"] for each in report["mixtures"]}
    totals = [each for each in report["verdict"]["gains"] if not each["target"]]
    assert totals
    for each in totals:
        found = measured[each["baseline"]][each["size"]] - measured[each["candidate"]][each["size"]]
        assert each["gain"] == pytest.approx(found, abs=2e-5)


def test_every_run_of_the_design_is_there_and_cost_is_counted(made: tuple[Path, dict[str, Any], str]) -> None:
    report = made[1]
    assert [each["name"] for each in report["runs"][:3]] == ["proportional", "uniform", "temperature"] or len(
        report["runs"]
    ) == 18
    cost = {each["stage"]: each for each in report["cost"]}
    assert cost["mix.runs"]["units"] + cost["mix.runs2"]["units"] == len(report["runs"])
    assert all(each["cpu_seconds"] > 0 for each in report["cost"] if each["units"])


def warned(report: dict[str, Any], **changes: Any) -> list[tuple[str, str]]:
    return [(each["kind"], each["about"]) for each in warnings_of({**report, **changes})]


def test_warnings_name_what_applies(made: tuple[Path, dict[str, Any], str]) -> None:
    report = made[1]
    assert ("screen_alone", "") in warned(report)
    first = report["targets"][0]
    noisy = [{**first, "says": "within_noise"}, *report["targets"][1:]]
    assert ("within_noise", first["name"]) in warned(report, targets=noisy)
    assert ("no_spare_target", "") in warned(report)
    spare = [{**first, "weight": 0.0}, *report["targets"][1:]]
    assert ("no_spare_target", "") not in warned(report, targets=spare)
    found = [
        {"target": "t", "component": name, "share": share} for name, share in (("web", 0.05), ("code", 0.03))
    ]
    leaks = [
        each
        for each in warnings_of({**report, "leaks": {"limit": 0.1, "found": found}})
        if each["kind"] == "leak"
    ]
    assert (
        len(leaks) == 1
        and leaks[0]["about"] == "t"
        and "5.0% of its tokens stand word for word in web" in leaks[0]["text"]
    )
    verdict = {
        **report["verdict"],
        "promises": [{"mixture": "stack", "predicted": 0.5, "measured": 0.1, "low": 0.0, "high": 0.2}],
    }
    assert ("optimism", "stack") in warned(report, verdict=verdict)
    (shipped,) = [each for each in report["mixtures"] if each["ships"]]
    full = [{**each, "max_epochs": each["epochs"][shipped["name"]]} for each in report["components"]]
    assert ("epochs", full[0]["name"]) in warned(report, components=full)


def test_a_report_of_nothing_but_baselines_has_a_page(made: tuple[Path, dict[str, Any], str]) -> None:
    evidence = {
        **made[1]["verdict"]["evidence"],
        "verdict": "no_evidence",
        "reason": "the fits propose nothing but baselines",
    }
    bare = {"evidence": evidence, "weights_ppb": made[1]["verdict"]["weights_ppb"]}
    assert "nothing to compare" in page_of({**made[1], "verdict": bare, "ablation": []})


def test_a_page_of_a_hundred_components_has_charts_of_those_that_weigh_most(
    made: tuple[Path, dict[str, Any], str],
) -> None:
    report = made[1]
    first = report["components"][0]
    many = [{**first, "name": f"c{number}", "epochs": first["epochs"]} for number in range(100)]
    weights = {f"c{number}": number for number in range(100)}
    wide = {
        **report,
        "components": many,
        "verdict": {**report["verdict"], "weights_ppb": weights},
        "mixtures": [{**each, "weights_ppb": weights} for each in report["mixtures"]],
        "runs": [{**run, "weights_ppb": list(range(100))} for run in report["runs"]],
        "curves": {name: report["curves"][first["name"]] for name in weights},
    }
    page = page_of(wide)
    assert "24 of 100 components" in page
    charts = [a["aria-label"] for tag, a in Page(page).elements if tag == "svg" and a.get("role") == "img"]
    assert "c99: total against weight, %" in charts and "c0: total against weight, %" not in charts


def test_axes_hold_all_values_also_where_they_are_equal() -> None:
    scale = Scale.of([2.0, 2.0], 0, 100)
    assert scale.at(2.0) == 50
    wide = Scale.of([-1.0, 3.0], 10, 90, room=0)
    assert (wide.at(-1.0), wide.at(3.0)) == (10, 90)
    assert wide.ticks() == pytest.approx([-1.0, 1 / 3, 5 / 3, 3.0])
    assert scale.ticks() == [2.0]
    assert Scale.of([-1.0, 3.0], 10, 90).at(-1.0) > 10, "there is room around"


def test_open_intervals_and_single_points_are_drawn() -> None:
    assert "<svg" in forest("Gain", [Interval("a", 0.1, None, None)], "bits")
    drawn = scatter(
        "x", [Point(0.5, 1.0, "anchor", HOSTILE)], ("weight", "loss"), curve=[(0.0, 1.0), (1.0, 2.0)]
    )
    assert "<script" not in drawn and "polyline" in drawn
