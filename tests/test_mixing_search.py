"""A search as stages: from shards to a verdict, with weights that fit what the targets are made of."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from search_world import corpus, text
from shard_runs import Document, Run

from corpusmill.mixing.caps import Caps
from corpusmill.mixing.records import decode_records
from corpusmill.mixing.search import ComponentOptions, Search, TargetOptions, Verification
from corpusmill.mixing.stage import Mix
from corpusmill.mixing.study import Proxy
from corpusmill.pipeline.chain import Chain
from corpusmill.pipeline.errors import RecipeError
from corpusmill.shards.mixture import PPB
from corpusmill.shards.plan_file import read_plan
from corpusmill.shards.stage import Shard, TokenizerSource

SIZES = {"web": 200, "books": 100, "code": 60}

SHARD = Shard(
    TokenizerSource(train="bpe", vocab=400),
    sequence_length=64,
    block_bytes=1 << 10,
    shard_bytes=1 << 20,
    holdout=0.2,
)

SEARCH = Search(
    proxy=Proxy(learnt=500),
    runs=20,
    targets={"holdout/books": TargetOptions(weight=2.0), "holdout/code": TargetOptions()},
    families=("quadratic", "gp"),
)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Of what is held out only books and code count; web is most of what there is."""
    out = tmp_path_factory.mktemp("search")
    return Run(out, corpus(SIZES), SHARD, Mix(weights={"web": 0.6, "books": 0.2, "code": 0.2}, search=SEARCH))


def sealed(run: Run, stage: str, name: str) -> Any:
    return json.loads((run.folder(stage) / name).read_bytes())


def test_a_search_ends_with_the_weights_of_its_verdict_in_mixture_and_plan(searched: Run) -> None:
    verdict = sealed(searched, "mix.verify", "verdict.json")
    mixture = yaml.safe_load((searched.out / "mixture.yaml").read_text())
    assert mixture["phases"][0]["weights_ppb"] == verdict["weights_ppb"]
    assert read_plan(searched.out / "shards/plan.json").phases[0].weights_ppb == verdict["weights_ppb"]
    assert mixture["evidence"] == verdict["evidence"]
    assert sum(verdict["weights_ppb"].values()) == PPB


def test_candidates_give_weight_to_what_the_targets_are_made_of_and_are_better_than_every_baseline(
    searched: Run,
) -> None:
    verdict = sealed(searched, "mix.verify", "verdict.json")
    proposal = sealed(searched, "mix.propose", "proposal.json")
    names = proposal["components"]
    for each in proposal["candidates"]:
        weights = dict(zip(names, np.array(each["weights_ppb"]) / PPB, strict=True))
        # Books count twice, code once, web not at all.
        assert weights["books"] > weights["code"] > weights["web"]
        assert weights["web"] < 0.1
    assert {each["verdict"] for each in verdict["judged"]} == {"verified"}


def test_the_screen_alone_ships_a_baseline_and_says_why(searched: Run) -> None:
    verdict = sealed(searched, "mix.verify", "verdict.json")
    assert verdict["verdict"] == "no_evidence"
    assert verdict["ship"] == "uniform"
    assert verdict["evidence"]["reason"].startswith("the screen alone verifies nothing")
    assert set(verdict["weights_ppb"].values()) == {333_333_000, 333_334_000}


def test_no_mixture_of_a_search_reads_a_component_over_its_epochs(searched: Run) -> None:
    study, places = (sealed(searched, "mix.stats", name) for name in ("study.json", "places.json"))
    tokens = {each["name"]: each["tokens"] for each in study["components"]}
    for stage in ("mix.design", "mix.design2", "mix.propose"):
        (result,) = searched.manifests[stage].results.values()
        design = result.extra["design"]
        weights = np.array([run["weights_ppb"] for run in design["runs"]]) / PPB
        epochs = weights * places["budget_tokens"] / np.array([tokens[name] for name in design["components"]])
        assert epochs.max() <= 4 + 1e-3


def test_every_run_of_the_design_has_a_record_a_target_with_its_documents(searched: Run) -> None:
    runs = sealed(searched, "mix.design2", "design.json")["runs"]
    files = [data for stage in ("mix.runs", "mix.runs2") for data in searched.files(stage).values()]
    assert len(files) == len(runs) == 24, "20 mixtures, two of them with three seeds"
    records = [record for data in files for record in decode_records(data, "runs")]
    assert {record.run for record in records} == {run["name"] for run in runs}
    targets = {each["name"]: each for each in sealed(searched, "mix.stats", "study.json")["targets"]}
    assert len(records) == len(runs) * len(targets) == 2 * len(runs)
    for record in records:
        assert record.bits_per_byte == pytest.approx(record.document_bits.sum() / record.document_bytes.sum())
        assert record.document_bytes.sum() == targets[record.target]["bytes"] == record.eval_bytes


def test_seeds_of_the_screen_differ_and_repeat(searched: Run) -> None:
    records = [
        record for data in searched.files("mix.runs").values() for record in decode_records(data, "runs")
    ]
    by_run = {record.run: record.bits_per_byte for record in records if record.target == "holdout/books"}
    assert by_run["proportional"] != by_run["proportional @1"] != by_run["proportional @2"]


