"""Input files of a recipe: wildcards, the fixed prefix, and what makes a file the same file."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path

import xxhash

from corpusmill.pipeline.engine.stage import InputFile
from corpusmill.pipeline.errors import InputError, RecipeError
from corpusmill.pipeline.recipe import Input

PROBE_BYTES = 64 * 1024
"""Bytes hashed at the start, in the middle and at the end of an input: a changed file is noticed without reading it whole."""


def fixed_prefix(path: str) -> str:
    """The folder that stands before the first wildcard (the file's own folder when there is none), with its final `/`."""
    wildcard = re.search(r"[*?\[]", path)
    head = path if wildcard is None else path[: wildcard.start()]
    return head[: head.rfind("/") + 1]


def identity(path: Path) -> str:
    """Size and xxh3-128 of the first, middle and last 64 KiB."""
    size = path.stat().st_size
    digest = xxhash.xxh3_128(str(size).encode())
    with path.open("rb") as file:
        for offset in (0, max(0, size // 2 - PROBE_BYTES // 2), max(0, size - PROBE_BYTES)):
            file.seek(offset)
            digest.update(file.read(PROBE_BYTES))
    return digest.hexdigest()


def find_inputs(inputs: Sequence[Input], out: Path | str | None = None) -> list[InputFile]:
    """The files of all inputs, sorted by source and path below the fixed prefix; their order on disk plays no part.

    Wildcards that reach into `out` find nothing there: a run that is taken up again must not read what it wrote.
    """
    if not inputs:
        raise RecipeError("no inputs: name them in the recipe or with --input PATH (wildcards allowed)")
    found: dict[tuple[str, str], InputFile] = {}
    places: dict[tuple[str, Path], str] = {}
    for item in inputs:
        for path in _expand(item, out):
            relative = path[len(fixed_prefix(item.path)) :]
            key = (item.source, relative)
            place = (item.source, Path(path).parent.resolve() / Path(path).name)
            if places.setdefault(place, relative) != relative:
                raise RecipeError(
                    f"{path} would be read twice, as {places[place]!r} and {relative!r} of source {item.source!r}: name it once"
                )
            if key in found:
                if Path(found[key].path).resolve() == Path(path).resolve():
                    continue  # the same file by two patterns is one file
                raise RecipeError(
                    f"{found[key].path} and {path} would both be {relative!r} of source {item.source!r}: give one of the inputs another source"
                )
            found[key] = _input_file(path, relative, item)
    return [found[key] for key in sorted(found)]


def _expand(item: Input, out: Path | str | None) -> list[str]:
    """Files that exist, whatever their names; a path with wildcards that match nothing may be a name as it stands, as in a shell."""
    if re.match(r"[a-z0-9]+://", item.path):
        raise RecipeError(f"input {item.path}: only files on this machine can be read; fetch it first")
    if glob.has_magic(item.path):
        paths = [path for path in glob.iglob(item.path, recursive=True) if Path(path).is_file()]  # noqa: PTH207
        if out is not None:
            inside = Path(out).resolve()
            paths = [path for path in paths if not Path(path).resolve().is_relative_to(inside)]
        if paths:
            return sorted(paths)
        if not Path(item.path).exists():
            raise InputError(f"no file matches {item.path}")
    if Path(item.path).is_dir():
        raise InputError(f"{item.path} is a folder: name files, for example {item.path.rstrip('/')}/*")
    if Path(item.path).exists() and not Path(item.path).is_file():
        raise InputError(f"{item.path} is a pipe or a device: it has to be a file, which can be read again")
    return [item.path]


def _input_file(path: str, relative: str, item: Input) -> InputFile:
    if any("\ud800" <= letter <= "\udfff" for letter in path):  # what Python makes of bytes that are no UTF-8
        raise InputError(f"{path!r}: its name is not in UTF-8, and ids are made of names: rename it")
    try:
        size_bytes, named = Path(path).stat().st_size, path == item.path
        return InputFile(path, relative, item.source, size_bytes, identity(Path(path)), named)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
