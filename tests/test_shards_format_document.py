"""docs/shard-format.md suffices a second time: this reader was written with the page alone at hand, by somebody who had not seen the package.

It looks a block up for each row, checks every hash that the page names, and hides what `quarantine.json` hides.
tests/test_shards_format.py holds the first reader and what rows and documents are made of.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import xxhash
from shard_samples import Sample, documents, write_component, write_shards

from corpusmill.shards import stream
from corpusmill.shards.append import appended, write_appended
from corpusmill.shards.hide import hide_samples, lift
from corpusmill.shards.layout import PLAN_FILE
from corpusmill.shards.plan import Phase, component_of

WORD = (1 << 64) - 1
BLOCK = 4096
BILLION = 10**9

Node = tuple[int, int, Any]
"""Weight, rank, and (light, heavy) or None for a leaf, whose rank is its component's number."""
Row = tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]


# From here on: the page.


def written(value: Any) -> bytes:
    return (json.dumps(value, sort_keys=True, ensure_ascii=False, indent=1) + "\n").encode()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def derive(*parts: object) -> int:
    return xxhash.xxh3_64_intdigest(b"\0".join(str(part).encode() for part in parts))


def mix(z: int) -> int:
    z &= WORD
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 & WORD
    z ^= z >> 27
    z = z * 0x94D049BB133111EB & WORD
    return z ^ z >> 31


def rounded(x: int, d: int) -> int:
    return (2 * x + d) // (2 * d)


