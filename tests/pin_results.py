"""What every stage makes of a small fixed input, by the version of its operation: a change of results without one is found here.

`python -m tests.pin_results` writes tests/pinned_results.json anew, unless a stage gives other results of the same input under the same
version: old layers would then pass for new ones in every OUT that stands, so its `version` has to be raised first.

Hashed is what a reader of a layer sees: rows, column names, values (floats to 9 digits), counts; of JSON and YAML the text without
hashes. Left out is what may differ between versions of libraries that only store: encodings, compression, sizes, hashes of files.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.jobs.reporter import SilentReporter
from corpusmill.pipeline.engine.disk import Disk
from corpusmill.pipeline.engine.driver import Driver
from corpusmill.pipeline.engine.local import LocalRunner
from corpusmill.pipeline.engine.task import path_of
from corpusmill.pipeline.recipe import parse_recipe

TABLE = Path(__file__).parent / "pinned_results.json"

CRAWLED: dict[str, Any] = {
    "partition_bytes": 24_000,
    "stages": [
        "extract",
        {
            "filter": [
                {"url": {"parts": ["badplace"], "when": {"source": ["web"]}}},
                "gopher_repetition",
                {"gopher_quality": {"min_words": 20}},
                {"c4": {"require_terminal_punctuation": False, "min_sentences": 2}},
                "fineweb_quality",
            ]
        },
        {"dedup": {"at_least": 0.6, "bands": 20, "rows": 5, "ngram": 3}},
        {
            "dedup": {
                "name": "again",
                "engine": "datasketch",
                "at_least": 0.2,
                "bands": 30,
                "rows": 3,
                "ngram": 2,
            }
        },
        "redact",
        {
            "shard": {
                "tokenizer": {"train": "bpe", "vocab": 400},
                "sequence_length": 32,
                "block_bytes": 2048,
                "shard_bytes": 8192,
                "holdout": 0.2,
                "packing": "best_fit",
                "boundary": "both",
            }
        },
        {"mix": {"weights": "unimax"}},
    ],
}

GIVEN: dict[str, Any] = {
    "partition_bytes": 24_000,
    "stages": [
        {"extract": {"with": "resiliparse"}},
        {"shard": {"sequence_length": 64, "block_bytes": 4096, "components": {"by": ["source", "modality"]}}},
    ],
}

LANGUAGE: dict[str, Any] = {
    "stages": ["extract", {"filter": [{"language": {"keep": ["en"], "at_least": 0.5}}]}]
}

TOLD: dict[str, Any] = {
    "partition_bytes": 24_000,
    "stages": [
        {"extract": {"with": "resiliparse"}},
        {"filter": [{"gopher_quality": {"min_words": 20}}]},
        {"topics": {"count": 3}},
        {
            "shard": {
                "tokenizer": {"train": "bpe", "vocab": 400},
                "sequence_length": 32,
                "block_bytes": 1024,
                "components": {"by": ["source", "topic", {"band": "words", "parts": 2}]},
            }
        },
    ],
}

HOSTS: dict[str, Any] = {
    "partition_bytes": 24_000,
    "stages": [{"extract": {"with": "resiliparse"}}, {"topics": {"by": "host", "count": 1}}],
}

KINDS: dict[str, Any] = {
    "partition_bytes": 24_000,
    "stages": [
        {"extract": {"with": "resiliparse"}},
        {
            "shard": {
                "tokenizer": {"train": "bpe", "vocab": 400},
                "sequence_length": 32,
                "block_bytes": 1024,
                "components": {"by": ["modality"]},
            }
        },
    ],
}
"""Of inputs one of which is synthetic."""

RECIPES = {
    "crawled": CRAWLED,
    "given": GIVEN,
    "hosts": HOSTS,
    "kinds": KINDS,
    "language": LANGUAGE,
    "told": TOLD,
}
"""`language` needs a model that may not be here."""


@dataclass(frozen=True)
class Pin:
    """A stage's results: `reads` are the stages whose results it is made of."""

    operation: str
    version: int
    sha256: str
    reads: tuple[str, ...] = ()


