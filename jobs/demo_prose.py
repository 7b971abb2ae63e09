"""Real English text that is on every machine once corpusmill is installed: the prose of the demo's crawl.

Chapters are the paragraphs of sentences in the docstrings of named packages and of the standard library, in the topics of
`help()` and in project descriptions; reference pages are whole docstrings, tables and code included; licences are licences.
Only named packages are read, so that what else is installed cannot change the crawl. Reading stops when there is enough
(1,400 pages: about 5 s of CPU, nearly all of it in parsing 22 MB of source).
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
    "scipy.stats",
    "fsspec",
    "scipy.optimize",
    "datasketch",
    "ray.train",
    "rich",
    "scipy.signal",
    "requests",
    "ray.util",
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

FOLDERS = "asyncio concurrent/futures ctypes email http importlib json logging multiprocessing unittest urllib xml/etree xmlrpc".split()
"""Folders of the standard library that are read beside its single modules."""

SHORTEST = 600
"""Characters under which a licence or a whole docstring makes no page."""
CHAPTER_WORDS = 130
"""Words of sentences that make a page; shorter docstrings of one module share one."""


@dataclass(frozen=True)
class Prose:
    """A text with a stable path-like `name`, and a `title` for people."""

    name: str
    title: str
    text: str


def documentation(count: int) -> list[Prose]:
    """`count` chapters at most, from the help topics, project descriptions and PACKAGES in turns; no text twice."""
    shelves = [help_topics(), descriptions(), *map(_package_chapters, PACKAGES)]
    return list(islice(_once(_turns(shelves)), count))


def library(count: int) -> list[Prose]:
    """`count` chapters at most, from the standard library."""
    return list(islice(_once(_library_chapters()), count))


def chapters(package: str, count: int) -> list[Prose]:
    """`count` chapters at most, from one package; none where it is not installed."""
    return list(islice(_once(_package_chapters(package)), count))


def reference(count: int) -> list[Prose]:
    """`count` whole docstrings at most: what quality rules made for prose drop."""
    return list(islice(_once(_turns([_whole_docstrings("numpy"), _whole_docstrings("ray.data")])), count))


def licences(count: int) -> list[Prose]:
    """`count` licence and notice files at most, equal ones included: many packages ship the same."""
    return list(islice(_licences(), count))


def help_topics() -> Iterator[Prose]:
    """The sentences of what `help("TOPICS")` knows: chapters about Python."""
    from pydoc_data.topics import topics

    for name in sorted(topics):
        yield from _chapter(f"python/{name}", f"Python: {name}", sentences(topics[name]))


def descriptions() -> Iterator[Prose]:
    """The sentences of the README that a distribution carries in its metadata."""
    for name in DISTRIBUTIONS:
        if found := _distribution(name):
            yield from _chapter(
                f"project/{name}",
                f"About {name}",
                sentences(str(found.metadata.json.get("description") or "")),
            )


def sentences(text: str) -> list[str]:
    """The paragraphs that are sentences, without markup: 8 words and more, few of them symbols, a full stop behind."""
    found = []
    for block in re.split(r"\n\s*\n", text):
        words = block.split()
        if len(words) < 8 or words[-1][-1] not in ".!?" or "{" in block or ">>>" in block:
            continue
        line = re.sub(r"^[-*] ", "", " ".join(_plain(block).split()))
        tokens = re.findall(r"\w+|[^\w\s]", line)
        if line[0].isupper() and sum(token[0].isalpha() for token in tokens) >= 0.84 * len(tokens):
            found.append(line)
    return found


def _plain(text: str) -> str:
    text = re.sub(r":[a-z:]+:`~?([^`<]+)[^`]*`", r"\1", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"`+([^`]+)`+_*", r"\1", re.sub(r"\*\*?([^*]+)\*\*?", r"\1", text))


def _chapter(name: str, title: str, paragraphs: Iterable[str]) -> Iterator[Prose]:
    """A page, when there are words enough; a paragraph that stands twice is taken once."""
    text = "\n\n".join(dict.fromkeys(paragraphs))
    if len(text.split()) >= CHAPTER_WORDS:
        yield Prose(name, title, text)


def _package_chapters(package: str) -> Iterator[Prose]:
    for path, module in _modules(package):
        yield from _module_chapters(path, module)


def _library_chapters() -> Iterator[Prose]:
    root = Path(ast.__file__).parent
    for folder in ("", *FOLDERS):
        for path in sorted((root / folder).glob("*.py")):
            yield from _module_chapters(
                path, "/".join(part for part in ("library", folder, path.stem) if part)
            )


def _module_chapters(path: Path, module: str) -> Iterator[Prose]:
    """Docstrings of a module in order, as many to a chapter as its length asks for."""
    name, gathered = "", list[str]()
    for inner, text in _docstrings(path, module):
        name = name or inner
        gathered += sentences(text)
        if sum(len(paragraph.split()) for paragraph in gathered) >= CHAPTER_WORDS:
            yield from _chapter(name, name.replace("/", "."), gathered)
            name, gathered = "", []


def _whole_docstrings(package: str) -> Iterator[Prose]:
    for path, module in _modules(package):
        for name, text in _docstrings(path, module):
            if len(text) >= SHORTEST:
                yield Prose(name, name.replace("/", "."), text)


def _modules(package: str) -> Iterator[tuple[Path, str]]:
    """(file, path-like name) of a package's modules without its tests, found without importing it."""
    first, *inner = package.split(".")
    spec = importlib.util.find_spec(first)
    if spec is None or spec.origin is None:
        return
    root = Path(spec.origin).parent.joinpath(*inner)
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).as_posix()):
        below = path.relative_to(root).with_suffix("").parts
        if not any("test" in part or part == "_vendor" for part in below):
            yield path, "/".join((first, *inner, *below))


def _docstrings(path: Path, module: str) -> Iterator[tuple[str, str]]:
    """(path-like name, docstring) of a module, its classes and its functions, from its source."""

    def visit(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(node):
                yield name, text
            for child in node.body if isinstance(node, ast.Module | ast.ClassDef) else ():
                if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from visit(child, f"{name}/{child.name}")

    yield from visit(ast.parse(path.read_bytes()), module)


def _licences() -> Iterator[Prose]:
    for name in DISTRIBUTIONS:
        found = _distribution(name)
        for file in sorted(found.files or [], key=str) if found else []:
            if re.match(
                r"(licen[cs]e|copying|notice|authors)", file.name, re.IGNORECASE
            ) and ".dist-info" in str(file):
                text = Path(str(file.locate())).read_text(encoding="utf-8", errors="replace")
                below = "/".join(file.parts[1:])  # packages carry the licences of what they bundle in folders
                if len(text) >= SHORTEST:
                    yield Prose(f"{name}/{below}", f"{file.name} of {name}", text)


def _distribution(name: str) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _turns(shelves: Iterable[Iterator[Prose]]) -> Iterator[Prose]:
    return (prose for row in zip_longest(*shelves) for prose in row if prose is not None)


def _once(texts: Iterator[Prose]) -> Iterator[Prose]:
    """Without texts or names seen before: an overload repeats its docstring, and a page needs a URL of its own."""
    seen: set[str] = set()
    for prose in texts:
        if prose.text not in seen and prose.name not in seen:
            seen |= {prose.text, prose.name}
            yield prose
