"""Real English text that is on every machine once corpusmill is installed: the prose of the demo's crawl.

Four kinds, each with a name that never changes: docstrings of named packages and of the standard library, the topics of
`help()`, project descriptions and licences of installed distributions. Only named packages are read, so that what else
is installed cannot change the crawl. Reading stops when there is enough (tests/test_demo_crawl.py; 1,400 pages: 2.3 s).
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path

PACKAGES = (
    "numpy",
    "pydantic",
    "ray.data",
    "click",
    "pyarrow",
    "fsspec",
    "rich",
    "datasketch",
    "requests",
    "scipy.stats",
)
"""Packages whose docstrings become pages; all are installed by the `pipeline` extra."""

DISTRIBUTIONS = (
    "aiohttp aiosignal annotated-types anyio attrs babel brotli certifi cffi charset-normalizer click colorful courlan "
    "cryptography datasketch dateparser filelock frozenlist fsspec google-api-core google-auth grpcio h11 htmldate "
    "huggingface-hub idna jsonschema justext llvmlite lxml lxml-html-clean markdown-it-py mdurl msgpack multidict numba "
    "numpy opencensus packaging platformdirs prometheus-client propcache protobuf py-spy pyarrow pyasn1 pycparser pydantic "
    "pydantic-core pygments python-dateutil pytz pyyaml ray referencing regex requests resiliparse rich rpds-py scipy six "
    "smart-open tld tokenizers tqdm trafilatura typing-extensions tzdata tzlocal urllib3 virtualenv wrapt xxhash yarl zstandard"
).split()
"""Distributions whose description and licences become pages."""

SHORTEST = 600
"""Characters under which a text makes no page."""

COMMON = frozenset(
    "the be to of and that have with is are this for in a an it as by or if not can will from".split()
)


@dataclass(frozen=True)
class Prose:
    """A text with a stable `name` (path-like), for people a `title`, and a `topic`: documentation, manual, project, licence."""

    name: str
    title: str
    topic: str
    text: str


def documentation(count: int) -> list[Prose]:
    """`count` texts at most: help topics, project descriptions and docstrings of PACKAGES, in turns, none twice."""
    shelves = [help_topics(), descriptions(), *(docstrings(package) for package in PACKAGES)]
    return list(islice(_once(_turns(shelves)), count))


def library(count: int) -> list[Prose]:
    """`count` texts at most: docstrings of the standard library."""
    return list(islice(_once(_standard_library()), count))


def licences(count: int) -> list[Prose]:
    """`count` licence and notice files at most, equal ones included: many packages ship the same."""
    return list(islice(_licences(), count))


def help_topics() -> Iterator[Prose]:
    """The chapters that `help("TOPICS")` knows: real prose about Python."""
    from pydoc_data.topics import topics

    for name in sorted(topics):
        if _is_prose(topics[name]):
            yield Prose(f"python/{name}", f"Python: {name}", "manual", topics[name])


def descriptions() -> Iterator[Prose]:
    """The README that a distribution carries in its metadata."""
    for name in DISTRIBUTIONS:
        found = _distribution(name)
        if found is None:
            continue
        text = str(found.metadata.json.get("description") or "")
        if _is_prose(text):
            yield Prose(f"project/{name}", f"About {name}", "project", text)


def docstrings(package: str) -> Iterator[Prose]:
    """Docstrings of modules, classes and functions, read from source without importing the package."""
    spec = importlib.util.find_spec(package.split(".")[0])
    if spec is None or spec.origin is None:
        return
    root = Path(spec.origin).parent.joinpath(*package.split(".")[1:])
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).as_posix()):
        below = path.relative_to(root).with_suffix("").parts
        if not any("test" in part or part == "_vendor" for part in below):
            yield from _docstrings_in(path, "/".join((package.replace(".", "/"), *below)))


def _standard_library() -> Iterator[Prose]:
    root = Path(ast.__file__).parent
    for folder in (
        "",
        "asyncio",
        "email",
        "concurrent/futures",
        "multiprocessing",
        "http",
        "json",
        "logging",
        "urllib",
        "xml/etree",
    ):
        for path in sorted((root / folder).glob("*.py")):
            yield from _docstrings_in(path, "/".join(part for part in ("library", folder, path.stem) if part))


def _docstrings_in(path: Path, name: str) -> Iterator[Prose]:
    def visit(node: ast.AST, name: str) -> Iterator[Prose]:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if _is_prose(text):
                yield Prose(name, name.replace("/", "."), "documentation", text)
        if isinstance(node, ast.Module | ast.ClassDef):
            for child in node.body:
                if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from visit(child, f"{name}/{child.name}")

    yield from visit(ast.parse(path.read_bytes()), name)


def _licences() -> Iterator[Prose]:
    for name in DISTRIBUTIONS:
        found = _distribution(name)
        for file in sorted(found.files or [], key=str) if found else []:
            if re.match(
                r"(licen[cs]e|copying|notice|authors)", file.name, re.IGNORECASE
            ) and ".dist-info" in str(file):
                text = Path(str(file.locate())).read_text(encoding="utf-8", errors="replace")
                if len(text) >= SHORTEST:
                    below = "/".join(
                        file.parts[1:]
                    )  # packages carry the licences of what they bundle in folders
                    yield Prose(f"{name}/{below}", f"{file.name} of {name}", "licence", text)


def _distribution(name: str) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_prose(text: str) -> bool:
    """Sentences rather than code: docstrings of examples alone would make a crawl that every quality rule drops."""
    words = text.lower().split()
    return len(text) >= SHORTEST and sum(word.strip(".,;:()") in COMMON for word in words) >= 0.2 * len(words)


def _turns(shelves: Iterable[Iterator[Prose]]) -> Iterator[Prose]:
    return (prose for row in zip_longest(*shelves) for prose in row if prose is not None)


def _once(texts: Iterator[Prose]) -> Iterator[Prose]:
    """Without texts or names seen before: an overload repeats its docstring, and a page needs a URL of its own."""
    seen: set[str] = set()
    for prose in texts:
        if prose.text not in seen and prose.name not in seen:
            seen |= {prose.text, prose.name}
            yield prose
