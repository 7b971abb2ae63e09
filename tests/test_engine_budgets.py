"""Budgets: a run stops when too many rows fail or one cut drops nearly all, says why, and goes on when the budget is raised."""

import json
import re
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import corpusmill, events, hashes

from corpusmill.pipeline.engine.drops import Drop, Drops
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


def added(results: dict[int, Result], order: Iterable[int] = (), limit: float = 0.995) -> Drops:
    """The results of all partitions, as they come in."""
    drops = Drops(sorted(results), limit)
    for part in order or results:
        drops.add(results[part])
    return drops


def test_a_cut_that_drops_all_at_the_start_is_excessive_even_if_later_partitions_are_fine() -> None:
    results = judged((6_000, 6_000, 0), (4_000, 4_000, 0), (90_000, 0, 0))
    assert added(results).first == Drop(FIRST, 10_000, 10_000, (0, 1))


def test_a_cut_that_begins_to_drop_all_is_excessive_once_its_share_is() -> None:
    """9,000 of 10,000, then all: 9,000 + n > 99.5 % of 10,000 + n from n > 190,000 on."""
    results = judged((10_000, 9_000, 0), *[(10_000, 10_000, 0)] * 30)
    assert added(results).first == Drop(FIRST, 209_000, 210_000, (20,))


def test_what_is_dropped_at_the_bound_is_not_over_it() -> None:
    assert added(judged((1_000, 995, 5))).at_end() is None
    assert added(judged((1_000, 996, 5))).at_end() == Drop(FIRST, 996, 1_000, (0,))
    assert added(judged((0, 0, 0))).at_end() is None
    assert added(judged((20_000, 20_000, 0)), limit=1.0).first is None


def test_few_documents_are_judged_at_the_end_alone() -> None:
    few = added(judged((9_999, 9_999, 0)))
    assert few.first is None and few.at_end() == Drop(FIRST, 9_999, 9_999, (0,))


@given(st.data())
def test_what_stops_a_run_does_not_depend_on_the_order_in_which_tasks_finish(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 9_000), min_size=1, max_size=8))
    results = judged(*[(n, data.draw(st.sampled_from([n, n - n // 300, 0])), 0) for n in sizes])
    order = data.draw(st.permutations(sorted(results)))
    mixed = added(results, order)
    rows = list(accumulate(sizes))
    hits = list(accumulate(results[part].counts[f"hit.{FIRST}"] for part in sorted(results)))
    sums = zip(hits, rows, strict=True)
    over = [(hit, n) for hit, n in sums if n >= 10_000 and 1_000 * hit > 995 * n]
    assert ((mixed.first.dropped, mixed.first.judged) if mixed.first else None) == (over[0] if over else None)
    assert (mixed.at_end() is not None) == (1_000 * hits[-1] > 995 * rows[-1])


def test_a_partition_that_is_not_in_yet_holds_back_what_comes_after_it() -> None:
    results = judged((1, 0, 0), (10_000, 10_000, 0))
    drops = Drops([0, 1], 0.995)
    drops.add(results[1])
    assert drops.judged == 0 and drops.first is None
    drops.add(results[0])
    assert drops.first == Drop(FIRST, 10_000, 10_001, (1,))


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
