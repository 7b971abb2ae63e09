"""plan.json where it lies: on this machine, on a store (s3://, gs://), or on a web server, where it can only be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.pipeline.errors import ShardError
from corpusmill.shards.layout import PLAN_FILE
from corpusmill.shards.order import ORDER_VERSION
from corpusmill.shards.plan import FORMAT, Component, Past, Phase, Plan, check_plan

if TYPE_CHECKING:
    from corpusmill.pipeline.engine.place import Place


def find_plan(path: str | Path | Place) -> Path | Place:
    """plan.json for `path`, which is OUT, OUT/shards or the file itself."""
    top = place_at(path)
    places = [top] if top.suffix == ".json" else [top / PLAN_FILE, top / "shards" / PLAN_FILE]
    for place in places:
        if _stands(place):
            return place
    raise ShardError(
        f"no plan at {' or '.join(map(str, places))}; run a recipe with shard and mix, or pass the plan's path"
    )


def folder_to_change(plan: Path | Place) -> Place:
    """The folder of a plan.json, for who writes there; ShardError where nobody can."""
    from corpusmill.pipeline.engine.place import place_of

    if not isinstance(plan, Path) and not plan.writable:
        raise ShardError(
            f"{plan}: shards of a web server can be read, not changed; do it where they are served from, or in a copy"
        )
    return place_of(plan.parent)


def place_at(path: str | Path | Place) -> Path | Place:
    """A path of this machine stays one: reading it needs no client of a store."""
    if isinstance(path, Path) or (isinstance(path, str) and "://" not in path):
        return Path(path)
    from corpusmill.pipeline.engine.disk import Disk
    from corpusmill.pipeline.engine.place import readable

    place = readable(path)
    return place.path if isinstance(place, Disk) else place


def _stands(place: Path | Place) -> bool:
    if isinstance(place, Path):
        return place.is_file()
    try:
        return place.is_file()
    except OSError as error:
        from corpusmill.pipeline.remote_file import store_error

        raise store_error(str(place), error) from None


def read_plan(path: Path | Place) -> Plan:
    """Raises ShardError when the file is damaged, edited without its id, or made for another version."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ShardError(f"{path} cannot be read ({error}); restore it or run mix again") from error
    return decode_plan(data, str(path))


def decode_plan(data: bytes, path: str) -> Plan:
    """`path` is what errors name."""
    try:
        value = json.loads(data)
        if value["format"] != FORMAT or value["order_version"] != ORDER_VERSION:
            raise ShardError(
                f"{path} is of format {value['format']!r}, order {value['order_version']!r}; this version reads {FORMAT}, "
                f"order {ORDER_VERSION}: use the version that wrote it, or run mix again"
            )
        plan = Plan(
            **{
                name: value[name] for name in ("seed", "window", "sequence_length", "dtype", "eos", "samples")
            },
            components=tuple(Component(**component) for component in value["components"]),
            phases=tuple(Phase(p["from"], p["weights_ppb"], p["ramp"]) for p in value["phases"]),
            past=tuple(Past(p["id"], p["from"]) for p in value["past"]),
        )
        check_plan(plan, path)
        stated, found = value["id"], plan.id
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ShardError(
            f"{path} cannot be read as a plan ({error!r}); restore it or run mix again"
        ) from error
    if found != stated:
        raise ShardError(
            f"{path} was edited: its id is {stated}, its content's {found}; restore it or run mix again"
        )
    return plan
