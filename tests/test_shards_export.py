"""Shards as Megatron, Parquet and `datasets` see them: read back by the libraries, or by readers written from the published format."""

from __future__ import annotations

import io
import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from shard_samples import EOS, Sample, documents, small_shards, write_component, write_shards

from corpusmill.pipeline.errors import CursorError, InputError, ShardError
from corpusmill.shards import data_sets, stream
from corpusmill.shards.export import export_tokens
from corpusmill.shards.hide import hide_document
from corpusmill.shards.layout import PLAN_FILE
from corpusmill.shards.megatron import read_indexed, stored_dtype, write_index
from corpusmill.shards.plan import PPB, Phase, compile_plan
from corpusmill.shards.sidecar import Wanted

DOCUMENTS = {
    "books": [*documents(1, 30), *documents(2, 20)],
    "code": documents(3, 12),
    "web": documents(4, 25),
}
"""What small_shards writes, without the end of text."""


def with_eos(docs: list[list[int]]) -> list[list[int]]:
    return [[*doc, EOS] for doc in docs]


def megatron_documents(prefix: Path) -> list[list[int]]:
    """Read from the format's description: nothing of ours, nothing of Megatron's."""
    index = prefix.with_suffix(".idx").read_bytes()
    magic, version, code = struct.unpack_from("<9sQB", index)
    sequences, bounds = struct.unpack_from("<QQ", index, 18)
    assert (magic, version) == (b"MMIDIDX\0\0", 1)
    kind = {4: "<i4", 8: "<u2"}[code]
    lengths = struct.unpack_from(f"<{sequences}i", index, 34)
    pointers = struct.unpack_from(f"<{sequences}q", index, 34 + 4 * sequences)
    ends = struct.unpack_from(f"<{bounds}q", index, 34 + 12 * sequences)
    assert len(index) == 34 + 12 * sequences + 8 * bounds
    data = prefix.with_suffix(".bin").read_bytes()
    parts = [
        np.frombuffer(data, kind, length, pointer).tolist()
        for length, pointer in zip(lengths, pointers, strict=True)
    ]
    return [[token for part in parts[a:b] for token in part] for a, b in pairwise(ends)]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards")
    small_shards(root)
    return root


def test_megatron_documents_are_those_that_were_sharded(shards: Path, tmp_path: Path) -> None:
    made = export_tokens(shards, tmp_path / "to", "megatron")
    assert [each.path.name for each in made] == ["books", "code", "web"]
    for each in made:
        expected = with_eos(DOCUMENTS[each.path.name])
        assert megatron_documents(each.path) == expected
        assert (each.items, each.tokens) == (len(expected), sum(map(len, expected)))
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == sorted(
        f"{name}.{ending}" for name in DOCUMENTS for ending in ("bin", "idx")
    )


def test_megatron_core_reads_documents_and_rows(shards: Path, tmp_path: Path) -> None:
    library = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    (books,) = export_tokens(shards, tmp_path / "documents", "megatron", components=["books"])
    dataset = library.IndexedDataset(str(books.path))
    assert [part.tolist() for part in dataset[0 : len(dataset)]] == with_eos(DOCUMENTS["books"])
    assert dataset.document_indices.tolist() == list(range(51))
    (rows,) = export_tokens(shards, tmp_path / "rows", "megatron", samples=(3, 40))
    dataset = library.IndexedDataset(str(rows.path))
    expected = next(stream(shards, 40))["tokens"][3:]
    assert np.array_equal(np.stack(dataset[0 : len(dataset)]), expected)


def test_megatron_core_reads_ids_of_32_bits(tmp_path: Path) -> None:
    library = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    docs = [[70_000, 5], [1 << 20]]
    write_shards(tmp_path / "s", [Sample("web", [docs])], {"web": 10**9}, dtype="uint32", vocab=1 << 21)
    (made,) = export_tokens(tmp_path / "s", tmp_path / "to", "megatron")
    dataset = library.IndexedDataset(str(made.path))
    assert dataset.index.dtype == np.int32
    assert [part.tolist() for part in dataset[0 : len(dataset)]] == with_eos(docs)


