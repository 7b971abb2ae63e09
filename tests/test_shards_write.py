"""From kept text to shards: every document once, in the order of its key, the same however the work was cut."""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from shard_runs import Document, Run, documents, vocabulary_of

from corpusmill.pipeline.chain import Chain
from corpusmill.pipeline.engine.stage import FileRecord, Result, SetOperation
from corpusmill.pipeline.errors import BudgetError, ModelError, RecipeError, ShardError
from corpusmill.pipeline.text.tokenizer import Tokenizer
from corpusmill.shards.components import Components
from corpusmill.shards.layout import (
    PLAN_FILE,
    TOKENIZER_FILE,
    Boundary,
    Manifest,
    Packing,
    block_table,
    decode_manifest,
    read_blocks,
    read_manifest,
)
from corpusmill.shards.plan import Phase, compile_plan
from corpusmill.shards.scatter import component_keys, framed, range_count
from corpusmill.shards.sealed import component_files
from corpusmill.shards.stage import Shard, TokenizerSource
from corpusmill.shards.verify import Finding, verify
from corpusmill.shards.write import Write

EOS = "<|endoftext|>"
SMALL = Shard(
    TokenizerSource(train="bpe", vocab=300), sequence_length=16, block_bytes=1 << 10, shard_bytes=1 << 14
)


