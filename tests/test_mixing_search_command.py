"""A search whose proxies are another trainer's: a program that is told the mixture, run by run."""

from __future__ import annotations

import json
import shlex
import sys
from ast import literal_eval
from pathlib import Path

import pytest
import yaml
from runs import corpusmill
from search_world import corpus, written

from corpusmill.mixing.study import Proxy
from corpusmill.pipeline.errors import RecipeError
from corpusmill.shards.mixture import PPB

TRAINER = """
import json, pathlib, sys
mixture, seed, out, kept, here = sys.argv[1:]
told = json.load(open(mixture))
pathlib.Path(here, "runs.txt").open("a").write(f"{told['weights_ppb']} {told['budget_tokens']} {seed}\\n")
tries = pathlib.Path(kept, "tries")
tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
if pathlib.Path(here, "broken").exists() and told["weights"]["code"] > 0.5:
    sys.exit("the trainer's disk is full")
assert all(pathlib.Path(each["folder"], "manifest.json").is_file() for each in told["targets"].values())
losses = {name: 3 - told["weights"]["books"] ** 0.5 + int(seed) / 1000 for name in told["targets"]}
json.dump(losses, open(out + "/losses.json", "w"))
"""
"""The more books the better, and nothing else matters."""

RECIPE = """
seed: 17
stages:
  - extract: {{}}
  - shard: {{tokenizer: {{train: bpe, vocab: 300}}, sequence_length: 64, block_bytes: 1024, holdout: 0.2}}
  - mix:
      search:
        proxy: {{kind: command, command: {line}, name: square root, tokens: 5000}}
        verify: {{seeds: 2}}
        runs: 14
        families: [quadratic]
        targets: {{holdout/books: {{}}}}
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Also the folder in which the trainer keeps its list of runs."""
    folder = tmp_path_factory.mktemp("command")
    written(folder, corpus({"web": 30, "books": 30, "code": 30}))
    (folder / "train.py").write_text(TRAINER)
    words = [sys.executable, "-S", str(folder / "train.py"), "{mixture}", "{seed}", "{out}", "{checkpoints}"]
    line = json.dumps(shlex.join(words).replace("'{", "{").replace("}'", "}") + f" {folder}")
    (folder / "recipe.yaml").write_text(RECIPE.format(line=line))
    return folder


def test_a_search_by_a_command_goes_on_where_its_trainer_failed_and_ships_what_it_verified(
    data: Path, tmp_path: Path
) -> None:
    """Each run is made once but for the one that failed, which finds what it had left."""
    inputs = [
        word for each in ("web", "books", "code") for word in ("--input", f"{each}={data}/{each}.jsonl.gz")
    ]
    asked = [data / "recipe.yaml", "--out", tmp_path / "out", "--workers", "1", *inputs]
    (data / "broken").touch()
    failed = corpusmill("mix", "run", *asked, expect=1).stderr
    assert "the trainer's disk is full" in failed
    before = (data / "runs.txt").read_text().splitlines()
    (data / "broken").unlink()
    corpusmill("mix", "run", *asked)
    runs = (data / "runs.txt").read_text().splitlines()
    again = [run for run in before if runs.count(run) > 1]
    assert 0 < len(set(again)) < len(set(before))
    assert all(literal_eval(run[: run.index("}") + 1])["code"] > PPB // 2 for run in again)
    assert len(set(runs)) == 18  # 14 mixtures, two of them with three seeds
    kept = sorted(path.read_text() for path in (tmp_path / "out/metrics/proxies").glob("*/tries"))
    assert kept.count("x") == 18 - len(set(again)) and kept[-1].startswith("xx")

    corpusmill("mix", "apply", *asked)
    mixture = yaml.safe_load((tmp_path / "out/mixture.yaml").read_text())
    weights = mixture["phases"][0]["weights_ppb"]
    assert mixture["evidence"]["verdict"] == "verified"
    assert mixture["evidence"]["verified_on"] == ["square root 10000", "square root 20000"]
    assert weights["books"] == max(weights.values())
    trials = (data / "runs.txt").read_text().splitlines()[len(runs) :]
    assert {run.split()[-2] for run in trials} == {"10000", "20000"}, "tokens are what the trainer is told"
    assert {run.split()[-1] for run in trials} == {"1017", "1018"}, "seeds that no run of the design has had"


@pytest.mark.parametrize(
    ("proxy", "message"),
    [
        (Proxy("command", tokens=5), "a command needs its line and tokens"),
        (Proxy("command", command="train.sh {out}"), "a command needs its line and tokens"),
        (Proxy("command", command="train.sh {ou}", tokens=5), r"cannot be read \('ou'\)"),
        (Proxy("command", command="a", tokens=0), "budget_tokens is 0"),
        (Proxy("command", command="a", tokens=5, size="1M"), "size does not go with kind: command"),
        (Proxy("screen", name="a"), "name does not go with kind: screen, which has learnt"),
        (Proxy("decoder", size="1M", tokens=5, command="a"), "command does not go with kind: decoder"),
    ],
)
def test_what_does_not_go_together_in_a_proxy_is_said(proxy: Proxy, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        proxy.check("mix.search")
