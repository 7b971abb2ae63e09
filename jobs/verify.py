"""Check what stands against what was recorded: length and xxh3 of every file of a run, then the shards' own blocks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from corpusmill.pipeline.engine.manifest import HEAD, SPENT, read_manifest
from corpusmill.pipeline.engine.place import Disk, Place, Where, place_of
from corpusmill.pipeline.engine.state import RUN, need_state
from corpusmill.pipeline.engine.store import hash_bytes
from corpusmill.pipeline.errors import InputError


def verify(where: Where) -> tuple[list[str], int]:
    """(findings, files checked) for OUT of a run or a folder of shards. Every finding names its file and what redoes it.

    Of a run on a store all files are compared with what was recorded; the blocks inside shards, whose hashes say where in a file it is
    damaged, are looked at on a disk only.
    """
    out = place_of(where)
    if (out / RUN).is_file():
        findings, checked = verify_run(out)
        if isinstance(out, Disk) and (out / "shards" / "plan.json").is_file():
            findings += _verify_shards(out.path / "shards")
        return findings, checked
    if not isinstance(out, Disk):
        raise InputError(
            f"{out} is no run (no {RUN}); shards alone are verified on a disk: copy the folder there"
        )
    path = out.path
    folder = path.parent if path.name == "plan.json" else path
    if not (folder / "plan.json").is_file():
        raise InputError(f"{path} is neither a run (no {RUN}) nor a folder of shards (no plan.json)")
    found = _verify_shards(folder)
    return found, sum(1 for file in folder.rglob("*") if file.is_file())


@dataclass(frozen=True)
class Broken:
    """A file of a stage that is not what its manifest says; `name` is None for the manifest itself, `digest` what it has to be."""

    stage: str
    folder: Place
    name: str | None
    digest: str
    what: str

    def __str__(self) -> str:
        return f"{self.folder if self.name is None else self.folder / self.name}: {self.what}"


def verify_run(out: Place) -> tuple[list[str], int]:
    """Every file that the manifests in force name."""
    found, checked = broken_files(out)
    return [str(each) for each in found], checked


def broken_files(out: Place) -> tuple[list[Broken], int]:
    """(what is broken, files checked) of a run."""
    found: list[Broken] = []
    checked = 0
    for stage in need_state(out).stages:
        folder = out / stage.folder
        manifest = read_manifest(folder)
        if manifest is None:
            what = "its manifest is missing or damaged: run the same command again"
            found.append(Broken(stage.name, folder, None, "", what))
            continue
        sizes = folder.sizes()
        if SPENT in sizes:
            continue
        for file in (file for result in manifest.results.values() for file in result.files):
            checked += 1
            what = _wrong(folder / file.name, sizes.get(file.name), file.size_bytes, file.xxh3)
            if what:
                found.append(Broken(stage.name, folder, file.name, file.xxh3, what))
        for name, digest in manifest.sealed.items():
            checked += 1
            if name not in sizes or hash_bytes((folder / name).read_bytes()) != digest:
                what = f"missing or changed: delete {folder / HEAD} and run the same command again"
                found.append(Broken(stage.name, folder, name, digest, what))
    return found, checked


def _wrong(file: Place, found: int | None, size: int, digest: str) -> str:
    """What is wrong with a file; "" when nothing is."""
    again = "delete it and run the same command again"
    if found is None:
        return "missing: run the same command again"
    if found != size:
        return f"{found:,} bytes, recorded {size:,}: {again}"
    return "" if file.hash() == digest else f"its bytes have changed since they were written: {again}"


def _verify_shards(folder: Path) -> list[str]:
    from corpusmill.shards.verify import verify as verify_shards

    return [str(finding) for finding in verify_shards(folder)]