class _Keeping(Driver):
    """A run that leaves the files of temporary stages in place."""

    def _spend(self) -> None:
        pass


def results_of(name: str, folder: Path) -> dict[str, Pin]:
    """Run a recipe of RECIPES in an empty folder; `recipe/stage` -> its results."""
    inputs = write_inputs(folder)
    value = dict(RECIPES[name])
    if name == "given":
        shard = {**value["stages"][1]["shard"], "tokenizer": {"file": str(_tokenizer(folder))}}
        value["stages"] = [value["stages"][0], {"shard": shard}]
    if name == "kinds":
        inputs[0] |= {"synthetic": "generated", "generation": 2, "protected": True}
    recipe = parse_recipe({"max_drop": 1, **value, "inputs": inputs})
    with LocalRunner(1) as runner:
        driver = _Keeping(Disk(folder / "out"), recipe, runner, SilentReporter())
        driver.run()
    found = {}
    for stage in driver.stages:
        manifest = driver.manifests[stage.name]
        digest = hashlib.sha256()
        for line in _content(folder / "out" / driver.folders[stage.name], manifest):
            digest.update(line.encode() + b"\n")
        found[f"{name}/{stage.name}"] = Pin(
            path_of(stage.operation),
            stage.operation.version,
            digest.hexdigest(),
            tuple(f"{name}/{each}" for each in stage.reads),
        )
    return found


def blamed(pinned: Mapping[str, Pin], found: Mapping[str, Pin]) -> list[str]:
    """Stages that give other results under the same version, though all that they read is as it was pinned."""
    changed = {name for name, pin in found.items() if name in pinned and pin.sha256 != pinned[name].sha256}
    return [
        name
        for name in sorted(changed)
        if pinned[name].version == found[name].version and not changed & set(found[name].reads)
    ]


def read_table() -> dict[str, Pin]:
    return {
        name: Pin(value["operation"], value["version"], value["sha256"], tuple(value["reads"]))
        for name, value in json.loads(TABLE.read_text(encoding="utf-8")).items()
    }


def advice(names: list[str]) -> str:
    """What to do about stages that are to blame."""
    return (
        f"results of {', '.join(names)} changed: raise the `version` of {'its' if len(names) == 1 else 'their'} operation, "
        "or layers that stand would pass for new ones; then pin the new hashes with `python -m tests.pin_results`"
    )


def _content(folder: Path, manifest: Any) -> Iterator[str]:
    """Lines that say all of a stage's results."""
    for unit, result in sorted(manifest.results.items()):
        yield f"{unit} {result.rows} {json.dumps(result.counts, sort_keys=True)}"
        for file in sorted(result.files, key=lambda file: file.name):
            yield from _lines(folder / file.name)
    for name in sorted(manifest.sealed):
        yield from _lines(folder / name)


def _lines(path: Path) -> Iterator[str]:
    yield path.name
    if path.suffix == ".parquet":
        yield from _rows(pq.read_table(path, partitioning=None))
    elif path.suffix == ".arrow":
        with pa.ipc.open_file(str(path)) as reader:
            for number in range(reader.num_record_batches):
                yield f"batch {number}"
                yield from _rows(pa.Table.from_batches([reader.get_batch(number)]))
    else:
        yield re.sub(r"\b[0-9a-f]{16,64}\b", "#", path.read_text(encoding="utf-8"))


def _rows(table: pa.Table) -> Iterator[str]:
    names = [name for name in table.column_names if not name.startswith("xxh3")]
    yield json.dumps(names)
    for row in table.select(names).to_pylist():
        yield json.dumps([_plain(value) for value in row.values()], ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.9g}" if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, dict) else value


WORDS = (
    "the river and a field of barley that stands with its long shadow over every wall where people talk be have to "
    "some days with rain while others come back from market carrying bread salt lamp oil apples candles rope cloth"
).split()


def sentence(number: int, length: int = 12) -> str:
    """A sentence of known words, the same everywhere: by a hash, not by a library's random numbers."""
    words = [
        WORDS[int(hashlib.sha256(f"{number} {place}".encode()).hexdigest()[:8], 16) % len(WORDS)]
        for place in range(length)
    ]
    return " ".join(words).capitalize() + "."


