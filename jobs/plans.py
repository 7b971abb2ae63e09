"""Plans by hand: a phase added to one that is in use, a new one over several runs. What a plan is stands in shards/plan.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corpusmill.mixing import weights as shares
from corpusmill.pipeline.engine.store import put
from corpusmill.pipeline.errors import ShardError
from corpusmill.shards.append import appended, write_appended
from corpusmill.shards.layout import MANIFEST, Manifest, read_manifest
from corpusmill.shards.plan import (
    Phase,
    Plan,
    compile_plan,
    component_of,
    plan_on_disk,
    read_plan,
    same_kind,
)

Found = tuple[str, str, Manifest]
"""Name in the plan, folder below plan.json's, manifest."""


def append(
    path: str,
    start: int,
    weights: Mapping[str, float],
    *,
    ramp: int = 0,
    folders: Sequence[str] = (),
    samples: int | None = None,
    max_epochs: Mapping[str, float] | None = None,
    exhaust: str = "repeat",
) -> Plan:
    """Writes plan.json anew: as it was below `start`, with `weights` from there on. Its end stays unless `samples` gives another."""
    place = plan_on_disk(path)
    plan = read_plan(place)
    found = [each for folder in folders for each in components(place.parent, folder)]
    first = read_manifest(place.parent / plan.components[0].folder)
    for _, _, manifest in found:
        same_kind(first, manifest)
    sizes = {c.name: c.rows for c in plan.components} | {name: m.rows for name, _, m in found}
    longer = appended(
        plan,
        Phase(start, _ppb(weights, sizes), ramp),
        components=[component_of(folder, manifest, name) for name, folder, manifest in found],
        samples=plan.samples if samples is None else samples,
        max_epochs=_whole(max_epochs),
        exhaust=exhaust,
    )
    write_appended(place, plan, longer)
    return longer


def new(
    path: str,
    folders: Sequence[str],
    weights: Mapping[str, float] | None,
    *,
    max_epochs: Mapping[str, float],
    **options: Any,
) -> Plan:
    """Writes a plan over all components of `folders`; refuses where one stands already."""
    place = Path(path) if path.endswith(".json") else Path(path) / "plan.json"
    if place.exists():
        raise ShardError(f"{place} is there already: a plan in use is added to with `corpusmill plan append`")
    found = [each for folder in folders for each in components(place.parent, folder)]
    if not found:
        raise ShardError("a plan needs components: --add [NAME=]FOLDER, once or more")
    sizes = {name: manifest.rows for name, _, manifest in found}
    if len(sizes) < len(found):
        raise ShardError(
            f"components of one name: {', '.join(sorted(name for name, _, _ in found))}; give names, like --add NAME=FOLDER"
        )
    phase = Phase(0, _ppb(weights, sizes) if weights else shares.in_ppb(shares.proportional(sizes)))
    plan = compile_plan(
        [(folder, manifest) for _, folder, manifest in found],
        [phase],
        names={folder: name for name, folder, _ in found},
        max_epochs=_whole(max_epochs),
        **options,
    )
    put(place, plan.encode())
    return plan


def components(root: Path, given: str) -> list[Found]:
    """The component, or all components of the run, at `[NAME=]FOLDER`, which must lie below the plan's folder `root`."""
    name, equals, path = given.partition("=")
    folder = Path(path if equals else given)
    if (folder / MANIFEST).is_file():
        manifest = read_manifest(folder)
        return [(name if equals else manifest.name, _below(root, folder), manifest)]
    place = plan_on_disk(folder)
    found = []
    for component in read_plan(place).components:
        inside = place.parent / component.folder
        own = f"{name}.{component.name}" if equals else component.name
        found.append((own, _below(root, inside), read_manifest(inside)))
    return found


def _below(root: Path, folder: Path) -> str:
    """Links are taken as they lie: one below the plan's folder may lead to another disk."""
    try:
        return folder.absolute().relative_to(root.absolute()).as_posix()
    except ValueError:
        raise ShardError(
            f"{folder} does not lie below the plan's folder {root}: put plan.json above all its components (links to them will do), "
            "so that they can be moved together"
        ) from None


def _ppb(weights: Mapping[str, float], sizes: Mapping[str, int]) -> dict[str, int]:
    return shares.in_ppb(shares.manual(weights, sizes, "--weights"))


def _whole(limits: Mapping[str, float] | None) -> dict[str, int]:
    for name, limit in (limits or {}).items():
        if limit != int(limit) or limit < 1:
            raise ShardError(f"--max-epochs: {name}={limit}; a whole number from 1 is needed")
    return {name: int(limit) for name, limit in (limits or {}).items()}
