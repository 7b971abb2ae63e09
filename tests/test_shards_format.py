"""docs/shard-format.md is enough to read shards: a reader written from it alone gets what the package's own stream hands out."""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
import xxhash
from shard_runs import Run, documents
from shard_samples import Sample as Written
from shard_samples import documents as token_lists
from shard_samples import small_shards, write_shards

from corpusmill.mixing.stage import Mix
from corpusmill.shards.layout import Packing
from corpusmill.shards.plan import Phase
from corpusmill.shards.stage import Shard, TokenizerSource
from corpusmill.shards.stream import stream

MASK = (1 << 64) - 1
PPB = 10**9


# From here on: the page, and no code of the package.


def derive(*parts: object) -> int:
    return int(xxhash.xxh3_64_intdigest(b"\0".join(str(part).encode() for part in parts)))


def mix(z: int) -> int:
    z &= MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def rounded(x: int, d: int) -> int:
    return (2 * x + d) // (2 * d)


def permute(x: int, n: int, key: int) -> int:
    a = math.isqrt(n)
    a += a * a < n
    b = -(-n // a)
    keys = [mix(key + (i + 1) * 0x9E3779B97F4A7C15) for i in range(6)]
    while True:
        left, right = divmod(x, b)
        for i, k in enumerate(keys):
            if i % 2 == 0:
                left = (left + mix(right + k) % a) % a
            else:
                right = (right + mix(left + k) % b) % b
        x = left * b + right
        if x < n:
            return x


@dataclass
class Node:
    weight: int
    rank: int
    pair: tuple[Node, Node] | None = None  # heavy, light


def tree(weights: list[int]) -> Node | None:
    nodes = [Node(weight, rank) for rank, weight in enumerate(weights) if weight > 0]
    rank = len(weights)
    while len(nodes) > 1:
        nodes.sort(key=lambda node: (node.weight, node.rank))
        light, heavy, *nodes = nodes
        nodes.append(Node(light.weight + heavy.weight, rank, (heavy, light)))
        rank += 1
    return nodes[0] if nodes else None


def share(node: Node | None, total: int, counts: list[int]) -> None:
    if node is None:
        return
    if node.pair is None:
        counts[node.rank] += total
        return
    heavy, light = node.pair
    part = rounded(total * heavy.weight, node.weight)
    share(heavy, part, counts)
    share(light, total - part, counts)


def border(weights: list[int], x: int) -> list[int]:
    counts = [0] * len(weights)
    done = total = 0
    for i, weight in enumerate(weights):
        if 4096 * weight >= PPB:
            total += weight
            edge = rounded(x * total, PPB)
            counts[i], done = edge - done, edge
    share(tree([0 if 4096 * weight >= PPB else weight for weight in weights]), x - done, counts)
    return counts


def spread(weights: list[int], x: int) -> list[int]:
    found = [-1] * 4096

    def place(node: Node | None, samples: list[int]) -> None:
        if node is None:
            return
        if node.pair is None:
            for sample in samples:
                found[sample] = node.rank
            return
        heavy, light = node.pair
        shares = [rounded(j * heavy.weight, node.weight) for j in range(len(samples) + 1)]
        place(heavy, [s for j, s in enumerate(samples) if shares[j + 1] > shares[j]])
        place(light, [s for j, s in enumerate(samples) if shares[j + 1] == shares[j]])

    counts = [b - a for a, b in zip(border(weights, x), border(weights, x + 4096), strict=True)]
    place(tree(counts), list(range(4096)))
    return found


def steps_of(plan: dict[str, Any]) -> list[tuple[int, list[int]]]:
    names = [component["name"] for component in plan["components"]]
    steps: list[tuple[int, list[int]]] = []
    for phase in plan["phases"]:
        new = [phase["weights_ppb"].get(name, 0) for name in names]
        count = min(64, phase["ramp"])
        old = steps[-1][1] if steps else new
        for i in range(count):
            parts = [(2 * count - 2 * i - 1) * a + (2 * i + 1) * b for a, b in zip(old, new, strict=True)]
            weights = [part // (2 * count) for part in parts]
            by_rest = sorted(range(len(parts)), key=lambda c: (-(parts[c] % (2 * count)), c))
            for c in by_rest[: PPB - sum(weights)]:
                weights[c] += 1
            steps.append((phase["from"] + phase["ramp"] * i // count, weights))
        steps.append((phase["from"] + phase["ramp"], new))
    return steps


def samples_of(plan: dict[str, Any], end: int) -> list[tuple[int, int]]:
    """(component, position in it) of samples 0 .. end - 1."""
    steps = steps_of(plan)
    had = [0] * len(plan["components"])
    found: list[tuple[int, int]] = []
    for i, (start, weights) in enumerate(steps):
        stop = steps[i + 1][0] if i + 1 < len(steps) else end
        for at in range(start, min(stop, end), 4096):
            for component in spread(weights, at - start)[: min(stop, end) - at]:
                found.append((component, had[component]))
                had[component] += 1
    return found


class Component:
    """One component, its hashes checked as they are met."""

    def __init__(self, root: Path, plan: dict[str, Any], entry: dict[str, Any]) -> None:
        self.folder, self.plan, self.entry = root / entry["folder"], plan, entry
        data = (self.folder / "manifest.json").read_bytes()
        assert hashlib.sha256(data).hexdigest() == entry["manifest"]
        self.manifest = json.loads(data)
        assert self.manifest["format"] == "corpusmill/shards/v1"
        tokenizer = (self.folder / self.manifest["tokenizer_file"]).read_bytes()
        assert hashlib.sha256(tokenizer).hexdigest() == self.manifest["tokenizer_sha256"]
        table = (self.folder / "blocks.arrow").read_bytes()
        assert xxhash.xxh3_128_hexdigest(table) == self.manifest["blocks_xxh3"]
        self.blocks = pa.ipc.open_file(table).read_all().to_pylist()
        token = {"uint16": pa.uint16(), "uint32": pa.uint32()}[self.manifest["dtype"]]
        fields = {
            "tokens": pa.list_(token, self.manifest["sequence_length"] + 1),
            "doc_ends": pa.list_(pa.uint32()),
            "doc_ids": pa.list_(pa.uint64()),
            "doc_offsets": pa.list_(pa.uint64()),
        }
        self.schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields.items()])
        self.rows: list[dict[str, Any]] = []
        for block in self.blocks:
            assert block["first_row"] == len(self.rows)
            self.rows += self.read(block)
        assert len(self.rows) == self.manifest["rows"] == entry["rows"]
        self.rows = self.rows[: entry.get("first_rows", len(self.rows))]
        self.blocks = [block for block in self.blocks if block["first_row"] < len(self.rows)]
        self.blocks[-1]["rows"] = len(self.rows) - self.blocks[-1]["first_row"]

    def read(self, block: dict[str, Any]) -> list[dict[str, Any]]:
        file = self.folder / self.manifest["shards"][block["shard"]]["file"]
        data = file.read_bytes()[block["offset"] : block["offset"] + block["length"]]
        assert xxhash.xxh3_64_intdigest(data) == block["xxh3"]
        rows = list(pa.ipc.read_record_batch(pa.ipc.read_message(data), self.schema).to_pylist())
        assert sum(row["doc_ends"][-1] - 1 for row in rows) == block["tokens"]
        assert len(rows) == block["rows"]
        return rows

    def row(self, position: int) -> dict[str, Any]:
        epoch, place = divmod(position, len(self.rows))
        key = derive("order", 1, self.plan["seed"], self.entry["name"], epoch)
        count = len(self.blocks)
        window = min(self.plan["window"], count)
        for w in range(-(-count // window)):
            slots = range(w * window, min((w + 1) * window, count))
            blocks = [self.blocks[permute(slot, count, key)] for slot in slots]
            size = sum(block["rows"] for block in blocks)
            if place < size:
                at = permute(place, size, derive(key, "rows", w))
                for block in blocks:
                    if at < block["rows"]:
                        return self.rows[block["first_row"] + at]
                    at -= block["rows"]
            place -= size
        raise AssertionError("a place beyond the epoch")


def read_plan_file(path: Path) -> dict[str, Any]:
    plan = json.loads(path.read_bytes())
    rest = {key: value for key, value in plan.items() if key != "id"}
    written = json.dumps(rest, sort_keys=True, ensure_ascii=False, indent=1) + "\n"
    assert hashlib.sha256(written.encode()).hexdigest()[:32] == plan["id"]
    assert (plan["format"], plan["order_version"]) == ("corpusmill/plan/v1", 1)
    return dict(plan)


def read_all(path: Path, end: int) -> list[dict[str, Any]]:
    plan = read_plan_file(path)
    components = [Component(path.parent, plan, entry) for entry in plan["components"]]
    return [components[component].row(position) for component, position in samples_of(plan, end)]


# Up to here.


def streamed(path: Path, end: int) -> list[list[int]]:
    with stream(path, batch_size=1, prefetch=0) as batches:
        return [next(batches)["tokens"][0].tolist() for _ in range(end)]


def test_the_numbers_of_the_page() -> None:
    page = (Path(__file__).parent.parent / "docs" / "shard-format.md").read_text(encoding="utf-8")
    key = derive("order", 1, 17, "web", 0)
    assert f"| {key:#x} |" in page
    assert f"| {' '.join(str(permute(x, 10, key)) for x in range(10))} |" in page
    assert f"| {', '.join(map(str, border([700_000_000, 299_900_000, 100_000], 8192)))} |" in page


def test_rows_come_in_the_order_of_the_page(tmp_path: Path) -> None:
    small_shards(tmp_path)
    path = tmp_path / "plan.json"
    assert [row["tokens"] for row in read_all(path, 600)] == streamed(path, 600)


def test_phases_ramps_and_rare_components(tmp_path: Path) -> None:
    names = ("books", "code", "web")
    phases = [
        Phase(0, {"books": 500_000_000, "code": 100_000, "web": 499_900_000}),
        Phase(100, {"web": 900_000_000, "code": 100_000_000}, ramp=70),
        Phase(5000, {"books": PPB}),
    ]
    lists = [Written(name, [token_lists(i, 12)]) for i, name in enumerate(names)]
    write_shards(tmp_path, lists, phases, window=3)
    path = tmp_path / "plan.json"
    assert [row["tokens"] for row in read_all(path, 5200)] == streamed(path, 5200)


@pytest.mark.parametrize("packing", ["concat", "best_fit", "pad"])
def test_shards_of_a_run_give_back_every_document(tmp_path: Path, packing: Packing) -> None:
    texts = [f"page {i} " + "has words of its own, " * (i % 23) for i in range(60)]
    source = TokenizerSource(train="bpe", vocab=300)
    shard = Shard(
        source, sequence_length=16, block_bytes=1 << 10, shard_bytes=1 << 14, packing=packing, holdout=0.1
    )
    run = Run(tmp_path, [documents(texts)], shard, Mix())
    found = {}
    for name in ("plan.json", "holdout.json"):
        plan = read_plan_file(run.out / "shards" / name)
        for entry in plan["components"]:
            found.update(documents_of(Component(run.out / "shards", plan, entry)))
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(str(run.folder("shard.tokenizer") / "tokenizer.json"))
    assert sorted(found) == sorted(f"https://web.example/{i}" for i in range(60))
    for i, text in enumerate(texts):
        ids = found[f"https://web.example/{i}"]
        assert ids[-1] == 0 and loaded.decode(ids[:-1]) == text


def documents_of(component: Component) -> dict[str, list[int]]:
    """Address -> ids, put together from pieces as the page says that they go on."""
    tokens: dict[int, list[int]] = {}
    first_rows = {}
    pieces = []
    starts = [0]
    for shard in component.manifest["shards"]:
        starts.append(starts[-1] + shard["rows"])
    for number, row in enumerate(component.rows):
        shard = bisect_right(starts, number) - 1
        begin = 0
        for end, document, offset in zip(row["doc_ends"], row["doc_ids"], row["doc_offsets"], strict=True):
            pieces.append((document, offset, number - starts[shard], row["tokens"][begin:end]))
            begin = end
        assert set(row["tokens"][begin:]) <= {component.manifest["eos"]}
    for document, offset, row, ids in sorted(pieces, key=lambda piece: piece[:3]):
        had = tokens.setdefault(document, [])
        first_rows.setdefault(document, row)
        assert offset == max(0, len(had) - 1) and had[offset:] == ids[: len(had) - offset]
        tokens[document] = had[:offset] + ids
    found = {}
    for shard in component.manifest["shards"]:
        for line in pq.read_table(component.folder / shard["docs_file"]).to_pylist():
            ids = tokens[line["doc"]]
            assert (line["tokens"], line["first_row"]) == (len(ids), first_rows[line["doc"]])
            found[line["url"]] = ids
    assert sum(map(len, tokens.values())) == component.manifest["tokens"]
    assert len(tokens) == component.manifest["documents"]
    return found
