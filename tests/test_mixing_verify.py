"""Gains with their intervals, and the verdict made of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from corpusmill.mixing.gains import Trials, gain, holm, trials_of
from corpusmill.mixing.records import Record
from corpusmill.mixing.study import Target
from corpusmill.mixing.verify import Blame, Verdict, verify
from corpusmill.pipeline.errors import InputError
from corpusmill.shards.mixture import PPB


def trials(
    losses: dict[str, dict[str, float]],
    seeds: int = 5,
    seed_sd: float = 0.002,
    documents: int = 40,
    size: str = "5M",
    seed: int = 0,
) -> Trials:
    """Mixture -> target -> true bits per byte; runs scatter, and so do documents, alike for all mixtures but for a tenth."""
    generator = np.random.default_rng([seed, len(losses)])
    mixtures = tuple(losses)
    targets = tuple(next(iter(losses.values())))
    bits, sizes = {}, {}
    for target in targets:
        size_bytes = generator.integers(200, 2000, documents).astype(float)
        true = np.array([losses[name][target] for name in mixtures])
        runs = true[:, None] + generator.normal(0, seed_sd, (len(mixtures), seeds))
        level = generator.normal(0, 0.2, documents)
        own = generator.normal(0, 0.02, (len(mixtures), 1, documents))
        own -= (own * size_bytes).sum(axis=2, keepdims=True) / size_bytes.sum()
        bits[target] = (runs[:, :, None] + level + own) * size_bytes
        sizes[target] = size_bytes
    return Trials(size, mixtures, tuple(range(seeds)), bits, sizes)


def test_without_documents_the_interval_is_students_over_paired_seeds() -> None:
    ours, theirs = np.array([1.00, 1.03, 0.98, 1.02]), np.array([1.05, 1.06, 1.04, 1.06])
    found = gain(
        Trials(
            "1M",
            ("a", "b"),
            (0, 1, 2, 3),
            {"t": 100 * np.stack([ours, theirs])[..., None]},
            {"t": np.array([100.0])},
        ),
        "a",
        "b",
        {"t": 1.0},
    )
    reference = stats.ttest_1samp(theirs - ours, 0.0)
    interval = reference.confidence_interval(0.95)
    assert found.gain == pytest.approx((theirs - ours).mean())
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.p == pytest.approx(reference.pvalue)


def test_where_seeds_agree_the_error_is_that_of_a_bootstrap_of_documents() -> None:
    generator = np.random.default_rng(1)
    sizes = generator.lognormal(6, 1, 300)
    saved = sizes * generator.normal(0.05, 0.1, 300)
    bits = np.stack([np.zeros((3, 300)), np.tile(saved, (3, 1))])
    found = gain(Trials("1M", ("a", "b"), (0, 1, 2), {"t": bits}, {"t": sizes}), "a", "b", {"t": 2.0})
    picks = generator.integers(0, 300, (4000, 300))
    drawn = saved[picks].sum(axis=1) / sizes[picks].sum(axis=1)
    assert found.gain == pytest.approx(saved.sum() / sizes.sum())
    assert found.document_error == pytest.approx(drawn.std(), rel=0.07)
    assert found.high - found.low == pytest.approx(2 * 1.968 * found.document_error, rel=0.01)  # t at 299


@pytest.mark.parametrize(("seed_sd", "document_sd", "seeds"), [(1.0, 0.3, 3), (0.05, 1.0, 3), (0.15, 1.0, 5)])
def test_intervals_hold_as_often_as_they_say(seed_sd: float, document_sd: float, seeds: int) -> None:
    """Runs of two mixtures that are equally good in truth; one is three times as noisy."""
    generator = np.random.default_rng([7, seeds])
    repeats, documents = 600, 40
    sizes = np.full(documents, 10.0)
    held = 0
    for _ in range(repeats):
        run = generator.normal(0, seed_sd, (2, seeds, 1)) * np.array([1.0, 3.0])[:, None, None]
        own = generator.normal(0, document_sd, (2, 1, documents))
        noise = generator.normal(0, 0.3, (2, seeds, documents))
        found = gain(
            Trials("s", ("a", "b"), tuple(range(seeds)), {"t": run + own + noise}, {"t": sizes}),
            "a",
            "b",
            {"t": 1},
        )
        held += found.low <= 0 <= found.high
    # 600 draws at 95 %: 0.93 to 0.97 is 2.2 standard errors to both sides.
    assert 0.93 <= held / repeats <= 0.975


def test_one_seed_gives_no_interval_and_missing_runs_leave_their_seed_out_of_a_pair() -> None:
    single = trials({"a": {"t": 1.0}, "b": {"t": 1.1}}, seeds=1)
    found = gain(single, "a", "b", {"t": 1.0})
    assert (found.low, found.high, found.p) == (-math.inf, math.inf, 1.0)
    some = trials({"a": {"t": 1.0}, "b": {"t": 1.1}, "c": {"t": 1.2}}, seeds=4)
    some.bits["t"][1, 2] = np.nan
    assert gain(some, "a", "b", {"t": 1.0}).seeds == 3
    assert gain(some, "a", "c", {"t": 1.0}).seeds == 4


def test_a_total_is_the_weighted_mean_of_its_targets() -> None:
    both = trials({"a": {"t": 1.0, "u": 2.0}, "b": {"t": 1.1, "u": 1.9}})
    t, u = (gain(both, "a", "b", {}, name).gain for name in ("t", "u"))
    assert gain(both, "a", "b", {"t": 3.0, "u": 1.0}).gain == pytest.approx(0.75 * t + 0.25 * u)
    assert gain(both, "a", "b", {"t": 1.0, "u": 0.0}).gain == pytest.approx(t)


def test_holms_correction_is_that_of_the_paper() -> None:
    """Ordered p times 4, 3, 2, 1, never falling."""
    p = {("a", "x"): 0.01, ("a", "y"): 0.04, ("b", "x"): 0.03, ("b", "y"): 0.005}
    assert holm(p) == pytest.approx({("b", "y"): 0.02, ("a", "x"): 0.03, ("b", "x"): 0.06, ("a", "y"): 0.06})


BASE = {"proportional": {"t": 1.10}, "uniform": {"t": 1.12}, "unimax": {"t": 1.11}}
BASELINES = tuple(BASE)


def test_a_candidate_that_beats_every_baseline_is_verified_and_ships() -> None:
    found = verify(
        [trials({"stack": {"t": 1.05}, "gp": {"t": 1.06}, **BASE})], ("gp", "stack"), BASELINES, [Target("t")]
    )
    assert (found.verdict, found.ship, found.baseline) == ("verified", "stack", "proportional")
    assert found.evidence()["gain_bits_per_byte"] == pytest.approx(0.05, abs=0.006)
    assert [each.verdict for each in found.judged] == ["verified", "verified"]
    assert max(found.judged[0].corrected.values()) < 0.05


def test_a_candidate_that_beats_some_baselines_only_is_no_evidence_and_the_best_baseline_ships() -> None:
    found = verify([trials({"stack": {"t": 1.10}, **BASE})], ("stack",), BASELINES, [Target("t")])
    assert (found.verdict, found.ship) == ("no_evidence", "proportional")
    assert "not shown to be better than proportional" in found.reason


def test_one_seed_is_no_evidence_whatever_it_says() -> None:
    found = verify([trials({"stack": {"t": 0.5}, **BASE}, seeds=1)], ("stack",), BASELINES, [Target("t")])
    assert found.verdict == "no_evidence"
    assert "one seed is not an experiment" in found.reason
    assert found.evidence()["gain_interval"] == [None, None]


def two_targets(t: float, law: float) -> dict[str, dict[str, float]]:
    base = {name: {"t": losses["t"], "law": 1.0} for name, losses in BASE.items()}
    return {"stack": {"t": t, "law": law}, **base}


def blame() -> Blame:
    """The candidate takes weight from books to web and forum; only forum's raises the loss on law."""
    even = np.array([0.4, 0.3, 0.3])
    weights = {"stack": np.array([0.1, 0.5, 0.4]), **dict.fromkeys(BASELINES, even)}
    return Blame(("books", "web", "forum"), weights, {"law": np.array([-0.1, 0.05, 0.6])})


