"""A run that is killed, meets a document that harms it, and goes on without: `make train-demo`.

    python examples/demo.py FOLDER

Two tokenized sources are made and taken over from Megatron's format, as a team would that has such files already. In the first each token
but every eighth follows from the one before, so that a tiny model soon knows it; the second comes in at a later sample, and one of its
documents is noise. The run is killed on the way and started again. When the noise comes, the loss leaps: the trainer goes back,
looks up which document it was, quarantines it and takes the same steps without it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from corpusmill.pipeline.text.tokenizer import train_bpe
from corpusmill.shards.megatron import write_index
from corpusmill.shards.plan import Phase, compile_plan
from corpusmill.shards.reader import Shards
from corpusmill.shards.take_over import Sizes, import_megatron

STEPS, LATE, BATCH = 160, 100, 8
SMALL = ("--width", "32", "--layers", "1", "--heads", "2", "--lr", "0.01")
TOKENS = 63
PLANTED = 20  # which document of the second source is noise


def chain(seed: int, tokens: int, free: int) -> list[int]:
    """Ids from 1 to TOKENS, each following from the one before but for every `free`-th."""
    random_ = random.Random(seed)
    found = [1 + random_.randrange(TOKENS)]
    while len(found) < tokens:
        found.append(
            1 + (random_.randrange(TOKENS) if len(found) % free == 0 else (found[-1] * 5 + 3) % TOKENS)
        )
    return found


def write(folder: Path, name: str, documents: list[list[int]]) -> None:
    """NAME.bin and NAME.idx."""
    with (folder / f"{name}.idx").open("wb") as index:
        write_index(index, np.dtype("<u2"), [np.array([len(each) for each in documents])])
    (folder / f"{name}.bin").write_bytes(
        np.array([each for one in documents for each in one], "<u2").tobytes()
    )


def make(folder: Path) -> int:
    """Both sources as shards with one plan; where in second.bin the noise begins, in bytes."""
    first = [chain(number, 20 + number * 7 % 61, 8) for number in range(150)]
    second = [chain(1000 + number, 20 + number * 7 % 61, 8) for number in range(40)]
    second.insert(PLANTED, chain(7, 200, 1))
    (folder / "tokenizer.json").write_bytes(train_bpe(["a tokenizer is needed, its words are not"], 257))
    components = []
    for name, documents in (("first", first), ("second", second)):
        write(folder, name, documents)
        to = folder / "shards" / name
        sizes = Sizes(sequence_length=32, block_bytes=264)
        import_megatron(folder / name, to, folder / "tokenizer.json", name, sizes)
        (reader,) = Shards(to).components
        components.append((str(reader.folder.relative_to(folder / "shards")), reader.manifest))
    phases = [
        Phase(0, {"first": 10**9}),
        Phase(LATE * BATCH, {"first": 800_000_000, "second": 200_000_000}),
    ]
    plan = compile_plan(components, phases, seed=17, window=4)
    (folder / "shards" / "plan.json").write_bytes(plan.encode())
    return 2 * sum(map(len, second[:PLANTED]))


def train(folder: Path) -> subprocess.Popen[bytes]:
    words = ["shards", "--to", "run", "--steps", str(STEPS), "--batch-size", str(BATCH), *SMALL]
    print("$ python examples/train.py", *words, flush=True)
    return subprocess.Popen([sys.executable, str(Path(__file__).with_name("train.py")), *words], cwd=folder)


def lines(folder: Path) -> list[dict[str, Any]]:
    path = folder / "run" / "log.jsonl"
    if not path.exists():
        return []
    whole = path.read_text().rpartition("\n")[0]  # the last line may be on its way
    return [json.loads(line) for line in whole.splitlines()]


def main(folder: Path) -> int:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    planted = make(folder)
    running = train(folder)
    while running.poll() is None and not any(line.get("step") == LATE // 2 for line in lines(folder)):
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    print(f"killed by SIGKILL after step {LATE // 2}; the same command again:", flush=True)
    if code := train(folder).wait():
        return code
    return tell(folder, planted)


def tell(folder: Path, planted: int) -> int:
    """What the log says; 0 when the document that was planted, and no other, was found."""
    for line in lines(folder):
        if line.get("event") == "start":
            print(f"started at step {line['step']}")
        elif line.get("event") == "spike":
            names = ("loss", "norm", "hardest")
            values = [
                f"{name} {line[name]:.2f} (bound {bound:.2f})"
                for name, bound in zip(names, line["bounds"], strict=True)
            ]
            print(f"step {line['step']} not taken: {', '.join(values)}")
        elif line.get("event") == "quarantine":
            print(
                f"back to step {line['step']}, without document {line['id']} from sample {line['from']} on: {line['reason']}"
            )
    last = [line for line in lines(folder) if "next" in line][-1]
    print(f"step {last['step']}: loss {last['loss']:.2f}, cursor at sample {last['next']}")
    hidden = {line["id"] for line in lines(folder) if line.get("event") == "quarantine"}
    found = [wanted(folder, each) for each in sorted(hidden)]
    print(f"quarantined: {', '.join(f'{file} from byte {offset}' for file, offset in found) or 'nothing'}")
    print(f"planted: second.bin from byte {planted}")
    return 0 if found == [("second.bin", planted)] and last["step"] == STEPS else 1


def wanted(folder: Path, document: str) -> tuple[str, int]:
    """Where a document came from, by the command that a person would use."""
    words = [
        sys.executable,
        "-m",
        "corpusmill.jobs.cli",
        "where",
        "shards",
        "--doc",
        document,
        "--until",
        "1",
    ]
    said = subprocess.run([*words, "--json"], cwd=folder, check=True, capture_output=True, text=True).stdout
    document_of = json.loads(said.splitlines()[0])["document"]
    return document_of["file"], document_of["offset"]


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parent.parent))
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-out/train").resolve()))
