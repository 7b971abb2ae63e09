"""Everything that can be checked about shards without the documents they came from; each byte is read two or three times.

Shards of a store or web server are fetched once, one after the other, into TMPDIR. The stream itself checks lengths when it opens and a block's hash before its first token; this looks at all of it at once:
files against the manifest, blocks against their table, and what whole files say against each other (content.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import xxhash

from corpusmill.pipeline.engine.store import hash_file
from corpusmill.pipeline.errors import ShardError
from corpusmill.shards.append import PLANS_FOLDER, earlier
from corpusmill.shards.content import content
from corpusmill.shards.layout import (
    BLOCKS_FILE,
    HOLDOUT_FILE,
    MANIFEST,
    PLAN_FILE,
    Manifest,
    ShardFile,
    file_of,
    read_blocks,
    read_manifest,
)
from corpusmill.shards.plan import Component
from corpusmill.shards.plan_file import find_plan, read_plan
from corpusmill.shards.quarantine import QUARANTINE_FILE, read_quarantine

if TYPE_CHECKING:
    from corpusmill.pipeline.engine.place import Place


@dataclass(frozen=True)
class Finding:
    """Something wrong with `file` (below the plan's folder)."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


def verify(path: str | Path | Place) -> list[Finding]:
    """All that is wrong with the shards of the plan at `path` (OUT, OUT/shards or plan.json); [] when nothing is.

    Beside it, what is held out is looked at as well, and the plans that it goes on from. Raises ShardError only when there is no
    plan to go by.
    """
    place = find_plan(path)
    findings = _plan(place)
    held = place.parent / HOLDOUT_FILE
    if place.name == PLAN_FILE and held.is_file():
        findings += [finding for finding in _plan(held) if finding not in findings]
    return findings + _past(place)


def _past(place: Path | Place) -> list[Finding]:
    """Kept plans that a cursor could not be compared with."""
    try:
        past = read_plan(place).past
    except ShardError:
        return []
    findings = []
    for plan in past:
        try:
            earlier(place, plan.id)
        except ShardError as error:
            findings.append(Finding(f"{PLANS_FOLDER}/{plan.id}.json", str(error)))
    return findings


def _plan(place: Path | Place) -> list[Finding]:
    from corpusmill.pipeline.engine.place import place_of

    folder = place_of(place.parent)
    try:
        plan = read_plan(place)
    except ShardError as error:
        return [Finding(place.name, str(error))]
    findings = [
        Finding(f"{component.folder}/{name}", what)
        for component in plan.components
        for name, what in _component(folder / component.folder, component)
    ]
    try:
        read_quarantine(place.parent, plan)
    except ShardError as error:
        findings.append(Finding(QUARANTINE_FILE, str(error)))
    return findings


def _component(folder: Place, component: Component) -> Iterator[tuple[str, str]]:
    """(file below `folder`, what is wrong with it), file by file."""
    try:
        manifest = read_manifest(folder)
    except ShardError as error:
        yield MANIFEST, str(error)
        return
    if manifest.hash != component.manifest:
        yield MANIFEST, "is not the manifest that the plan was made for"
    yield from _tokenizer(folder, manifest)
    blocks = None
    try:
        blocks = read_blocks(folder, manifest)
    except ShardError as error:
        yield BLOCKS_FILE, str(error)
    first_row = first_document = 0
    for number, shard in enumerate(manifest.shards):
        with ExitStack() as copies:
            here, broken = {}, []
            for name, size in ((shard.file, shard.size_bytes), (shard.docs_file, shard.docs_bytes)):
                found = (folder / name).size()
                if found == size:
                    here[name] = copies.enter_context((folder / name).here())
                else:
                    what = "is missing" if found is None else f"has {found} bytes, the manifest says {size}"
                    broken.append((name, what))
            broken += _hashes(shard, here, number, blocks)
            yield from broken or content(
                here[shard.file], here[shard.docs_file], manifest, number, (first_row, first_document), blocks
            )
        first_row += shard.rows
        first_document += shard.documents


def _tokenizer(folder: Place, manifest: Manifest) -> Iterator[tuple[str, str]]:
    try:
        data = file_of(folder, manifest.tokenizer_file).read_bytes()
    except FileNotFoundError:
        yield manifest.tokenizer_file, "is missing"
        return
    if hashlib.sha256(data).hexdigest() != manifest.tokenizer_sha256:
        yield manifest.tokenizer_file, "is not the tokenizer that the shards were made with"


def _hashes(
    shard: ShardFile, here: Mapping[str, Path], number: int, blocks: pa.Table | None
) -> Iterator[tuple[str, str]]:
    """Hashes of a shard and its sidecar, as far as they are there; of a damaged shard also the blocks that are."""
    digests = {shard.file: shard.xxh3, shard.docs_file: shard.docs_xxh3}
    for name, path in here.items():
        if hash_file(path) != digests[name]:
            damaged = (
                _damaged_blocks(path, number, blocks) if name == shard.file and blocks is not None else []
            )
            where = f" (block {', '.join(map(str, damaged))})" if damaged else ""
            yield name, f"is damaged: its hash is not the manifest's{where}"


def _damaged_blocks(path: Path, number: int, blocks: pa.Table) -> list[int]:
    """Component-wide numbers of the shard's blocks whose stored bytes have another hash."""
    damaged = []
    with path.open("rb") as file:
        for i, block in enumerate(blocks.to_pylist()):
            if block["shard"] == number:
                file.seek(block["offset"])
                if xxhash.xxh3_64_intdigest(file.read(block["length"])) != block["xxh3"]:
                    damaged.append(i)
    return damaged
