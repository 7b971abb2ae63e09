"""Plans: checked when they are made, refused when they were edited, and cursors that fit them or say why not."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shard_samples import Sample, documents, small_shards, write_component, write_shards

from corpusmill.pipeline.errors import BudgetError, CursorError, ShardError
from corpusmill.shards.cursor import Cursor, read_cursor, start_of
from corpusmill.shards.layout import Manifest
from corpusmill.shards.mixture import ramped
from corpusmill.shards.plan import PPB, Past, Phase, capacity, compile_plan
from corpusmill.shards.plan_file import find_plan, read_plan


@pytest.fixture
def two(tmp_path: Path) -> list[tuple[str, Manifest]]:
    """`big` with 100 rows or so and `tiny` with a few."""
    return [
        write_component(tmp_path, Sample("big", [documents(1, 40)])),
        write_component(tmp_path, Sample("tiny", [documents(2, 3)])),
    ]


EVEN = Phase(0, {"big": PPB // 2, "tiny": PPB // 2})


def test_a_plan_read_back_is_the_plan_that_was_written(tmp_path: Path) -> None:
    plan = small_shards(tmp_path, total=500)
    assert read_plan(tmp_path / "plan.json") == plan


def test_the_order_in_which_components_are_given_does_not_matter(two: list[tuple[str, Manifest]]) -> None:
    assert compile_plan(two, [EVEN], seed=1).id == compile_plan(two[::-1], [EVEN], seed=1).id


def test_extreme_weights_that_need_a_small_source_too_often_are_an_error_with_figures(
    two: list[tuple[str, Manifest]],
) -> None:
    tiny = two[1][1].rows
    phases = [Phase(0, {"big": PPB // 1000, "tiny": PPB - PPB // 1000})]
    with pytest.raises(BudgetError, match=rf"tiny {100 * 0.999 / tiny:.0f}\.\d\d epochs of 4"):
        compile_plan(two, phases, seed=1, samples=100, max_epochs={"tiny": 4})


def test_the_samples_that_an_error_says_would_fit_do_fit_and_one_more_does_not(
    two: list[tuple[str, Manifest]],
) -> None:
    with pytest.raises(BudgetError) as error:
        compile_plan(two, [EVEN], seed=1, samples=10_000, max_epochs={"tiny": 4})
    fits = int(str(error.value).split(" samples fit")[0].split()[-1])
    assert compile_plan(two, [EVEN], seed=1, samples=fits, max_epochs={"tiny": 4}).samples == fits
    with pytest.raises(BudgetError):
        compile_plan(two, [EVEN], seed=1, samples=fits + 1, max_epochs={"tiny": 4})
    # Half of the samples come from `tiny`, whose rows may be read four times.
    assert abs(fits - 2 * 4 * two[1][1].rows) <= 2


def test_stop_ends_before_the_first_component_runs_out(two: list[tuple[str, Manifest]]) -> None:
    plan = compile_plan(two, [EVEN], seed=1, exhaust="stop")
    assert plan.samples is not None
    counts = dict(zip(("big", "tiny"), plan.mixture().counts(plan.samples), strict=True))
    assert counts["tiny"] == two[1][1].rows and counts["big"] <= two[0][1].rows
    assert plan.mixture().counts(plan.samples + 1)[1] > two[1][1].rows


def test_repeat_without_limits_never_ends(two: list[tuple[str, Manifest]]) -> None:
    plan = compile_plan(two, [EVEN], seed=1)
    assert plan.samples is None and capacity(plan) is None


def test_a_limit_on_a_component_that_is_not_drawn_ends_nothing(two: list[tuple[str, Manifest]]) -> None:
    plan = compile_plan(two, [Phase(0, {"big": PPB})], seed=1, max_epochs={"tiny": 1})
    assert capacity(plan) is None


@pytest.mark.parametrize(
    ("phases", "says"),
    [
        ([Phase(0, {"big": PPB // 2, "tiny": PPB // 2 - 1})], "add up to 999999999"),
        ([Phase(0, {"big": PPB, "bgi": 0})], "names bgi"),
        ([Phase(0, {"big": PPB + 1, "tiny": -1})], "none negative"),
        ([Phase(5, {"big": PPB})], "start at sample 0"),
        ([Phase(0, {"big": PPB}), Phase(0, {"tiny": PPB})], "start at sample 0 and rise"),
        ([Phase(0, {"big": PPB}, ramp=10)], "ramp of 10"),
        ([Phase(0, {"big": PPB}), Phase(10, {"tiny": PPB}, ramp=11), Phase(20, {"big": PPB})], "ramp of 11"),
    ],
)
def test_phases_that_cannot_be_are_named(
    two: list[tuple[str, Manifest]], phases: list[Phase], says: str
) -> None:
    with pytest.raises(ShardError, match=says):
        compile_plan(two, phases, seed=1)


def test_components_of_different_tokenizers_cannot_be_mixed(two: list[tuple[str, Manifest]]) -> None:
    other = (two[0][0], replace(two[0][1], tokenizer_sha256="other"))
    with pytest.raises(ShardError, match="big and tiny cannot be mixed: tokenizer_sha256"):
        compile_plan([other, two[1]], [EVEN], seed=1)


def test_a_ramp_goes_from_one_phase_to_the_next_in_equal_steps(two: list[tuple[str, Manifest]]) -> None:
    phases = [Phase(0, {"big": PPB}), Phase(1000, {"tiny": PPB}, ramp=640)]
    steps = compile_plan(two, phases, seed=1).mixture().steps
    assert [step.start for step in steps] == [0, *range(1000, 1640, 10), 1640]
    assert all(sum(step.weights) == PPB for step in steps)
    # The middle of step i of 64 is (i + 0.5) / 64 of the way.
    assert [step.weights[1] for step in steps[1:4]] == [7_812_500, 23_437_500, 39_062_500]
    assert steps[-1].weights == (0, PPB)


@given(ramp=st.integers(0, 300), start=st.integers(1, 300), goal=st.integers(0, PPB))
def test_ramps_of_any_length_keep_weights_whole(ramp: int, start: int, goal: int) -> None:
    steps = ramped([(0, 0, (1, PPB - 1)), (start, ramp, (goal, PPB - goal))])
    assert all(sum(step.weights) == PPB and min(step.weights) >= 0 for step in steps)
    starts = [step.start for step in steps]
    assert starts == sorted(set(starts)) and len(starts) <= 66 and steps[-1].weights == (goal, PPB - goal)


def test_an_edited_plan_is_refused(tmp_path: Path) -> None:
    small_shards(tmp_path)
    path = tmp_path / "plan.json"
    path.write_text(path.read_text().replace('"seed": 17', '"seed": 18'))
    with pytest.raises(ShardError, match="was edited"):
        read_plan(path)


@pytest.mark.parametrize(("stands", "edit"), [('"samples": null', '"samples": NaN'), ('"big"', '"\\ud800"')])
def test_a_plan_edited_to_what_cannot_be_written_is_refused(tmp_path: Path, stands: str, edit: str) -> None:
    write_shards(tmp_path, [Sample("big", [documents(1, 5)])], {"big": PPB})
    path = tmp_path / "plan.json"
    assert stands in path.read_text()
    path.write_text(path.read_text().replace(stands, edit))
    with pytest.raises(ShardError, match=r"plan\.json cannot be read"):
        read_plan(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"[" * 100_000,
        b"\xff",
        b'{"format": "corpusmill/plan/v9", "order_version": 1}',
    ],
)
def test_what_is_no_plan_is_refused_with_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(ShardError, match=r"plan\.json"):
        read_plan(path)


def test_a_component_outside_the_plans_folder_is_refused(two: list[tuple[str, Manifest]]) -> None:
    for folder in ("/etc", "../elsewhere"):
        with pytest.raises(ShardError, match="outside"):
            compile_plan([(folder, two[0][1])], [Phase(0, {"big": PPB})], seed=1)


def test_the_plan_is_found_from_out_its_shards_or_itself(tmp_path: Path) -> None:
    small_shards(tmp_path / "out" / "shards")
    path = tmp_path / "out" / "shards" / "plan.json"
    assert {find_plan(tmp_path / "out"), find_plan(tmp_path / "out" / "shards"), find_plan(str(path))} == {
        path
    }
    with pytest.raises(ShardError, match="no plan at"):
        find_plan(tmp_path)


def test_a_cursor_is_about_100_bytes_and_reads_back_from_json_and_dict() -> None:
    cursor = Cursor("0123456789abcdef" * 2, 10**12)
    assert len(cursor.to_json()) < 128
    assert read_cursor(cursor.to_json()) == read_cursor(cursor.state()) == read_cursor(cursor) == cursor
    assert json.loads(cursor.to_json())["v"] == 1


@pytest.mark.parametrize(
    "value",
    [
        "",
        "[1]",
        "[" * 100_000,
        "{}",
        '{"plan": "x", "next": -1}',
        '{"plan": "x", "next": 1.5}',
        '{"plan": 1}',
        '{"plan": "x", "next": 1, "quarantine": 5}',
        Cursor("x", -1),
        Cursor("x", 1.0),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_cursor_is_refused(value: str | Cursor) -> None:
    with pytest.raises(CursorError, match="not a cursor"):
        read_cursor(value)


def test_a_cursor_of_another_version_is_refused() -> None:
    with pytest.raises(CursorError, match="version 2"):
        read_cursor({"plan": "x", "next": 1, "v": 2})


def test_a_cursor_of_another_plan_is_refused_and_both_are_named(two: list[tuple[str, Manifest]]) -> None:
    mine, other = compile_plan(two, [EVEN], seed=1), compile_plan(two, [EVEN], seed=2)
    with pytest.raises(CursorError, match=f"{other.id[:8]}.*{mine.id[:8]}.*from sample 0"):
        start_of(Cursor(other.id, 8), mine, "plan.json")


def test_a_cursor_of_an_earlier_plan_fits_up_to_where_they_differ(two: list[tuple[str, Manifest]]) -> None:
    old = compile_plan(two, [EVEN], seed=1)
    new = replace(old, phases=(EVEN, Phase(4096, {"big": PPB})), past=(Past(old.id, 4096),))
    assert start_of(Cursor(old.id, 4096), new, "plan.json") == 4096
    with pytest.raises(CursorError, match="from sample 4096 on"):
        start_of(Cursor(old.id, 4097), new, "plan.json")


def test_a_cursor_beyond_the_end_is_refused(two: list[tuple[str, Manifest]]) -> None:
    plan = compile_plan(two, [EVEN], seed=1, samples=100)
    assert start_of(Cursor(plan.id, 100), plan, "plan.json") == 100
    with pytest.raises(CursorError, match="ends at 100"):
        start_of(Cursor(plan.id, 101), plan, "plan.json")


def test_weights_that_one_component_takes_whole_work_for_a_single_one(tmp_path: Path) -> None:
    plan = write_shards(tmp_path, [Sample("only", [documents(1, 5)])], {"only": PPB})
    assert plan.mixture().counts(12345) == (12345,)
