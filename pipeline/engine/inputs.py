"""Input files of a recipe: wildcards, lists, the fixed prefix, and what makes a file the same file."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

import xxhash

from corpusmill.pipeline.engine.lists import base_of, paths_of
from corpusmill.pipeline.engine.matching import WILDCARD
from corpusmill.pipeline.engine.remote_inputs import (
    PROBE_BYTES,
    fixed_prefix,
    found_at,
    listed,
    probe_starts,
    relative_of,
    remote_identity,
)
from corpusmill.pipeline.engine.stage import InputFile
from corpusmill.pipeline.errors import InputError, RecipeError
from corpusmill.pipeline.input import Input
from corpusmill.pipeline.remote import WEB, Unreachable, redacted, scheme_of
from corpusmill.pipeline.remote_file import RemoteFile
from corpusmill.pipeline.web_client import CONNECTIONS


def identity(path: Path) -> str:
    """Size and xxh3-128 of the first, middle and last 64 KiB."""
    size = path.stat().st_size
    digest = xxhash.xxh3_128(str(size).encode())
    with path.open("rb") as file:
        for start in probe_starts(size):
            file.seek(start)
            digest.update(file.read(PROBE_BYTES))
    return digest.hexdigest()


def find_inputs(inputs: Sequence[Input], out: Path | str | None = None) -> list[InputFile]:
    """The files of all inputs, sorted by source and path below the fixed prefix; their order on disk plays no part.

    Wildcards that reach into `out` find nothing there: a run that is taken up again must not read what it wrote.
    """
    if not inputs:
        raise RecipeError("no inputs: name them in the recipe or with --input PATH (wildcards allowed)")
    found: dict[tuple[str, str], Candidate] = {}
    places: dict[tuple[str, str], str] = {}
    for item in inputs:
        for one in _taken(_expand(item, out), item):
            key, place = (item.source, one.relative), (item.source, one.spelling)
            if places.setdefault(place, one.relative) != one.relative:
                raise RecipeError(
                    f"{one.path} would be read twice, as {places[place]!r} and {one.relative!r} of source {item.source!r}: name it once"
                )
            if key in found:
                if found[key].same_file(one):
                    continue  # the same file by two patterns is one file
                raise RecipeError(
                    f"{found[key].path} and {one.path} would both be {one.relative!r} of source {item.source!r}: give one of the inputs another source"
                )
            found[key] = one
    return _known([found[key] for key in sorted(found)])


@dataclass(frozen=True)
class Candidate:
    """A file that an input names; `remote` where a listing has told all of it, `named` when it was given by its exact name."""

    path: str
    relative: str
    item: Input
    named: bool = False
    remote: RemoteFile | None = None

    @property
    def spelling(self) -> str:
        """Where it is, in one spelling."""
        if scheme_of(self.path):
            return self.path
        return str(Path(self.path).parent.resolve() / Path(self.path).name)

    def same_file(self, other: Candidate) -> bool:
        if scheme_of(self.path) or scheme_of(other.path):
            return self.path == other.path
        return Path(self.path).resolve() == Path(other.path).resolve()


def _taken(candidates: list[Candidate], item: Input) -> list[Candidate]:
    """Those of `take`: the smallest by the hash of their relative paths, so that more takes the same and others."""
    if item.take is None:
        return candidates
    return sorted(
        candidates, key=lambda one: (xxhash.xxh3_64_intdigest(one.relative.encode()), one.relative)
    )[: item.take]


def _expand(item: Input, out: Path | str | None) -> list[Candidate]:
    if item.path is None:
        base = base_of(item)
        web_base = scheme_of(base) in WEB
        # A path of a list is a name, not an address: what has a meaning in one is escaped, but for what is escaped already.
        return [
            Candidate(
                base + (quote(path, safe="/%") if web_base else path),
                unquote(path) if web_base else path,
                item,
            )
            for path in paths_of(item)
        ]
    scheme = scheme_of(item.path)
    if scheme in WEB:
        if WILDCARD.search(item.path.partition("?")[0]):
            raise RecipeError(
                f"{redacted(item.path)}: web servers list no files, so wildcards find none; name each, or give a paths_file"
            )
        return [Candidate(item.path, relative_of(item.path, fixed_prefix(item.path)), item, True)]
    if scheme and not WILDCARD.search(item.path):
        return [Candidate(item.path, item.path[len(fixed_prefix(item.path)) :], item, True)]
    if scheme:
        files = listed(item.path, item.access, str(out or ""))
        prefix = fixed_prefix(item.path)
        return [
            Candidate(file.url, file.url[len(prefix) :], item, file.url == item.path, file) for file in files
        ]
    prefix = fixed_prefix(item.path)
    return [Candidate(path, path[len(prefix) :], item, path == item.path) for path in _local(item.path, out)]


def _local(pattern: str, out: Path | str | None) -> list[str]:
    """Files that exist, whatever their names; a path with wildcards that match nothing may be a name as it stands, as in a shell."""
    if glob.has_magic(pattern):
        paths = [path for path in glob.iglob(pattern, recursive=True) if Path(path).is_file()]  # noqa: PTH207
        if out is not None and not scheme_of(str(out)):
            inside = Path(out).resolve()
            paths = [path for path in paths if not Path(path).resolve().is_relative_to(inside)]
        if paths:
            return sorted(paths)
        if not Path(pattern).exists():
            below = "" if Path(pattern).is_absolute() else f" below {Path.cwd()}, where the command was given"
            raise InputError(f"no file matches {pattern}{below}; name others with --input [SOURCE=]PATH")
    if Path(pattern).is_dir():
        raise InputError(f"{pattern} is a folder: name files, for example {pattern.rstrip('/')}/*")
    if Path(pattern).exists() and not Path(pattern).is_file():
        raise InputError(f"{pattern} is a pipe or a device: it has to be a file, which can be read again")
    return [pattern]


def _known(candidates: Sequence[Candidate]) -> list[InputFile]:
    """Their sizes and identities; those on web servers and stores side by side."""
    if not any(scheme_of(one.path) for one in candidates):
        return [_input_file(one) for one in candidates]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return list(pool.map(_input_file, candidates))


def _input_file(one: Candidate) -> InputFile:
    # Half characters are what Python makes of bytes that are no UTF-8.
    if any("\ud800" <= letter <= "\udfff" for letter in one.path):
        raise InputError(f"{one.path!r}: its name is not in UTF-8, and ids are made of names: rename it")
    remote = (one.remote or found_at(one.path, one.item.access)) if scheme_of(one.path) else None
    try:
        size_bytes = Path(one.path).stat().st_size if remote is None else remote.size_bytes
        content = identity(Path(one.path)) if remote is None else remote_identity(remote)
    except Unreachable:
        raise
    except OSError as error:
        raise InputError(f"cannot read {one.path}: {error.strerror}") from None
    item = one.item
    if item.sample is not None:  # another share is another input
        content = xxhash.xxh3_128_hexdigest(f"{content} {item.sample!r}".encode())
    return InputFile(one.path, one.relative, item.source, size_bytes, content, one.named, remote, item.sample)
