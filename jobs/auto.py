"""`corpusmill mix auto RECIPE --budget 2h`: a search whose proxies, runs and seeds follow from what they may take.

The budget is time of one worker, for all proxies together: two workers end in about half of it. Shards are made first, then a proxy is
watched for some seconds where it will be trained (mixing/search_pace.py), then sizes are chosen (mixing/budget.py), and the
rest is a search with those. What was chosen stands in OUT/metrics/auto.json before anything is trained, so the same command again makes the same
choice whatever the clock says then, and so does the recipe that is printed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from corpusmill.jobs.searches import read_stats, search_stage
from corpusmill.pipeline.engine.results import canonical
from corpusmill.pipeline.engine.state import read_recipe
from corpusmill.pipeline.errors import InputError, RecipeError
from corpusmill.pipeline.recipe import Recipe

if TYPE_CHECKING:
    from corpusmill.mixing.budget import Choice, Task
    from corpusmill.mixing.pace import Pace
    from corpusmill.mixing.search import Search
    from corpusmill.mixing.study import Proxy
    from corpusmill.pipeline.engine.place import Place
    from corpusmill.pipeline.run import Run

AUTO_FILE = "metrics/auto.json"

SAID = ("kind", "size", "tokens", "device", "command", "name")
"""Fields of a trained proxy that a recipe says; `learnt` is the screen's."""

Runner = Callable[..., "Run"]
"""`run_recipe` with all that the command line says but recipe, `until` and `update`."""


