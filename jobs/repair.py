"""Make again what `verify` finds broken, where something is left to make it from; it has to come out as it was.

    of a run         any file of a stage: by the stages before it, unit by unit, as a killed run goes on; documents from the inputs
    of shards alone  blocks.arrow: from the shards; all else needs the run that made it, or a copy

A block table or the shards' copy of the tokenizer is made from what lies beside it, without running a stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from corpusmill.jobs.verify import Broken, broken_files, verify
from corpusmill.pipeline.engine.place import Place, Where, place_of
from corpusmill.pipeline.engine.state import RUN, need_state
from corpusmill.pipeline.engine.store import hash_bytes
from corpusmill.pipeline.errors import RecipeError, ShardError
from corpusmill.shards.layout import (
    BLOCKS,
    BLOCKS_FILE,
    MANIFEST,
    PLAN_FILE,
    Manifest,
    block_table,
    encode_blocks,
    read_manifest,
)


def repair(where: Where, workers: int | None = None) -> Iterator[str]:
    """Lines that say what was done; ends when nothing more can be. What is still broken then, `verify` says."""
    out = place_of(where)
    if (out / RUN).is_file():
        yield from _repair_run(out, workers)
    else:
        verify(out)  # says what is wrong when this is no folder of shards
        folder = out.parent if out.suffix == ".json" else out
        for name in sorted(name for name in folder.sizes() if name.rpartition("/")[2] == MANIFEST):
            component = (folder / name).parent
            if blocks_again(component):
                yield f"{component / BLOCKS_FILE}: made again from the shards"


def _repair_run(out: Place, workers: int | None) -> Iterator[str]:
    if not need_state(out).complete:
        raise RecipeError(f"{out} is not finished: run the same command again, then repair what is left")
    broken, _ = broken_files(out)
    left = []
    for each in broken:
        if each.name is not None and _from_neighbours(each, broken):
            yield f"{each.folder / each.name}: made again from what lies beside it"
        else:
            left.append(each)
    if left or not _has_plan(out):
        _run_again(out, left, workers)
        for each in left:
            yield f"{each.folder if each.name is None else each.folder / each.name}: made again by its stage, {each.stage}"


def _run_again(out: Place, broken: Sequence[Broken], workers: int | None) -> None:
    """Drop the broken files and let the recipe's stages make them. Inputs are read for documents only, and may be gone else."""
    from corpusmill.jobs.run import run_recipe
    from corpusmill.pipeline.engine.inputs import find_inputs
    from corpusmill.pipeline.engine.stage import InputFile
    from corpusmill.pipeline.engine.state import RECIPE, read_recipe
    from corpusmill.pipeline.recipe import parse_recipe

    state = need_state(out)
    recipe = parse_recipe(read_recipe(out), str(out / RECIPE))
    documents = state.stage("documents")
    assert documents is not None  # every run begins with it
    if any(each.stage == "documents" for each in broken):
        files = find_inputs(recipe.inputs, str(out))  # raises before anything is dropped when they are gone
    else:
        files = [InputFile(path="", **described) for described in state.inputs]
    for each in broken:
        if each.name is not None:
            each.folder.unlink_all([each.name])
    plan = out / "shards" / PLAN_FILE
    kept = plan.read_bytes() if plan.is_file() and _has_plan(out) else None
    run_recipe(
        recipe,
        out,
        workers=workers,
        sample=documents.own["fields"].get("sample"),
        limit=documents.own["fields"].get("limit"),
        files=files,
    )
    if kept is not None:  # it may have been appended to since mix wrote it
        plan.put(kept)


def _has_plan(out: Place) -> bool:
    """Whether the plan of a run that makes one can be read."""
    from corpusmill.shards.plan_file import read_plan

    if not any(stage.folder.startswith("shards/") for stage in need_state(out).stages):
        return True
    try:
        read_plan(out / "shards" / PLAN_FILE)
    except ShardError:
        return False
    return True


def _from_neighbours(broken: Broken, others: Sequence[Broken]) -> bool:
    """Whether the file could be made from whole files of its own folder or of the stage that it is a copy from."""
    folder, name = broken.folder, broken.name or ""
    head, _, base = name.rpartition("/")
    beside = {each.name for each in others if str(each.folder) == str(folder)}
    if base != BLOCKS_FILE or f"{head}/{MANIFEST}" in beside:
        return False
    return blocks_again(folder / head)


def blocks_again(folder: Place) -> bool:
    """Write a component's blocks.arrow from its shards when it is not what its manifest says; whether it then was."""
    try:
        manifest = read_manifest(folder)
        path = folder / BLOCKS_FILE
        if path.is_file() and hash_bytes(path.read_bytes()) == manifest.blocks_xxh3:
            return False
        made = _blocks(folder, manifest)
    except (ShardError, OSError, pa.ArrowInvalid):
        return False  # a shard or the manifest is broken, too
    if hash_bytes(made) != manifest.blocks_xxh3:
        return False
    path.put(made)
    return True


def _blocks(folder: Place, manifest: Manifest) -> bytes:
    tables = [BLOCKS.empty_table()]
    first_row = 0
    for number, shard in enumerate(manifest.shards):
        with (folder / shard.file).here() as file:
            tables.append(block_table(file, number, first_row))
        first_row += shard.rows
    return encode_blocks(pa.concat_tables(tables))
