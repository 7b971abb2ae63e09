"""`corpusmill mix ...`: a search step by step, taken up after a kill, and runs of other trainers in a folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from ray_heads import ray_head
from runs import command, corpusmill, hashes
from search_world import corpus, written

from corpusmill.jobs.cli import main
from corpusmill.jobs.commands.mixing import joined
from corpusmill.shards.mixture import PPB
from corpusmill.shards.plan_file import read_plan
from corpusmill.shards.stream import stream

RECIPE = """
seed: 17
stages:
  - extract: {}
  - shard: {tokenizer: {train: bpe, vocab: 300}, sequence_length: 64, block_bytes: 1024, holdout: 0.2}
  - mix:
      search:
        proxy: {learnt: 500}
        runs: 14
        families: [quadratic]
        targets: {holdout/books: {}, holdout/code: {protected: true}}
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "recipe.yaml").write_text(RECIPE)
    written(folder, corpus({"web": 60, "books": 50, "code": 40}))
    return folder


def asked(data: Path, verb: str, out: Path) -> list[str]:
    """Arguments of `mix VERB`; `apply` runs all stages."""
    inputs = [
        part for name in ("web", "books", "code") for part in ("--input", f"{name}={data}/{name}.jsonl.gz")
    ]
    return ["mix", verb, str(data / "recipe.yaml"), "--out", str(out), "--workers", "2", *inputs]


