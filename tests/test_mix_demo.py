"""`make mix-demo` on a small crawl without decoders, as a user runs it; the whole of it with decoders is slow."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

pytest.importorskip("trafilatura")
from corpusmill.jobs.demo_prose import Prose
from corpusmill.jobs.mix_demo_progress import duration
from corpusmill.jobs.mix_demo_recipe import Sizes, base, search
from corpusmill.jobs.mix_demo_targets import Held, held_out
from corpusmill.jobs.mix_demo_texts import generated, scrambled
from corpusmill.mixing.stage import Mix
from corpusmill.pipeline.recipe import load_recipe
from corpusmill.shards.plan_file import read_plan

SMALL = ("--pages", "160", "--topics", "3", "--mixtures", "26", "--screen")


def called(out: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "corpusmill.jobs.mix_demo", "--out", str(out), "--workers", "2", *options]


def run_demo(out: Path, *options: str) -> str:
    done = subprocess.run(called(out, *options), capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("mix-demo")
    return out, run_demo(out, *SMALL)


def test_the_stream_is_counted_and_within_its_bounds(shown: tuple[Path, str]) -> None:
    out, text = shown
    plan = read_plan(out / "run/shards/plan.json")
    lines = text.partition("7  What the stream really reads")[2]
    for component in plan.components:
        assert re.search(rf"^ ?{re.escape(component.name)} ", lines, re.MULTILINE), component.name
    assert "is within the bounds" in lines


def test_the_verdict_of_counts_alone_ships_a_baseline_and_says_so(shown: tuple[Path, str]) -> None:
    out, text = shown
    mixture = yaml.safe_load((out / "run/mixture.yaml").read_text())
    assert mixture["evidence"]["verdict"] in ("no_evidence", "order_flips")
    assert f"verdict: {mixture['evidence']['verdict']}" in text
    assert f"The stream reads by {mixture['evidence']['weights']}." in text
    report = json.loads((out / "run/reports/mix.json").read_bytes())
    assert report["verdict"]["evidence"] == mixture["evidence"]


def test_junk_is_a_component_and_never_a_target(shown: tuple[Path, str]) -> None:
    out, _ = shown
    names = [component.name for component in read_plan(out / "run/shards/plan.json").components]
    assert any(name.startswith("scrambled") for name in names) and any(
        name.startswith("generated") for name in names
    )
    (spec,) = [each for each in load_recipe(str(out / "look.yaml")).stages if each.key == "mix"]
    assert isinstance(spec.config, Mix) and spec.config.search is not None
    targets = spec.config.search.targets
    assert targets["wanted"].path and targets["wanted"].weight == 2
    assert not [name for name in targets if "scrambled" in name or "generated" in name]
    tags = {part.source: part.synthetic for part in load_recipe(str(out / "look.yaml")).inputs}
    assert tags == {"web": "none", "library": "none", "scrambled": "none", "generated": "generated"}


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.skipif(find_spec("torch") is None, reason="decoders need torch")
def test_killed_while_it_trains_it_goes_on_to_a_verdict_and_a_stream_that_reads_by_it(tmp_path: Path) -> None:
    """The whole of it, as `make mix-demo` runs it."""
    process = subprocess.Popen(called(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    runs = tmp_path / "run/layers/mix.runs"
    try:
        while process.poll() is None and not (tmp_path / "search.yaml").exists():
            time.sleep(0.1)
        counted = set(runs.glob("*/part-*"))
        while process.poll() is None and len(set(runs.glob("*/part-*")) - counted) < 3:
            time.sleep(0.1)
    finally:
        process.kill()
        assert process.wait() == -signal.SIGKILL, "it was killed, and had not ended"
    stood = {path: path.stat().st_mtime_ns for path in set(runs.glob("*/part-*")) - counted}
    text = run_demo(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in stood} == stood, (
        "what was trained was not trained again"
    )
    mixture = yaml.safe_load((tmp_path / "run/mixture.yaml").read_text())
    assert mixture["evidence"]["verified_on"] == ["64k 160000", "250k 160000"]
    assert len(mixture["components"]) >= 8
    assert "is within the bounds" in text


PROSE = [Prose("a", "A", "one two three one two four"), Prose("b", "B", "one five (six) one two three")]


def test_scrambled_words_are_those_of_the_texts_and_the_same_again() -> None:
    found = scrambled(PROSE, 2, 17)
    assert found == scrambled(PROSE, 2, 17) and found[0] != found[1]
    words = set(re.findall(r"\w+", found[0].lower()))
    assert words <= {"one", "two", "three", "four", "five"}


def test_generated_pairs_occur_in_the_texts() -> None:
    """Sentences begin anew every 14 words, and a word that nothing follows leads anywhere."""
    (found,) = generated(PROSE, 1, 17)
    pairs = {pair for text in PROSE for pair in pairwise(text.text.split())}
    for line in re.split(r"\.\s*", found):
        words = f"{line[:1].lower()}{line[1:]}".split()
        assert all(pair in pairs or pair[0] in ("four", "three") for pair in pairwise(words))


def test_a_held_out_component_that_stands_in_training_is_no_target() -> None:
    assert not Held("holdout/web", 20, "web", 0.3).usable(0.1)
    assert not Held("holdout/web", 3, "web", 0.0).usable(0.1)
    assert Held("holdout/web", 20, "web", 0.1).usable(0.1)


def test_shares_of_held_out_text_that_stands_elsewhere(shown: tuple[Path, str]) -> None:
    """A training component as its own target is all there; what is wanted is not."""
    out, _ = shown
    shards = out / "run/shards"
    from corpusmill.pipeline.engine.place import place_of

    training = {
        each.name: place_of(shards / each.folder) for each in read_plan(shards / "plan.json").components
    }
    first = next(iter(training))
    wanted = read_plan(out / "wanted/shards/plan.json").components[0]
    found = held_out(
        {first: training[first], "wanted": place_of(out / "wanted/shards" / wanted.folder)}, training, 3000
    )
    assert found[0].share == pytest.approx(1.0, abs=0.05) and found[0].component == first
    assert found[1].share < 0.1


def test_recipes_of_the_demo_load(tmp_path: Path) -> None:
    path = tmp_path / "search.yaml"
    sizes = Sizes("{kind: screen, learnt: 100}", ("{kind: screen, learnt: 200}",), 30, 3, 1000)
    inputs = {"web": str(tmp_path / "a: *.warc.gz"), "stories": "b.jsonl.gz"}
    path.write_text(base("x", inputs, ["stories"], 4) + search(sizes, {"holdout/a: b": {"weight": 1.0}}))
    recipe = load_recipe(str(path))
    assert [(each.path, each.source, each.synthetic) for each in recipe.inputs] == [
        (inputs["web"], "web", "none"),
        ("b.jsonl.gz", "stories", "generated"),
    ]
    (spec,) = [each for each in recipe.stages if each.key == "mix"]
    assert isinstance(spec.config, Mix) and spec.config.search is not None
    assert list(spec.config.search.targets) == ["holdout/a: b"]


def test_what_is_left_is_said_in_seconds_or_minutes() -> None:
    assert duration(42.4) == "about 42 s" and duration(150) == "about 2.5 minutes"