def test_a_candidate_that_lowers_a_protected_target_is_refused_and_target_and_component_are_named() -> None:
    runs = [trials(two_targets(1.0, 1.05))]
    found = verify(
        runs, ("stack",), BASELINES, [Target("t"), Target("law", weight=0.0, protected=True)], blame()
    )
    assert (found.verdict, found.ship) == ("refused", "proportional")
    assert "target law gets worse by 0.05" in found.reason
    assert "than with proportional; by forum (+0.100 of the weight)" in found.reason
    allowed = [Target("t"), Target("law", weight=0.0, worsening=0.08)]
    assert verify(runs, ("stack",), BASELINES, allowed, blame()).verdict == "verified"
    watched = [Target("t"), Target("law", weight=0.0)]
    assert verify(runs, ("stack",), BASELINES, watched, blame()).verdict == "verified"


def test_a_refused_candidate_does_not_keep_another_from_shipping() -> None:
    losses = two_targets(1.0, 1.05)
    losses = {"stack": losses["stack"], "careful": {"t": 1.03, "law": 1.0}, **losses}
    targets = [Target("t"), Target("law", weight=0.0, protected=True)]
    found = verify([trials(losses)], ("stack", "careful"), BASELINES, targets)
    assert (found.verdict, found.ship) == ("verified", "careful")


