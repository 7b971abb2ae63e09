"""`corpusmill demo` on a small crawl, as a user runs it: the table of kinds, a resumed stream, a token's page; and again at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from runs import corpusmill

pytest.importorskip("trafilatura")
from corpusmill.jobs.demo_pages import KINDS, read_truth
from corpusmill.pipeline.ledger import KEPT
from corpusmill.pipeline.run import Run

PAGES = 240


def run_demo(out: Path) -> str:
    return corpusmill("demo", "--out", out, "--pages", str(PAGES), "--workers", "2").stdout


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, language_model: Path) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("demo")
    return out, run_demo(out)


def test_every_kind_has_its_line_and_no_page_is_missing(shown: tuple[Path, str]) -> None:
    _, text = shown
    for kind in KINDS:
        assert re.search(rf"^ ?{kind.replace('_', ' ')} +\d", text, re.MULTILINE), kind
    cells = [int(cell) for cell in re.findall(r"\d+", re.search(r"^ ?all +(.*)$", text, re.MULTILINE)[1])]  # type: ignore[index]
    assert cells[0] == PAGES == sum(cells[1:])


def test_good_pages_stay_and_bad_ones_go(shown: tuple[Path, str]) -> None:
    out, _ = shown
    truth = read_truth(out / "crawl")
    table = Run(out / "run").table(["url", "state"], kept=False).to_pylist()
    kept = {row["url"] for row in table if row["state"] == KEPT}
    share = {kind: [url in kept for url, its in truth.items() if its == kind] for kind in KINDS}
    for kind in (
        "spam",
        "garbled",
        "other_language",
        "boilerplate",
        "stub",
        "http_error",
        "not_html",
        "empty",
        "damaged",
    ):
        assert not any(share[kind]), kind
    assert sum(share["documentation"]) > len(share["documentation"]) / 2
    assert sum(share["library"]) > len(share["library"]) / 2


def test_no_address_survives_in_kept_text(shown: tuple[Path, str]) -> None:
    out, _ = shown
    texts = Run(out / "run").table(["text"]).column("text").to_pylist()
    assert not [text for text in texts if re.search(r"@mail-\d+\.com|\b93\.\d+\.\d+\.\d+\b", text)]


def test_the_resumed_stream_is_the_straight_one_and_the_token_leads_to_its_record(
    shown: tuple[Path, str],
) -> None:
    _, text = shown
    digests = re.findall(r"sha256 ([0-9a-f]{16})", text)
    assert len(digests) == 2
    assert digests[0] == digests[1]
    page = re.search(r"and token \d+ on of (\S+)", text)
    record = re.search(r"WARC-Target-URI: (\S+)", text)
    assert page and record and page[1] == record[1]


def test_the_same_command_again_reuses_every_stage(shown: tuple[Path, str]) -> None:
    out, text = shown
    again = run_demo(out)
    stages = re.findall(r"^(?:extract|filter|dedup|redact): .*$", again, re.MULTILINE)
    assert len(stages) == 4
    assert all(line.endswith("reused") for line in stages)
    assert again.split("3  What")[1] == text.split("3  What")[1]