def test_an_index_reaches_beyond_two_to_the_31_tokens_and_bytes(tmp_path: Path) -> None:
    lengths = [2_000_000_000, 2_000_000_000, 7, 2_147_483_647]
    sink = io.BytesIO()
    write_index(sink, np.dtype("<u2"), [np.array(lengths[:2]), np.array(lengths[2:])])
    index = sink.getvalue()
    assert struct.unpack_from("<4i", index, 34) == tuple(lengths)
    assert struct.unpack_from("<4q", index, 34 + 16) == (0, 4_000_000_000, 8_000_000_000, 8_000_000_014)
    assert struct.unpack_from("<5q", index, 34 + 48) == (0, 1, 2, 3, 4)
    (tmp_path / "big.idx").write_bytes(index)
    with (tmp_path / "big.bin").open("wb") as hole:  # a hole in a file takes no room
        hole.truncate(2 * sum(lengths))
    dataset = read_indexed(tmp_path / "big")
    assert dataset.bounds.tolist() == [0, 2_000_000_000, 4_000_000_000, 4_000_000_007, 6_147_483_654]
    assert len(dataset.document(2)) == 7


def test_megatron_core_reads_an_index_beyond_two_to_the_31(tmp_path: Path) -> None:
    library = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    with (tmp_path / "big.idx").open("wb") as file:
        write_index(file, np.dtype("<i4"), [np.array([1_500_000_000, 1_500_000_000, 3])])
    reader = library._IndexReader(str(tmp_path / "big.idx"), multimodal=False)
    assert reader.sequence_pointers.tolist() == [0, 6_000_000_000, 12_000_000_000]
    assert reader.sequence_lengths.tolist() == [1_500_000_000, 1_500_000_000, 3]


def test_what_megatrons_index_cannot_count_is_refused() -> None:
    with pytest.raises(ShardError, match="31 bits"):
        write_index(io.BytesIO(), np.dtype("<u2"), [np.array([1 << 31])])
    with pytest.raises(ShardError, match="int32"):
        stored_dtype((1 << 31) + 1)


def test_parquet_documents_say_where_they_came_from(shards: Path, tmp_path: Path) -> None:
    made = export_tokens(shards, tmp_path / "to", "parquet")
    assert [len(list(each.path.iterdir())) for each in made] == [2, 1, 1]  # a file a shard
    for each in made:
        table = pq.read_table(each.path)
        assert table["tokens"].to_pylist() == with_eos(DOCUMENTS[each.path.name])
        assert table["url"].to_pylist() == [
            f"https://{each.path.name}.example/{n}" for n in range(len(table))
        ]
        assert table["id"].to_pylist() == [n.to_bytes(16, "big").hex() for n in range(len(table))]
        assert table["length_tokens"].to_pylist() == [len(doc) for doc in table["tokens"].to_pylist()]


@pytest.mark.parametrize("form", ["parquet", "hf"])
def test_datasets_reads_rows_and_documents(shards: Path, tmp_path: Path, form: str) -> None:
    datasets = pytest.importorskip("datasets")

    def read(folder: Path) -> object:
        if form == "hf":
            return datasets.load_from_disk(str(folder))
        cache = str(tmp_path / "cache")
        return datasets.load_dataset("parquet", data_dir=str(folder), split="train", cache_dir=cache)

    made = export_tokens(shards, tmp_path / "documents", form)
    for each in made:
        found = read(each.path)
        assert found["tokens"][:] == with_eos(DOCUMENTS[each.path.name])  # type: ignore[index]
    (rows,) = export_tokens(shards, tmp_path / "rows", form, samples=(10, 74))
    found = read(rows.path)
    with stream(shards, 37, want=("loss_mask",)) as batches:
        taken = [next(batches) for _ in range(2)]
    for name in ("tokens", "loss_mask"):
        expected = np.concatenate([batch[name] for batch in taken])[10:]
        assert np.array_equal(found.with_format("numpy")[name][:], expected)  # type: ignore[attr-defined]
    assert found["sample"][:] == list(range(10, 74))  # type: ignore[index]


def test_what_is_in_quarantine_is_not_exported(tmp_path: Path) -> None:
    small_shards(tmp_path / "s")
    gone = 7  # of web
    hide_document(tmp_path / "s", Wanted(url=f"https://web.example/{gone}"), 5, "asked for")
    (web,) = export_tokens(tmp_path / "s", tmp_path / "documents", "megatron", components=["web"])
    left = [doc for number, doc in enumerate(with_eos(DOCUMENTS["web"])) if number != gone]
    assert megatron_documents(web.path) == left
    (rows,) = export_tokens(tmp_path / "s", tmp_path / "rows", "megatron", samples=(0, 200))
    expected = next(stream(tmp_path / "s", 200, want=("loss_mask",)))["tokens"]
    assert np.array_equal(np.array(megatron_documents(rows.path)), expected)


