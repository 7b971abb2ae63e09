"""What a search knows of its components: kinds from the inputs, and how far what models wrote is from what people did."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pytest
from runs import corpusmill
from search_world import corpus
from shard_runs import Run
from test_mixing_synthetic import GENERATIONS, imitations

from corpusmill.mixing.search import ComponentOptions, Search
from corpusmill.mixing.search_told import Told, beside
from corpusmill.mixing.stage import Mix
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.kinds import Kind
from corpusmill.shards.stage import Shard, TokenizerSource

SHARD = Shard(
    TokenizerSource(train="bpe", vocab=400),
    sequence_length=64,
    block_bytes=1 << 10,
    shard_bytes=1 << 20,
    holdout=0.2,
)

KINDS = {"books": Kind(protected=True), "code": Kind("generated", 2)}


def stats(out: Path, components: Mapping[str, ComponentOptions], kinds: Mapping[str, Kind] = KINDS) -> Run:
    mix = Mix(search=Search(components=dict(components)))
    return Run(out, corpus({"web": 40, "books": 30, "code": 6}), SHARD, mix, kinds=kinds, until="mix.stats")


def sealed(run: Run, name: str) -> Any:
    return json.loads((run.folder("mix.stats") / name).read_bytes())


def test_kinds_of_the_inputs_are_those_of_the_components(tmp_path: Path) -> None:
    run = stats(tmp_path, {"web": ComponentOptions(max_epochs=2)})
    study = sealed(run, "study.json")
    found = {
        each["name"]: (each["synthetic"], each["generation"], each["protected"], each["max_epochs"])
        for each in study["components"]
    }
    assert found == {
        "web": ("none", 0, False, 2.0),
        "books": ("none", 0, True, 4.0),
        "code": ("generated", 2, False, 4.0),
    }
    # Nothing is told of copies without dedup, and of 6 documents no distance.
    told = sealed(run, "told.json")
    assert told["clusters"] == {"web": None, "books": None, "code": None}
    assert told["distances"]["code"]["against"] == ["books", "web"]
    assert "the synthetic text has" in told["distances"]["code"]["unknown"]


def test_text_of_models_is_no_target_unless_it_is_named_or_all_there_is(tmp_path: Path) -> None:
    targets = [each["name"] for each in sealed(stats(tmp_path / "a", {}), "study.json")["targets"]]
    assert targets == ["holdout/books", "holdout/web"]
    every = {name: Kind("rephrased", 1) for name in ("web", "books", "code")}
    run = stats(tmp_path / "b", {}, every)
    assert len(sealed(run, "study.json")["targets"]) == 3
    assert sealed(run, "told.json")["distances"] == {}, "there is no natural text to be far from"


def test_the_search_may_say_what_inputs_do_not_and_nothing_else(tmp_path: Path) -> None:
    said = {
        "web": ComponentOptions(synthetic="rephrased"),
        "books": ComponentOptions(protected=True),
        "code": ComponentOptions(synthetic="generated", generation=2, protected=True),
    }
    study = sealed(stats(tmp_path / "a", said), "study.json")
    found = {each["name"]: (each["synthetic"], each["generation"], each["protected"]) for each in study["components"]}  # fmt: skip
    assert found == {
        "web": ("rephrased", 1, False),
        "books": ("none", 0, True),
        "code": ("generated", 2, True),
    }


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("code", {"synthetic": "none"}, "synthetic is none, but the recipe's inputs say generated"),
        ("code", {"synthetic": "rephrased"}, "synthetic is rephrased, but"),
        ("code", {"generation": 1}, "generation is 1, but the recipe's inputs say 2"),
        ("books", {"protected": False}, "protected is false, but the recipe's inputs say true"),
    ],
)
def test_a_search_that_contradicts_the_inputs_is_refused(
    name: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match=rf"mix\.search\.components\.{name}: {message}"):
        stats(tmp_path, {name: ComponentOptions(**options)})


def test_synthetic_text_is_compared_with_natural_text_on_the_same_subject() -> None:
    def told(synthetic: Any, **values: str) -> Told:
        return Told(values, synthetic, int(synthetic != "none"), False, None)

    found = {
        "web.cats": told("none", source="web", topic="cats"),
        "books.cats": told("none", source="books", topic="cats"),
        "web.dogs": told("none", source="web", topic="dogs"),
        "web.rest": told("none", source="web"),
        "llm.cats": told("generated", source="llm", topic="cats"),
        "llm.birds": told("generated", source="llm", topic="birds"),
        "old.cats": told("rephrased", source="old", topic="cats"),
    }
    assert beside("llm.cats", found) == ["books.cats", "web.cats"] == beside("old.cats", found)
    assert beside("llm.birds", found) == ["books.cats", "web.cats", "web.dogs", "web.rest"]


RECIPE = """
stages:
  - extract: {with: resiliparse}
  - shard: {tokenizer: {train: bpe, vocab: 1000}, sequence_length: 64, block_bytes: 1024, holdout: 0.05}
  - mix: {search: {}}
"""


def test_the_command_prints_a_distance_that_rises_over_generations(tmp_path: Path) -> None:
    """Generation 0 says again word for word what people wrote elsewhere; each later one learnt from the one before."""
    words: dict[str, int] = {}
    text = " ".join(each for _, each in sorted(topics.items())).split()
    ids = np.array([words.setdefault(word, len(words)) for word in islice(text, 256 * 240)])
    spelt = np.array(list(words))
    documents = list(ids.reshape(240, 256))
    learnt_from, sources = documents[1::2], {"people": documents[::2]}
    inputs = [f"  - {{path: {tmp_path}/people.jsonl, source: people}}"]
    for generation in range(GENERATIONS):
        learnt_from = imitations(learnt_from, seed=generation) if generation else learnt_from
        name, kind = f"model{generation}", "generated" if generation else "rephrased"
        sources[name] = learnt_from
        inputs.append(
            f"  - {{path: {tmp_path}/{name}.jsonl, source: {name}, synthetic: {kind}, generation: {max(1, generation)}}}"
        )
    for source, rows in sources.items():
        lines = [json.dumps({"text": " ".join(spelt[row])}) for row in rows]
        (tmp_path / f"{source}.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "recipe.yaml").write_text("inputs:\n" + "\n".join(inputs) + RECIPE)
    asked = ("mix", "stats", tmp_path / "recipe.yaml", "--out", tmp_path / "out", "--workers", "2")
    found = json.loads(corpusmill(*asked, "--json").stdout)
    assert [(each["synthetic"], each["generation"]) for each in found["components"]] == [
        ("rephrased", 1), ("generated", 1), ("generated", 2), ("generated", 3), ("generated", 4), ("none", 0),
    ]  # fmt: skip
    distances = [found["distances"][f"model{generation}"] for generation in range(GENERATIONS)]
    assert all(each["against"] == ["people"] for each in distances)
    apart = [each["auc"]["synthetic"] for each in distances]
    assert apart == sorted(apart) and apart[0] < 0.6 and apart[-1] > 0.9, apart
    pairs = [each["distinct"]["synthetic"][1] for each in distances]
    assert pairs[1:] == sorted(pairs[1:], reverse=True), pairs
    repeated = [each["self_repetition"]["synthetic"] for each in distances]
    assert repeated[1:] == sorted(repeated[1:]), repeated
    table = corpusmill(*asked).stdout
    assert "told apart" in table and f"{apart[-1]:.3f} ({distances[-1]['auc']['natural']:.3f})" in table
    assert "generated 4" in table
