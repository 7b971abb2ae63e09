"""The stream against its peers, in one process and in turns: ratios of CPU time, tokens only, page cache warm; and what a start costs.

    python benchmarks/stream.py [--quick]

Rows of 2,049 16-bit ids. `vs_memmap` says how many samples a CPU second the stream gives for each that `np.memmap[rows]` gives with
batches of 8 rows, without a thread as its peers; `vs_<peer>` for each sample of the peer, shuffled, without workers, in turns in a process
of their own. `start_ms` is wall time from `stream(...)` with a cursor at half of so many samples to the first batch: a table of blocks that
points at a few real ones again and again stands for the rest. The peers go into an environment of their own, since they pin old libraries:
`pip install mosaicml-streaming litdata grain` beside corpusmill and torch. The last line is one JSON object; a peer that is not installed is null.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash
from stream_peers import PEERS, SMALL, WIDTH, Step, batches_of, installed

from corpusmill.shards import Cursor, stream
from corpusmill.shards.layout import (
    BLOCKS_FILE,
    MANIFEST,
    PLAN_FILE,
    Manifest,
    ShardFile,
    block_table,
    encode_blocks,
    rows_per_block,
    schema,
)
from corpusmill.shards.plan import PPB, Phase, compile_plan

LENGTH, LARGE = WIDTH - 1, 512
BLOCK_BYTES = 16 << 20
SCRIPT = Path(__file__).resolve()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--peer", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    if options.peer:
        name, samples, rounds = options.peer
        print(json.dumps(against(name, int(samples), int(rounds))))
        return
    quick = options.quick
    samples, rounds = (4_000, 5) if quick else (16_000, 9)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        rows = np.random.default_rng(1).integers(0, 50_000, (20_000 if quick else 60_000, WIDTH), np.uint16)
        shards = write(Path("shards"), rows)
        rates = speeds(rows, Path("shards"), samples, rounds)
        starts = {n: start_ms(Path("starts"), shards, n) for n in (10**6, 10**7, 10**8, 10**9)}
        peers = {name: beside_peer(name, samples, rounds) for name in PEERS}
    for name, rate in rates.items():
        print(f"{name}: {round(rate or 0)} samples a CPU second")
    ours, plain = rates["stream_8"], rates["memmap_8"]
    assert ours and plain
    ratios: dict[str, float | None] = {"vs_memmap": ours / plain}
    for name in ("stream_8_thread", "stream_512", "stream_512_thread"):
        base, rate = rates["memmap_512" if "512" in name else "memmap_8"], rates[name]
        assert base and rate
        ratios[f"vs_memmap_{name.removeprefix('stream_')}"] = rate / base
    ratios |= {f"vs_{name}": ratio for name, ratio in peers.items()}
    result = {
        "benchmark": "stream",
        "ratios": {name: value and round(value, 2) for name, value in ratios.items()},
        "start_ms": {f"{n:.0e}": round(ms, 1) for n, ms in starts.items()},
        "checks": {"first_batch_under_50_ms": max(starts.values()) < 50},
    }
    print(json.dumps(result), flush=True)


def write(root: Path, rows: np.ndarray) -> Manifest:
    """One component of two shards and a plan without an end."""
    folder = root / "only"
    folder.mkdir(parents=True)
    kind, per = schema(LENGTH, "uint16"), rows_per_block(LENGTH, "uint16", BLOCK_BYTES)
    tables, files, first = [], [], 0
    for number, part in enumerate(np.array_split(rows, 2)):
        path = folder / f"part-{number:05d}.arrow"
        with pa.ipc.new_file(str(path), kind) as writer:
            for at in range(0, len(part), per):
                writer.write_batch(batch_of(part[at : at + per], kind))
        tables.append(block_table(path, number, first))
        digest = xxhash.xxh3_128_hexdigest(path.read_bytes())
        files.append(ShardFile(path.name, len(part), 1, path.stat().st_size, digest, "docs", 0, ""))
        first += len(part)
    blank = Manifest(
        name="only",
        slug="only",
        sequence_length=LENGTH,
        dtype="uint16",
        vocab_size=50_000,
        eos=0,
        tokenizer_sha256="",
        tokenizer_file="tokenizer.json",
        boundary="eos",
        bos=None,
        packing="concat",
        split_documents=0,
        rows=0,
        tokens=len(rows) * LENGTH,
        documents=2,
        blocks=0,
        blocks_xxh3="",
        shards=tuple(files),
    )
    return publish(root, blank, pa.concat_tables(tables))


def batch_of(rows: np.ndarray, kind: pa.Schema) -> pa.RecordBatch:
    offsets = pa.array(np.arange(len(rows) + 1, dtype=np.int32))
    zeros = pa.ListArray.from_arrays(offsets, pa.array(np.zeros(len(rows), np.uint64)))
    ends = pa.ListArray.from_arrays(offsets, pa.array(np.full(len(rows), WIDTH, np.uint32)))
    tokens = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), WIDTH)
    return pa.RecordBatch.from_arrays([tokens, ends, zeros, zeros], schema=kind)


def publish(root: Path, manifest: Manifest, table: pa.Table, samples: int | None = None) -> Manifest:
    """Writes table, manifest and plan; rows and blocks are the table's."""
    stored = encode_blocks(table)
    total = int(np.asarray(table["rows"]).sum())
    shards = (
        replace(manifest.shards[0], rows=total - sum(s.rows for s in manifest.shards[1:])),
        *manifest.shards[1:],
    )
    manifest = replace(
        manifest,
        rows=total,
        blocks=table.num_rows,
        blocks_xxh3=xxhash.xxh3_128_hexdigest(stored),
        shards=shards,
    )
    (root / "only" / BLOCKS_FILE).write_bytes(stored)
    (root / "only" / MANIFEST).write_bytes(manifest.encode())
    plan = compile_plan([("only", manifest)], [Phase(0, {"only": PPB})], seed=1, samples=samples)
    (root / PLAN_FILE).write_bytes(plan.encode())
    return manifest


