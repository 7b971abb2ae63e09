"""Mixtures for other trainers: read back by Megatron's own code, and by the published rules of the others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from shard_samples import Sample, documents, write_shards

from corpusmill.jobs.cli import main
from corpusmill.mixing.blend import FORMATS, blends
from corpusmill.pipeline.errors import RecipeError
from corpusmill.shards.export import export_tokens
from corpusmill.shards.mixture import PPB
from corpusmill.shards.plan import Component, Phase, Plan
from corpusmill.shards.plan_file import read_plan

WEIGHTS = {"books": 299_999_999, "code": 1, "web": 700_000_000}


def plan_of(*phases: Phase) -> Plan:
    rows = {"books": 40, "code": 10, "web": 1000}
    components = tuple(Component(name, name, f"{name}0", count, 1, 4) for name, count in rows.items())
    return Plan(1, 16, 8, "uint16", 0, components, phases)


DATA = {name: f"/data/{name}" for name in WEIGHTS}


def megatron_reads(text: str) -> tuple[list[str], list[float]]:
    """As Megatron-LM reads a file of --data-args-path."""
    utils = pytest.importorskip("megatron.core.datasets.utils")
    prefixes, weights = utils.get_blend_from_list(text.split())
    return prefixes, weights


def test_megatron_takes_the_blend_with_every_weight_to_its_last_digit() -> None:
    (blend,) = blends(plan_of(Phase(0, WEIGHTS)), DATA, 1000)
    prefixes, weights = megatron_reads(FORMATS["megatron"].encode(blend).decode())
    assert prefixes == ["/data/books", "/data/code", "/data/web"]
    assert [round(weight * PPB) for weight in weights] == list(WEIGHTS.values())


def test_a_component_without_weight_is_left_out_since_megatron_takes_no_zero() -> None:
    (blend,) = blends(plan_of(Phase(0, {"books": 0, "web": PPB})), DATA, 1000)
    assert megatron_reads(FORMATS["megatron"].encode(blend).decode()) == (["/data/web"], [1.0])


def test_a_phase_is_a_file_and_a_ramp_is_steps_that_lead_from_one_to_the_other() -> None:
    phases = (Phase(0, {"web": PPB}), Phase(100, {"books": PPB}, ramp=4), Phase(600, {"code": PPB}))
    found = blends(plan_of(*phases), DATA, 500)
    assert [(each.start, each.stop) for each in found] == [
        (0, 100),
        (100, 101),
        (101, 102),
        (102, 103),
        (103, 104),
        (104, 500),
    ]
    # A ramp's steps have the weights of their middles: 1/8, 3/8, 5/8 and 7/8 of the way.
    books = [sum(s.weight_ppb for s in each.sources if s.name == "books") for each in found]
    assert books == [0, PPB // 8, 3 * PPB // 8, 5 * PPB // 8, 7 * PPB // 8, PPB]
    assert found[-1].sources[0].epochs == pytest.approx(396 / 40)


def test_olmo_core_gets_ratios_that_add_up_and_repetitions_that_suffice() -> None:
    """Its rules: ratios above 0 that add up to 1, repetitions from 1 that make the source large enough."""
    (blend,) = blends(plan_of(Phase(0, WEIGHTS)), DATA, 1000)
    sources = yaml.safe_load(FORMATS["olmo-core"].encode(blend))["sources"]
    assert sum(each["target_ratio"] for each in sources) == pytest.approx(1.0, abs=1e-12)
    rows = {"books": 40, "code": 10, "web": 1000}
    for each in sources:
        assert each["target_ratio"] > 0
        assert each["max_repetition_ratio"] >= max(
            1.0, 1000 * each["target_ratio"] / rows[each["source_name"]]
        )
        assert each["paths"] == [f"/data/{each['source_name']}.bin"]
    assert [each["max_repetition_ratio"] for each in sources] == [8.0, 4.0, 4.0], (
        "300 of 1,000 samples from 40 rows"
    )


def test_olmix_gets_a_weight_and_a_repetition_factor_a_source() -> None:
    (blend,) = blends(plan_of(Phase(0, WEIGHTS)), DATA, None)
    assert yaml.safe_load(FORMATS["olmix"].encode(blend)) == {
        "mix": {name: {"weight": ppb / PPB, "repetition_factor": 4.0} for name, ppb in WEIGHTS.items()}
    }


def test_a_path_that_megatron_would_cut_in_two_is_refused() -> None:
    (blend,) = blends(plan_of(Phase(0, WEIGHTS)), {name: f"/my data/{name}" for name in WEIGHTS}, 10)
    with pytest.raises(RecipeError, match="has spaces, at which Megatron cuts"):
        FORMATS["megatron"].encode(blend)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """Shards with a plan, exported to Megatron, and a mixture file of two phases over them."""
    samples = [Sample("web", [documents(1, 60)]), Sample("books", [documents(2, 30)])]
    write_shards(tmp_path / "shards", samples, {"web": PPB // 2, "books": PPB // 2})
    export_tokens(tmp_path / "shards", tmp_path / "data", "megatron")
    (tmp_path / "mine.yaml").write_text(
        "schema: corpusmill/mixture/v1\nbudget_tokens: 800\nphases:\n"
        "  - {from: 0, weights: {web: 0.75, books: 0.25}}\n  - {from: 60, weights: {web: 0.1, books: 0.9}}\n"
    )
    return tmp_path


def exporting(folder: Path, format: str, *more: str) -> list[str]:
    return [
        *("mix", "export", str(folder / "mine.yaml"), "--out", str(folder / "shards")),
        *("--format", format, "--to", str(folder / format), *more),
    ]


def test_the_command_writes_a_blend_a_phase_over_the_exported_files(
    exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(exported / "data")
    assert main(exporting(exported, "megatron", "--data", data)) == 0
    said = capsys.readouterr().out
    assert "samples 0 to 59 of 8 tokens" in said and "samples 60 to 99 of 8 tokens" in said
    assert "begins every data set anew" in said
    indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    for number, wanted in enumerate(([0.25, 0.75], [0.9, 0.1])):
        prefixes, weights = megatron_reads((exported / f"megatron/blend-{number}.txt").read_text())
        assert weights == wanted
        assert [len(indexed.IndexedDataset(prefix)) for prefix in prefixes] == [30, 60]
    assert main(exporting(exported, "megatron", "--data", data)) == 2
    assert "choose a new folder" in capsys.readouterr().err


def test_without_data_only_olmix_can_be_told(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(exporting(exported, "olmo-core")) == 2
    assert "needs --data FOLDER" in capsys.readouterr().err
    assert main(exporting(exported, "olmix")) == 0
    mix = yaml.safe_load((exported / "olmix/mix-1.yaml").read_text())["mix"]
    assert mix["books"]["weight"] == 0.9


def test_no_trainer_is_told_to_read_a_component_oftener_than_it_may(
    exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every second sample is of books, which would be read twice."""
    components = read_plan(exported / "shards/plan.json").components
    rows = next(each.rows for each in components if each.name == "books")
    file = exported / "mine.yaml"
    text = (
        f"schema: corpusmill/mixture/v1\nbudget_tokens: {8 * 4 * rows}\ncomponents: {{books: {{max_epochs: 1}}}}\n"
        "phases: [{weights: {web: 0.5, books: 0.5}}]\n"
    )
    file.write_text(text)
    assert main(exporting(exported, "olmix")) == 1
    said = capsys.readouterr().err
    assert f"asks for {4 * rows:,} samples" in said and "mix check" in said
    file.write_text(text + "exhaust: stop\n")
    assert main(exporting(exported, "olmix")) == 0
    found = re.search(r"samples 0 to (\d+) of 8", capsys.readouterr().out)
    assert found is not None
    last = int(found[1])
    # Before the first of books that would be a repeat: samples of one component are every second one.
    assert 2 * rows - 2 <= last <= 2 * rows
    file.write_text(text.replace(str(8 * 4 * rows), "7"))
    assert main(exporting(exported, "olmix")) == 2
    assert "budget_tokens is 7, one sequence has 8" in capsys.readouterr().err
