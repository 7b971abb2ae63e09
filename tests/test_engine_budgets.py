"""Budgets: a run stops when too many rows fail or one cut drops nearly all, says why, and goes on when the budget is raised."""

import json
import re
from pathlib import Path

import pytest
from runs import corpusmill, events, hashes

from corpusmill.pipeline.engine.budgets import Drop, excessive_drop, first_parts
from corpusmill.pipeline.engine.stage import Result
from corpusmill.pipeline.judge import Judge
from corpusmill.pipeline.recipe import parse_recipe
from corpusmill.pipeline.rules import Cut

LONG = Judge((("long", Cut("words", at_least=50)), ("short", Cut("words", at_most=9))))
FIRST, SECOND = LONG.reasons()


def judged(*parts: tuple[int, int, int]) -> dict[int, Result]:
    """(judged, hit by the first cut, hit by the second) a partition."""
    return {
        part: Result(part, counts={"judged": n, f"hit.{FIRST}": a, f"hit.{SECOND}": b})
        for part, (n, a, b) in enumerate(parts)
    }


def write_lines(folder: Path, files: int, lines: int, bad: int, text: str = "some words") -> list[str]:
    """JSON Lines files, of whose lines the first `bad` cannot be parsed; the --input arguments."""
    folder.mkdir()
    for number in range(files):
        with (folder / f"{number:03d}.jsonl").open("w") as file:
            for line in range(lines):
                url = f"http://example.org/{number}/{line}"
                file.write("{broken\n" if line < bad else json.dumps({"url": url, "text": text}) + "\n")
    return ["--input", f"{folder}/*.jsonl"]


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_first_partitions_are_those_that_hold_enough_rows_in_order() -> None:
    results = judged((4, 0, 0), (6, 0, 0), (5, 0, 0))
    assert first_parts(results, 10) == [0, 1]
    assert first_parts(results, 11) == [0, 1, 2]
    assert first_parts(dict(reversed(results.items())), 4) == [0]
    assert first_parts(results, 100) == [0, 1, 2]


def test_a_cut_that_drops_all_at_the_start_is_excessive_even_if_later_partitions_are_fine() -> None:
    results = judged((6_000, 6_000, 0), (4_000, 4_000, 0), (90_000, 0, 0))
    assert excessive_drop(LONG, results, 0.995) == Drop(0, FIRST, 10_000, 10_000, (0, 1))


def test_a_cut_that_drops_all_after_the_start_is_excessive_over_all() -> None:
    results = judged((10_000, 9_000, 0), (990_000, 990_000, 0))
    assert excessive_drop(LONG, results, 0.995) == Drop(0, FIRST, 999_000, 1_000_000, (0, 1))


def test_what_is_dropped_at_the_bound_is_not_over_it() -> None:
    assert excessive_drop(LONG, judged((1_000, 995, 5)), 0.995) is None
    assert excessive_drop(LONG, judged((1_000, 996, 5)), 0.995) is not None
    assert excessive_drop(LONG, judged((0, 0, 0)), 0.995) is None


def test_a_stage_has_the_budget_of_its_entry_or_else_of_the_recipe() -> None:
    recipe = parse_recipe(
        {
            "max_error_rate": 0.2,
            "stages": [
                {"extract": {"max_error_rate": 0.3}},
                {"filter": {"rules": ["gopher_quality"], "name": "words", "max_error_rate": 0}},
                "redact",
            ],
        }
    )
    rates = [recipe.error_rate(name) for name in ("documents", "words.measures", "redact")]
    assert rates == [0.3, 0.0, 0.2]


def test_a_stage_in_which_too_many_rows_fail_stops_the_run_and_a_raised_budget_goes_on(
    tmp_path: Path,
) -> None:
    out, given = tmp_path / "out", write_lines(tmp_path / "in", 2, 500, 10)
    strict = write(tmp_path, "strict.yaml", "stages: [extract: {}, redact: {}]")
    said = corpusmill("run", strict, "--out", out, *given, expect=1).stderr
    assert "documents: 20 of 1,000 rows failed (2.00%), more than max_error_rate (1.00%)" in said
    assert "most by unparsable (20)" in said and "000.jsonl at 0: unparsable" in said
    assert said.count("unparsable\n") == 5 and "Traceback" not in said
    mild = write(tmp_path, "mild.yaml", "stages: [extract: {max_error_rate: 0.02}, redact: {}]")
    resumed = events(corpusmill("run", mild, "--out", out, *given))
    assert [event["reused"] for event in resumed if event.get("stage") == "documents"][-1] is True
    corpusmill("run", mild, "--out", tmp_path / "straight", *given)
    assert hashes(out) == hashes(tmp_path / "straight")


def test_a_few_failed_rows_of_a_small_input_warn(tmp_path: Path) -> None:
    given = write_lines(tmp_path / "in", 1, 999, 50)
    recipe = write(tmp_path, "recipe.yaml", "stages: [extract: {}]")
    said = corpusmill("run", recipe, "--out", tmp_path / "out", *given).stderr
    assert "50 of 999 rows failed" in said
    assert "the run goes on" in said and "mend the cause" not in said


def test_a_stage_is_stopped_in_its_middle(tmp_path: Path) -> None:
    """10,000 rows are in with the second task of about a quarter of the files; the last is never begun."""
    given = write_lines(tmp_path / "in", 100, 500, 50)
    recipe = write(tmp_path, "recipe.yaml", "stages: [extract: {}]")
    out = tmp_path / "out"
    said = corpusmill("run", recipe, "--out", out, *given, "--workers", "1", expect=1).stderr
    rows = re.search(r"documents: [0-9,]+ of ([0-9,]+) rows failed \(10.00%\)", said)
    assert rows and 10_000 <= int(rows[1].replace(",", "")) < 50_000
    assert len(list(out.glob("text/documents/*/part-*.parquet"))) < 100
    assert not list(out.glob("text/documents/*/_manifest.json"))


def test_dropped_rows_are_no_errors(tmp_path: Path) -> None:
    given = write_lines(tmp_path / "in", 1, 1_000, 0, text="")
    recipe = write(tmp_path, "recipe.yaml", "max_error_rate: 0\nstages: [extract: {}]")
    corpusmill("run", recipe, "--out", tmp_path / "out", *given)


@pytest.mark.parametrize(("files", "code"), [(11, 1), (9, 0)])
def test_a_cut_that_drops_all_shows_what_its_measure_is(files: int, code: int, tmp_path: Path) -> None:
    """Each text has two words; from 10,000 texts on the run stops."""
    given = write_lines(tmp_path / "in", files, 1_000, 0)
    recipe = write(
        tmp_path, "recipe.yaml", "stages: [extract: {}, filter: [gopher_quality: {min_words: 50}]]"
    )
    said = corpusmill("run", recipe, "--out", tmp_path / "out", *given, expect=code).stderr
    judged = min(files, 10) * 1_000
    message = (
        f"gopher_quality.words.at_least drops {judged:,} of {judged:,} documents, more than max_drop (99.5%)"
    )
    wanted = "wanted words at_least 50; quantiles 0% 2, 1% 2, 10% 2, 50% 2, 90% 2, 99% 2, 100% 2"
    plain = said.replace("\\n", "\n")
    assert message in plain and wanted in plain