def corpus(size: int = 120) -> list[Document]:
    draw = random.Random(5)
    words = ["".join(draw.choice("abcdefg") for _ in range(draw.randint(2, 7))) for _ in range(200)]
    web = [" ".join(draw.choice(words) for _ in range(draw.randint(1, 120))) for _ in range(size)]
    books = [" ".join(draw.choice(words) for _ in range(draw.randint(1, 300))) for _ in range(size // 6)]
    return [*documents([*web, f"a page that spells {EOS} out", ""]), *documents(books, "Books & Co")]


def partitions(rows: Sequence[Document], count: int) -> list[list[Document]]:
    return [list(part) for part in np.array_split(np.array(rows, dtype=object), count)]


def components(run: Run) -> dict[str, tuple[Path, Manifest]]:
    folders = sorted(path.parent for path in run.folder("shard.write").glob("*/manifest.json"))
    return {(manifest := read_manifest(folder)).name: (folder, manifest) for folder in folders}


def documents_of(folder: Path, manifest: Manifest) -> dict[int, list[int]]:
    """Document -> its tokens, put together from the rows of all shards."""
    found: dict[int, dict[int, int]] = {}
    for shard in manifest.shards:
        with pa.memory_map(str(folder / shard.file)) as source:
            rows = pa.ipc.open_file(source).read_all().to_pylist()
        for row in rows:
            begin = 0
            for end, document, offset in zip(
                row["doc_ends"], row["doc_ids"], row["doc_offsets"], strict=True
            ):
                for place in range(begin, end):
                    assert (
                        found.setdefault(document, {}).setdefault(
                            offset + place - begin, row["tokens"][place]
                        )
                        == row["tokens"][place]
                    )
                begin = end
    assert all(sorted(tokens) == list(range(len(tokens))) for tokens in found.values())
    return {
        document: [found[document][at] for at in range(len(found[document]))] for document in sorted(found)
    }


def sidecar(folder: Path, manifest: Manifest) -> list[dict[str, Any]]:
    return [
        row
        for shard in manifest.shards
        for row in pq.read_table(folder / shard.docs_file, partitioning=None).to_pylist()
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("shards"), partitions(corpus(), 3), SMALL)


def expected(run: Run, source: str) -> list[tuple[Document, list[int]]]:
    """What the reference says: documents with tokens by (key, id), each followed by the end of text."""
    tokenizer = Tokenizer((run.folder("shard.tokenizer") / TOKENIZER_FILE).read_bytes())
    rows = [row for row in corpus() if row.source == source and row.text]
    rows.sort(key=lambda row: (xxhash.xxh3_64_intdigest(row.id, run.seed), row.id))
    return [(row, [*tokenizer.encode([row.text])[0].tolist(), tokenizer.eos]) for row in rows]


@pytest.mark.parametrize("source", ["web", "Books & Co"])
def test_documents_lie_in_the_order_of_their_keys_each_whole_and_once(run: Run, source: str) -> None:
    found = documents_of(*components(run)[source])
    assert list(found.values()) == [tokens for _, tokens in expected(run, source)]
    assert list(found) == list(range(len(found)))


def test_only_the_end_of_a_document_is_its_end_of_text(run: Run) -> None:
    for folder, manifest in components(run).values():
        for tokens in documents_of(folder, manifest).values():
            assert tokens.count(manifest.eos) == 1
            assert tokens[-1] == manifest.eos


@pytest.mark.parametrize("source", ["web", "Books & Co"])
def test_the_sidecar_says_where_each_document_came_from_and_begins(run: Run, source: str) -> None:
    folder, manifest = components(run)[source]
    rows = sidecar(folder, manifest)
    assert [row["id"] for row in rows] == [row.id for row, _ in expected(run, source)]
    first_rows: dict[int, int] = {}
    for shard in manifest.shards:
        at = 0
        with pa.memory_map(str(folder / shard.file)) as source_file:
            for ids in pa.ipc.open_file(source_file).read_all()["doc_ids"].to_pylist():
                for document in ids:
                    first_rows.setdefault(document, at)
                at += 1
    for row, (document, tokens) in zip(rows, expected(run, source), strict=True):
        assert row["url"] == f"https://{source}.example/{document.number}"
        assert (row["file"], row["offset"], row["length"]) == (
            f"{source}.jsonl",
            document.number,
            len(document.text),
        )
        assert row["digest"] == xxhash.xxh3_128_digest(document.text.encode())
        assert row["tokens"] == len(tokens)
        assert row["first_row"] == first_rows[row["doc"]]


def test_the_manifest_adds_up_and_every_hash_fits(run: Run) -> None:
    assert len(components(run)["web"][1].shards) > 2
    for folder, manifest in components(run).values():
        blocks = read_blocks(folder, manifest)
        assert blocks.num_rows == manifest.blocks
        walked = []
        first_row = 0
        for number, shard in enumerate(manifest.shards):
            data = (folder / shard.file).read_bytes()
            assert (len(data), xxhash.xxh3_128_hexdigest(data)) == (shard.size_bytes, shard.xxh3)
            docs = (folder / shard.docs_file).read_bytes()
            assert (len(docs), xxhash.xxh3_128_hexdigest(docs)) == (shard.docs_bytes, shard.docs_xxh3)
            walked.append(block_table(folder / shard.file, number, first_row))
            first_row += shard.rows
        assert blocks.to_pylist() == pa.concat_tables(walked).to_pylist()
        assert manifest.tokens == sum(row["tokens"] for row in sidecar(folder, manifest))
        assert manifest.tokenizer_sha256 == Tokenizer((folder / manifest.tokenizer_file).read_bytes()).sha256


def test_a_block_holds_the_bytes_that_the_recipe_says(run: Run) -> None:
    folder, manifest = components(run)["web"]
    rows = read_blocks(folder, manifest).to_pylist()
    last = {row["shard"]: row["first_row"] for row in rows}
    assert {row["rows"] for row in rows if row["first_row"] != last[row["shard"]]} == {(1 << 10) // (17 * 2)}


@pytest.mark.parametrize("parts", [1, 7])
def test_shards_are_the_same_bytes_however_documents_were_partitioned(
    run: Run, tmp_path: Path, parts: int
) -> None:
    # One key range, so that the size of the stored documents, which partitioning changes a little, has no say.
    whole = Shard(SMALL.tokenizer, sequence_length=16, block_bytes=1 << 10, shard_bytes=1 << 24)
    once = Run(tmp_path / "3", partitions(corpus(), 3), whole)
    again = Run(tmp_path / "n", partitions(corpus(), parts), whole)
    assert once.files("shard.write") == again.files("shard.write")


def test_another_seed_gives_another_order_of_the_same_documents(run: Run, tmp_path: Path) -> None:
    other = Run(tmp_path, partitions(corpus(), 3), SMALL, seed=18)
    ids = [[row["id"] for row in sidecar(*components(each)["web"])] for each in (run, other)]
    assert ids[0] != ids[1]
    assert sorted(ids[0]) == sorted(ids[1])


def test_documents_without_a_token_are_counted(run: Run) -> None:
    assert run.manifests["shard.scatter"].counts["empty"] == 1


def test_nothing_kept_is_an_error_that_says_where_to_look(tmp_path: Path) -> None:
    with pytest.raises(ShardError, match="ledger"):
        Run(tmp_path / "trained", [documents(["", ""])], SMALL)
    file = tmp_path / "tokenizer.json"
    file.write_bytes(vocabulary_of(300))
    with pytest.raises(ShardError, match="nothing to shard"):
        Run(tmp_path / "given", [documents(["", ""])], Shard(TokenizerSource(str(file))))


def damage(run: Run, folder: Path, manifest: Manifest) -> list[Finding]:
    root = run.folder("shard.write")
    plan = compile_plan(
        [(folder.name, manifest)], [Phase(0, {manifest.name: 10**9})], seed=1, window=1, samples=1
    )
    (root / PLAN_FILE).write_bytes(plan.encode())
    return verify(root)


@pytest.mark.parametrize(
    ("boundary", "before", "after"),
    [("eos", [], [0]), ("bos", [1], []), ("both", [1], [0]), ("none", [], [])],
)
def test_the_boundary_stands_around_each_document_and_nowhere_else(
    tmp_path: Path, boundary: Boundary, before: list[int], after: list[int]
) -> None:
    source = TokenizerSource(train="bpe", vocab=300, eos="<end>", bos="<begin>")
    run = Run(tmp_path, partitions(corpus(40), 2), replace(SMALL, tokenizer=source, boundary=boundary))
    tokenizer = Tokenizer((run.folder("shard.tokenizer") / TOKENIZER_FILE).read_bytes(), "<end>")
    assert tokenizer.special == {"<end>": 0, "<begin>": 1}
    folder, manifest = components(run)["web"]
    rows = [row for row in corpus(40) if row.source == "web" and row.text]
    rows.sort(key=lambda row: (xxhash.xxh3_64_intdigest(row.id, run.seed), row.id))
    wanted = [[*before, *tokenizer.encode([row.text])[0].tolist(), *after] for row in rows]
    assert list(documents_of(folder, manifest).values()) == wanted
    assert [row["tokens"] for row in sidecar(folder, manifest)] == [len(tokens) for tokens in wanted]
    assert (manifest.boundary, manifest.bos) == (boundary, before[0] if before else None)
    assert manifest.tokens == sum(map(len, wanted))
    assert damage(run, folder, manifest) == []


@pytest.mark.parametrize("packing", ["best_fit", "pad"])
def test_other_packings_hold_the_same_documents_in_the_same_order(
    run: Run, tmp_path: Path, packing: Packing
) -> None:
    other = Run(tmp_path, partitions(corpus(), 3), replace(SMALL, packing=packing))
    for source, (folder, manifest) in components(other).items():
        before, first = components(run)[source]
        assert documents_of(folder, manifest) == documents_of(before, first)
        assert manifest.packing == packing and manifest.rows > first.rows
        longer = sum(len(tokens) > 17 for tokens in documents_of(folder, manifest).values())
        assert 0 < manifest.split_documents == longer <= first.split_documents
        assert damage(other, folder, manifest) == []


def test_documents_without_tokens_get_no_boundary() -> None:
    ids, lengths = np.array([5, 6, 7], np.uint16), np.array([0, 2, 0, 1, 0])
    found, sizes = framed(ids, lengths, [1], [2, 3])
    assert (found.tolist(), sizes.tolist()) == ([1, 5, 6, 2, 3, 1, 7, 2, 3], [0, 5, 0, 4, 0])
    assert found.dtype == np.uint16
    bare, same = framed(ids, lengths, [], [])
    assert (bare.tolist(), same.tolist()) == ([5, 6, 7], lengths.tolist())


def test_a_lone_token_without_a_boundary_is_a_row(tmp_path: Path) -> None:
    run = Run(tmp_path, [documents(["a"])], replace(SMALL, boundary="none"))
    folder, manifest = components(run)["web"]
    (tokens,) = documents_of(folder, manifest).values()
    assert (manifest.rows, manifest.tokens, len(tokens)) == (1, 1, 1)
    assert damage(run, folder, manifest) == []


def test_a_begin_of_text_that_nobody_can_name_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_bytes(vocabulary_of(300))
    with pytest.raises(ModelError, match=r"name one of the special tokens as shard\.tokenizer\.bos"):
        Run(
            tmp_path / "a",
            [documents(["a"])],
            replace(SMALL, tokenizer=TokenizerSource(str(file)), boundary="bos"),
        )
    with pytest.raises(
        ModelError, match=r"no special token '<s>' to be bos \(candidates: '<\|endoftext\|>'\)"
    ):
        Run(
            tmp_path / "b",
            [documents(["a"])],
            replace(SMALL, tokenizer=TokenizerSource(str(file), bos="<s>")),
        )
    named = replace(SMALL, tokenizer=TokenizerSource(str(file), bos=EOS), boundary="both")
    folder, manifest = components(Run(tmp_path / "c", [documents(["a"])], named))["web"]
    assert (manifest.eos, manifest.bos) == (299, 299)
    (tokens,) = documents_of(folder, manifest).values()
    assert (tokens[0], tokens[-1], len(tokens)) == (299, 299, 3)


def test_a_source_without_text_is_left_out(tmp_path: Path) -> None:
    run = Run(tmp_path, [documents(["some words"]), documents([""], "empty")], SMALL)
    assert list(components(run)) == ["web"]


def test_a_given_tokenizer_is_copied_and_its_place_does_not_matter(tmp_path: Path) -> None:
    content = vocabulary_of(65_537)
    runs = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        file = tmp_path / name / f"{name}.json"
        file.write_bytes(content)
        shard = Shard(
            TokenizerSource(str(file)), sequence_length=16, block_bytes=1 << 10, shard_bytes=1 << 14
        )
        runs.append(Run(tmp_path / name / "out", partitions(corpus(30), 2), shard))
    assert runs[0].folders == runs[1].folders
    assert (runs[0].folder("shard.write") / TOKENIZER_FILE).read_bytes() == content
    folder, manifest = components(runs[0])["web"]
    assert (manifest.dtype, manifest.eos, manifest.vocab_size) == ("uint32", 65_536, 65_537)
    with pa.memory_map(str(folder / manifest.shards[0].file)) as source:
        assert pa.ipc.open_file(source).schema.field("tokens").type == pa.list_(pa.uint32(), 17)


def test_a_vocabulary_of_another_format_becomes_a_tokenizer_json_and_its_own_hash_is_kept(
    tmp_path: Path,
) -> None:
    file = tmp_path / "words.tiktoken"
    file.write_bytes(b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256)))
    source = TokenizerSource(str(file), pattern="gpt2", special={"<end>": 300}, eos="<end>")
    run = Run(tmp_path / "out", [documents(["abc", "ü"])], replace(SMALL, tokenizer=source))
    folder, manifest = components(run)["web"]
    assert sorted(documents_of(folder, manifest).values()) == [[97, 98, 99, 300], [0xC3, 0xBC, 300]]
    content = (run.folder("shard.write") / TOKENIZER_FILE).read_bytes()
    assert manifest.tokenizer_sha256 == hashlib.sha256(content).hexdigest()
    (made,) = run.inputs.results("shard.tokenizer").values()
    wanted = ("tiktoken", hashlib.sha256(file.read_bytes()).hexdigest())
    assert (made.extra["original"], made.extra["original_sha256"]) == wanted


def test_a_tokenizer_is_trained_on_the_documents_with_the_lowest_keys(tmp_path: Path) -> None:
    rows = documents([f"document {i} " * 10 for i in range(100)])
    sizes = [
        len(row.text) for row in sorted(rows, key=lambda row: (xxhash.xxh3_64_intdigest(row.id, 17), row.id))
    ]
    limit = sum(sizes) // 3  # of which the training reads four times as much: everything
    chosen = [size for at, size in enumerate(sizes) if sum(sizes[: at + 1]) <= limit]
    shard = replace(SMALL, tokenizer=TokenizerSource(train="bpe", vocab=300, sample_bytes=limit))
    trained = []
    for parts in (1, 4):
        run = Run(tmp_path / str(parts), partitions(rows, parts), shard)
        assert run.manifests["shard.tokenizer"].counts == {
            "documents": len(chosen),
            "text_bytes": sum(chosen),
        }
        trained.append(run.files("shard.tokenizer"))
    assert trained[0] == trained[1]


def test_scattered_tokens_and_urls_have_64_bit_offsets(run: Run) -> None:
    with pa.memory_map(str(run.folder("shard.scatter") / "tokens-00000.arrow")) as source:
        found = pa.ipc.open_file(source).schema
    assert found.field("tokens").type == pa.large_list(pa.uint16())
    assert found.field("url").type == pa.large_string()


def test_a_missing_tokenizer_is_named_before_anything_runs(tmp_path: Path) -> None:
    chain = Chain()
    chain.set("documents", SetOperation())
    with pytest.raises(ModelError, match=r"gone\.json"):
        Shard(TokenizerSource(str(tmp_path / "gone.json"))).extend(chain, "shard")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sequence_length": 0}, "sequence_length"),
        ({"sequence_length": 1 << 31}, "sequence_length"),
        ({"tokenizer": TokenizerSource()}, "give a file"),
        ({"tokenizer": TokenizerSource(file="a.json", train="bpe")}, "give a file"),
        ({"tokenizer": TokenizerSource(file="a.json", vocab=300)}, "a.json has a vocabulary"),
        ({"tokenizer": TokenizerSource(train="bpe", vocab=256)}, "at least 257"),
        ({"tokenizer": TokenizerSource(train="bpe", pattern="gpt2")}, "for a tiktoken file"),
        ({"tokenizer": TokenizerSource(train="bpe", vocab=257), "boundary": "bos"}, "at least 258"),
        ({"shard_bytes": 10}, "shard_bytes"),
        ({"components": Components(("sauce",))}, "did you mean 'source'"),
        ({"components": Components(())}, "at least one column"),
        ({"measures": ("words",)}, "no earlier stage makes 'words'"),
    ],
)
def test_a_recipe_that_cannot_be_run_says_why(change: dict[str, Any], words: str) -> None:
    chain = Chain()
    chain.set("documents", SetOperation())
    with pytest.raises(RecipeError, match=words):
        Shard(**{"tokenizer": TokenizerSource(train="bpe"), **change}).extend(chain, "shard")


