"""Plans that go on otherwise: the past stays sample for sample, and cursors know how far it reaches."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_samples import Sample, documents, write_component, write_shards

from corpusmill.pipeline.errors import BudgetError, CursorError, ShardError
from corpusmill.shards import stream
from corpusmill.shards.append import Difference, appended, earlier, first_difference, write_appended
from corpusmill.shards.layout import PLAN_FILE
from corpusmill.shards.order import ComponentOrder, Order
from corpusmill.shards.plan import MOST_SAMPLES, PPB, Component, Past, Phase, Plan, compile_plan

HALF = {"b": PPB // 2, "d": PPB // 2}


def component(name: str) -> Component:
    return Component(name, f"fp/{name}", f"manifest of {name}", 20 + 7 * ord(name) % 13, 5)


def a_plan(samples: int | None = None) -> Plan:
    return Plan(3, 2, 8, "uint16", 0, (component("b"), component("d")), (Phase(0, HALF),), samples)


def order(plan: Plan, samples: int) -> list[tuple[str, int, int]]:
    """(component's name, epoch, row) of the first samples: blocks of 4 rows and a rest."""
    orders = [
        ComponentOrder(c.name, plan.seed, plan.window, np.array([4] * (c.rows // 4) + [c.rows % 4 or 4]))
        for c in plan.components
    ]
    found = Order(plan.mixture(), orders).samples(0, samples)
    names = [plan.components[i].name for i in found.component]
    return list(zip(names, found.epoch.tolist(), found.row.tolist(), strict=True))


WEIGHT = st.integers(0, PPB)


@settings(deadline=None, max_examples=25)
@given(
    changes=st.lists(
        st.tuples(st.integers(1, 5000), st.integers(0, 700), WEIGHT, st.sampled_from(["", "a", "c", "e"])),
        max_size=3,
    )
)
def test_whatever_is_appended_the_samples_before_it_are_the_same(
    changes: list[tuple[int, int, int, str]],
) -> None:
    plan, plans = a_plan(), [(a_plan(), 0)]
    for gap, ramp, weight, name in changes:
        last = plan.phases[-1]
        start = last.start + last.ramp + gap
        new = [component(name)] if name and name not in {c.name for c in plan.components} else []
        weights = {"b": weight, (name or "d"): PPB - weight}
        plan = appended(plan, Phase(start, weights, ramp), components=new)
        plans.append((plan, start))
    end = plan.phases[-1].start
    final = order(plan, end + 900)
    for number, (old, _) in enumerate(plans[:-1]):
        parting = plans[number + 1][1]
        assert order(old, parting) == final[:parting]
        assert Past(old.id, parting) in plan.past
        difference = first_difference(old, plan)
        assert difference is None or difference.sample >= parting


def test_the_first_difference_is_the_first_sample_that_may_be_another() -> None:
    old = a_plan()
    assert first_difference(old, old) is None
    assert first_difference(old, replace(old, seed=4)) == Difference(0, "seed was 3, is 4")
    moved = appended(old, Phase(500, {"b": PPB // 5, "d": PPB - PPB // 5}))
    assert (
        str(first_difference(old, moved))
        == "from sample 500 on: weights went from b 0.5 to 0.2, d 0.5 to 0.8"
    )
    assert first_difference(moved, old) == Difference(500, "weights went from b 0.2 to 0.5, d 0.8 to 0.5")
    late = replace(old, phases=(Phase(0, {"b": PPB}), Phase(70, {"d": PPB})))
    redone = replace(late, components=(late.components[0], replace(late.components[1], manifest="other")))
    found = first_difference(late, redone)
    assert found is not None and found.sample == 70 and "d was other shards" in found.what


def test_phases_that_were_still_to_come_make_room_for_the_new_one() -> None:
    plan = appended(a_plan(), Phase(1000, {"b": PPB}))
    again = appended(plan, Phase(600, {"d": PPB}))
    assert [phase.start for phase in again.phases] == [0, 600]
    assert again.past == (Past(a_plan().id, 600), Past(plan.id, 600))
    assert order(plan, 600) == order(again, 600)


@pytest.mark.parametrize(
    ("phase", "options", "says"),
    [
        (Phase(0, HALF), {}, "from sample 1 on"),
        (Phase(501, HALF), {}, "the plan's end, 500.*--samples"),
        (Phase(100, HALF), {"samples": 100}, "no use for a phase from 100 on"),
        (Phase(100, {"b": PPB, "x": 0}), {}, "names x"),
        (Phase(100, {"b": PPB - 1}), {}, "add up to 999999999"),
        (Phase(100, HALF), {"components": [component("b")]}, "holds b already"),
        (Phase(100, HALF), {"max_epochs": {"x": 3}}, "max_epochs names x"),
    ],
)
def test_what_cannot_be_appended_is_refused(phase: Phase, options: dict, says: str) -> None:
    with pytest.raises(ShardError, match=says):
        appended(a_plan(500), phase, **options)


def test_a_phase_in_the_middle_of_a_ramp_is_refused() -> None:
    plan = appended(a_plan(), Phase(100, {"b": PPB}, ramp=200))
    with pytest.raises(ShardError, match="ramp of 200"):
        appended(plan, Phase(250, HALF))


def test_a_new_phase_that_needs_a_component_too_often_is_an_error_with_its_epochs() -> None:
    limited = {"max_epochs": {"b": 4}}
    rows = component("b").rows
    with pytest.raises(BudgetError, match=r"b \d+\.\d\d epochs of 4"):
        appended(a_plan(), Phase(2, {"b": PPB}), samples=4 * rows + 3, **limited)
    # Sample 0 or 1 came from b; then all do, and its rows may be read four times.
    assert appended(a_plan(), Phase(2, {"b": PPB}), samples=4 * rows + 1, **limited).samples == 4 * rows + 1
    stopped = appended(a_plan(), Phase(2, {"b": PPB}), exhaust="stop", **limited)
    assert stopped.samples == 4 * rows + 1


def test_epochs_are_counts_over_rows() -> None:
    plan = a_plan()
    assert plan.epochs(2000) == {
        c.name: pytest.approx(1000 / c.rows, abs=3 / c.rows) for c in plan.components
    }


# On disk


def test_a_plan_may_take_components_of_one_name_from_several_runs_below_its_folder(tmp_path: Path) -> None:
    manifests = [
        write_component(tmp_path / run, Sample("web", [documents(i, 20)])) for i, run in enumerate("xy")
    ]
    found = [(f"{run}/{folder}", manifest) for run, (folder, manifest) in zip("xy", manifests, strict=True)]
    names = {folder: f"{folder[0]}.web" for folder, _ in found}
    phases = [Phase(0, {"x.web": PPB // 2, "y.web": PPB // 2})]
    plan = compile_plan(found, phases, seed=1, samples=40, names=names)
    (tmp_path / PLAN_FILE).write_bytes(plan.encode())
    with stream(tmp_path, 40) as batches:
        rows = {tuple(row) for row in next(batches)["tokens"].tolist()}
    tmp_path.rename(tmp_path.with_name("moved"))
    with stream(tmp_path.with_name("moved"), 40) as batches:
        assert {tuple(row) for row in next(batches)["tokens"].tolist()} == rows
    with pytest.raises(ShardError, match="named once"):
        compile_plan(found, [Phase(0, {"web": PPB})], seed=1)


def test_a_cursor_of_the_plan_before_goes_on_and_one_beyond_is_refused_with_the_change(
    tmp_path: Path,
) -> None:
    old = write_shards(
        tmp_path, [Sample(name, [documents(i, 20)]) for i, name in enumerate("bd")], HALF, total=300
    )
    with stream(tmp_path, 10) as batches:
        straight = [next(batches)["tokens"] for _ in range(10)]
        saved = batches.cursor
    write_appended(tmp_path / PLAN_FILE, old, appended(old, Phase(100, {"b": PPB}), samples=300))
    with stream(tmp_path, 10) as batches:
        assert all(np.array_equal(next(batches)["tokens"], batch) for batch in straight)
    with stream(tmp_path, 10, cursor=saved) as batches:
        assert batches.cursor.next == 100 and batches.cursor.plan != saved.plan
        next(batches)
    with pytest.raises(
        CursorError, match=r"from sample 100 on \(weights went from b 0\.5 to 1, d 0\.5 to 0\)"
    ):
        stream(tmp_path, 10, cursor=replace(saved, next=110))
    assert earlier(tmp_path / PLAN_FILE, old.id) == old
    assert earlier(tmp_path / PLAN_FILE, "../../etc") is None


def test_a_cursor_that_is_refused_leads_to_the_plan_it_was_made_with(tmp_path: Path) -> None:
    old = write_shards(tmp_path, [Sample(name, [documents(1, 30)]) for name in ("b", "d")], HALF)
    with stream(tmp_path, 10) as batches:
        read = [next(batches)["tokens"].tolist() for _ in range(6)]
    write_appended(tmp_path / PLAN_FILE, old, appended(old, Phase(20, {"b": PPB})))
    cursor = {"v": 1, "plan": old.id, "next": 50, "quarantine": None}
    kept = tmp_path / "plans" / f"{old.id}.json"
    with pytest.raises(CursorError, match=f"copy {kept} beside plan.json"):
        stream(tmp_path, 10, cursor=cursor)
    with pytest.raises(ShardError, match="copy it there"):
        stream(kept, 10, cursor=cursor)
    copy = tmp_path / "before.json"
    copy.write_bytes(kept.read_bytes())
    with stream(copy, 10, cursor=cursor) as batches:
        assert next(batches)["tokens"].tolist() == read[5]


def test_a_plan_made_anew_takes_cursors_of_a_kept_one_as_far_as_they_agree(tmp_path: Path) -> None:
    """Nothing in the new plan names the old one: what was kept in `plans` is compared."""
    samples = [Sample(name, [documents(i, 20)]) for i, name in enumerate("bd")]
    old = write_shards(tmp_path, samples, HALF, total=300)
    with stream(tmp_path, 30) as batches:
        next(batches)
        saved = batches.cursor
    new = replace(old, phases=(*old.phases, Phase(50, {"d": PPB})))
    write_appended(tmp_path / PLAN_FILE, old, new)
    assert new.past == ()
    stream(tmp_path, 30, cursor=saved).close()
    with pytest.raises(CursorError, match="from sample 50 on"):
        stream(tmp_path, 30, cursor=replace(saved, next=60))


def test_limits_that_would_end_the_plan_before_its_new_phase_are_refused() -> None:
    """Component b has some 20 rows and gets half of the samples: one epoch of it is over long before sample 300."""
    with pytest.raises(BudgetError, match="before its phase from 300 on"):
        appended(a_plan(500), Phase(300, HALF), samples=500, max_epochs={"b": 1}, exhaust="stop")


def test_a_kept_plan_under_another_ones_name_lets_no_cursor_on(tmp_path: Path) -> None:
    path = tmp_path / PLAN_FILE
    old = a_plan()
    new = appended(old, Phase(500, {"b": PPB}))
    path.write_bytes(old.encode())
    write_appended(path, old, new)
    assert earlier(path, old.id) == old
    (tmp_path / "plans" / f"{old.id}.json").write_bytes(new.encode())
    with pytest.raises(ShardError, match=f"holds plan {new.id}"):
        earlier(path, old.id)


def test_the_same_shards_under_two_names_are_refused() -> None:
    again = replace(component("b"), name="c")
    with pytest.raises(ShardError, match="b, c are the same shards"):
        appended(a_plan(), Phase(500, HALF), components=[again])


@pytest.mark.parametrize(
    ("phase", "samples"),
    [
        (Phase(MOST_SAMPLES, HALF, 1), None),
        (Phase(100, HALF, MOST_SAMPLES), None),
        (Phase(100, HALF), 1 << 63),
    ],
)
def test_samples_beyond_what_is_counted_are_refused(phase: Phase, samples: int | None) -> None:
    with pytest.raises(ShardError, match=str(MOST_SAMPLES)):
        appended(a_plan(), phase, samples=samples)
