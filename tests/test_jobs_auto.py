"""`corpusmill mix auto`: a search within a budget, whose choice outlives the clock that it was made by."""

from __future__ import annotations

import itertools
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from runs import corpusmill, hashes
from search_world import corpus, written

TRAINER = """
import json, pathlib, sys, time
mixture, seed, out, here = sys.argv[1:]
told = json.load(open(mixture))
with pathlib.Path(here, "runs.txt").open("a") as file:
    file.write(f"{told['budget_tokens']} {seed}\\n")
losses = {name: 3 - told["weights"]["books"] ** 0.5 + int(seed) / 1000 for name in told["targets"]}
json.dump(losses, open(out + "/losses.json", "w"))
"""

RECIPE = """
seed: 17
stages:
  - extract: {{}}
  - shard: {{tokenizer: {{train: bpe, vocab: 300}}, sequence_length: 64, block_bytes: 1024, holdout: 0.2}}
  - mix:
      budget_tokens: 100000
      search:
        proxy: {proxy}
        runs: 14
        candidates: 1
        families: [quadratic]
        targets: {{holdout/books: {{}}}}
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("auto")
    written(folder, corpus({"web": 30, "books": 30, "code": 30}))
    (folder / "train.py").write_text(TRAINER)
    line = f"{shlex.join([sys.executable, '-S', str(folder / 'train.py')])} {{mixture}} {{seed}} {{out}} {folder}"
    proxy = json.dumps({"kind": "command", "command": line, "tokens": 5000})
    (folder / "recipe.yaml").write_text(RECIPE.format(proxy=proxy))
    return folder


def asked(data: Path, out: Path, recipe: Path | None = None) -> list[str | Path]:
    inputs = [
        word for each in ("web", "books", "code") for word in ("--input", f"{each}={data}/{each}.jsonl.gz")
    ]
    return [recipe or data / "recipe.yaml", "--out", out, "--workers", "2", *inputs]


def test_a_budget_is_spent_on_a_choice_that_is_kept_and_can_be_written_down(
    data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    little = corpusmill("mix", "auto", *asked(data, out), "--budget", "1s", expect=2).stderr
    assert "a budget of 1m is too little: 18 runs of the design and 15 of the verdict" in little
    said = corpusmill("mix", "auto", *asked(data, out), "--budget", "2h").stdout
    assert "measured: the command learns" in said and "chosen (whole): 18 runs of command " in said
    assert "verdict: verified" in said
    trained = (data / "runs.txt").read_text().splitlines()

    # The same again: nothing is measured, nothing is trained.
    before = hashes(out)
    again = corpusmill("mix", "auto", *asked(data, out), "--budget", "2h").stdout
    assert "measured:" not in again and "verdict: verified" in again
    assert hashes(out) == before and (data / "runs.txt").read_text().splitlines() == trained
    other = corpusmill("mix", "auto", *asked(data, out), "--budget", "3h", expect=2).stderr
    assert "holds the choice of another search (the budget); add --update" in other

    # What it printed is a recipe: the same bytes without a budget.
    lines = said.partition("in the recipe:\n")[2].splitlines(keepends=True)
    snippet = yaml.safe_load(
        "".join(itertools.takewhile(lambda line: line.startswith(("  - ", "      ")), lines))
    )
    recipe = yaml.safe_load((data / "recipe.yaml").read_text())
    recipe["stages"][-1]["mix"]["search"] |= snippet[0]["mix"]["search"]
    path = tmp_path / "written.yaml"
    path.write_text(yaml.safe_dump(recipe))
    corpusmill("mix", "apply", *asked(data, tmp_path / "plain", path))
    plain = hashes(tmp_path / "plain")
    assert plain == {name: digest for name, digest in before.items() if name in plain}
    assert {Path(name).parts[1] for name in before.keys() - plain.keys()} <= {
        "mix.pace",
        "mix.stats",
        "mix.leaks",
    }


def test_a_choice_that_was_made_is_carried_out_by_whoever_comes_after_a_kill(
    data: Path, tmp_path: Path
) -> None:
    """The choice of another clock is put where a driver that was killed would have left it."""
    out = tmp_path / "out"
    corpusmill("mix", "auto", *asked(data, out), "--budget", "1s", expect=2)
    first = tmp_path / "first"
    corpusmill("mix", "auto", *asked(data, first), "--budget", "2h")
    choice = json.loads((first / "metrics/auto.json").read_text())
    choice["chosen"]["proxy"]["tokens"] = 7000
    (out / "metrics/auto.json").write_text(json.dumps(choice))
    corpusmill("mix", "auto", *asked(data, out), "--budget", "2h")
    assert (
        yaml.safe_load((out / "recipe.yaml").read_text())["stages"][-1]["mix"]["search"]["proxy"]["tokens"]
        == 7000
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.partition("  - mix:")[0], "the recipe searches no weights"),
        (lambda text: text + "        verify: {seeds: 3}\n", "leave verify out of the search"),
        (
            lambda text: "".join(
                line if "proxy:" not in line else "        proxy: {learnt: 5}\n"
                for line in text.splitlines(True)
            ),
            "leave proxy out of the search, or name a decoder or a command",
        ),
    ],
)
def test_recipes_that_leave_a_budget_nothing_to_choose_are_refused(
    data: Path, tmp_path: Path, change: Callable[[str], str], message: str
) -> None:
    other = tmp_path / "recipe.yaml"
    other.write_text(change((data / "recipe.yaml").read_text()))
    refused = corpusmill("mix", "auto", *asked(data, tmp_path / "out", other), "--budget", "1h", expect=2)
    assert message in refused.stderr and not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_decoders_are_measured_and_chosen(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    recipe = tmp_path / "recipe.yaml"
    text = (data / "recipe.yaml").read_text()
    recipe.write_text("".join(line for line in text.splitlines(True) if "proxy:" not in line))
    little = corpusmill(
        "mix", "auto", *asked(data, tmp_path / "out", recipe), "--budget", "1s", expect=2
    ).stderr
    least = little.rpartition("give --budget ")[2].split()[0]
    said = corpusmill("mix", "auto", *asked(data, tmp_path / "out", recipe), "--budget", least).stdout
    assert "measured: 64k learns" in said and "chosen (least): 18 runs of 64k 5" in said
    mixture = yaml.safe_load((tmp_path / "out/mixture.yaml").read_text())
    assert mixture["evidence"]["verified_on"] == [f"64k {tokens}" for tokens in (100_000,)]