@pytest.mark.parametrize("kind", [pa.binary(16), pa.binary(), pa.list_(pa.int8())])
def test_columns_that_name_nothing_make_no_components(kind: pa.DataType) -> None:
    with pytest.raises(RecipeError, match="'signature' is a column of"):
        component_keys(pa.table({"signature": pa.nulls(1, kind)}), ("signature",))


def test_a_split_source_has_components_of_their_own_and_a_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    days = [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    rows = [Document("word " * 400, number=i, date=days[0]) for i in range(40)]
    rows += [Document("some few words", number=100 + i, date=days[i]) for i in (1, 2)]
    rows += [Document("no date", number=200)]
    shard = replace(SMALL, components=Components(("source", "date")), shard_bytes=1 << 16)
    found = components(Run(tmp_path, [rows], shard))
    assert {name: manifest.documents for name, (_, manifest) in found.items()} == {
        "web.2024-01-01 00:00:00.000000Z": 40,
        "web.rest": 3,
    }
    assert "3 components under 8 blocks" in caplog.text


GIVEN = {"dtype": "uint16", "eos": 0, "bos": None, "vocab_size": 300, "sha256": "0" * 64}


def faked(tokens: list[int], docs: list[int], units: int = 1) -> Any:
    """Inputs of the write stage whose scatter reports these counts a key range, in each unit."""
    extra = {"components": [["web"]], "documents": [docs], "tokens": [tokens], "kept_out": 0}
    results = {
        "t": {0: Result(0, extra=GIVEN)},
        "s": {unit: Result(unit, extra=extra) for unit in range(units)},
        "m": {},
    }
    return SimpleNamespace(results=lambda stage: results[stage], root=Path(), folder=lambda stage: "")


def write_of(shard_bytes: int) -> Write:
    return Write("t", "s", "m", ("source",), (), 2048, 1 << 24, shard_bytes)


def test_counts_over_four_billion_are_exact() -> None:
    # 2 units of 3 ranges, each of 2^32 tokens and 3 * 2^30 documents: 6 * 2^32 tokens are 25.8 billion.
    units = write_of(1 << 34).units(faked([2**32] * 3, [3 * 2**30] * 3, units=2))
    assert [unit.fields["first_doc"] for unit in units] == [0, 6 * 2**30, 12 * 2**30]
    assert [unit.fields["tokens"] for unit in units] == [2**33] * 3


def test_block_places_over_two_billion_are_exact() -> None:
    block = {
        "shard": 0,
        "offset": 2**40,
        "length": 2**24,
        "first_row": 2**33,
        "rows": 4096,
        "tokens": 2**43,
        "xxh3": 2**64 - 1,
    }
    results = []
    for shard in (0, 1):
        counts = {"shard": shard, "documents": 2**33, "tokens": 2**44, "rows": 2**34, "split": 2**32}
        blocks = [list((block | {"shard": shard}).values())]
        extra = {"component": "web", "slug": "web", **counts, "blocks": blocks}
        files = (
            FileRecord(f"web/docs-{shard:05d}.parquet", 2**33, 2**41, "d"),
            FileRecord(f"web/part-{shard:05d}.arrow", 2**34, 2**45, "p"),
        )
        results.append(Result(shard, files, extra=extra))
    manifest, encoded = component_files(results, 2048, "eos", "concat", GIVEN)
    read = decode_manifest(manifest, "manifest.json")
    assert (read.rows, read.tokens, read.documents) == (2**35, 2**45, 2**34)
    assert read.split_documents == 2**33
    assert (read.shards[0].file, read.shards[0].size_bytes) == ("part-00000.arrow", 2**45)
    second = block | {"shard": 1, "first_row": 2**34 + 2**33}  # behind the 2^34 rows of the first shard
    assert pa.ipc.open_file(pa.py_buffer(encoded)).read_all().to_pylist() == [block, second]


def test_a_shard_far_over_its_bytes_is_refused_before_it_is_made() -> None:
    with pytest.raises(BudgetError, match="raise shard_bytes"):
        write_of(1 << 20).units(faked([2**23], [10]))


def test_key_ranges_grow_with_the_documents_and_are_a_power_of_two() -> None:
    assert range_count(1, 1 << 28) == 1
    assert range_count(1 << 28, 1 << 28) == 16
    assert range_count((1 << 28) + 1, 1 << 28) == 32
    assert range_count(1 << 60, 1 << 28) == 4096
