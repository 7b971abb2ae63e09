"""A recipe: one YAML file with the inputs, the ordered stages and every threshold.

    inputs: [{path: "crawl/*.warc.gz", source: web}]
    seed: 17
    partition_bytes: 256 MB
    stages:
      - extract: {with: trafilatura}
      - filter: [language: {keep: [en]}, gopher_quality: {}]

A key is a registered name, its fields are the fields of the dataclass behind it. Unknown keys are errors with a suggestion.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.input import Input
from corpusmill.pipeline.kinds import kinds_of
from corpusmill.pipeline.registry import RULES, STAGES, build, lookup, name_of, suggestion

UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


@dataclass(frozen=True)
class StageSpec:
    """One entry of `stages`: its key, its name (the key unless given), the validated fields, and its own error budget (None: the recipe's)."""

    key: str
    name: str
    config: Any
    max_error_rate: float | None = None


@dataclass(frozen=True)
class Recipe:
    """`partition_bytes`: compressed crawl or text in one documents partition (inclusive upper aim, records are never cut).

    `max_drop`: share of the judged documents above which one cut is taken for a mistake (0 to 1; 1 switches the check off).
    `max_error_rate`: share of the rows of a stage that may fail, by exceptions or backstops (0 to 1), unless the stage has its own.
    Both are budgets: they stop a run and change no byte, so they are no part of what makes a recipe another one.
    """

    inputs: tuple[Input, ...] = ()
    seed: int = 17
    partition_bytes: int = 256_000_000
    stages: tuple[StageSpec, ...] = ()
    max_drop: float = 0.995
    max_error_rate: float = 0.01

    def with_inputs(self, paths: Sequence[str]) -> Recipe:
        """The recipe on other inputs; each is a path or `source=path`. What it says of a source's text holds for the new ones."""
        inputs = []
        kinds = kinds_of(self.inputs)
        for path in paths:
            source, eq, rest = path.partition("=")
            named = bool(eq) and re.fullmatch(r"[A-Za-z0-9._-]+", source) is not None
            item = Input(rest, source) if named else Input(path)
            inputs.append(replace(item, **asdict(kinds[item.source])) if item.source in kinds else item)
        return replace(self, inputs=tuple(inputs))

    def only(self, key: str) -> Recipe:
        """Extract and the stages of one kind: what a stage command runs on foreign documents."""
        self._need(key)
        chosen = tuple(stage for stage in self.stages if stage.key in ("extract", *_together(key)))
        return replace(self, stages=chosen)

    def up_to(self, key: str) -> Recipe:
        """All stages up to the last of one kind."""
        self._need(key)
        last = max(i for i, stage in enumerate(self.stages) if stage.key in _together(key))
        return replace(self, stages=self.stages[: last + 1])

    def _need(self, key: str) -> None:
        if not any(stage.key == key for stage in self.stages):
            raise RecipeError(
                f"the recipe has no {key} stage; it has {', '.join(stage.name for stage in self.stages)}"
            )

    def error_rate(self, name: str) -> float:
        """The budget of a stage of this recipe, by the name of any of its layers."""
        title = self.stages[0].name if name == "documents" else name.partition(".")[0]
        own = next((stage.max_error_rate for stage in self.stages if stage.name == title), None)
        return self.max_error_rate if own is None else own

    def canonical(self) -> dict[str, Any]:
        """The whole recipe with all defaults filled in: what is stored as OUT/recipe.yaml and compared."""
        return {
            "inputs": [each.canonical() for each in self.inputs],
            "seed": self.seed,
            "partition_bytes": self.partition_bytes,
            "max_drop": self.max_drop,
            "max_error_rate": self.max_error_rate,
            "stages": [canonical_stage(stage) for stage in self.stages],
        }


def _together(key: str) -> tuple[str, ...]:
    """The kinds that a stage command runs: shards without weights are no stream, so shard takes the recipe's own mix along."""
    return (key, "mix") if key == "shard" else (key,)


def builtin_names() -> list[str]:
    folder = resources.files("corpusmill.jobs").joinpath("recipes")
    return sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))


def builtin_text(name: str) -> str:
    """The YAML of a built-in recipe; RecipeError with the known names when there is none."""
    if name not in builtin_names():
        raise RecipeError(
            f"no recipe is called {name!r}; {suggestion(name, builtin_names())} (a file ends in .yaml)"
        )
    return resources.files("corpusmill.jobs").joinpath("recipes", f"{name}.yaml").read_text(encoding="utf-8")


