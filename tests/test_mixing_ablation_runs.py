"""Comparisons of recipes by real training: planted junk, chance, given targets, kills, Ray."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from ablation_world import ALL, DROPS, Page, junk, pages, write_crawl, write_recipe
from ray_heads import ray_head
from runs import command, corpusmill, hashes
from shard_runs import vocabulary_of

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

LETTERS = """
stages:
  - extract: {}
  - filter: [gopher_quality: {min_words: 20, min_stop_words: 0, min_mean_word_length: 1, min_alpha_words: 0.8}]
"""

WORDS = (
    "--size",
    "64k",
    "--sequence-length",
    "64",
    "--holdout",
    "0.15",
    "--eval-tokens",
    "8000",
    "--workers",
    "2",
)


def asked(folder: Path, crawl: Path, first: str, second: str, *more: str | Path) -> list[str]:
    a, b = write_recipe(folder, "a", first), write_recipe(folder, "b", second)
    arguments = ["ablate", a, b, "--input", f"web={crawl}", *WORDS, *more]
    return [str(each) for each in arguments]


def compared(folder: Path, crawl: list[Page], first: str, second: str, *more: str | Path) -> dict[str, Any]:
    path = write_crawl(folder, crawl)
    done = corpusmill(*asked(folder, path, first, second, *more), "--out", folder / "out", "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_filter_that_removes_junk_wins_on_what_both_keep(tmp_path: Path) -> None:
    crawl = [*pages("kept", 200, 200), *junk(500)]
    found = compared(tmp_path, crawl, ALL, LETTERS, "--tokens", "60000", "--vocab", "400", "--seeds", "4")
    assert found["verdict"] == "B", found["reason"]
    assert found["recipes"]["B"]["documents"] == 200 and found["recipes"]["A"]["documents"] == 700
    tokens = [each["trained_tokens"] for each in found["recipes"].values()]
    assert max(tokens) - min(tokens) < 0.01 * 60_000
    alone = next(each for each in found["targets"] if each["target"] == "kept by A alone")
    # What it gives up is seen: a model that never met numbers cannot guess them.
    assert not alone["counts"] and alone["high"] < 0


def test_a_filter_that_drops_half_at_random_is_no_evidence(tmp_path: Path) -> None:
    crawl = [*pages("even", 250, 200), *pages("odd", 250, 200)]
    found = compared(tmp_path, crawl, ALL, DROPS.format("odd.example"), "--tokens", "40000", "--vocab", "400")
    assert found["verdict"] == "no_evidence", found["reason"]
    assert found["gain"]["low"] < 0 < found["gain"]["high"]


def test_two_equal_recipes_are_no_evidence(tmp_path: Path) -> None:
    found = compared(
        tmp_path, pages("kept", 60), ALL, ALL, "--tokens", "3000", "--vocab", "300", "--seeds", "2"
    )
    assert (found["verdict"], found["reason"]) == ("no_evidence", "both recipes keep the same text")
    assert found["gain"]["gain"] == found["gain"]["low"] == found["gain"]["high"] == 0


def test_given_targets_count_and_leaks_into_a_recipe_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(vocabulary_of(300))
    shard = "  - shard: {tokenizer: {file: %s}, sequence_length: 64, block_bytes: 4096}\n"
    for name, content in {"prose": pages("prose", 30, source="books"), "aside": pages("aside", 30)}.items():
        (tmp_path / name).mkdir()
        crawl = write_crawl(tmp_path / name, content)
        recipe = write_recipe(
            tmp_path, name, "stages:\n  - extract: {}\n" + shard % (tmp_path / "tokenizer.json")
        )
        corpusmill("run", recipe, "--input", f"{name}={crawl}", "--out", tmp_path / name / "out")
    (prose,), (aside,) = ((tmp_path / name / "out/shards").glob(f"*/{name}") for name in ("prose", "aside"))
    crawl = write_crawl(tmp_path, [*pages("kept", 60), *pages("aside", 30)])
    words = (
        *asked(tmp_path, crawl, ALL, DROPS.format("aside"), "--tokens", "3000", "--seeds", "2", "--out"),
        *(str(tmp_path / "out"), "--tokenizer", str(tmp_path / "tokenizer.json")),
    )
    found = json.loads(corpusmill(*words, "--targets", f"prose={prose}", "--json").stdout)
    assert [each["target"] for each in found["targets"] if each["counts"]] == ["prose"]
    assert "kept by both, words of A" in [each["target"] for each in found["targets"]]
    refused = corpusmill(*words, "--update", "--targets", f"copied={aside}", expect=2)
    # Not all of it: a share of the copies is held out, too.
    assert re.search(r"target copied: \d+\.\d% of its tokens stand in what recipe A keeps", refused.stderr)
    nothing = corpusmill(*words, "--update", "--targets", f"gone={tmp_path}", expect=2)
    assert "target gone: " in nothing.stderr and "is missing" in nothing.stderr


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A finished comparison, and how it was asked for without --out."""
    folder = tmp_path_factory.mktemp("undisturbed")
    crawl = write_crawl(folder, [*pages("kept", 80), *junk(40)])
    words = asked(folder, crawl, ALL, DROPS.format("junk"), "--tokens", "20000", "--vocab", "300")
    corpusmill(*words, "--out", folder / "out")
    return folder / "out", words


def test_a_comparison_that_is_killed_in_its_trainings_ends_as_one_that_was_not(
    undisturbed: tuple[Path, list[str]], tmp_path: Path
) -> None:
    wanted, words = undisturbed
    out = tmp_path / "out"
    trained = "layers/ablate.runs/*/part-*"
    for most in (1, 3):
        process = subprocess.Popen(
            command(*words, "--out", out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            while process.poll() is None and len(list(out.glob(trained))) < most:
                time.sleep(0.01)
        finally:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
        assert 0 < len(list(out.glob(trained))) < 6, "the kill came while models were trained"
    corpusmill(*words, "--out", out)
    assert hashes(out) == hashes(wanted)


@pytest.mark.ray
def test_a_comparison_on_ray_ends_as_it_does_locally(
    undisturbed: tuple[Path, list[str]], tmp_path: Path
) -> None:
    wanted, words = undisturbed
    with ray_head(tmp_path) as head:
        asked_of = command(*words, "--out", tmp_path / "out", "--ray", head["CLUSTER"])
        ours = {name: value for name, value in head.items() if name.startswith("RAY_")}
        done = subprocess.run(
            asked_of, capture_output=True, text=True, timeout=1800, env={**os.environ, **ours}
        )
        assert done.returncode == 0, done.stderr[-4000:]
    assert hashes(tmp_path / "out") == hashes(wanted)
