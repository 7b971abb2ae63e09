"""components.json: kinds of text never share a component, and what is said of each is what its documents were."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pin_results import text
from shard_runs import Document, Run

from corpusmill.dedup.stage import Dedup
from corpusmill.pipeline.errors import RecipeError, ShardError
from corpusmill.pipeline.input import Input
from corpusmill.pipeline.kinds import Kind, kinds_of
from corpusmill.pipeline.recipe import Recipe, parse_recipe
from corpusmill.shards.about import members_of
from corpusmill.shards.components import SYNTHETIC, Band, Components, component_names, merge_small
from corpusmill.shards.layout import decode_manifest
from corpusmill.shards.stage import Shard, TokenizerSource

KINDS = {
    "books": Kind(protected=True),
    "retold": Kind("rephrased", 1),
    "stories": Kind("generated", 2),
}
SOURCES = ("web", *KINDS)

SHARD = Shard(TokenizerSource(train="bpe", vocab=300), sequence_length=16, block_bytes=64)


def corpus(sources: Sequence[str] = SOURCES) -> list[list[Document]]:
    """A partition a source: 12 texts of rising length, which stand there once, twice or three times in turns."""
    texts = [(source, place) for source in sources for place in range(12) for _ in range(place % 3 + 1)]
    found = [
        Document(text(50 * SOURCES.index(source) + place, place // 2 + 1), source, number)
        for number, (source, place) in enumerate(texts)
    ]
    return [[each for each in found if each.source == source] for source in sources]


def run(
    out: Path,
    *by: str | Band,
    kinds: Mapping[str, Kind] = KINDS,
    dedup: bool = True,
    partitions: Sequence[Sequence[Document]] | None = None,
    **shard: Any,
) -> Run:
    stages = [("dedup", Dedup(near=False))] if dedup else []
    stages.append(("shard", replace(SHARD, components=Components(by), **shard)))
    names, configs = zip(*stages, strict=True)
    return Run(out, partitions or corpus(), *configs, names=names, kinds=kinds)


def about(run: Run) -> dict[str, Any]:
    """components.json, whose documents are those of the manifests."""
    found: dict[str, Any] = json.loads((run.out / "shards/components.json").read_bytes())
    for path in run.folder("shard.write").glob("*/manifest.json"):
        manifest = decode_manifest(path.read_bytes(), str(path))
        assert found["components"][manifest.name]["documents"] == manifest.documents
    return found


def test_what_is_said_of_a_component_is_what_its_documents_were(tmp_path: Path) -> None:
    found = about(run(tmp_path, "source"))
    assert found["by"] == ["source"]
    # Of 12 texts 4 stood once, 4 twice and 4 three times.
    of_all = {"documents": 12, "clusters": {"alone": 4, "mean_size": 2.0, "largest": 3}}
    natural = {"synthetic": "none", "generation": 0, "protected": False}
    assert found["components"] == {
        "books": {"values": {"source": "books"}, **natural, "protected": True, **of_all},
        "retold": {"values": {"source": "retold"}, **natural, "synthetic": "rephrased", "generation": 1, **of_all},
        "stories": {"values": {"source": "stories"}, **natural, "synthetic": "generated", "generation": 2, **of_all},
        "web": {"values": {"source": "web"}, **natural, **of_all},
    }  # fmt: skip


def test_kinds_are_components_of_their_own_where_sources_are_not(tmp_path: Path) -> None:
    made = run(tmp_path / "out", "modality", holdout=0.2)
    found = about(made)
    assert found["by"] == ["modality", SYNTHETIC]
    assert set(found["components"]) == {
        f"none.{each}" for each in ("natural", "natural-protected", "rephrased-1", "generated-2")
    }
    for name, each in found["components"].items():
        kind = name.removeprefix("none.")
        assert each["values"] == {"modality": "none", SYNTHETIC: kind}
        assert (each["synthetic"], each["generation"]) == {
            "natural": ("none", 0),
            "natural-protected": ("none", 0),
            "rephrased-1": ("rephrased", 1),
            "generated-2": ("generated", 2),
        }[kind]
        assert each["protected"] == kind.endswith("-protected")
        assert 0 < each["clusters"]["alone"] <= each["documents"] <= 12
    # What is held out is in none of them: fewer than the 12 of each that dedup left.
    assert sum(each["documents"] for each in found["components"].values()) < 48
    joined = [[each for part in corpus() for each in part]]
    again = run(tmp_path / "joined", "modality", partitions=joined, holdout=0.2)
    assert again.files("shard.components") == made.files("shard.components")


def test_small_components_meet_in_the_rest_of_their_source(tmp_path: Path) -> None:
    dates = [
        [replace(each, date=datetime(2024, 1, 1 + each.number % 4, tzinfo=UTC)) for each in part]
        for part in corpus()
    ]
    found = about(run(tmp_path, "source", "date", partitions=dates, block_bytes=1024))
    assert {name for name in found["components"] if name.endswith(".rest")} == {f"{s}.rest" for s in SOURCES}
    for name, each in found["components"].items():
        assert name.endswith(".rest") and each["values"] == {"source": name.removesuffix(".rest")}
        assert each["clusters"] == {"alone": 4, "mean_size": 2.0, "largest": 3}
    of_kind = about(run(tmp_path / "kinds", "date", partitions=dates, block_bytes=1024))
    assert {name: each["values"] for name, each in of_kind["components"].items()} == {
        f"{word}.rest": {SYNTHETIC: word}
        for word in ("natural", "natural-protected", "rephrased-1", "generated-2")
    }


def test_a_run_without_kinds_and_dedup_says_the_values_alone(tmp_path: Path) -> None:
    found = about(run(tmp_path, "source", SYNTHETIC, kinds={}, dedup=False, partitions=corpus(["web"])))
    assert found["components"] == {
        "web.natural": {
            "values": {"source": "web", SYNTHETIC: "natural"},
            "synthetic": "none",
            "generation": 0,
            "protected": False,
            "documents": 24,
            "clusters": None,
        }
    }


def test_saying_a_kind_makes_no_text_and_no_shard_anew(tmp_path: Path) -> None:
    before, after = (run(tmp_path / name, "source", kinds=kinds) for name, kinds in (("a", {}), ("b", KINDS)))
    changed = {stage for stage in before.folders if before.folders[stage] != after.folders[stage]}
    assert changed == {"shard.components"}


def test_small_kinds_never_meet() -> None:
    tokens = {
        ("array", "natural"): 3, ("loops", "natural"): 5, ("array", "generated-1"): 4, ("loops", "generated-1"): 2,
        ("array", "generated-2"): 1, ("array", "natural-protected"): 2, ("loops", "rephrased-1"): 10**6,
    }  # fmt: skip
    found = merge_small(tokens, ("topic", SYNTHETIC), 1000)
    assert {key for key, to in found.items() if to == ("natural", "rest")} == {
        ("array", "natural"),
        ("loops", "natural"),
    }
    assert all(to[-2] == key[1] if to[-1] == "rest" else to == key for key, to in found.items())


def test_keys_find_their_component_by_its_name_or_their_rest() -> None:
    keys = dict.fromkeys([("a.b", "c"), ("a", "b.c"), ("a", "tiny"), ("a", "small"), ("b", "gone")])
    by = ("source", "topic")
    same = component_names(keys)
    names = dict.fromkeys(["a.rest", same["a.b", "c"], same["a", "b.c"]], 1)
    assert members_of(keys, by, names) == {
        "a.rest": [("a", "small"), ("a", "tiny")],
        same["a.b", "c"]: [("a.b", "c")],
        same["a", "b.c"]: [("a", "b.c")],
    }
    with pytest.raises(ShardError, match="no kept document is of component c"):
        members_of(keys, by, {"c": 1})


def test_inputs_of_a_source_say_the_same_of_it() -> None:
    inputs = [Input("a", "x", synthetic="generated"), Input("b", "y"), Input("c", "x", synthetic="generated")]
    assert kinds_of(inputs) == {"x": Kind("generated", 1)}
    with pytest.raises(RecipeError, match="source x is generated-1 and natural: give the inputs sources"):
        kinds_of([*inputs, Input("d", "x")])


def test_inputs_of_the_command_line_keep_what_the_recipe_says_of_their_source() -> None:
    recipe = Recipe(inputs=(Input("a", "x", synthetic="rephrased", generation=3, protected=True), Input("b")))
    given = recipe.with_inputs(["x=c", "d"]).inputs
    assert given == (Input("c", "x", synthetic="rephrased", generation=3, protected=True), Input("d"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"generation": 1}, "generation goes with synthetic"),
        ({"synthetic": "generated", "generation": 0}, "generation must be at least 1"),
        ({"synthetic": "generatd"}, "synthetic: Input should be 'none', 'rephrased' or 'generated'"),
    ],
)
def test_tags_that_cannot_be_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        parse_recipe({"inputs": [{"path": "a", **fields}], "stages": ["extract"]})
