"""Six rounds of the chaos suite (`make chaos` plays more): broken on purpose, then the same command, then every byte compared."""

from collections import Counter
from pathlib import Path

import pytest
from chaos.ground import Ground
from chaos.rounds import KINDS, kind_of, play

FIXED = ("several of these", "guard killed", "two drivers", "disk full", "files cut", "bits flipped")


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory, undisturbed: Path, crawl: Path, recipe: Path) -> Ground:
    made = Ground(tmp_path_factory.mktemp("chaos"), crawl, recipe, undisturbed)
    assert made.learn() == []
    return made


@pytest.mark.parametrize("number", range(len(FIXED)))
def test_a_round_ends_with_the_bytes_of_an_undisturbed_run(number: int, ground: Ground) -> None:
    outcome = play(ground, 7, number, FIXED[number])
    assert not outcome.problems, "\n".join([*outcome.broken, *outcome.problems])
    assert outcome.broken


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
