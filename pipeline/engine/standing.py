"""What stands of a stage in OUT, and what its end changes there: copies under fixed names come, temporary files go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from corpusmill.pipeline.engine.manifest import SPENT, Manifest, damaged_units, read_commits, read_manifest
from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.engine.results import Packed
from corpusmill.pipeline.engine.stage import SetOperation, Stage


def is_damaged(folder: Place, manifest: Manifest, sizes: Mapping[str, int]) -> bool:
    """Whether files of a finished stage are gone or cut; those of a spent temporary stage may be gone."""
    if SPENT in sizes:
        return False
    return bool(damaged_units(sizes, manifest.results)) or any(
        name not in sizes or (folder / name).hash() != known for name, known in manifest.sealed.items()
    )


def done_in(folder: Place) -> Packed:
    """Units that are done: by commits, or by a manifest some of whose files were lost."""
    manifest = read_manifest(folder)
    return Packed(manifest.results) if manifest else read_commits(folder)


def publish(out: Place, folder: Place, stage: Stage, need: Callable[[], None]) -> None:
    """Copy what people and streams look for by a fixed name; `need` raises when OUT is another run's by now."""
    if not isinstance(stage.operation, SetOperation) or not (names := stage.operation.publish()):
        return
    need()
    for name, target in names.items():
        data = (folder / name).read_bytes()
        path = out / target
        there = path.read_bytes() if path.is_file() else None
        if there is None:
            path.put(data)
        elif there != data:
            for place, content in stage.operation.replaces(target, there, data).items():
                (out / place).put(content)


def spendable(stages: Sequence[Stage], manifests: Mapping[str, Manifest]) -> list[Stage]:
    """Temporary stages all of whose readers stand."""
    return [
        stage
        for stage in stages
        if isinstance(stage.operation, SetOperation)
        and stage.operation.temporary
        and stage.name in manifests
        and (readers := [other for other in stages if stage.name in other.reads])
        and all(reader.name in manifests for reader in readers)
    ]


def spend(folder: Place, manifest: Manifest) -> None:
    """Drop the files of a temporary stage."""
    (folder / SPENT).put(b"")  # before the first file goes: from here on they may be missing
    folder.unlink_all([file.name for result in manifest.results.values() for file in result.files])
