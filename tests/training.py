"""Runs of examples/train.py as processes of their own, on shards whose documents a tiny model learns in seconds."""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from shard_samples import Sample, write_shards

from corpusmill.jobs.demo_prose import documentation
from corpusmill.pipeline.text.tokenizer import train_bpe
from corpusmill.shards.plan import Phase

ROOT = Path(__file__).resolve().parent.parent
VOCAB, LENGTH = 64, 32
SMALL = ("--width", "32", "--layers", "1", "--heads", "2", "--batch-size", "8", "--log-samples")


def chain(seed: int, tokens: int) -> list[int]:
    """A document in which each token but every eighth follows from the one before."""
    random_ = random.Random(seed)
    found = [1 + random_.randrange(VOCAB - 1)]
    while len(found) < tokens:
        free = len(found) % 8 == 0
        found.append(1 + (random_.randrange(VOCAB - 1) if free else (found[-1] * 5 + 3) % (VOCAB - 1)))
    return found


def learnable_shards(root: Path) -> None:
    """One component of chains of 20 to 80 tokens: 234 rows, an epoch of 29 steps."""
    docs = [chain(number, 20 + number * 7 % 61) for number in range(150)]
    write_shards(root, [Sample("web", [docs])], {"web": 10**9}, length=LENGTH, vocab=VOCAB, window=4)


def poisoned_shards(root: Path, late: int) -> str:
    """The same, and from sample `late` on a fifth from a second component, one of whose 41 documents is 200 random tokens: its id."""
    docs = [chain(number, 20 + number * 7 % 61) for number in range(150)]
    more = [chain(1000 + number, 20 + number * 7 % 61) for number in range(40)]
    random_ = random.Random(7)
    poison = [1 + random_.randrange(VOCAB - 1) for _ in range(200)]
    write_shards(
        root,
        [Sample("web", [docs]), Sample("new", [[*more[:20], poison, *more[20:]]])],
        [Phase(0, {"web": 10**9}), Phase(late, {"web": 800_000_000, "new": 200_000_000})],
        length=LENGTH,
        vocab=VOCAB,
        window=4,
    )
    return (20).to_bytes(16, "big").hex()  # documents of a component are numbered


@functools.cache
def prose() -> list[list[int]]:
    """500 chapters of the documentation of installed packages, as ids of a vocabulary of 1,024 made of them."""
    from tokenizers import Tokenizer

    texts = [chapter.text for chapter in documentation(500)]
    tokenizer = Tokenizer.from_str(train_bpe(texts, 1024).decode())
    return [encoded.ids for encoded in tokenizer.encode_batch(texts)]


def prose_shards(root: Path, late: int, seed: int, planted: bool = True) -> str:
    """Rows of 64 tokens of prose; from sample `late` on a fifth from a second source, where a document of 300 random ids is planted: its id."""
    documents, random_ = prose(), random.Random(seed)
    noise = [1 + random_.randrange(1023) for _ in range(300)]
    second = [*documents[470:490], *([noise] if planted else []), *documents[490:]]
    write_shards(
        root,
        [Sample("web", [documents[:470]], 32), Sample("new", [second], 32)],
        [Phase(0, {"web": 10**9}), Phase(late, {"web": 800_000_000, "new": 200_000_000})],
        length=64,
        vocab=1024,
        window=4,
        seed=seed,
    )
    return (20).to_bytes(16, "big").hex()


def start(data: Path, to: Path, ranks: int = 1, *options: str) -> list[subprocess.Popen[bytes]]:
    """One process a rank, as torchrun would start them; one rank is started plainly."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    team = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    outer = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    return [
        subprocess.Popen(
            [
                sys.executable,
                str(ROOT / "examples" / "train.py"),
                str(data),
                "--to",
                str(to),
                *SMALL,
                *options,
            ],
            env=outer | {"PYTHONPATH": str(ROOT)} | (team | {"RANK": str(rank)} if ranks > 1 else {}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for rank in range(ranks)
    ]


def train(data: Path, to: Path, ranks: int = 1, *options: str) -> None:
    """To the end; what a process said is in the error when one fails."""
    processes = start(data, to, ranks, *options)
    try:
        said = [process.communicate(timeout=1800)[1].decode() for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert not any(process.returncode for process in processes), "\n".join(said)


def killed_at(step: int, data: Path, to: Path, ranks: int = 1, *options: str) -> bool:
    """Starts, and kills all processes once `step` stands in the log; False when the run ended before."""
    before = len(lines(to / "log.jsonl"))
    processes = start(data, to, ranks, *options)
    try:
        while not any(line.get("step", 0) >= step for line in lines(to / "log.jsonl")[before:]):
            if all(process.poll() is not None for process in processes):
                said = [process.communicate()[1].decode() for process in processes]
                assert not any(process.returncode for process in processes), "\n".join(said)
                return False
            time.sleep(0.002)
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.communicate()
    return True


def lines(path: Path) -> list[dict[str, Any]]:
    """Of a log that may just be written to: the beginning of a line at its end is left out."""
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    return [json.loads(line) for line in whole.splitlines()]


def steps(to: Path) -> dict[int, dict[str, Any]]:
    """Each step's line in the log; of a step that was done twice the later one."""
    return {line["step"]: line for line in lines(to / "log.jsonl") if "loss" in line and "event" not in line}


def rows(to: Path) -> list[str]:
    """Hashes of the rows of all steps in order: a step's ranks one after the other, as they were when it was done last."""
    order = [line["ranks"] for line in lines(to / "log.jsonl") if line.get("event") == "start"]
    found: dict[int, list[str]] = {}
    for ranks in order:
        parts = [lines(to / f"samples-{rank}-of-{ranks}.jsonl") for rank in range(ranks)]
        for same in zip(*parts, strict=False):
            assert len({part["step"] for part in same}) == 1
            found[same[0]["step"]] = [each for part in same for each in part["rows"]]
    return [each for step in sorted(found) for each in found[step]]


def weights(to: Path) -> dict[str, Any]:
    """All tensors and values of the last checkpoint, flat."""
    import torch
    from torch.distributed.checkpoint import FileSystemReader, load
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    last = max(to.glob("step-*"))
    kinds = FileSystemReader(last).read_metadata().state_dict_metadata
    state = {
        name: torch.empty(kind.size, dtype=kind.properties.dtype)
        if isinstance(kind, TensorStorageMetadata)
        else None
        for name, kind in kinds.items()
    }
    load(state, checkpoint_id=last, no_dist=True)
    return {"folder": last.name, **state}
