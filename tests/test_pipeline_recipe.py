"""Recipes: what is accepted, and how each mistake is named."""

from pathlib import Path

import pytest

from corpusmill.pipeline.chain import compile_recipe
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.recipe import Input, builtin_names, load_recipe, parse_bytes, parse_recipe

EXTRACT = {"extract": {}}


def stages(*items: object) -> dict[str, object]:
    return {"stages": [EXTRACT, *items]}


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"stages": []}, "a list of stages is needed"),
        ({"stages": [{"extract": {"wiht": "resiliparse"}}]}, "wiht: unknown key; did you mean 'with'"),
        ({"stagse": [EXTRACT]}, "stagse: unknown key; did you mean 'stages'"),
        (stages({"filtre": []}), "no stage is called 'filtre'; did you mean 'filter'"),
        (
            stages({"filter": [{"gopher_qualty": {}}]}),
            "no rule is called 'gopher_qualty'; did you mean 'gopher_quality'",
        ),
        (
            stages({"filter": [{"gopher_quality": {"min_wrods": 3}}]}),
            r"gopher_quality: min_wrods: unknown key; did you mean 'min_words'",
        ),
        (stages({"dedup": {"at_lest": 0.7}}), "at_lest: unknown key; did you mean 'at_least'"),
        (stages({"dedup": {"bands": "many"}}), "bands.*: Input should be"),
        (stages({"filter": {}}), "a list of rules is needed"),
        (stages({"filter": [{"language": {"keep": ["eng"]}}]}), "eng"),
        ({"stages": [{"redact": {}}]}, "extract is needed once, as the first stage"),
        (stages({"redact": {}}, {"redact": {}}), "two stages are called 'redact'"),
        (stages({"redact": {"name": "../x"}}), "small letters"),
        (stages({"mix": {}}), "mix comes once, last, and after shard"),
        ({**stages(), "seed": -1}, "seed: -1 is no whole number"),
        ({**stages(), "seed": True}, "seed: True is no whole number"),
        ({**stages(), "partition_bytes": "1 furlong"}, "is no size"),
        ({**stages(), "inputs": [{"pth": "x"}]}, "pth: unknown key; did you mean 'path'"),
        ({**stages(), "inputs": [{"path": "x", "take": 0}]}, r"inputs\.0: take must be at least 1, not 0$"),
    ],
)
def test_a_mistake_is_one_error_that_names_its_place(recipe: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        parse_recipe(recipe)


def test_yaml_that_is_hostile_or_broken_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("stages: !!python/object/apply:os.system ['true']")
    with pytest.raises(RecipeError, match="not valid YAML"):
        load_recipe(str(path))
    path.write_text("- just a list")
    with pytest.raises(RecipeError, match="a recipe is a mapping"):
        load_recipe(str(path))


def test_a_key_that_stands_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("stages:\n  - extract: {}\n  - dedup: {at_least: 0.7,\n      at_least: 0.9}\n")
    with pytest.raises(RecipeError, match=r"(?s)the key 'at_least' stands twice.*line 4"):
        load_recipe(str(path))


def test_an_unknown_recipe_is_answered_with_the_known_ones() -> None:
    with pytest.raises(RecipeError, match="did you mean 'fineweb'"):
        load_recipe("finweb")
    with pytest.raises(RecipeError, match="no recipe file"):
        load_recipe("missing.yaml")


def test_sizes_are_read_with_units() -> None:
    assert [parse_bytes(value, "") for value in (7, "7", "2 KB", "2KiB", "3 MB", "1 GiB")] == [
        7,
        7,
        2000,
        2048,
        3_000_000,
        2**30,
    ]


def test_inputs_from_the_command_line_replace_the_recipes() -> None:
    recipe = parse_recipe(stages()).with_inputs(["a/*.gz", "wiki=b/*.gz", "odd dir=x/y"])
    assert recipe.inputs == (Input("a/*.gz"), Input("b/*.gz", "wiki"), Input("odd dir=x/y"))


def test_a_recipe_means_the_same_with_its_defaults_written_out() -> None:
    for name in builtin_names():
        recipe = load_recipe(name)
        again = parse_recipe(recipe.canonical())
        assert again.canonical() == recipe.canonical()


def test_a_nested_mistake_is_answered_with_the_keys_of_its_own_place() -> None:
    with pytest.raises(RecipeError, match="max_tgas: unknown key; did you mean 'max_tags'"):
        parse_recipe({"stages": [{"extract": {"limits": {"max_tgas": 3}}}]})


def test_sizes_inside_stages_may_have_units() -> None:
    shard = {"tokenizer": {"train": "bpe", "sample_bytes": "2 MB"}, "block_bytes": "16 KiB"}
    config = parse_recipe(stages({"shard": shard})).stages[1].config
    assert (config.block_bytes, config.tokenizer.sample_bytes) == (16384, 2_000_000)


def test_shards_without_weights_are_mixed_in_proportion() -> None:
    names = [
        stage.name
        for stage in compile_recipe(parse_recipe(stages({"shard": {"tokenizer": {"train": "bpe"}}})))
    ]
    assert names[-1] == "mix"


def test_the_shard_command_takes_the_recipes_own_weights_along() -> None:
    recipe = parse_recipe(
        stages("redact", {"shard": {"tokenizer": {"train": "bpe"}}}, {"mix": {"weights": "unimax"}})
    )
    assert recipe.up_to("shard") == recipe.up_to("mix") == recipe
    assert [stage.key for stage in recipe.only("shard").stages] == ["extract", "shard", "mix"]