@pytest.fixture(scope="module")
def verified(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "out"
    corpusmill(*asked(data, "verify", out))
    return out


def test_verbs_print_what_their_stage_found_and_leave_the_run_as_it_is(
    data: Path, verified: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = hashes(verified)
    for verb, wanted in {
        "stats": ["component", "web", "holdout/books", "may not get worse", "budget:"],
        "design": ["proportional @1", "without web", "more code", "repeat"],
        "run": ["holdout/code", "bits per byte"],
        "fit": ["quadratic", "regret", "rho: rank correlation", "seeds by", "95 % interval"],
        "propose": ["stack", "expected loss", "ep: epochs", "without limits and guards"],
        "verify": ["verdict: ", "ships: ", "the fit promised", "+: better"],
    }.items():
        assert main(asked(data, verb, verified)) == 0
        printed = capsys.readouterr().out
        assert not [each for each in wanted if each not in printed], (verb, printed)
    assert hashes(verified) == before
    assert main([*asked(data, "propose", verified), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert all(sum(each["weights_ppb"]) == PPB for each in found["candidates"])


def test_a_second_round_adds_runs_where_a_first_fit_looks_and_all_are_fitted(
    data: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.replace("runs: 14", "runs: 18\n        rounds: 2"))
    words = asked(data, "run", tmp_path / "out")
    words[2] = str(recipe)
    runs = json.loads(corpusmill(*words, "--json").stdout)["records"]
    words[1] = "design"
    design = json.loads(corpusmill(*words, "--json").stdout)
    by_role = {role: [run for run in design["runs"] if run["role"] == role] for role in ("second", "repeat")}
    # Baselines and ablations of three components are eight or so, and a first round has three more for its fit.
    assert 4 <= len(by_role["second"]) <= 9 and len(by_role["repeat"]) == 4
    assert len({tuple(run["weights_ppb"]) for run in design["runs"]}) == 18
    assert {each["run"] for each in runs} == {run["name"] for run in design["runs"]}
    roots = np.sqrt(np.array([run["weights_ppb"] for run in design["runs"] if run["role"] != "repeat"]) / PPB)
    apart = np.sqrt(((roots[:, None] - roots[None]) ** 2).sum(axis=2)) + np.eye(len(roots))
    assert apart.min() >= 0.03, "no two are alike"
    words[1] = "fit"
    fit = json.loads(corpusmill(*words, "--json").stdout)
    assert (fit["mixtures"], fit["runs"]) == (18, 22)


def test_until_a_search_is_applied_there_is_no_plan(verified: Path) -> None:
    assert not (verified / "mixture.yaml").exists()
    assert not json.loads((verified / "run.json").read_text())["complete"]


def killed_while_it_runs_proxies(data: Path, out: Path) -> Iterator[int]:
    """Files of proxy runs that stood when the driver was killed, each time it was."""
    for most in (1, 4, 9):
        process = subprocess.Popen(
            command(*asked(data, "apply", out)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            while process.poll() is None and len(list(out.glob("layers/mix.runs/*/part-*"))) < most:
                time.sleep(0.01)
        finally:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
        yield len(list(out.glob("layers/mix.runs/*/part-*")))


def test_a_search_that_is_killed_in_its_runs_ends_as_one_that_was_not(
    data: Path, verified: Path, tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    seen = list(killed_while_it_runs_proxies(data, out))
    assert 0 < seen[0] < 18, "the first kill came while proxies ran"
    corpusmill(*asked(data, "apply", out))
    corpusmill(*asked(data, "apply", verified))
    assert hashes(out) == hashes(verified)


def test_a_stream_reads_by_the_verdicts_weights(data: Path, verified: Path) -> None:
    """Within 3 of each weight at any prefix, as the plan promises."""
    corpusmill(*asked(data, "apply", verified))
    mixture = yaml.safe_load((verified / "mixture.yaml").read_text())
    weights = mixture["phases"][0]["weights_ppb"]
    plan = read_plan(verified / "shards/plan.json")
    assert plan.samples is not None
    from corpusmill.shards.reader import Shards

    component = Shards(verified).order.samples(0, plan.samples).component
    names = [each.name for each in plan.components]
    for place, name in enumerate(names):
        for sample in (plan.samples // 3, plan.samples):
            assert abs(int((component[:sample] == place).sum()) - sample * weights[name] / PPB) <= 3
    first = next(iter(stream(verified, batch_size=1)))
    assert first["tokens"].shape == (1, 65)
    assert mixture["evidence"]["verdict"] in ("no_evidence", "refused")
    assert mixture["evidence"]["runs"] == 18


def test_check_tells_epochs_and_what_is_over_its_limit(data: Path, verified: Path, tmp_path: Path) -> None:
    corpusmill(*asked(data, "apply", verified))
    fine = corpusmill("mix", "check", verified / "mixture.yaml", "--out", verified)
    assert "nothing speaks against it" in fine.stdout
    own = tmp_path / "own.yaml"
    own.write_text(
        "schema: corpusmill/mixture/v1\nbudget_tokens: 600000\nphases: [{from: 0, weights: {code: 1.0}}]\n"
        "components: {code: {max_epochs: 2}}\n"
    )
    over = corpusmill("mix", "check", own, "--out", verified, expect=1)
    assert "code would be read" in over.stdout and "2 are allowed" in over.stdout
    own.write_text("schema: corpusmill/mixture/v1\nphases: [{from: 0, weights: {cod: 1.0}}]\n")
    unknown = corpusmill("mix", "check", own, "--out", verified, expect=2)
    assert "did you mean 'code'" in unknown.stderr


def test_runs_of_another_trainer_are_fitted_and_proposed_from_without_a_recipe(tmp_path: Path) -> None:
    """Loss = 3 - sqrt(web) - 0.5 sqrt(books): least at web 0.8, books 0.2."""
    lines = ["run,target,loss,weight:web,weight:books,weight:code"]
    for number in range(24):
        web, books = (number % 5) / 5, (1 - (number % 5) / 5) * (number // 5) / 4
        loss = 3 - web**0.5 - 0.5 * books**0.5
        lines.append(f"r{number},text,{loss!r},{web!r},{books!r},{1 - web - books!r}")
    (tmp_path / "runs.csv").write_text("\n".join(lines))
    said = corpusmill("mix", "import", tmp_path / "runs.csv", "--to", tmp_path / "study").stdout
    assert said.startswith("24 runs of 3 components on 1 targets")
    assert "quadratic" in corpusmill("mix", "fit", tmp_path / "study").stdout
    found = json.loads(corpusmill("mix", "propose", tmp_path / "study", "--json").stdout)
    stack = next(each for each in found["candidates"] if each["name"] == "stack")
    weights = dict(zip(found["components"], stack["weights_ppb"], strict=True))
    assert weights["web"] > 0.6 * PPB and weights["code"] < 0.1 * PPB


def test_a_step_of_a_recipe_without_a_search_says_what_it_needs(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "recipe.yaml"
    other.write_text(RECIPE.partition("  - mix:")[0])
    assert (
        "the recipe searches no weights"
        in corpusmill("mix", "stats", other, "--out", tmp_path, expect=2).stderr
    )
    assert "needs --out" in corpusmill("mix", "fit", data / "recipe.yaml", expect=2).stderr


def test_a_recipe_that_is_called_like_a_verb_is_still_one_with_its_ending() -> None:
    assert joined(["mix", "stats", "a.yaml"]) == ["mix stats", "a.yaml"]
    assert joined(["mix", "stats.yaml", "--out", "x"]) == ["mix", "stats.yaml", "--out", "x"]
    assert joined(["run", "stats"]) == ["run", "stats"]


def test_a_verb_that_there_is_not_is_named_beside_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["mix", "fitt", "a.yaml", "--out", "x"])
    said = capsys.readouterr().err
    assert stopped.value.code == 2 and "no verb 'fitt'" in said and "fit, propose" in said


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_search_on_ray_ends_as_it_does_locally(data: Path, verified: Path, tmp_path: Path) -> None:
    corpusmill(*asked(data, "apply", verified))
    out = tmp_path / "out"
    with ray_head(tmp_path) as head:
        words = command(*asked(data, "apply", out), "--ray", head["CLUSTER"])
        ours = {name: value for name, value in head.items() if name.startswith("RAY_")}
        done = subprocess.run(words, capture_output=True, text=True, timeout=900, env={**os.environ, **ours})
        assert done.returncode == 0, done.stderr[-4000:]
    assert hashes(out) == hashes(verified)
