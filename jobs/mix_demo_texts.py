"""What `make mix-demo` adds to the demo's crawl, so that mixtures matter: text that teaches nothing, and a set that says what is wanted.

    FOLDER/scrambled.jsonl.gz   sentences of real words in no order: passes a quality filter, and no model learns from it
    FOLDER/generated.jsonl.gz   what a model of word pairs says: fluent for two words, tagged as generated and capped as such
    FOLDER/wanted.jsonl.gz      chapters about learning from data, by another package than any that was crawled

Nothing is fetched. Words come from the prose of installed packages (demo_prose.py), choices are keyed by names.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from corpusmill.jobs.demo_prose import Prose, chapters, licences
from corpusmill.jobs.demo_warc import gzipped
from corpusmill.jobs.dice import Dice

WANTED = "sklearn"
"""The package whose chapters are wanted: the `pipeline` extra brings it, and no crawl of the demo holds it."""

LEARNT = "numpy"
"""The package whose chapters the model of word pairs knows: neither what is wanted nor what the targets are held out of."""

MOST = 200  # texts that words are taken from

SENTENCE = 14  # words
DOCUMENT = 320  # words


def scrambled(texts: Sequence[Prose], count: int, seed: int) -> list[str]:
    """`count` documents of words drawn from `texts`."""
    words = [word for text in texts for word in text.text.split() if word.isascii() and word[0].isalpha()]
    dice = [Dice(seed, "scrambled", number) for number in range(count)]
    return [_sentences([each.choose(words) for _ in range(DOCUMENT)]) for each in dice]


def generated(texts: Sequence[Prose], count: int, seed: int) -> list[str]:
    """`count` documents of word pairs as they follow each other in `texts`."""
    after: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        for word, follower in pairwise(text.text.split()):
            after[word].append(follower)
    starts = sorted(after)
    found = []
    for number in range(count):
        dice = Dice(seed, "generated", number)
        words = [dice.choose(starts)]
        while len(words) < DOCUMENT:
            words.append(dice.choose(after.get(words[-1]) or starts))
        found.append(_sentences(words))
    return found


def _sentences(words: Sequence[str]) -> str:
    """Five to a paragraph."""
    lines = [" ".join(words[at : at + SENTENCE]) for at in range(0, len(words), SENTENCE)]
    lines = [f"{line[:1].upper()}{line[1:].rstrip('.,;:')}." for line in lines]
    return "\n\n".join(" ".join(lines[at : at + 5]) for at in range(0, len(lines), 5))


def write_texts(folder: Path, count: int, wanted: int, seed: int = 17) -> dict[str, Path]:
    """`count` documents of the first two, `wanted` of the last; source -> file."""
    folder.mkdir(parents=True, exist_ok=True)
    made: dict[str, Iterable[tuple[str, str]]] = {
        "scrambled": enumerated("scrambled", scrambled(licences(MOST), count, seed)),
        "generated": enumerated("generated", generated(chapters(LEARNT, MOST), count, seed)),
        "wanted": ((text.name, text.text) for text in chapters(WANTED, wanted)),
    }
    return {source: _write(folder, source, texts) for source, texts in made.items()}


def enumerated(source: str, texts: Iterable[str]) -> Iterable[tuple[str, str]]:
    return ((f"{source}-{number}", text) for number, text in enumerate(texts))


def _write(folder: Path, source: str, texts: Iterable[tuple[str, str]]) -> Path:
    path = folder / f"{source}.jsonl.gz"
    rows = ({"url": f"https://{source}.example/{name}", "text": text} for name, text in texts)
    path.write_bytes(gzipped("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()))
    return path
