"""Six rounds of the chaos suite (`make chaos` plays all kinds): broken on purpose, then the same command, then every byte compared."""

import json
from collections import Counter
from pathlib import Path

import pytest
from chaos.__main__ import shared_out
from chaos.ground import Ground, make_ground
from chaos.nodes import ray_kind_of
from chaos.rounds import KINDS, kind_of, play

FIXED = ("several of these", "guard killed", "two drivers", "disk full", "files cut", "bits flipped")
SEED = 12
"""Of short rounds: two strikes of `several`, a second driver that comes late and one of the two killed, a disk that is full early."""


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory, undisturbed: Path, crawl: Path, recipe: Path) -> Ground:
    said = undisturbed.with_name("events").read_text().splitlines()
    events = [json.loads(line) for line in said if line.startswith("{")]
    began = events[0]["time"]
    made = Ground(tmp_path_factory.mktemp("chaos"), crawl, recipe, undisturbed)
    made.remember([(event["time"] - began, event) for event in events], events[-1]["time"] - began)
    return made


@pytest.mark.parametrize("number", range(len(FIXED)))
def test_a_round_ends_with_the_bytes_of_an_undisturbed_run(number: int, ground: Ground) -> None:
    outcome = play(ground, SEED, number, FIXED[number])
    assert not outcome.problems, "\n".join([*outcome.broken, *outcome.problems])
    assert outcome.broken


@pytest.fixture(scope="module")
def with_hostile_pages(tmp_path_factory: pytest.TempPathFactory, language_model: Path) -> Ground:
    made = make_ground(tmp_path_factory.mktemp("chaos") / "ground")
    assert made.learn() == []
    return made


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in FIXED])
def test_a_round_of_any_other_kind_does_so_too(kind: str, with_hostile_pages: Ground) -> None:
    outcome = play(with_hostile_pages, 7, 100, kind)
    assert not outcome.problems, "\n".join([*outcome.broken, *outcome.problems])
    assert outcome.broken


def test_fifty_rounds_are_forty_of_every_local_kind_and_ten_on_ray_of_which_four_lose_a_node() -> None:
    assert shared_out(50, None) == (40, 10) and shared_out(50, 3) == (47, 3)
    assert {kind_of(1, n) for n in range(40)} == set(KINDS)
    assert Counter(map(ray_kind_of, range(10)))["Ray node killed"] == 4


def test_rounds_are_a_function_of_seed_and_number_and_take_every_kind_in_turn() -> None:
    assert [kind_of(3, n) for n in range(40)] == [kind_of(3, n) for n in range(40)]
    assert Counter(kind_of(3, n) for n in range(2 * len(KINDS))) == dict.fromkeys(KINDS, 2)


def test_a_file_that_is_missing_too_many_or_changed_is_a_difference(ground: Ground, tmp_path: Path) -> None:
    import shutil

    out = tmp_path / "out"
    shutil.copytree(ground.reference, out)
    assert ground.differences(out) == []
    (out / "mixture.yaml").write_text("other")
    (out / "shards" / "plan.json").unlink()
    (out / "layers" / ".tmp-left").write_bytes(b"")
    assert ground.differences(out) == [
        "missing: shards/plan.json",
        "too many: layers/.tmp-left",
        "other bytes: mixture.yaml",
    ]
