"""Check what stands against what was recorded: length and xxh3 of every file of a run, then the shards' own blocks."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from corpusmill.pipeline.engine.manifest import HEAD, SPENT, read_manifest
from corpusmill.pipeline.engine.place import Place, Where, readable
from corpusmill.pipeline.engine.state import RUN, need_state
from corpusmill.pipeline.engine.store import hash_bytes
from corpusmill.pipeline.errors import InputError, ShardError
from corpusmill.shards.layout import BLOCKS_FILE, MANIFEST, PLAN_FILE


def verify(where: Where) -> tuple[list[str], int]:
    """(findings, files checked) for OUT of a run or a folder of shards. Every finding names its file and what redoes it."""
    out = readable(where)
    if (out / RUN).is_file():
        findings, checked = verify_run(out)
        if (out / "shards" / PLAN_FILE).is_file():
            findings += _verify_shards(out / "shards")
        return findings, checked
    folder = out.parent if out.name == PLAN_FILE else out
    if not (folder / PLAN_FILE).is_file():
        raise InputError(f"{out} is neither a run (no {RUN}) nor a folder of shards (no {PLAN_FILE})")
    return _verify_shards(folder), _shard_files(folder)


def _shard_files(folder: Place) -> int:
    """The files that a plan's shards are made of, as far as their manifests can be read: plan, tokenizer and sidecars included."""
    from corpusmill.shards.layout import file_of, read_manifest
    from corpusmill.shards.plan_file import read_plan

    files = {str(folder / PLAN_FILE)}
    with contextlib.suppress(ShardError):
        for component in read_plan(folder / PLAN_FILE).components:
            inside = folder / component.folder
            with contextlib.suppress(ShardError):
                manifest = read_manifest(inside)
                own = (MANIFEST, BLOCKS_FILE, *(n for s in manifest.shards for n in (s.file, s.docs_file)))
                files |= {str(inside / name) for name in own}
                files.add(str(file_of(inside, manifest.tokenizer_file)))
    return len(files)


@dataclass(frozen=True)
class Broken:
    """A file of a stage that is not what its manifest says; `name` is None for the manifest itself."""

    stage: str
    folder: Place
    name: str | None
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
            found.append(Broken(stage.name, folder, None, what))
            continue
        sizes = folder.sizes()
        if SPENT in sizes:
            continue
        for file in (file for result in manifest.results.values() for file in result.files):
            checked += 1
            what = _wrong(folder / file.name, sizes.get(file.name), file.size_bytes, file.xxh3)
            if what:
                found.append(Broken(stage.name, folder, file.name, what))
        for name, digest in manifest.sealed.items():
            checked += 1
            if name not in sizes or hash_bytes((folder / name).read_bytes()) != digest:
                what = f"missing or changed: delete {folder / HEAD} and run the same command again"
                found.append(Broken(stage.name, folder, name, what))
    return found, checked


def _wrong(file: Place, found: int | None, size: int, digest: str) -> str:
    """What is wrong with a file; "" when nothing is."""
    again = "delete it and run the same command again"
    if found is None:
        return "missing: run the same command again"
    if found != size:
        return f"{found:,} bytes, recorded {size:,}: {again}"
    return "" if file.hash() == digest else f"its bytes have changed since they were written: {again}"


def _verify_shards(folder: Place) -> list[str]:
    from corpusmill.shards.verify import verify as verify_shards

    return [str(finding) for finding in verify_shards(folder)]
