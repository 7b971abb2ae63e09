"""Plans by hand: a phase added to one that is in use, a new one over several runs. What a plan is stands in shards/plan.py."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corpusmill.mixing import weights as shares
from corpusmill.pipeline.engine.alone import alone
from corpusmill.pipeline.engine.disk import Disk
from corpusmill.pipeline.engine.place import Place, place_of, readable
from corpusmill.pipeline.errors import ShardError
from corpusmill.shards.append import appended, write_appended
from corpusmill.shards.hide import carry
from corpusmill.shards.layout import MANIFEST, PLAN_FILE, Manifest, read_manifest
from corpusmill.shards.plan import (
    MOST_SAMPLES,
    Phase,
    Plan,
    compile_plan,
    component_of,
    same_kind,
)
from corpusmill.shards.plan_file import find_plan, folder_to_change, read_plan
from corpusmill.shards.quarantine import QUARANTINE_FILE

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """A component: its name in the plan, its folder below plan.json's."""

    name: str
    folder: str
    manifest: Manifest


@dataclass(frozen=True)
class Choices:
    """What both kinds of plans take. `weights` None: proportional to rows. `samples` None: the end stays, or there is none but the limits'."""

    weights: Mapping[str, float] | None
    folders: Sequence[str] = ()
    samples: int | None = None
    max_epochs: Mapping[str, float] | None = None
    exhaust: str = "repeat"


def append(path: str, start: int, ramp: int, choices: Choices) -> Plan:
    """Writes plan.json anew: as it was below `start`, with other weights from there on."""
    place = find_plan(path)
    folder_to_change(place)
    plan = read_plan(place)
    found = [each for given in choices.folders for each in components(place_of(place.parent), given)]
    first = read_manifest(place.parent / plan.components[0].folder)
    for each in found:
        same_kind(first, each.manifest)
    sizes = {c.name: c.rows for c in plan.components} | {each.name: each.manifest.rows for each in found}
    longer = appended(
        plan,
        Phase(start, _ppb(choices.weights, sizes), ramp),
        components=[component_of(each.folder, each.manifest, each.name) for each in found],
        samples=plan.samples if choices.samples is None else choices.samples,
        max_epochs=_whole(choices.max_epochs),
        exhaust=choices.exhaust,
    )
    _carried(place_of(place.parent), longer, found)
    write_appended(place, plan, longer)
    return longer


def new(path: str, seed: int, window: int, choices: Choices) -> Plan:
    """Writes a plan over all components of `folders`; refuses where one stands already."""
    given = readable(path)
    place = given if given.suffix == ".json" else given / PLAN_FILE
    folder = folder_to_change(place)
    _need_none(place)
    found = [each for given in choices.folders for each in components(place.parent, given)]
    if not found:
        raise ShardError("a plan needs components: --add [NAME=]FOLDER, once or more")
    sizes = {each.name: each.manifest.rows for each in found}
    if len(sizes) < len(found):
        raise ShardError(
            f"components of one name: {', '.join(sorted(each.name for each in found))}; give names, like --add NAME=FOLDER"
        )
    plan = compile_plan(
        [(each.folder, each.manifest) for each in found],
        [Phase(0, _ppb(choices.weights, sizes))],
        seed=seed,
        window=window,
        names={each.folder: each.name for each in found},
        samples=choices.samples,
        max_epochs=_whole(choices.max_epochs),
        exhaust=choices.exhaust,
    )
    _carried(folder, plan, found)
    with alone(folder):
        _need_none(place)
        place.put(plan.encode())
    return plan


def _need_none(place: Place) -> None:
    if place.is_file():
        raise ShardError(f"{place} is there already: a plan in use is added to with `corpusmill plan append`")


def components(root: Place, given: str) -> list[Found]:
    """The component, or all components of the run, at `[NAME=]FOLDER`, which must lie below the plan's folder `root`."""
    name, equals, path = given.partition("=")
    folder = readable(path if equals else given)
    if (folder / MANIFEST).is_file():
        manifest = read_manifest(folder)
        return [Found(name if equals else manifest.name, _below(root, folder), manifest)]
    place = find_plan(folder)
    found = []
    for component in read_plan(place).components:
        inside = place_of(place.parent) / component.folder
        own = f"{name}.{component.name}" if equals else component.name
        found.append(Found(own, _below(root, inside), read_manifest(inside)))
    return found


def _carried(root: Place, plan: Plan, found: Sequence[Found]) -> None:
    if count := carry(root, plan, {each.name for each in found}):
        log.warning(
            "%s: what the lists beside the components hide goes along, from sample 0 on (entries: %d)",
            QUARANTINE_FILE,
            count,
        )


def _below(root: Place, folder: Place) -> str:
    """Links are taken as they lie: one below the plan's folder may lead to another disk."""
    above, inside = (
        str(place.path.absolute() if isinstance(place, Disk) else place) for place in (root, folder)
    )
    if not inside.startswith(f"{above}/"):
        raise ShardError(
            f"{folder} does not lie below the plan's folder {root}: put plan.json above all its components (links to them will do), "
            "so that they can be moved together"
        )
    return inside.removeprefix(f"{above}/")


def _ppb(weights: Mapping[str, float] | None, sizes: Mapping[str, int]) -> dict[str, int]:
    if weights is None:
        return shares.in_ppb(shares.proportional(sizes))
    return shares.in_ppb(shares.manual(weights, sizes, "--weights"))


def _whole(limits: Mapping[str, float] | None) -> dict[str, int]:
    for name, limit in (limits or {}).items():
        if not float(limit).is_integer() or not 1 <= limit <= MOST_SAMPLES:
            raise ShardError(f"--max-epochs: {name}={limit}; a whole number from 1 is needed")
    return {name: int(limit) for name, limit in (limits or {}).items()}