def test_a_large_shard_is_exported_in_pieces(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_sets, "TOKENS_A_TABLE", 100)
    for form in ("parquet", "megatron"):
        made = export_tokens(shards, tmp_path / form, form)
        assert made[0].items == 50 and made[0].tokens == sum(map(len, with_eos(DOCUMENTS["books"])))
    books = [pq.ParquetFile(path) for path in sorted((tmp_path / "parquet" / "books").iterdir())]
    assert all(file.num_row_groups > 1 for file in books)
    assert [doc for file in books for doc in file.read()["tokens"].to_pylist()] == with_eos(
        DOCUMENTS["books"]
    )
    assert megatron_documents(made[0].path) == with_eos(DOCUMENTS["books"])


def test_an_export_into_a_folder_that_holds_something_is_refused(shards: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ShardError, match="there already"):
        export_tokens(shards, tmp_path, "parquet")
    with pytest.raises(ShardError, match="no component novels; it holds books, code, web"):
        export_tokens(shards, tmp_path / "to", "parquet", components=["novels"])
    with pytest.raises(CursorError, match="no samples 9 to 8"):
        export_tokens(shards, tmp_path / "to", "parquet", samples=(9, 9))
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize(
    ("ending", "change", "error"),
    [
        (".bin", lambda data: data[:-2], "its index tells of"),
        (".idx", lambda data: data[:-9], "is cut"),
        (".idx", lambda data: b"X" + data[1:], "no index of token ids"),
        (".idx", lambda data: data[:50] + b"\x01" + data[51:], "do not lie end to end|tells of"),
        (".idx", lambda data: data[:10], "cannot be read"),
    ],
)
def test_a_damaged_megatron_dataset_is_named(
    shards: Path, tmp_path: Path, ending: str, change: object, error: str
) -> None:
    (made,) = export_tokens(shards, tmp_path / "to", "megatron", components=["code"])
    path = made.path.with_suffix(ending)
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(InputError, match=error):
        read_indexed(made.path)


def test_components_that_two_runs_call_alike_are_exported_apart(tmp_path: Path) -> None:
    """Both were written as `web`; the plan has the second one as later."""
    manifests = [
        write_component(tmp_path / run, Sample("web", [documents(i, 20)])) for i, run in enumerate("xy")
    ]
    found = [(f"{run}/{folder}", manifest) for run, (folder, manifest) in zip("xy", manifests, strict=True)]
    plan = compile_plan(found, [Phase(0, {"web": PPB})], seed=1, samples=9, names={found[1][0]: "later"})
    (tmp_path / PLAN_FILE).write_bytes(plan.encode())
    for format in ("megatron", "parquet", "hf"):
        made = export_tokens(tmp_path, tmp_path / format, format)
        assert len({each.path for each in made}) == 2
    assert {each.path.name: megatron_documents(tmp_path / "megatron" / each.path.name) for each in made} == {
        "web": with_eos(documents(0, 20)),
        "later": with_eos(documents(1, 20)),
    }


def test_choices_that_rows_of_the_plan_cannot_follow_are_refused(shards: Path, tmp_path: Path) -> None:
    for options in ({"components": ["web"]}, {"text": True}):
        with pytest.raises(ShardError, match="leave out components and text, or samples"):
            export_tokens(shards, tmp_path / "to", "hf", (0, 5), **options)  # type: ignore[arg-type]
    with pytest.raises(ShardError, match="megatron, parquet, hf can be written"):
        export_tokens(shards, tmp_path / "to", "csv")
    assert not (tmp_path / "to").exists()


def test_text_is_not_decoded_by_another_tokenizer(tmp_path: Path) -> None:
    small_shards(tmp_path)
    (tmp_path / "fp" / "tokenizer.json").write_bytes(b"{}")
    with pytest.raises(ShardError, match="is not the tokenizer that the shards were made with"):
        export_tokens(tmp_path, tmp_path / "to", "parquet", text=True)
