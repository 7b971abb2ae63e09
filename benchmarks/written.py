"""Texts that people wrote, no text twice: web pages of ../shared, sources and manuals of the Python that runs this, PUD's sentences."""

from __future__ import annotations

import io
import random
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
LONGEST = 12_000  # characters of a document
WINDOW = 1 << 27  # of zstd in these archives


def documents(characters: int) -> list[str]:
    """Pages and files in drawn order, cut at line ends; pages are at most half of it."""
    draw = random.Random(7)
    roots = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
    kinds = (".py", ".pyi", ".md", ".rst", ".txt", ".html", ".js", ".h")
    files = sorted({path for root in roots for path in root.rglob("*") if path.suffix in kinds})
    files += sorted((SHARED / "text" / "pud").glob("*.txt"))
    draw.shuffle(files)
    found: dict[str, None] = {}
    size = _take(found, pages(), characters // 2)
    _take(found, (_read(path) for path in files), characters - size)
    texts = list(found)
    draw.shuffle(texts)
    return texts


def _take(found: dict[str, None], texts: Iterator[str], characters: int) -> int:
    """Adds documents until they have so many characters; how many they have."""
    size = 0
    for whole in texts:
        if size > characters:
            break
        for text in _cut(whole):
            if text not in found:
                found[text] = None
                size += len(text)
    return size


def pages() -> Iterator[str]:
    """The text of web pages, menus and all; nothing where ../shared or resiliparse is not."""
    try:
        import zstandard
        from resiliparse.extract.html2text import extract_plain_text
    except ImportError:
        return
    for path in sorted((SHARED / "extract-gold").glob("*/*.tar.zst")):
        with path.open("rb") as packed:
            unpacked = zstandard.ZstdDecompressor(max_window_size=WINDOW).stream_reader(packed)
            with tarfile.open(fileobj=io.BufferedReader(unpacked), mode="r|") as archive:
                for member in archive:
                    file = archive.extractfile(member) if member.name.endswith((".html", ".htm")) else None
                    if file:
                        yield extract_plain_text(file.read().decode("utf-8", "replace"))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _cut(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = text.rfind("\n", start + LONGEST // 8, start + LONGEST) + 1 or start + LONGEST
        if text[start:end].strip():
            yield text[start:end]
        start = end
