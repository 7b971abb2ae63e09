"""An estimate beside the run that it was made for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from datasketch import MinHashLSH
from runs import corpusmill, inputs, write_recipe
from test_engine_metrics import KillOnce

from corpusmill.jobs.cost.actual import Used, used
from corpusmill.jobs.cost.command import cost_lines
from corpusmill.jobs.cost.estimate import band_curves, estimate
from corpusmill.jobs.cost.lines import off_by
from corpusmill.jobs.cost.places import strata_of
from corpusmill.jobs.cost.sample import Sample, run_sample
from corpusmill.pipeline.engine.driver import Driver
from corpusmill.pipeline.engine.inputs import find_inputs
from corpusmill.pipeline.engine.local import LocalRunner
from corpusmill.pipeline.engine.place import place_of
from corpusmill.pipeline.extract.operation import ExtractDocuments
from corpusmill.pipeline.recipe import Recipe, load_recipe, parse_recipe
from corpusmill.pipeline.run import Run


@pytest.fixture(scope="module")
def out(
    tmp_path_factory: pytest.TempPathFactory, crawl: Path, recipe: Path, language_model: Path
) -> tuple[Path, dict[str, Any], str]:
    """A run that was estimated before: its folder, the estimate, and what the run printed at its end."""
    folder = tmp_path_factory.mktemp("estimated")
    place, temporary = folder / "out", folder / "temporary"
    temporary.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary))
        asked = ("--sample-documents", "60", "--workers", "2", "--json", "--out", place)
        made = corpusmill("estimate", recipe, *inputs(crawl), *asked, "--price-per-core-hour", "0.5")
        assert not list(temporary.iterdir())
    assert [path.name for path in place.rglob("*") if path.is_file()] == ["estimate.json"]
    assert json.loads(made.stdout) == json.loads((place / "metrics" / "estimate.json").read_bytes())
    price = ("--price-per-core-hour", "2")
    done = corpusmill("run", recipe, "--out", place, *inputs(crawl), "--workers", "2", *price)
    return place, json.loads(made.stdout), done.stdout


def test_partitions_files_and_bytes_are_those_of_the_run(
    out: tuple[Path, dict[str, Any], str], crawl: Path
) -> None:
    place, made, _ = out
    run = Run(place)
    assert made["partitions"] == len(run.manifest("documents").results)
    assert sum(group["files"] for group in made["inputs"]) == len(run.state.inputs)
    sizes = {
        source: sum(item["size_bytes"] for item in run.state.inputs if item["source"] == source)
        for source in ("web", "library")
    }
    assert {group["source"]: group["size_bytes"] for group in made["inputs"]} == sizes


def test_the_documents_and_what_is_kept_of_them_lie_within_the_bounds_that_were_given(
    out: tuple[Path, dict[str, Any], str],
) -> None:
    place, made, _ = out
    spent = used(Run(place))
    assert made["documents"]["low"] <= spent.documents <= made["documents"]["high"]
    assert [kept["stage"] for kept in made["kept"]] == list(spent.kept)
    for kept in made["kept"]:
        actual = spent.kept[kept["stage"]]
        assert actual <= kept["share"]["high"], kept
        assert kept["upper_bound"] or kept["share"]["low"] <= actual, kept
    assert [kept["stage"] for kept in made["kept"] if kept["upper_bound"]] == ["dedup", "redact"]


def test_every_stage_of_the_run_was_estimated_with_its_units(
    out: tuple[Path, dict[str, Any], str],
) -> None:
    place, made, _ = out
    stages = {stage["name"]: stage for stage in made["stages"]}
    spent = used(Run(place))
    assert list(stages) == [stage.name for stage in spent.stages]
    for stage in spent.stages:
        guess = stages[stage.name]
        assert guess["temporary"] == stage.temporary and guess["area"] == stage.area, stage.name
        if guess["kind"] != "set":  # buckets and shards are laid out from estimated bytes
            assert guess["units"] == stage.units, stage.name
        assert guess["cpu_seconds"]["low"] <= guess["cpu_seconds"]["expected"] <= guess["cpu_seconds"]["high"]


def test_workers_that_no_task_needs_cost_nothing(out: tuple[Path, dict[str, Any], str]) -> None:
    """A stage of one task starts one worker, so that the seconds of a start are never more than tasks times those of each stage."""
    _, made, _ = out
    starts = sum(stage["startup_seconds"] * min(2, stage["tasks"]) for stage in made["stages"])
    assert any(stage["tasks"] < 2 and stage["startup_seconds"] for stage in made["stages"])
    work = sum(stage["cpu_seconds"]["expected"] for stage in made["stages"])
    assert made["cpu_seconds"]["expected"] == pytest.approx(work + starts)


def test_the_run_ends_with_the_estimate_beside_what_it_used(
    out: tuple[Path, dict[str, Any], str],
) -> None:
    place, made, printed = out
    spent = used(Run(place))
    (line,) = [line.split() for line in printed.splitlines() if line.startswith("documents  ")]
    assert line[1:3] == [f"{made['documents']['expected']:,.0f}", str(spent.documents)]
    summary = json.loads((place / "metrics" / "summary.json").read_bytes())
    assert summary["wasted_seconds"] == 0 and summary["failed_attempts"] == 0
    assert summary["cost"] == pytest.approx(2 * summary["core_hours"])
    measured = [stage["cpu_seconds"] for stage in summary["stages"]]
    parts = sum(measured) + sum(stage["driver_seconds"] for stage in summary["stages"])
    assert summary["core_hours"] == pytest.approx(parts / 3600)
    shown = corpusmill("show", place, "--cost", "--price-per-core-hour", "2").stdout.splitlines()
    assert shown == printed.splitlines()[-len(shown) :]


def test_a_run_that_lost_no_worker_wasted_nothing_and_one_that_did_counts_it(
    crawl: Path, recipe: Path, tmp_path: Path, language_model: Path
) -> None:
    small = load_recipe(str(recipe)).only("extract").with_inputs(inputs(crawl)[1::2])
    place = place_of(tmp_path / "out")
    with LocalRunner(2) as runner:
        Driver(place, small, runner, KillOnce(runner)).run()
    spent = used(Run(place))
    assert spent.failed_attempts == 1 and spent.wasted_seconds > 0
    assert spent.core_hours * 3600 == pytest.approx(
        spent.cpu_seconds + spent.driver_seconds + spent.wasted_seconds
    )


def test_an_estimate_of_another_recipe_or_version_is_not_compared_and_ends_no_run(
    out: tuple[Path, dict[str, Any], str], tmp_path: Path
) -> None:
    place, made, _ = out
    shutil.copytree(place, tmp_path / "out")
    kept = tmp_path / "out" / "metrics" / "estimate.json"
    for text in (json.dumps({**made, "made_for": "0" * 32}), "{}", "[]", "", "{"):
        kept.write_text(text)
        lines = cost_lines(Run(tmp_path / "out"), None, write=False)
        assert not any("off by" in line for line in lines)
        assert sum("nothing is compared" in line for line in lines) == 1
    kept.unlink()
    assert not any("compared" in line for line in cost_lines(Run(tmp_path / "out"), None, write=False))


def test_a_sample_that_holds_all_there_is_was_not_cut(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text('{"text": "the only page"}\n')
    recipe = parse_recipe({"stages": ["extract"]}).with_inputs([str(tmp_path / "one.jsonl")])
    made = estimate(recipe, workers=1, documents=1000, seconds=300)
    assert (made.sample_documents, made.documents.expected, made.notes) == (1, 1, [])


def test_the_price_is_that_of_all_core_hours() -> None:
    """Half an hour of waste alone, at 4 an hour."""
    assert Used([], {}, 0, wasted_seconds=1800.0, failed_attempts=1).cost(4.0) == 2.0


def sample_of(recipe: Recipe, folder: Path, documents: int) -> Sample:
    files = find_inputs(recipe.inputs)
    operation = recipe.stages[0].config.operation(recipe.seed)
    assert isinstance(operation, ExtractDocuments)
    planned = type("Planned", (), {"files": files, "partition_bytes": recipe.partition_bytes})()
    strata = strata_of(operation.units(planned), recipe.seed, "text")
    return run_sample(recipe, strata, documents, 600, 1, folder)


def test_the_same_seed_measures_the_same_documents_and_leaves_nothing(crawl: Path, tmp_path: Path) -> None:
    recipe = parse_recipe({"stages": [{"extract": {"with": "resiliparse"}}]}).with_inputs(inputs(crawl)[1::2])
    first, second = (sample_of(recipe, tmp_path, 40) for _ in range(2))

    def files(sample: Sample) -> list[str]:
        return [file.xxh3 for r in sample.full.results["documents"].values() for file in r.files]

    assert files(first) == files(second) and first.documents > 20
    assert not list(tmp_path.iterdir())


def test_a_first_file_unlike_the_rest_does_not_stand_for_them(tmp_path: Path) -> None:
    """The first of ten files holds short lines, the others prose that stays: nine tenths of the bytes."""
    good, bad = "one of the pages that have enough words to stay here", "to"
    for number in range(10):
        text = good if number else bad
        size = len(json.dumps({"text": good}))
        line = json.dumps({"text": text}).ljust(size)
        (tmp_path / f"{number}.jsonl").write_text((line + "\n") * 300)
    rule = "{min_words: 6, min_stop_words: 0, min_alpha_words: null, min_mean_word_length: null}"
    path = write_recipe(tmp_path, f"stages: [extract: {{}}, filter: [gopher_quality: {rule}]]")
    asked = ("--input", f"{tmp_path}/*.jsonl", "--json", "--sample-documents", "400", "--workers", "1")
    made = json.loads(corpusmill("estimate", path, *asked).stdout)
    (share,) = [kept["share"] for kept in made["kept"] if kept["stage"] == "filter"]
    assert share["low"] <= 0.9 <= share["high"] and share["expected"] > 0.5
    assert made["documents"]["expected"] == pytest.approx(3000, rel=0.01)  # all lines are of one length


def test_the_curve_is_that_of_the_published_bands() -> None:
    """FineWeb's 14 bands of 8 (Penedo et al. 2024, appendix): 0.7 -> 56 %, 0.75 -> 77 %, 0.8 -> 92 %; here 1 - (1 - s^8)^14 in full."""
    recipe = parse_recipe(
        {"stages": [{"extract": {}}, {"dedup": {"at_least": 0.75, "bands": 14, "rows": 8}}]}
    )
    (curve,) = band_curves(recipe)
    assert [round(curve.curve[s], 2) for s in ("0.7", "0.75", "0.8")] == [0.56, 0.77, 0.92]
    assert curve.at_threshold == 1 - (1 - 0.75**8) ** 14 == curve.curve["0.75"]


def test_the_curve_of_automatic_bands_is_that_of_datasketch() -> None:
    recipe = parse_recipe({"stages": [{"extract": {}}, {"dedup": {"at_least": 0.8, "bands": "auto"}}]})
    (curve,) = band_curves(recipe)
    index = MinHashLSH(threshold=0.8, num_perm=112)
    assert (curve.bands, curve.rows) == (index.b, index.r)
    assert not band_curves(parse_recipe({"stages": [{"extract": {}}, {"dedup": {"near": False}}]}))


def test_factors_name_their_direction() -> None:
    assert off_by(100, 112) == "x1.12 more" and off_by(112, 100) == "x1.12 less"
    assert off_by(100, 100) == "x1.00" and off_by(0, 5) == off_by(5, 0) == "-"
