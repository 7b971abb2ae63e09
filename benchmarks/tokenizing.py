"""Tokenizing against its peers, in one process and in turns, on text that none of them has seen: ratios of CPU time, and equal ids.

    python benchmarks/tokenize.py [--quick] [--vocabularies FOLDER]

Ours is the whole way of the shard stage: the first engine that passes the battery, its share of documents encoded again by
`tokenizers`, the check of all ids, arrays out. Peers give arrays too; each has one thread, and all take turns at batches of 256
documents of a stream of 72 million characters (written.py) that each of them sees once. `cold` is the first fifth of it, from the
first byte that an engine sees; `warm` its last fifth; `all` the whole. Loading and the battery are in none, but printed. The
battery's made-up pages are compared, not timed. Ratios say how many times more CPU seconds the peer took, without a vocabulary's
name the lowest of all; tiktoken has none for deepseek's three-stage cut.

FOLDER keeps the vocabularies (published.py). One that cannot be had is null, as is a missing peer.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from published import FILES, RANKS, vocabulary
from written import documents

from corpusmill.pipeline.engine.place import place_of
from corpusmill.pipeline.text.battery import differs, strings
from corpusmill.pipeline.text.checked import Checked
from corpusmill.pipeline.text.choice import fast_engine
from corpusmill.pipeline.text.engines import Engine, Fast, fast_name, one_thread, resident_bytes
from corpusmill.pipeline.text.rank_files import read_ranks
from corpusmill.pipeline.text.tokenizer import Tokenizer

PEERS = ("tiktoken_cold", "tiktoken_warm", "tiktoken_all", "hf", "fastokens_cold", "fastokens_warm")
BATCH = 256

Ids = tuple[Any, Any]
Encode = Callable[[list[str]], Ids]


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
    texts = documents(4_000_000 if quick else 72_000_000)
    print(f"{len(texts):,} documents, {sum(map(len, texts)) / 1e6:.0f} million characters")
    raced = {name: race(name, folder, texts, 400 if quick else 5000) for name in FILES}
    each = {name: found[0] if found else {} for name, found in raced.items()}
    lowest = {f"vs_{p}": min((r[p] for r in each.values() if p in r), default=None) for p in PEERS}
    ratios = lowest | {f"{name}.vs_{peer}": r.get(peer) for name, r in each.items() for peer in PEERS}
    checks = {f"{name}.ids_equal": found[1] if found else None for name, found in raced.items()}
    checks |= memory(folder, (20 if quick else 150) << 20)
    print(json.dumps({"benchmark": "tokenize", "ratios": ratios, "checks": checks}))


def race(name: str, folder: Path, texts: list[str], compared: int) -> tuple[dict[str, float], bool] | None:
    """Ratios to each peer, and whether ids are equal: tokenizers' on the battery and `compared` documents, others' on all."""
    content = vocabulary(name, folder)
    if content is None:
        return None
    tokenizer = Tokenizer(content)
    engine = fresh(name, tokenizer)
    if engine is None:
        return {}, False
    checked = Checked(tokenizer, engine)
    theirs = peers(name, folder, tokenizer, engine)
    odd = strings(tokenizer.special)
    wanted = tokenizer.encode(odd)
    equal = all(
        differs(wanted, encode(odd)) is None for peer, encode in theirs.items() if peer != "fastokens"
    )
    theirs = peers(name, folder, tokenizer, engine)  # that have seen nothing
    ours, took = list[float](), {peer: list[float]() for peer in theirs}
    for number, batch in enumerate(batches(texts)):
        names = [f"{number}/{place}".encode() for place in range(len(batch))]
        found, seconds = timed(lambda batch=batch, names=names: checked.encode(batch, names))
        ours.append(seconds)
        for peer, encode in theirs.items():
            if peer != "hf" or number * BATCH < compared:
                other, used = timed(lambda encode=encode, batch=batch: encode(batch))
                took[peer].append(used)
                equal &= differs(found, other) is None
    size = sum(len(text.encode()) for text in texts) / 1e6
    rates = [f"{peer} {size * len(each) / len(ours) / sum(each):.1f}" for peer, each in took.items()]
    print(
        f"{name}: {size / sum(ours):.1f} MB/s by {engine.name}, {checked.cross_checked} of {len(texts)} documents "
        f"cross-checked; {', '.join(rates)}"
    )
    return {key: round(value, 1) for key, value in ratios_of(ours, took).items()}, bool(equal)


def ratios_of(ours: list[float], took: dict[str, list[float]]) -> dict[str, float]:
    fifth = len(ours) // 5 or 1
    parts = {"cold": slice(0, fifth), "warm": slice(len(ours) - fifth, None), "all": slice(None)}
    found = {
        f"{peer}_{part}": sum(each[place]) / sum(ours[place])
        for peer, each in took.items()
        for part, place in parts.items()
        if len(each) == len(ours)
    }
    return {"hf": sum(took["hf"]) / sum(ours[: len(took["hf"])])} | {
        key: value for key, value in found.items() if key in PEERS
    }


def fresh(name: str, tokenizer: Tokenizer) -> Engine | None:
    """The engine that a run would take, as it is before it has seen a text."""
    times = [time.process_time()]
    with tempfile.TemporaryDirectory() as metrics:
        engine = fast_engine(tokenizer, place_of(Path(metrics)))
    times.append(time.process_time())
    made = None if engine is None else type(engine)(tokenizer.reference.content)
    times.append(time.process_time())
    print(
        f"{name}: engine loaded in {times[2] - times[1]:.1f} CPU seconds, with the battery in {times[1] - times[0]:.1f}"
    )
    return made


def peers(name: str, folder: Path, tokenizer: Tokenizer, ours: Engine) -> dict[str, Encode]:
    """All that are here but what is ours already; `hf` is the reference."""
    found: dict[str, Encode] = {"hf": tokenizer.encode}
    if fast_name() and not isinstance(ours, Fast):
        found["fastokens"] = Fast(tokenizer.reference.content).encode
    tiktoken = _tiktoken(name, folder)
    return found | ({"tiktoken": tiktoken} if tiktoken else {})


def timed(work: Callable[[], Ids]) -> tuple[Ids, float]:
    started = time.process_time()
    found = work()
    return found, time.process_time() - started


def _tiktoken(name: str, folder: Path) -> Encode | None:
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
    engine = fresh(name, tokenizer)
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
    return {"vocabulary": name, "engine": engine and engine.name, "halves": most}


if __name__ == "__main__":
    main()
