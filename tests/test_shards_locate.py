"""From a sample back to its documents, and everything that verification finds."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shard_samples import EOS, VOCAB, Sample, documents, small_shards, stored, write_component, write_shards

from corpusmill.pipeline.errors import CursorError, ShardError
from corpusmill.shards import locate, stream, verify
from corpusmill.shards.layout import MANIFEST
from corpusmill.shards.plan import PPB, Phase, compile_plan

TEXTS = {
    "books": documents(1, 30) + documents(2, 20),
    "code": documents(3, 12),
    "web": documents(4, 25),
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards")
    small_shards(root, total=600)
    return root


def test_every_token_of_a_sample_is_led_back_to_its_document(shards: Path) -> None:
    with stream(shards, 300) as batches:
        rows = next(batches)["tokens"].tolist()
    located = locate(shards, 0, 300)
    assert [sample.sample for sample in located] == list(range(300))
    for row, sample in zip(rows, located, strict=True):
        at = 0
        for piece in sample.pieces:
            document = [*TEXTS[sample.component][piece.document], EOS]
            assert piece.start == at
            assert (
                row[piece.start : piece.end] == document[piece.token : piece.token + piece.end - piece.start]
            )
            assert piece.url == f"https://{sample.component}.example/{piece.document}"
            assert (piece.file, piece.offset) == (f"{sample.component}.warc.gz", 1000 * piece.document)
            assert piece.id == piece.document.to_bytes(16, "big").hex()
            at = piece.end
        assert set(row[at:]) <= {EOS}


def test_row_block_and_shard_are_where_the_row_lies(shards: Path) -> None:
    with stream(shards, 60) as batches:
        rows = next(batches)["tokens"].tolist()
    for sample in locate(shards, 0, 60):
        folder = shards / "fp" / sample.component
        blocks = pa.ipc.open_file(str(folder / "blocks.arrow")).read_all().to_pylist()
        block = blocks[sample.block]
        assert block["first_row"] <= sample.row < block["first_row"] + block["rows"]
        file = pa.ipc.open_file(str(shards / sample.shard)).read_all()
        before = min(b["first_row"] for b in blocks if b["shard"] == block["shard"])
        assert file["tokens"][sample.row - before].as_py() == rows[sample.sample]


def test_a_later_epoch_is_told_apart(shards: Path) -> None:
    samples = [sample for sample in locate(shards, 0, 600) if sample.component == "web"]
    rows = 63  # of the component
    assert [sample.epoch for sample in samples] == [i // rows for i in range(len(samples))]


def test_located_samples_are_json(shards: Path) -> None:
    value = json.loads(json.dumps(asdict(locate(shards, 5)[0])))
    assert value["sample"] == 5 and value["pieces"][0]["url"].startswith("https://")


@pytest.mark.parametrize(("at", "until"), [(-1, None), (600, None), (599, 601), (5, 5)])
def test_samples_that_are_not_there_are_refused(shards: Path, at: int, until: int | None) -> None:
    with pytest.raises(CursorError, match="the plan has 0 to 599"):
        locate(shards, at, until)


def test_a_missing_sidecar_stops_locate_but_not_the_stream(tmp_path: Path) -> None:
    small_shards(tmp_path)
    for sidecar in tmp_path.rglob("docs-*.parquet"):
        sidecar.unlink()
    with stream(tmp_path, 8) as batches:
        next(batches)
    with pytest.raises(ShardError, match=r"docs-0000\d\.parquet"):
        locate(tmp_path, 0)


@pytest.mark.parametrize("place", [0.05, 0.3, 0.6, 0.95])
def test_a_damaged_sidecar_is_named_before_a_wrong_address(tmp_path: Path, place: float) -> None:
    small_shards(tmp_path)
    for sidecar in tmp_path.rglob("docs-*.parquet"):
        data = bytearray(sidecar.read_bytes())
        data[int(place * len(data))] ^= 4
        sidecar.write_bytes(data)
    with pytest.raises(ShardError, match=r"docs-0000\d\.parquet is damaged"):
        locate(tmp_path, 0)


# verify


def findings(root: Path) -> list[str]:
    return [str(finding) for finding in verify(root)]


def test_whole_shards_have_no_findings(shards: Path) -> None:
    assert verify(shards) == []


def test_shards_of_one_short_document_and_of_empty_documents_have_no_findings(tmp_path: Path) -> None:
    write_shards(tmp_path, [Sample("a", [[[]], [[], [], []], [[5]]])], {"a": PPB})
    assert verify(tmp_path) == []
    with stream(tmp_path, 3, want=("loss_mask",)) as batches:
        assert int(next(batches)["loss_mask"].sum()) == 0 + 2 + 1


def test_a_flipped_bit_is_found_with_its_block(tmp_path: Path) -> None:
    small_shards(tmp_path)
    part = tmp_path / "fp" / "books" / "part-00001.arrow"
    blocks = pa.ipc.open_file(str(part.parent / "blocks.arrow")).read_all().to_pylist()
    number = max(i for i, block in enumerate(blocks) if block["shard"] == 1)
    data = bytearray(part.read_bytes())
    data[blocks[number]["offset"] + blocks[number]["length"] - 70] ^= 1
    part.write_bytes(data)
    (finding,) = findings(tmp_path)
    assert finding.startswith("fp/books/part-00001.arrow: is damaged") and f"(block {number})" in finding


def test_all_broken_files_are_listed_at_once(tmp_path: Path) -> None:
    small_shards(tmp_path)
    books, code = tmp_path / "fp" / "books", tmp_path / "fp" / "code"
    (books / "part-00000.arrow").unlink()
    (books / "docs-00001.parquet").write_bytes((books / "docs-00001.parquet").read_bytes()[:-1])
    (code / "manifest.json").unlink()
    (tmp_path / "fp" / "tokenizer.json").write_bytes(b"other")
    found = findings(tmp_path)
    for start in (
        "fp/books/../tokenizer.json: is not",
        "fp/books/part-00000.arrow: is missing",
        "fp/books/docs-00001.parquet: has",
        "fp/code/manifest.json: ",
        "fp/web/../tokenizer.json: is not",
    ):
        assert sum(finding.startswith(start) for finding in found) == 1, start
    assert len(found) == 5


def test_a_sidecar_that_tells_another_story_is_found(tmp_path: Path) -> None:
    """Hashes that fit, contents that do not: what a fault of the writer would look like."""

    def found(change: Callable[[Path], None], vocab: int = VOCAB) -> list[str]:
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        folder, manifest = write_component(root, Sample("a", [documents(1, 9)]))
        change(root / folder)
        (shard,) = manifest.shards
        size, digest = stored(root / folder / shard.docs_file)
        shard = replace(shard, docs_bytes=size, docs_xxh3=digest)
        manifest = replace(manifest, shards=(shard,), vocab_size=vocab)
        (root / folder / MANIFEST).write_bytes(manifest.encode())
        (root / "plan.json").write_bytes(
            compile_plan([(folder, manifest)], [Phase(0, {"a": PPB})], seed=1).encode()
        )
        return findings(root)

    def rewrite(name: str, values: Callable[[list[Any]], list[Any]]) -> Callable[[Path], None]:
        def change(folder: Path) -> None:
            path = folder / "docs-00000.parquet"
            table = pq.read_table(path)
            at = table.column_names.index(name)
            column = pa.array(values(table[name].to_pylist()), table.schema.field(at).type)
            pq.write_table(table.set_column(at, table.schema.field(at), column), path)

        return change

    def untouched(folder: Path) -> None:
        pass

    assert found(untouched) == []
    assert "not numbered" in found(rewrite("doc", lambda v: [n + 1 for n in v]))[0]
    assert "pieces are not those" in found(rewrite("tokens", lambda v: [v[0] + 1, v[1] - 1, *v[2:]]))[0]
    assert "do not begin" in found(rewrite("first_row", lambda v: [*v[:-1], v[-1] + 1]))[0]
    assert "the vocabulary ends at 99" in found(untouched, vocab=100)[0]


def test_a_plan_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    small_shards(tmp_path)
    (tmp_path / "plan.json").write_bytes(b"{}")
    assert findings(tmp_path)[0].startswith("plan.json: ")
