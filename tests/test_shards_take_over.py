"""A Megatron dataset taken over: streamed as shards, every document once, found again in its .bin, the same bytes each time."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

pytest.importorskip("tokenizers")

from corpusmill.jobs.cli import main
from corpusmill.pipeline.errors import InputError, ShardError
from corpusmill.pipeline.text.tokenizer import Tokenizer, train_bpe
from corpusmill.shards import locate, stream, verify
from corpusmill.shards.export import export_tokens
from corpusmill.shards.megatron import read_indexed, write_index
from corpusmill.shards.take_over import Sizes, import_megatron

EOS = 0
SMALL = Sizes(sequence_length=16, block_bytes=500, shard_bytes=2000)


def dataset(prefix: Path, docs: list[list[int]], dtype: str = "<u2") -> None:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with prefix.with_suffix(".idx").open("wb") as index:
        write_index(index, np.dtype(dtype), [np.array([len(doc) for doc in docs], np.int32)])
    prefix.with_suffix(".bin").write_bytes(
        np.array([token for doc in docs for token in doc], dtype).tobytes()
    )


def some(count: int = 120) -> list[list[int]]:
    """Documents of 0 to 40 ids, every third with the end of text."""
    random_ = random.Random(1)
    docs = [[random_.randint(1, 255) for _ in range(random_.randint(0, 40))] for _ in range(count)]
    return [[*doc, EOS] if number % 3 == 0 else doc for number, doc in enumerate(docs)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_bytes(train_bpe(["some words, and some more words"], 257))
    return path


@pytest.mark.parametrize("packing", ["concat", "best_fit", "pad"])
def test_every_document_comes_back_once_with_its_end_of_text(
    tmp_path: Path, tokenizer: Path, packing: str
) -> None:
    docs = some()
    dataset(tmp_path / "old", docs)
    sizes = Sizes(sequence_length=16, packing=packing, block_bytes=500, shard_bytes=2000)  # type: ignore[arg-type]
    import_megatron(tmp_path / "old", tmp_path / "new", tokenizer, "old", sizes)
    assert list(verify(tmp_path / "new")) == []
    (made,) = export_tokens(tmp_path / "new", tmp_path / "again", "megatron")
    again = read_indexed(made.path)
    found = [again.document(number).tolist() for number in range(len(again))]
    expected = [doc if doc[-1] == EOS else [*doc, EOS] for doc in docs if doc]
    assert sorted(found) == sorted(expected) and found != expected  # all of them, shuffled
    assert len(list((tmp_path / "new").glob("*/*/part-*.arrow"))) > 1
    with stream(tmp_path / "new", 4) as batches:
        assert next(batches)["tokens"].shape == (4, 17)


def test_a_sample_leads_back_to_its_bytes_in_the_bin(tmp_path: Path, tokenizer: Path) -> None:
    dataset(tmp_path / "old", some(), "<i4")
    import_megatron(tmp_path / "old", tmp_path / "new", tokenizer, "old", SMALL)
    data = (tmp_path / "old.bin").read_bytes()
    tokens = next(stream(tmp_path / "new", 20))["tokens"]
    seen = 0
    for sample in locate(tmp_path / "new", 0, 20):
        for piece in sample.pieces:
            assert piece.file == "old.bin" and piece.offset is not None and piece.length is not None
            whole = np.frombuffer(data[piece.offset : piece.offset + piece.length], "<i4").tolist()
            whole += [EOS] if whole[-1] != EOS else []
            part = tokens[sample.sample, piece.start : piece.end].tolist()
            assert part == whole[piece.token : piece.token + len(part)]
            seen += len(part)
    assert seen > 200


def test_the_same_dataset_gives_the_same_bytes_in_another_process(tmp_path: Path, tokenizer: Path) -> None:
    dataset(tmp_path / "old", some())
    import_megatron(tmp_path / "old", tmp_path / "one", tokenizer, "old", SMALL)
    code = (
        "import sys; from pathlib import Path; from corpusmill.shards.take_over import Sizes, import_megatron;"
        "import_megatron(*map(Path, sys.argv[1:4]), 'old', Sizes(sequence_length=16, block_bytes=500, shard_bytes=2000))"
    )
    call = [sys.executable, "-c", code, str(tmp_path / "old"), str(tmp_path / "two"), str(tokenizer)]
    subprocess.run(call, check=True, env={**os.environ, "PYTHONHASHSEED": "5"})
    files = sorted(
        path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()
    )
    assert len(files) > 6
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


def test_what_cannot_be_taken_over_is_said(tmp_path: Path, tokenizer: Path) -> None:
    dataset(tmp_path / "old", [[1, 2], [9, 300]])
    with pytest.raises(InputError, match="document 1 holds id 300, the tokenizer's go from 0 to 256"):
        import_megatron(tmp_path / "old", tmp_path / "new", tokenizer, "old", SMALL)
    dataset(tmp_path / "empty", [[], []])
    with pytest.raises(InputError, match="no document with a token"):
        import_megatron(tmp_path / "empty", tmp_path / "none", tokenizer, "old", SMALL)
    with pytest.raises(InputError, match="name the tokenizer"):
        import_megatron(tmp_path / "old", tmp_path / "none", tmp_path / "no.json", "old", SMALL)
    with pytest.raises(ShardError, match="there already"):
        import_megatron(tmp_path / "old", tmp_path, tokenizer, "old", SMALL)
    dataset(tmp_path / "below", [[1, 2], [9, -7]], "<i4")
    with pytest.raises(InputError, match="document 1 holds id -7"):
        import_megatron(tmp_path / "below", tmp_path / "minus", tokenizer, "old", SMALL)
    for length in (0, 1 << 40):
        with pytest.raises(ShardError, match=f"sequence_length is {length}"):
            import_megatron(tmp_path / "old", tmp_path / "none", tokenizer, "old", Sizes(length))
    with pytest.raises(ShardError, match="no text in UTF-8"):
        import_megatron(tmp_path / "old", tmp_path / "none", tokenizer, "\udcff", SMALL)
    with pytest.raises(InputError, match=r"PREFIX\.idx"):
        import_megatron("", tmp_path / "none", tokenizer, "old", SMALL)


def test_documents_are_exported_with_their_text(tmp_path: Path, tokenizer: Path) -> None:
    engine = Tokenizer(tokenizer.read_bytes())
    texts = ["plain", "zwölf Boxkämpfer\n", "<|endoftext|> as text", "a" * 100]
    ids, lengths = engine.encode(texts)
    ends = np.append(0, np.cumsum(lengths)).tolist()
    dataset(tmp_path / "old", [ids[a:b].tolist() for a, b in pairwise(ends)])
    import_megatron(tmp_path / "old", tmp_path / "new", tokenizer, "old", SMALL)
    (made,) = export_tokens(tmp_path / "new", tmp_path / "to", "parquet", text=True)
    table = pq.read_table(made.path)
    assert sorted(table["text"].to_pylist()) == sorted(texts)
    assert [row[-1] for row in table["tokens"].to_pylist()] == [EOS] * 4


def test_the_command_line_carries_tokens_there_and_back(
    tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    docs = some(20)
    dataset(tmp_path / "old", docs)
    take = [
        "import-tokens",
        str(tmp_path / "old"),
        "--to",
        str(tmp_path / "new"),
        "--tokenizer",
        str(tokenizer),
    ]
    assert main([*take, "--sequence-length", "16", "--name", "books"]) == 0
    give = ["export-tokens", str(tmp_path / "new"), "--to", str(tmp_path / "again"), "--format", "megatron"]
    assert main(give) == 0
    count = sum(1 for doc in docs if doc)
    assert f"{tmp_path / 'again' / 'books'}: {count} documents" in capsys.readouterr().out
    assert main(give) == 2
    assert "is there already" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main([*give[:-1], "hf", "--samples", "5:"])
    assert "argument --samples: '' is no whole number" in capsys.readouterr().err