def test_sizes_that_disagree_flip_the_order() -> None:
    small = trials({"stack": {"t": 1.15}, **BASE}, size="1M")
    large = trials({"stack": {"t": 1.05}, **BASE}, size="5M")
    for runs in ([small, large], [large, small]):
        found = verify(runs, ("stack",), BASELINES, [Target("t")])
        assert (found.verdict, found.ship) == ("order_flips", "proportional")
    equal = trials({"stack": {"t": 1.10}, **BASE}, size="1M")
    assert verify([equal, large], ("stack",), BASELINES, [Target("t")]).verdict == "verified"
    assert verify([large, equal], ("stack",), BASELINES, [Target("t")]).verdict == "no_evidence"


def test_promises_stand_beside_what_was_measured() -> None:
    predicted = {"stack": 0.9, "proportional": 1.1, "uniform": 1.12}
    found = verify(
        [trials({"stack": {"t": 1.05}, **BASE})], ("stack",), BASELINES, [Target("t")], None, predicted
    )
    (promise,) = found.promises
    assert promise.predicted == pytest.approx(0.2)
    assert promise.low < 0.05 < promise.high < promise.predicted


def test_the_same_mixture_twice_is_no_evidence() -> None:
    """Nothing differs, not even in the last digit."""
    runs = trials({"stack": {"t": 1.1}, "uniform": {"t": 1.1}})
    runs.bits["t"][0] = runs.bits["t"][1]
    assert verify([runs], ("stack",), ("uniform",), [Target("t")]).verdict == "no_evidence"


@pytest.mark.parametrize("documents", [1, 40])
def test_a_trainer_that_ignores_its_seed_verifies_nothing(documents: int) -> None:
    """Five times the same run is one run, and its interval would be of no width."""
    losses = {"stack": {"t": 1.0}, "uniform": {"t": 1.1}}
    runs = trials(losses, documents=documents)
    assert verify([runs], ("stack",), ("uniform",), [Target("t")]).verdict == "verified"
    runs.bits["t"][:] = runs.bits["t"][:, :1]
    found = verify([runs], ("stack",), ("uniform",), [Target("t")])
    assert (found.verdict, found.ship) == ("no_evidence", "uniform")
    assert "the same to the last digit" in found.reason


def test_a_verdict_is_written_as_json_numbers() -> None:
    import json

    found = verify([trials({"stack": {"t": 1.05}, **BASE}, seeds=1)], ("stack",), BASELINES, [Target("t")])
    assert isinstance(found, Verdict)
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["verdict"] == "no_evidence"


def test_trials_are_made_of_records_and_other_documents_are_refused() -> None:
    def record(run: str, ppb: tuple[int, int], seed: int, bits: list[float], sizes: list[int]) -> Record:
        return Record(
            run, "t", ("a", "b"), ppb, seed=seed, document_bits=np.array(bits), document_bytes=np.array(sizes)
        )

    even, odd = (500_000_000, 500_000_000), (900_000_000, 100_000_000)
    records = [
        record("r0", even, 1, [10.0, 20.0], [8, 16]),
        record("r1", even, 2, [11.0, 21.0], [8, 16]),
        record("r2", odd, 1, [9.0, 18.0], [8, 16]),
        record("r3", (1, PPB - 1), 1, [1.0, 1.0], [8, 16]),
    ]
    found = trials_of(records, {"uniform": even, "stack": odd}, "1M")
    assert found.bits["t"].shape == (2, 2, 2)
    assert found.bits["t"][0].tolist() == [[10.0, 20.0], [11.0, 21.0]]
    assert np.isnan(found.bits["t"][1, 1]).all()
    assert found.loss("uniform", {"t": 1.0}) == pytest.approx((30 / 24 + 32 / 24) / 2)
    with pytest.raises(InputError, match="run of stack with seed 1 measured other documents"):
        trials_of([records[0], record("r4", odd, 1, [9.0], [24])], {"uniform": even, "stack": odd}, "1M")
    whole = Record("r5", "t", ("a", "b"), odd, bits_per_byte=1.5, eval_bytes=10)
    assert trials_of([whole], {"stack": odd}, "1M").bits["t"].tolist() == [[[15.0]]]
    with pytest.raises(InputError, match="bits per byte are not known"):
        trials_of([Record("r6", "t", ("a", "b"), odd, loss=2.0)], {"stack": odd}, "1M")


def test_what_was_not_run_is_named() -> None:
    runs = [trials({"stack": {"t": 1.05}, **BASE})]
    with pytest.raises(InputError, match="no run of gp at size 5M"):
        verify(runs, ("gp",), BASELINES, [Target("t")])
    with pytest.raises(InputError, match="target law was not measured"):
        verify(runs, ("stack",), BASELINES, [Target("t"), Target("law")])