def text(number: int, sentences: int = 9) -> str:
    return "\n".join(
        f"{sentence(number * 100 + 2 * line, 9 + (number + line) % 7)} {sentence(number * 100 + 2 * line + 1)}"
        for line in range(sentences)
    )


def write_inputs(folder: Path) -> list[dict[str, Any]]:
    """A dump of texts and a small crawl; the recipe's inputs."""
    texts = [text(number) for number in range(24)]
    texts += [
        texts[3],
        texts[4] + "\n" + sentence(7),
        texts[5].replace("rain", "snow"),
    ]  # one exact, two near copies
    texts += ["\n".join([*text(8).split("\n")[:5], *text(9).split("\n")[5:]])]  # half of two
    texts += ["Too short to keep.", "spam " * 60, "Write to ann@example.org or 8.8.8.8. " + text(40), ""]
    lines = [
        json.dumps({"url": f"http://{'badplace' if n == 9 else 'books'}.example.org/{n}", "text": each})
        for n, each in enumerate(texts)
    ]
    (folder / "books.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "crawl.warc").write_bytes(b"".join(_records()))
    return [
        {"path": f"{folder}/books.jsonl", "source": "books"},
        {"path": f"{folder}/crawl.warc", "source": "web"},
    ]


def _records() -> Iterator[bytes]:
    """Pages of a crawl, not compressed: offsets are part of ids, and a compressor is not ours to pin."""
    yield warc_record("warcinfo", "", b"software: none\r\n", "application/warc-fields")
    for number in range(16):
        paragraphs = "".join(f"<p>{line}</p>" for line in text(60 + number, 6).split("\n"))
        page = f"<html><head><title>Page {number}</title></head><body><article>{paragraphs}</article></body></html>"
        host = "badplace" if number == 5 else "web"
        yield _answer(
            f"http://{host}.example.org/{number}", 404 if number == 7 else 200, "text/html", page.encode()
        )
    umlauts = (
        "<html><head><meta charset='iso-8859-1'></head><body><p>"
        + "Schöne Grüße aus Köln. " * 20
        + "</p></body></html>"
    )
    yield _answer("http://web.example.org/latin", 200, "text/html", umlauts.encode("latin-1"))
    yield _answer("http://web.example.org/image", 200, "image/png", b"\x89PNG\r\n")


def _answer(url: str, status: int, mime: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} OK\r\nContent-Type: {mime}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    return warc_record("response", url, head + body, "application/http; msgtype=response")


def warc_record(kind: str, url: str, block: bytes, mime: str) -> bytes:
    name = hashlib.sha256(f"{kind} {url}".encode()).hexdigest()
    lines = [
        "WARC/1.0",
        f"WARC-Type: {kind}",
        f"WARC-Record-ID: <urn:uuid:{name[:8]}-{name[8:12]}-{name[12:16]}-{name[16:20]}-{name[20:32]}>",
        "WARC-Date: 2024-03-01T12:00:00Z",
        *([f"WARC-Target-URI: {url}"] if url else []),
        f"Content-Type: {mime}",
        f"Content-Length: {len(block)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + block + b"\r\n\r\n"


def _tokenizer(folder: Path) -> Path:
    """A vocabulary of single bytes and an end of text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: place for place, letter in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>"])
    path = folder / "tokenizer.json"
    made.save(str(path))
    return path


def main() -> int:
    pinned = read_table() if TABLE.is_file() else {}
    found: dict[str, Pin] = {}
    for name in RECIPES:
        with tempfile.TemporaryDirectory() as folder:
            found |= results_of(name, Path(folder))
    wrong = blamed(pinned, found)
    if wrong:
        print(f"nothing is pinned: {advice(wrong)}", file=sys.stderr)
        return 1
    moved = [name for name, pin in found.items() if pinned.get(name) != pin]
    table = {name: asdict(pin) for name, pin in sorted(found.items())}
    lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in table.items()]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{TABLE}: {len(found)} stages, {len(moved)} of them new or changed: {', '.join(moved) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
