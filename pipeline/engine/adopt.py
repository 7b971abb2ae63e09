"""Units of an earlier run whose partitions are the same: taken over by a link instead of being made again.

When an input comes or goes, the partitions behind it get other numbers and every layer another fingerprint, but most files would have the
bytes that they had. A documents partition is known by its input's identity and its range; a partition of a layer by the hashes of the
files that it was made from. The operation with its fields, models and library versions has to be the same as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from corpusmill.pipeline.engine.files import part_name
from corpusmill.pipeline.engine.manifest import Manifest, read_manifest
from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.engine.stage import InputFile, Result, SetOperation, Stage, Unit
from corpusmill.pipeline.engine.state import State

Key = tuple[Any, ...]


def adopt(
    out: Place,
    stage: Stage,
    folder: str,
    own: Mapping[str, Any],
    units: Sequence[Unit],
    manifests: Mapping[str, Manifest],
    files: Sequence[InputFile],
    old: State | None,
    replaced: Mapping[str, Manifest],
) -> dict[int, Result]:
    """Unit -> result for those of `units` that the run in force had made; their files stand in `folder` afterwards.

    `replaced` are manifests of the run in force whose folders this run has written anew.
    """
    before = old.stage(stage.name) if old else None
    if old is None or before is None or before.own != own or before.folder == folder:
        return {}
    made = read_manifest(out / before.folder)
    if made is None or made.content != before.content:
        return {}
    if stage.name == "documents":
        had = {(item["source"], item["relative"]): item["identity"] for item in old.inputs}
        known = {key: result for result in made.results.values() if (key := _range_of(result.extra, had))}
        have = {(file.source, file.relative): file.identity for file in files}
        wanted = {unit.index: _range_of(_span(unit), have) for unit in units}
    elif isinstance(stage.operation, SetOperation):
        return {}  # a bucket or a shard is made from all partitions
    else:
        then = [_hashes(_manifest_of(out, old, name, replaced)) for name in stage.reads]
        now = [_hashes(manifests[name]) for name in stage.reads]
        known = {key: result for part, result in made.results.items() if (key := _sources(then, part))}
        wanted = {unit.index: _sources(now, unit.index) for unit in units}
    found = {}
    source, target = out / before.folder, out / folder
    sizes = source.sizes() if any(key in known for key in wanted.values()) else {}
    for index, key in wanted.items():
        result = known.get(key) if key else None
        if result is not None and _link(source, target, sizes, result, index):
            files_now = tuple(replace(file, name=part_name(index)) for file in result.files)
            found[index] = replace(result, unit=index, files=files_now)
    return found


def _span(unit: Unit) -> dict[str, Any]:
    """The one range of an input that a documents unit reads, in the words of its result; {} when it reads several."""
    spans = unit.fields.get("spans", [])
    return {**spans[0], "file": spans[0]["relative"]} if len(spans) == 1 else {}


def _range_of(place: Mapping[str, Any], identities: Mapping[tuple[str, str], str]) -> Key | None:
    """What makes a documents partition the same: its file's content and the range."""
    name = (place.get("source"), place.get("file"))
    if name not in identities or "start" not in place:
        return None
    return (*name, identities[name], place["start"], place["end"])  # type: ignore[index]


def _manifest_of(out: Place, old: State, name: str, replaced: Mapping[str, Manifest]) -> Manifest | None:
    """The manifest that the run in force has read; None where another stands in its place now and it is not among the `replaced`."""
    stage = old.stage(name)
    manifest = (replaced.get(name) or read_manifest(out / stage.folder)) if stage else None
    return manifest if manifest and stage and manifest.content == stage.content else None


def _hashes(manifest: Manifest | None) -> dict[str, str]:
    """File name -> hash of a stage; a unit of it need not be a partition."""
    results = manifest.results.values() if manifest else ()
    return {file.name: file.xxh3 for result in results for file in result.files}


def _sources(layers: Sequence[Mapping[str, str]], part: int) -> Key | None:
    """The hashes of the files that a partition of a layer is made from, in the order of `Stage.reads`."""
    name = part_name(part)
    return tuple(layer[name] for layer in layers) if all(name in layer for layer in layers) else None


def _link(source: Place, target: Place, sizes: Mapping[str, int], result: Result, index: int) -> bool:
    """Give the unit's one file its new name; False when it is not there whole (then it is made as usual)."""
    if len(result.files) != 1:
        return False
    (record,) = result.files
    if sizes.get(record.name) != record.size_bytes:
        return False
    (source / record.name).copy_to(target / part_name(index))
    return True