def seconds_of(text: str) -> int:
    """Of 2h, 90m, 1h30m or 45s."""
    parts = re.fullmatch(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?", text)
    found = (
        sum(int(part or 0) * unit for part, unit in zip(parts.groups(), (3600, 60, 1), strict=True))
        if parts
        else 0
    )
    if not found:
        raise RecipeError(f"--budget {text}: time of one worker is needed, like 2h, 90m or 1h30m")
    return found


def search_within(
    recipe: Recipe, budget_s: int, out: Place, run: Runner, update: bool, say: Callable[[str], None]
) -> Run:
    """The whole search; `say` gets lines for people, before the proxies are trained."""
    name = search_stage(recipe)
    search = recipe.stages[-1].config.search
    search.check(name)
    smallest = _allowed(search)
    shards = _to_shards(recipe, run, update)
    asked = {"budget_s": budget_s, "search": _plain(search), "shards": shards}
    found = _recorded(out)
    if found is not None and found["asked"] != asked and not update:
        raise RecipeError(
            f"{out / AUTO_FILE} holds the choice of another search ({', '.join(_differing(found['asked'], asked))});"
            " add --update to choose again, or choose another --out"
        )
    if found is None or found["asked"] != asked:
        choice = _choose(recipe, name, budget_s, smallest, out, run, update, say)
        found = {"asked": asked, "chosen": _only_chosen(choice.search), "expected_s": round(choice.seconds)}
        (out / AUTO_FILE).put(canonical(found))
        say(_described(choice))
    chosen = _with(search, found["chosen"])
    say(_snippet(found["chosen"]))
    mixed = _with_search(recipe, chosen)
    return run(mixed, update=update or _is_paced(out))


def resources_for(recipe: Recipe, resources: Sequence[str]) -> list[str]:
    """Those of `--resources` whose stages a part of the search has; a proxy that is watched has what one that is trained has."""
    from corpusmill.pipeline.chain import compile_recipe

    names = {stage.name for stage in compile_recipe(recipe)}
    last = recipe.stages[-1].name
    watched = [
        f"{last}.pace={each.partition('=')[2]}" for each in resources if each.startswith(f"{last}.runs=")
    ]
    return [each for each in (*resources, *watched) if each.partition("=")[0] in names]


def _allowed(search: Search) -> Proxy:
    """The smallest proxy that may be chosen: a decoder, or what the recipe says it is to be. RecipeError for what a budget decides."""
    from corpusmill.mixing.search import Verification
    from corpusmill.mixing.study import Proxy

    if search.verify != Verification():
        raise RecipeError("mix auto chooses the verdict's proxies and seeds: leave verify out of the search")
    if search.proxy.kind != "screen":
        return search.proxy
    if search.proxy != Proxy():
        raise RecipeError(
            "mix auto trains its proxies: leave proxy out of the search, or name a decoder or a command"
        )
    return Proxy("decoder", size="64k", tokens=1)


def _to_shards(recipe: Recipe, run: Runner, update: bool) -> str:
    """All before the mix stage, which a change of would be refused here; the shards' hash."""
    from corpusmill.pipeline.chain import compile_recipe
    from corpusmill.shards.write import Write

    before = replace(recipe, stages=recipe.stages[:-1])
    last = [stage.name for stage in compile_recipe(before) if isinstance(stage.operation, Write)][-1]
    return run(before, until=last, update=update).manifest(last).content


def _choose(
    recipe: Recipe,
    name: str,
    budget_s: int,
    smallest: Proxy,
    out: Place,
    run: Runner,
    update: bool,
    say: Callable[[str], None],
) -> Choice:
    """Watches the smallest proxy, then the one that would do and the next larger one, and chooses by these."""
    from corpusmill.mixing.budget import choose, enough, next_size
    from corpusmill.mixing.pace import Pace
    from corpusmill.mixing.proxy import SIZES

    smallest.check(f"{name}.search")
    sizes = list(SIZES) if recipe.stages[-1].config.search.proxy.kind == "screen" else [smallest.size]
    proxies = [replace(smallest, size=size) for size in sizes]
    to_watch, seconds = [replace(smallest, tokens=enough(smallest))], dict[str, Pace]()
    watched: list[Proxy] = []
    for _ in range(2):
        # Each is watched once: the same again would take another time, and might not find affordable what an error has just named.
        task, times = _watch(recipe, name, to_watch, seconds, run, update or _is_paced(out))
        watched += to_watch
        choice = choose(budget_s, task, proxies, times)
        trained = choice.search.proxy
        seen = {proxy.size for proxy in watched}
        to_watch = [proxy for proxy in (trained, next_size(trained)) if proxy.size not in seen]
        if trained.kind == "command" or not to_watch:
            break
    for proxy in watched:
        say(
            f"measured: {proxy.size or 'the command'} learns {1 / times(proxy).learn_s:,.0f} tokens a second in one worker"
        )
    return choice


def _watch(
    recipe: Recipe, name: str, proxies: Sequence[Proxy], seconds: dict[str, Pace], run: Runner, update: bool
) -> tuple[Task, Callable[[Proxy], Pace]]:
    """What is searched, and the times of any proxy by those that were watched: `seconds`, by size, to which these come."""
    from corpusmill.mixing.budget import Task, by_work
    from corpusmill.mixing.pace import Pace
    from corpusmill.mixing.proxy import SIZES, work
    from corpusmill.mixing.search_pace import PacedMix
    from corpusmill.mixing.study import Component

    mix = recipe.stages[-1].config
    spec = replace(recipe.stages[-1], config=PacedMix(mix, tuple(proxies)))
    done = run(replace(recipe, stages=(*recipe.stages[:-1], spec)), until=f"{name}.pace", update=update)
    results = sorted(done.manifest(f"{name}.pace").results.items())
    for number, result in results:
        times = {key: result.extra[key] for key in Pace.__annotations__}
        seconds[proxies[number].size or ""] = Pace(**times)
    study = read_stats(done, name)
    task = Task(
        mix.search,
        tuple(Component(**each) for each in study["components"]),
        len(study["targets"]),
        study["budget_tokens"],
        isinstance(mix.weights, dict),
    )
    facts = results[0][1].extra
    paced = by_work(
        seconds,
        lambda size: work(SIZES[size], facts["vocabulary"], study["sequence_length"]) if size else 1.0,
    )
    return task, lambda proxy: paced(proxy.size or "")


def _with_search(recipe: Recipe, search: Search) -> Recipe:
    last = recipe.stages[-1]
    mixed = replace(last, config=replace(last.config, search=search))
    return replace(recipe, stages=(*recipe.stages[:-1], mixed))


def _is_paced(out: Place) -> bool:
    """Whether the recipe that stands in OUT is the one that was to measure: nobody else's, so that another may take its place."""
    standing = read_recipe(out)
    return standing is not None and "paced" in standing["stages"][-1].get("mix", {})


def _recorded(out: Place) -> dict[str, Any] | None:
    path = out / AUTO_FILE
    try:
        found = json.loads(path.read_latest())
        if found.keys() != {"asked", "chosen", "expected_s"}:
            raise ValueError("other keys")
    except FileNotFoundError:
        return None
    except ValueError:
        raise InputError(f"{path} is damaged: delete it and run the same command with --update") from None
    return dict(found)


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    said = {"budget_s": "the budget", "search": "the recipe's search", "shards": "the shards"}
    return [word for key, word in said.items() if one.get(key) != other[key]] + [
        key for key in other if key not in said
    ]


def _plain(search: Search) -> dict[str, Any]:
    """As JSON."""
    from pydantic import TypeAdapter

    from corpusmill.mixing.search import Search as Kind

    found: dict[str, Any] = TypeAdapter(Kind).dump_python(search, mode="json")
    return found


def _only_chosen(search: Search) -> dict[str, Any]:
    """What a recipe has to say to have it: without what is the default."""
    whole = _plain(search)
    proxies = [whole["proxy"], *whole["verify"]["proxies"]]
    short = [
        {key: value for key, value in proxy.items() if key in SAID and value is not None} for proxy in proxies
    ]
    return {
        "proxy": short[0],
        "runs": whole["runs"],
        "verify": {"proxies": short[1:], "seeds": whole["verify"]["seeds"]},
        "eval_tokens": whole["eval_tokens"],
    }


def _with(search: Search, chosen: Mapping[str, Any]) -> Search:
    from corpusmill.mixing.search import Search as Kind
    from corpusmill.pipeline.registry import build

    found: Search = build(Kind, {**_plain(search), **chosen}, AUTO_FILE)
    return found


def _described(choice: Choice) -> str:
    from corpusmill.mixing.budget import spoken

    search = choice.search
    sizes = " and ".join(proxy.title for proxy in search.verify.proxies)
    return (
        f"chosen ({choice.level}): {choice.design_runs} runs of {search.proxy.title} for the design, {choice.trials} of {sizes} for the verdict"
        f" ({search.verify.seeds} seeds); about {spoken(choice.design_s)} and {spoken(choice.verdict_s)} of one worker"
    )


def _snippet(chosen: Mapping[str, Any]) -> str:
    import yaml

    lines = yaml.safe_dump(dict(chosen), sort_keys=False, default_flow_style=None, width=1000).splitlines()
    return "\n".join(
        [
            "the same search without measuring, in the recipe:",
            "  - mix:",
            "      search:",
            *(f"        {line}" for line in lines),
        ]
    )