def permute(x: int, n: int, key: int) -> int:
    a = next(a for a in range(n + 1) if a * a >= n)
    b = -(-n // a)
    k = [mix(key + (i + 1) * 0x9E3779B97F4A7C15) for i in range(6)]
    while True:
        left, right = x // b, x % b
        for i in range(0, 6, 2):
            left = (left + mix(right + k[i]) % a) % a
            right = (right + mix(left + k[i + 1]) % b) % b
        x = left * b + right
        if x < n:
            return x


def tree(weights: list[int]) -> Node:
    nodes: list[Node] = [(weight, i, None) for i, weight in enumerate(weights) if weight > 0]
    rank = len(weights)
    while len(nodes) > 1:
        light, heavy, *nodes = sorted(nodes, key=lambda node: node[:2])
        nodes.append((light[0] + heavy[0], rank, (light, heavy)))
        rank += 1
    return nodes[0]


def share(node: Node, total: int, counts: list[int]) -> None:
    if node[2] is None:
        counts[node[1]] += total
    else:
        light, heavy = node[2]
        part = rounded(total * heavy[0], node[0])
        share(heavy, part, counts)
        share(light, total - part, counts)


def border(weights: list[int], x: int) -> list[int]:
    counts, rest, done, total = [0] * len(weights), list(weights), 0, 0
    for i, weight in enumerate(weights):
        if BLOCK * weight >= BILLION:
            total += weight
            edge = rounded(x * total, BILLION)
            counts[i], done, rest[i] = edge - done, edge, 0
    if any(rest):
        share(tree(rest), x - done, counts)
    return counts


def place(node: Node, samples: list[int], found: list[int]) -> None:
    if node[2] is None:
        for sample in samples:
            found[sample] = node[1]
        return
    light, heavy = node[2]
    sides: list[list[int]] = [[], []]
    for j, sample in enumerate(samples, 1):
        sides[rounded(j * heavy[0], node[0]) > rounded((j - 1) * heavy[0], node[0])].append(sample)
    place(light, sides[0], found)
    place(heavy, sides[1], found)


def spread(weights: list[int], x: int) -> list[int]:
    found = [-1] * BLOCK
    counts = [
        after - before for before, after in zip(border(weights, x), border(weights, x + BLOCK), strict=True)
    ]
    place(tree(counts), list(range(BLOCK)), found)
    return found


def steps(plan: dict[str, Any]) -> Iterator[tuple[int, list[int]]]:
    old: list[int] = []
    for phase in plan["phases"]:
        new = [phase["weights_ppb"].get(component["name"], 0) for component in plan["components"]]
        count = min(64, phase["ramp"])
        for i in range(count):
            parts = [(2 * count - 2 * i - 1) * o + (2 * i + 1) * n for o, n in zip(old, new, strict=True)]
            weights = [part // (2 * count) for part in parts]
            by_remainder = sorted(range(len(parts)), key=lambda at: (-(parts[at] % (2 * count)), at))
            for at in by_remainder[: BILLION - sum(weights)]:
                weights[at] += 1
            yield phase["from"] + phase["ramp"] * i // count, weights
        yield phase["from"] + phase["ramp"], new
        old = new


def positions(plan: dict[str, Any], stop: int) -> Iterator[tuple[int, int]]:
    """(component's number, position within it) of samples 0 to `stop` - 1."""
    listed, before = [*steps(plan)], [0] * len(plan["components"])
    for (begin, weights), (end, _) in zip(listed, [*listed[1:], (stop, [])], strict=True):
        for n in range(begin, min(end, stop), BLOCK):
            for component in spread(weights, n - begin)[: min(end, stop) - n]:
                yield component, before[component]
                before[component] += 1


class Component:
    """One folder of shards; every hash that its manifest names is compared."""

    def __init__(self, plan: dict[str, Any], entry: dict[str, Any], top: Path) -> None:
        self.plan, self.entry, self.folder = plan, entry, top / entry["folder"]
        stored = (self.folder / "manifest.json").read_bytes()
        self.manifest = json.loads(stored)
        table = (self.folder / "blocks.arrow").read_bytes()
        self.blocks = pa.ipc.open_file(table).read_all().to_pylist()
        assert sha256(stored) == entry["manifest"] and written(self.manifest) == stored
        assert xxhash.xxh3_128_hexdigest(table) == self.manifest["blocks_xxh3"]
        assert (
            sha256((self.folder / self.manifest["tokenizer_file"]).read_bytes())
            == self.manifest["tokenizer_sha256"]
        )
        for shard in self.manifest["shards"]:
            for file, size, digest in (
                ("file", "size_bytes", "xxh3"),
                ("docs_file", "docs_bytes", "docs_xxh3"),
            ):
                data = (self.folder / shard[file]).read_bytes()
                assert (len(data), xxhash.xxh3_128_hexdigest(data)) == (shard[size], shard[digest])
        tokens = pa.list_(pa.from_numpy_dtype(self.manifest["dtype"]), self.manifest["sequence_length"] + 1)
        lists = [("doc_ends", pa.uint32()), ("doc_ids", pa.uint64()), ("doc_offsets", pa.uint64())]
        self.schema = pa.schema([("tokens", tokens), *((name, pa.list_(kind)) for name, kind in lists)])

    def block(self, number: int) -> pa.RecordBatch:
        line = self.blocks[number]
        data = (self.folder / self.manifest["shards"][line["shard"]]["file"]).read_bytes()
        message = data[line["offset"] : line["offset"] + line["length"]]
        assert xxhash.xxh3_64_intdigest(message) == line["xxh3"]
        return pa.ipc.read_record_batch(pa.py_buffer(message), self.schema)

    def find(self, position: int) -> tuple[int, int]:
        """(block, row of the block) at a position of the component."""
        epoch, left = divmod(position, self.entry["rows"])
        count = self.entry["blocks"]
        key = derive("order", 1, self.plan["seed"], self.entry["name"], epoch)
        width = min(self.plan["window"], count)
        for w in range(-(-count // width)):
            window = [permute(slot, count, key) for slot in range(w * width, min(count, (w + 1) * width))]
            rows = [(block, row) for block in window for row in range(self.blocks[block]["rows"])]
            if left < len(rows):
                return rows[permute(left, len(rows), derive(key, "rows", w))]
            left -= len(rows)
        raise AssertionError("a position beyond the epoch")


def entries_of(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    found, name = json.loads(path.read_bytes()), ""
    for entry in found["entries"]:
        name = sha256(name.encode() + written(entry))[:32]
    assert found["id"] == name
    return list(found["entries"])


def hidden(
    entries: list[dict[str, Any]], component: dict[str, Any], row: int, sample: int
) -> Iterator[tuple[int, int]]:
    """The spans of a component's row that are hidden when it comes as `sample`."""
    lifted = {entry["lift"] for entry in entries if "lift" in entry and entry["from"] <= sample}
    for number, entry in enumerate(entries):
        if "lift" in entry or number in lifted or entry["from"] > sample:
            continue
        if (entry["component"], entry["manifest"]) == (component["name"], component["manifest"]):
            yield from ((first, end) for at, first, end in entry["spans"] if at == row)


def read(top: Path, stop: int) -> Iterator[Row]:
    """(tokens, which targets are learnt) of samples 0 to `stop` - 1."""
    plan = json.loads((top / "plan.json").read_bytes())
    assert sha256(written({key: value for key, value in plan.items() if key != "id"}))[:32] == plan["id"]
    components = [Component(plan, entry, top) for entry in plan["components"]]
    entries = entries_of(top / "quarantine.json")
    for sample, (number, position) in enumerate(positions(plan, stop)):
        component = components[number]
        block, at = component.find(position)
        batch = component.block(block)
        tokens = np.array(batch["tokens"][at].as_py(), component.manifest["dtype"])
        learnt = np.arange(1, len(tokens)) < batch["doc_ends"][at].as_py()[-1]
        for first, end in hidden(entries, component.entry, component.blocks[block]["first_row"] + at, sample):
            tokens[first:end] = plan["eos"]
            learnt[max(first - 1, 0) : end - 1] = False
        yield tokens, learnt


# Up to here.


SAMPLES = 200


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Two components, of which one will be read several times; a third comes in later, over a ramp."""
    lists = [
        Sample("books", [documents(1, 7), documents(2, 5)], rows_per_block=3),
        Sample("web", [documents(3, 30), documents(4, 11)], rows_per_block=5),
    ]
    plan = write_shards(tmp_path, lists, {"books": 300_000_000, "web": 700_000_000}, window=3)
    folder, manifest = write_component(tmp_path, Sample("code", [documents(5, 9)]))
    weights = {"books": 100_000_000, "code": 400_000_001, "web": 499_999_999}
    longer = appended(plan, Phase(50, weights, ramp=31), components=[component_of(folder, manifest, "code")])
    write_appended(tmp_path / PLAN_FILE, plan, longer)
    return tmp_path


def same(shards: Path) -> bool:
    with stream(shards, batch_size=10, want=("loss_mask",)) as batches:
        got = [
            row
            for _ in range(SAMPLES // 10)
            for batch in [next(batches)]
            for row in zip(batch["tokens"], batch["loss_mask"], strict=True)
        ]
    return all(
        np.array_equal(mine[0], theirs[0]) and np.array_equal(mine[1], theirs[1])
        for mine, theirs in zip(read(shards, SAMPLES), got, strict=True)
    )


def test_the_first_200_samples_are_those_of_the_stream(shards: Path) -> None:
    assert same(shards)


def test_what_is_in_quarantine_is_hidden_from_its_sample_on_until_it_is_lifted(shards: Path) -> None:
    plain = [*read(shards, SAMPLES)]
    hide_samples(shards, 40, 44, 60, "whole rows")
    hide_samples(shards, 20, 22, 10, "a part", (2, 6))
    lift(shards, 0, 150, "was harmless")
    mine = [*read(shards, SAMPLES)]
    assert any(not np.array_equal(a[0], b[0]) for a, b in zip(plain, mine, strict=True))
    assert same(shards)


def test_a_changed_byte_is_noticed(shards: Path) -> None:
    path = shards / "fp" / "web" / "part-00001.arrow"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(AssertionError):
        next(read(shards, 1))
