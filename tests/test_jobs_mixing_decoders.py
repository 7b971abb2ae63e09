"""A search whose proxies are trained decoders, through the command line: what it ships, after kills, and on Ray."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from ray_heads import ray_head
from runs import command, corpusmill, hashes
from search_world import corpus, written

from corpusmill.shards.mixture import PPB

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

RECIPE = """
seed: 17
stages:
  - extract: {}
  - shard: {tokenizer: {train: bpe, vocab: 400}, sequence_length: 64, block_bytes: 1024, holdout: 0.2}
  - mix:
      search:
        proxy: {kind: decoder, size: 64k, tokens: 10000}
        verify: {proxies: [{kind: decoder, size: 64k, tokens: 20000}, {kind: decoder, size: 250k, tokens: 20000}], seeds: 5}
        runs: 18
        candidates: 1
        repeats: 2
        eval_tokens: 4000
        targets: {holdout/books: {}}
"""
"""Web and code have words of their own and other steps between words: to books, of which the target is made, both are noise."""

NAMES = ("web", "books", "code")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("decoders")
    (folder / "recipe.yaml").write_text(RECIPE)
    written(folder, corpus({"web": 200, "books": 70, "code": 70}))
    return folder


def asked(data: Path, out: Path) -> list[str]:
    inputs = [part for name in NAMES for part in ("--input", f"{name}={data}/{name}.jsonl.gz")]
    return ["mix", "apply", str(data / "recipe.yaml"), "--out", str(out), "--workers", "2", *inputs]


@pytest.fixture(scope="module")
def applied(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "out"
    corpusmill(*asked(data, out))
    return out


def test_a_candidate_that_larger_decoders_verify_ships_with_its_evidence(applied: Path) -> None:
    mixture = yaml.safe_load((applied / "mixture.yaml").read_text())
    evidence, weights = mixture["evidence"], mixture["phases"][0]["weights_ppb"]
    assert evidence["verdict"] == "verified" and evidence["weights"] == evidence["candidate"] == "stack"
    assert weights["books"] == max(weights.values()) and weights["books"] > PPB // 2
    low, high = evidence["gain_interval"]
    assert 0 < low < evidence["gain_bits_per_byte"] < high
    assert evidence["verified_on"] == ["64k 20000", "250k 20000"] and evidence["proxy"] == "250k 20000"
    assert (evidence["seeds"], evidence["mixtures"]) == (5, 18)
    assert evidence["documents"] >= 5 and evidence["fit"]["holdout/books"]["rho"] > 0.5
    (verdict,) = applied.glob("layers/mix.verify/*/verdict.json")
    found = json.loads(verdict.read_text())
    totals = [each for each in found["gains"] if not each["target"]]
    assert {each["size"] for each in totals} == {"64k 20000", "250k 20000"}
    # Better than every baseline at both sizes: the order does not flip.
    assert all(each["gain"] > 0 for each in totals)
    promise = next(each for each in found["promises"] if each["mixture"] == "stack")
    assert promise["predicted"] > 0 and promise["measured"] == pytest.approx(
        evidence["gain_bits_per_byte"], abs=1e-5
    )


def test_decoders_that_are_killed_in_training_end_as_those_that_were_not(
    data: Path, applied: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for stage, most in (("mix.runs", 2), ("mix.runs", 7), ("mix.trials", 3)):
        process = subprocess.Popen(
            command(*asked(data, out)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            while process.poll() is None and len(list(out.glob(f"layers/{stage}/*/part-*"))) < most:
                time.sleep(0.01)
            assert process.poll() is None, "killed while it trains"
        finally:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
    corpusmill(*asked(data, out))
    assert hashes(out) == hashes(applied)


@pytest.mark.ray
def test_decoders_on_ray_give_the_bytes_of_local_ones(data: Path, applied: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with ray_head(tmp_path) as head:
        words = command(*asked(data, out), "--ray", head["CLUSTER"])
        ours = {name: value for name, value in head.items() if name.startswith("RAY_")}
        done = subprocess.run(words, capture_output=True, text=True, timeout=2000, env={**os.environ, **ours})
        assert done.returncode == 0, done.stderr[-4000:]
    assert hashes(out) == hashes(applied)