def load_recipe(name: str) -> Recipe:
    """A recipe from a file, or a built-in one by name. Input paths are relative to the folder of the call."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") and not path.is_file():
        raise RecipeError(f"no recipe file {name}")
    is_file = path.is_file()
    text = _text_of(path) if is_file else builtin_text(name)
    where = name if is_file else f"recipe {name}"
    from corpusmill.pipeline.strict_yaml import read_yaml

    return parse_recipe(read_yaml(text, where), where)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError) as error:
        raise RecipeError(f"{path}: not a text file in UTF-8: {error}") from None


def parse_recipe(value: Any, where: str = "recipe") -> Recipe:
    """Check and build a recipe; `where` begins every message."""
    if not isinstance(value, Mapping):
        raise RecipeError(f"{where}: a recipe is a mapping with inputs, seed and stages")
    known = ("inputs", "seed", "partition_bytes", "max_drop", "max_error_rate", "stages")
    for key in value:
        if key not in known:
            raise RecipeError(f"{where}: {key}: unknown key; {suggestion(str(key), known)}")
    stages = value.get("stages")
    if not isinstance(stages, list) or not stages:
        raise RecipeError(f"{where}: stages: a list of stages is needed, the first of them extract")
    inputs = value.get("inputs") or []
    if not isinstance(inputs, list):
        raise RecipeError(f"{where}: inputs: a list of {{path, source}} is needed")
    specs = parse_stages(stages, f"{where}: stages")
    _check_order(specs, where)
    return Recipe(
        inputs=tuple(build(Input, item, f"{where}: inputs.{i}") for i, item in enumerate(inputs)),
        seed=_integer(value.get("seed", Recipe.seed), f"{where}: seed"),
        partition_bytes=parse_bytes(
            value.get("partition_bytes", Recipe.partition_bytes), f"{where}: partition_bytes"
        ),
        stages=specs,
        max_drop=_share(value.get("max_drop", Recipe.max_drop), f"{where}: max_drop"),
        max_error_rate=_share(value.get("max_error_rate", Recipe.max_error_rate), f"{where}: max_error_rate"),
    )


def parse_bytes(value: Any, where: str) -> int:
    """`256 MB`, `16 KiB` or a number of bytes."""
    match = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", str(value))
    if not match or match[2].lower() not in UNITS or int(match[1]) < 1:
        raise RecipeError(
            f"{where}: {value!r} is no size; write bytes or a number with KB, MB, GB, KiB, MiB or GiB"
        )
    return int(match[1]) * UNITS[match[2].lower()]


def _integer(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise RecipeError(f"{where}: {value!r} is no whole number from 0 to 2^63-1")
    return value


def _share(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise RecipeError(f"{where}: {value!r} is no number from 0 to 1")
    return float(value)


def parse_stages(value: Sequence[Any], where: str) -> tuple[StageSpec, ...]:
    """Entries of a list of stages; `where` begins every message."""
    return tuple(_parse_stage(stage, f"{where}.{i}") for i, stage in enumerate(value))


def _parse_stage(value: Any, where: str) -> StageSpec:
    if isinstance(value, str):
        value = {value: {}}
    if not isinstance(value, Mapping) or len(value) != 1:
        raise RecipeError(f"{where}: a stage is one key with its fields, like `- redact: {{}}`")
    ((key, fields),) = value.items()
    kind = lookup(str(key), STAGES, "stage", where)
    where = f"{where}.{key}"
    if key == "filter" and isinstance(fields, list):
        fields = {"rules": fields}
    if fields is not None and not isinstance(fields, Mapping):
        raise RecipeError(f"{where}: fields are needed, like {{name: value}}")
    fields = dict(fields or {})
    name = str(fields.pop("name", key))
    rate = fields.pop("max_error_rate", None)
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise RecipeError(f"{where}: name {name!r} may have small letters, digits, _ and - only")
    if key == "filter":
        fields["rules"] = _parse_rules(fields.get("rules"), where)
    else:
        fields = _sizes(fields, where)
    own = None if rate is None else _share(rate, f"{where}.max_error_rate")
    return StageSpec(key, name, build(kind, fields, where), own)


def _sizes(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Every `*_bytes` may be written with a unit."""
    read = {}
    for key, value in fields.items():
        if isinstance(value, Mapping):
            value = _sizes(value, f"{where}.{key}")
        elif str(key).endswith("_bytes") and isinstance(value, str):
            value = parse_bytes(value, f"{where}.{key}")
        read[key] = value
    return read


def _parse_rules(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise RecipeError(f"{where}: a list of rules is needed, like [language: {{keep: [en]}}]")
    rules = []
    for i, item in enumerate(value):
        if isinstance(item, str):
            item = {item: {}}
        if not isinstance(item, Mapping) or len(item) != 1:
            raise RecipeError(
                f"{where}.{i}: a rule is one key with its fields, like `gopher_quality: {{min_words: 50}}`"
            )
        ((name, fields),) = item.items()
        rules.append(build(lookup(str(name), RULES, "rule", f"{where}.{i}"), fields, f"{where}.{name}"))
    return rules


def _check_order(stages: Sequence[StageSpec], where: str) -> None:
    if stages[0].key != "extract" or any(stage.key == "extract" for stage in stages[1:]):
        raise RecipeError(f"{where}: stages: extract is needed once, as the first stage")
    names = [stage.name for stage in stages]
    for name in names:
        if names.count(name) > 1:
            raise RecipeError(f"{where}: two stages are called {name!r}: give one of them another `name`")
    keys = [stage.key for stage in stages]
    if "ablate" in keys and (keys.index("ablate") < len(keys) - 1 or "shard" in keys):
        raise RecipeError(f"{where}: ablate comes once, last, and without shard: it makes shards of its own")
    if "mix" in keys and (keys[-1] != "mix" or keys.count("mix") > 1 or "shard" not in keys):
        raise RecipeError(f"{where}: mix comes once, last, and after shard")
    if "shard" in keys and keys.index("shard") < len(keys) - 1 - ("mix" in keys):
        raise RecipeError(f"{where}: only mix may follow shard")


def canonical_stage(stage: StageSpec) -> dict[str, Any]:
    """As it may stand in a recipe, with all defaults."""
    from pydantic import TypeAdapter

    if stage.key == "filter":
        rules = [
            {name_of(rule, RULES): TypeAdapter(type(rule)).dump_python(rule, mode="json")}
            for rule in stage.config.rules
        ]
        rest = {
            f.name: getattr(stage.config, f.name)
            for f in dataclasses.fields(stage.config)
            if f.name != "rules"
        }
        fields: dict[str, Any] = {"rules": rules, **rest}
    else:
        fields = TypeAdapter(type(stage.config)).dump_python(stage.config, mode="json")
    own = {} if stage.max_error_rate is None else {"max_error_rate": stage.max_error_rate}
    return {stage.key: {"name": stage.name, **own, **fields}}
