"""What speaks against trusting a search, by what its report says: the pitfalls of docs/mixing.md that apply to it.

Each is {"kind": ..., "about": a name or "", "text": ...}; kinds are fixed, so that programs can look for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from corpusmill.shards.mixture import PPB

Found = dict[str, Any]

FEW_DOCUMENTS = 30
FEW_RUNS = 4  # different mixtures a component
NEAR_LIMIT = 0.98
LEAK_SAID = 0.02
CONTROL = 0.5
"""Of a fit's rank correlation, from which that of fits to shuffled losses is remarkable."""


def warnings_of(report: Found) -> list[Found]:
    """In the order in which they should be read."""
    parts = (_verdict, _targets, _fits, _promises, _limits, _leaks, _scale)
    return [
        {"kind": kind, "about": about, "text": text} for part in parts for kind, about, text in part(report)
    ]


Said = Iterator[tuple[str, str, str]]


def _verdict(report: Found) -> Said:
    evidence = report["verdict"]["evidence"]
    for each in report["verdict"].get("judged", ()):
        if each["verdict"] in ("refused", "order_flips"):
            yield each["verdict"], each["candidate"], each["reason"]
    if evidence["verdict"] != "verified":
        yield (
            "not_verified",
            evidence["weights"],
            "a baseline ships: no candidate was shown to be better than all of them",
        )
    if all(size.startswith("screen ") for size in evidence["verified_on"]):
        yield (
            "screen_alone",
            "",
            "n-gram counts were all the evidence: they order mixtures like models only as far as what they are taken to have learnt is right",
        )
    elif len(evidence["verified_on"]) < 2:
        yield "one_size", evidence["verified_on"][0], "one size of proxy cannot show an order that flips"


def _targets(report: Found) -> Said:
    said = {
        "within_noise": "mixtures differ no more than seeds do: the mixture hardly matters to it, or proxies are too small",
        "undertrained": "no proxy predicts it better than the frequencies of single tokens do",
        "unrepeated": "no mixture was run twice, so nobody knows how much a run scatters",
    }
    for each in report["targets"]:
        if each["says"] in said:
            yield each["says"], each["name"], said[each["says"]]
    gains = [each for each in report["verdict"].get("gains", ()) if each["target"]]
    for each in report["targets"]:
        documents = [gain["documents"] for gain in gains if gain["target"] == each["name"]]
        if documents and max(documents) < FEW_DOCUMENTS:
            yield (
                "few_documents",
                each["name"],
                f"{max(documents)} documents were measured; intervals over them are wide",
            )
    if all(each["weight"] for each in report["targets"]):
        yield (
            "no_spare_target",
            "",
            "every target counted in the fit: keep one (weight 0) to see whether the gain holds elsewhere",
        )


def _fits(report: Found) -> Said:
    for each in report["fits"]:
        if each["family"] != "stack":
            continue
        if (each["skill"] or 0.0) <= 0:
            yield "unpredicted", each["target"], "no fit predicts unseen mixtures better than their mean"
        elif each["control"] is not None and each["rho"] and each["control"] > CONTROL * each["rho"]:
            yield (
                "control",
                each["target"],
                f"fits to shuffled losses reach a rank correlation of {each['control']:.2f}, the real ones {each['rho']:.2f}",
            )
    mixtures = max((each["mixtures"] for each in report["fits"]), default=0)
    if mixtures < FEW_RUNS * len(report["components"]):
        yield (
            "few_runs",
            "",
            f"{mixtures} different mixtures for {len(report['components'])} components; {FEW_RUNS} a component are safe",
        )


def _promises(report: Found) -> Said:
    for each in report["verdict"].get("promises", ()):
        if each["high"] is not None and each["predicted"] > each["high"]:
            yield (
                "optimism",
                each["mixture"],
                f"the fit promised {each['predicted']:+.4f}, measured were {each['measured']:+.4f} ({each['low']:+.4f} to {each['high']:+.4f})",
            )


def _limits(report: Found) -> Said:
    shipped = next((each for each in report["mixtures"] if each["ships"]), None)
    if shipped is None:
        return
    for each in report["components"]:
        epochs = each["epochs"][shipped["name"]]
        if epochs >= NEAR_LIMIT * each["max_epochs"]:
            yield (
                "epochs",
                each["name"],
                f"is read {epochs:.2f} times, all that it may be ({each['max_epochs']:g})",
            )
        if not shipped["weights_ppb"][each["name"]]:
            yield (
                "left_out",
                each["name"],
                "has no weight: the first percent of a component is worth more than any other",
            )
    made = sum(
        shipped["weights_ppb"][each["name"]] for each in report["components"] if each["synthetic"] != "none"
    )
    if made:
        yield "synthetic", "", f"{100 * made / PPB:.1f} % of what is read was written by models"


def _leaks(report: Found) -> Said:
    """Of each target the component that has most of it; the report has them all."""
    told = set()
    for each in report["leaks"]["found"]:
        if each["share"] >= LEAK_SAID and each["target"] not in told:
            told.add(each["target"])
            yield (
                "leak",
                each["target"],
                f"{each['share']:.1%} of its tokens stand word for word in {each['component']} (refused above {report['leaks']['limit']:.0%})",
            )


def _scale(report: Found) -> Said:
    small = [
        size
        for size in report["verdict"]["evidence"]["verified_on"]
        if size.split()[0] in ("64k", "250k", "1M", "5M")
    ]
    if small:
        yield (
            "small_proxies",
            small[-1],
            "proxies this small are for learning the tool; for production take 15M or more",
        )