def test_the_mixture_in_use_is_an_anchor(searched: Run) -> None:
    design = sealed(searched, "mix.design", "design.json")
    found = next(run for run in design["runs"] if run["name"] == "current")
    weights = dict(zip(design["components"], found["weights_ppb"], strict=True))
    assert weights == {"web": 600_000_000, "books": 200_000_000, "code": 200_000_000}


def test_leaving_out_what_the_target_is_made_of_is_the_worst_that_can_be_left_out(searched: Run) -> None:
    effects = sealed(searched, "mix.fit", "fit.json")["effects"]
    of_books = [each for each in effects if each["target"] == "holdout/books"]
    without = {each["component"]: each for each in of_books if each["way"] == "without"}
    assert without["books"]["low"] > 0
    assert max(without, key=lambda name: without[name]["change"]) == "books"
    more = next(each for each in of_books if (each["component"], each["way"]) == ("books", "more"))
    assert more["high"] < 0, "more of it is better"


def test_the_same_search_gives_the_same_bytes(searched: Run, tmp_path: Path) -> None:
    again = Run(
        tmp_path, corpus(SIZES), SHARD, Mix(weights={"web": 0.6, "books": 0.2, "code": 0.2}, search=SEARCH)
    )
    assert again.folders == searched.folders
    for stage in again.folders:
        if stage.startswith("mix"):
            assert again.files(stage) == searched.files(stage), stage


def test_a_search_without_anything_to_measure_on_says_what_to_do(tmp_path: Path) -> None:
    plain = Shard(TokenizerSource(train="bpe", vocab=300), sequence_length=64, block_bytes=1 << 10)
    with pytest.raises(RecipeError, match="set holdout of the shard stage"):
        Run(tmp_path, corpus({"web": 4, "books": 4}), plain, Mix(search=Search()))


def test_names_that_the_shards_do_not_have_are_refused_with_those_that_are_near(tmp_path: Path) -> None:
    data = corpus({"web": 20, "books": 20})
    with pytest.raises(RecipeError, match=r"components: no component is called 'boks'; did you mean 'books'"):
        Run(tmp_path / "a", data, SHARD, Mix(search=Search(components={"boks": ComponentOptions()})))
    with pytest.raises(RecipeError, match=r"held out is called 'holdout/wb'; did you mean 'holdout/web'"):
        Run(tmp_path / "b", data, SHARD, Mix(search=Search(targets={"holdout/wb": TargetOptions()})))