def start_ms(root: Path, manifest: Manifest, samples: int) -> float:
    """Milliseconds from opening to the first batch at half of `samples` rows, the shortest of nine: others use the cores too."""
    if not root.exists():
        (root / "only").mkdir(parents=True)
        for shard in manifest.shards:
            (root / "only" / shard.file).hardlink_to(Path("shards/only") / shard.file)
    real = pa.concat_tables(
        [block_table(root / "only" / shard.file, i) for i, shard in enumerate(manifest.shards)]
    )
    rows = np.asarray(real["rows"]).astype(np.int64)
    real = real.filter(pa.array(rows == rows.max()))
    count = -(-samples // int(rows.max()))
    table = real.take(np.arange(count) % real.num_rows)
    firsts = pa.array(np.arange(count, dtype=np.uint64) * np.uint64(rows.max()))
    publish(root, manifest, table.set_column(table.schema.get_field_index("first_row"), "first_row", firsts))
    with stream(root, SMALL) as batches:
        cursor = Cursor(batches.cursor.plan, samples // 2)
    taken = []
    for _ in range(9):
        began = time.perf_counter()
        with stream(root, SMALL, cursor=cursor, prefetch=0) as batches:
            next(batches)
            taken.append(1000 * (time.perf_counter() - began))
    return min(taken)


def speeds(rows: np.ndarray, shards: Path, samples: int, rounds: int) -> dict[str, float | None]:
    """Samples a CPU second of the stream and of np.memmap."""
    rows.tofile("rows.bin")
    alone: dict[str, Step | None] = {
        "memmap_8": _memmap(len(rows), SMALL),
        "memmap_512": _memmap(len(rows), LARGE),
        "stream_8": batches_of(stream(shards, SMALL, prefetch=0), SMALL),
        "stream_8_thread": batches_of(stream(shards, SMALL), SMALL),
        "stream_512": batches_of(stream(shards, LARGE, prefetch=0), LARGE),
        "stream_512_thread": batches_of(stream(shards, LARGE), LARGE),
    }
    return _in_turns(alone, samples, rounds)


def beside_peer(name: str, samples: int, rounds: int) -> float | None:
    """How many samples the stream gives for each of the peer's, in turns, in a process of their own: some leave threads that go on turning."""
    command = [sys.executable, str(SCRIPT), "--peer", name, str(samples), str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    value: float | None = json.loads(done.stdout.splitlines()[-1])
    return value


def against(name: str, samples: int, rounds: int) -> float | None:
    """What `beside_peer` says, in its process."""
    rows = np.fromfile("rows.bin", np.uint16).reshape(-1, WIDTH)
    peer = installed(PEERS[name], rows)
    if peer is None:
        return None
    ours = batches_of(stream("shards", SMALL, prefetch=0), SMALL)
    rates = _in_turns({"ours": ours, name: peer}, samples, rounds)
    assert rates["ours"] and rates[name]
    print(
        f"beside {name}: {round(rates['ours'])} samples a CPU second, {name} {round(rates[name])}",
        file=sys.stderr,
    )
    return rates["ours"] / rates[name]


def _in_turns(ways: dict[str, Step | None], samples: int, rounds: int) -> dict[str, float | None]:
    """Medians over the rounds; None for a way that there is not."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for way in filter(None, ways.values()):
        way(2 * samples)  # files opened and mapped, every block's hash looked at
    for _ in range(rounds):
        for name, way in ways.items():
            if way:
                began = time.process_time()
                way(samples)
                seconds[name].append(time.process_time() - began)
    return {name: samples / statistics.median(seconds[name]) if way else None for name, way in ways.items()}


def _memmap(count: int, size: int) -> Step:
    rows = np.memmap("rows.bin", np.uint16, "r", shape=(count, WIDTH))
    rows.sum()
    order, at = np.random.default_rng(2).permutation(count), 0

    def read(samples: int) -> None:
        nonlocal at
        for _ in range(samples // size):
            rows[order[at : at + size]]
            at = at + size if at + 2 * size <= count else 0

    return read


if __name__ == "__main__":
    sys.path.remove(
        str(Path(__file__).resolve().parent)
    )  # a benchmark beside this one has the name of a library
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