def test_a_target_that_stands_in_a_component_is_refused_with_both_names(tmp_path: Path) -> None:
    code = corpus({"code": 40})[0]
    # Copies under names of their own: of the eight or so that code holds out, web has some four in five in training.
    copies = [Document(each.text, "web", 1000 + each.number) for each in code]
    data = [corpus({"web": 40})[0] + copies, corpus({"books": 40})[0], code]
    with pytest.raises(
        RecipeError, match=r"target holdout/code and component web share \d\d\.\d% of"
    ) as refused:
        Run(tmp_path, data, SHARD, Mix(search=Search()))
    assert "component books" not in str(refused.value)


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (Search(verify=Verification(seeds=1)), "one seed is not an experiment"),
        (Search(verify=Verification(seeds=40)), r"seeds is 40; the screen has 12 samples"),
        (Search(rounds=3), "rounds is 3; a design has one round or two"),
        (Search(repeats=9), r"repeats is 9; the screen has 4 samples"),
        (Search(families=("gp", "forest")), r"no family is called 'forest'"),
        (
            Search(components={"web": ComponentOptions(least=0.5, most=0.2)}),
            "the least no more than the most",
        ),
        (Search(targets={"a": TargetOptions(weight=0.0)}), "no target has a weight above 0"),
        (Search(targets={"a": TargetOptions(weight=math.nan)}), "targets.a: weight is nan"),
        (Search(targets={"a": TargetOptions(worsening=math.nan)}), "targets.a: worsening is nan"),
        (Search(targets={"a": TargetOptions(worsening=-0.1)}), "targets.a: worsening is -0.1"),
        (Search(caps=Caps(generated=math.nan)), "caps: generated is nan; it is a share"),
        (Search(caps=Caps(protected=1.5)), "caps: protected is 1.5"),
        (Search(components={"web": ComponentOptions(max_epochs=math.inf)}), "max_epochs is inf"),
        (Search(components={"web": ComponentOptions(least=math.nan)}), "least is nan"),
        (Search(components={"web": ComponentOptions(generation=-1)}), "generation is -1"),
        (Search(components={"web": ComponentOptions(synthetic="generated", generation=0)}), "of 1 or later"),
        (
            Search(components={"web": ComponentOptions(synthetic="none", generation=2)}),
            "natural text has none",
        ),
        (Search(runs=0), "runs is 0; at least 1"),
        (Search(verify=Verification(proxies=(Proxy(), Proxy()))), "have to differ"),
    ],
)
def test_what_no_data_can_make_right_is_said_before_the_first_stage(search: Search, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        Mix(search=search).extend(_sharded(), "mix")


def test_a_target_with_the_name_of_a_component_is_refused(tmp_path: Path) -> None:
    """It would be measured in the component's place."""
    Run(tmp_path / "other", corpus({"web": 20, "books": 20}), SHARD)
    manifest = next((tmp_path / "other").rglob("holdout/web/manifest.json"))
    named = Search(targets={"web": TargetOptions(path=str(manifest.parent))})
    with pytest.raises(RecipeError, match="targets: web is the name of a component"):
        Run(tmp_path / "a", corpus({"web": 20, "books": 20}), SHARD, Mix(search=named), until="mix.stats")


def test_a_budget_that_is_no_sequence_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    data = corpus({"web": 20, "books": 20})
    with pytest.raises(RecipeError, match="budget_tokens is 63, one sequence has 64"):
        Run(tmp_path / "a", data, SHARD, Mix(budget_tokens=63, search=Search()), until="mix.stats")
    least = Run(tmp_path / "b", data, SHARD, Mix(epochs=1e-9, search=Search()), until="mix.stats")
    assert sealed(least, "mix.stats", "places.json")["budget_tokens"] == 64


def test_a_search_takes_no_weights_beside_those_in_use() -> None:
    with pytest.raises(RecipeError, match="search finds the weights; leave out weights: unimax"):
        Mix(weights="unimax", search=Search()).extend(_sharded(), "mix")


def _sharded() -> Chain:
    from corpusmill.pipeline.engine.stage import SetOperation

    chain = Chain()
    chain.set("documents", SetOperation())
    SHARD.extend(chain, "shard")
    return chain


def flipping() -> list[list[Document]]:
    """`words`: the target's words in any order; `order`: its text beside more of what is none of it.

    Whoever has learnt little needs to know which words there are, whoever has learnt much what follows what.
    """
    draw = random.Random(3)
    books = [text("books", number) for number in range(100)]
    words = [" ".join(draw.sample(text("books", number).split(), 400)) for number in range(100, 200)]
    order = [
        " ".join([*text("books", number).split()[:120], *(f"z{draw.randrange(40)}" for _ in range(280))])
        for number in range(200, 320)
    ]
    return [
        [Document(each, name, place) for place, each in enumerate(texts)]
        for name, texts in (("books", books), ("words", words), ("order", order))
    ]


def test_what_a_larger_proxy_finds_the_wrong_way_round_does_not_ship(tmp_path: Path) -> None:
    search = Search(
        proxy=Proxy(learnt=50),
        verify=Verification((Proxy(learnt=100), Proxy(learnt=1_000_000))),
        runs=14,
        ablation=False,
        candidates=1,
        families=("quadratic",),
        targets={"holdout/books": TargetOptions()},
        components={"books": ComponentOptions(most=0.02)},
        most_overlap=1.0,  # its words follow one another nearly as they must
    )
    run = Run(tmp_path, flipping(), SHARD, Mix(search=search, max_epochs=50))
    verdict = sealed(run, "mix.verify", "verdict.json")
    (judged,) = verdict["judged"]
    assert (judged["candidate"], judged["verdict"]) == ("stack", "order_flips")
    totals = {
        each["size"]: each
        for each in verdict["gains"]
        if not each["target"] and each["baseline"] == verdict["baseline"]
    }
    assert totals["screen 100"]["low"] > 0 > totals["screen 1000000"]["high"]
    mixture = yaml.safe_load((tmp_path / "mixture.yaml").read_text())
    assert mixture["evidence"]["verdict"] == "order_flips"
    assert "at proxy screen 100 (+" in mixture["evidence"]["reason"]
    assert mixture["phases"][0]["weights_ppb"] == verdict["weights_ppb"]
    assert verdict["weights_ppb"]["order"] > 0.5 * PPB, "a baseline ships: the best where most was learnt"


@pytest.mark.slow
def test_trained_proxies_verify_and_their_weights_ship(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    search = replace(
        SEARCH,
        eval_tokens=4_000,
        verify=Verification((Proxy("decoder", size="64k", tokens=40_000),), seeds=2),
    )
    run = Run(tmp_path, corpus(SIZES), SHARD, Mix(search=search))
    verdict = sealed(run, "mix.verify", "verdict.json")
    (result,) = run.manifests["mix.propose"].results.values()
    assert verdict["verdict"] in ("verified", "no_evidence")
    mixtures = result.extra["candidates"] | result.extra["baselines"]
    assert list(verdict["weights_ppb"].values()) == mixtures[verdict["ship"]]
    records = [
        record for data in run.files("mix.trials").values() for record in decode_records(data, "trials")
    ]
    for record in records:
        read = np.array(record.realised_tokens)
        asked = np.array(record.requested_ppb) / PPB
        # Within 3 rows of 64 tokens of each weight, as any prefix of a stream is.
        assert np.abs(read - asked * read.sum()).max() <= 4 * 64
    books = {
        each["candidate"]: each
        for each in verdict["gains"]
        if not each["target"] and each["baseline"] == verdict["baseline"]
    }
    assert max(each["gain"] for each in books.values()) > 0, (
        "web is most of what baselines read, and no target is made of it"
    )
