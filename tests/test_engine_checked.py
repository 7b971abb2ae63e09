"""Files whose bytes changed since they were written: whoever reads them notices, the same command makes them again."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import corpusmill, hashes, inputs
from s3_server import Bucket
from test_kills import start, wait_for

from corpusmill.pipeline.documents import DOCUMENTS, ROW_GROUP
from corpusmill.pipeline.engine.arrow_files import ArrowFile, write_arrow_file
from corpusmill.pipeline.engine.checked import check
from corpusmill.pipeline.engine.files import Files, Task, part_name
from corpusmill.pipeline.engine.place import place_of
from corpusmill.pipeline.engine.stage import Unit
from corpusmill.pipeline.engine.store import hash_file
from corpusmill.pipeline.errors import DamagedError
from corpusmill.pipeline.run import Run

BATCHES = [
    pa.record_batch(
        {
            "number": pa.array([3, None, 2**63], pa.uint64()),
            "text": pa.array(["a", "", None], pa.large_string()),
            "tokens": pa.array([[1, 2], [], [3]], pa.large_list(pa.uint16())),
        }
    ).slice(first)
    for first in (0, 1, 3)
]


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def read(path: Path) -> list[pa.RecordBatch]:
    file = ArrowFile(pa.memory_map(str(path)), lambda: DamagedError(str(path), "stage", path.name))
    return [file.get_batch(place) for place in range(len(BATCHES))]  # by their numbers, as a gather does


def test_an_arrow_file_gives_back_what_was_written(tmp_path: Path) -> None:
    write_arrow_file(tmp_path / "file", BATCHES, BATCHES[0].schema)
    assert read(tmp_path / "file") == BATCHES


@settings(max_examples=300)
@given(data=st.data())
def test_no_bit_of_an_arrow_file_can_change_what_is_read(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("arrow") / "file"
    write_arrow_file(path, BATCHES, BATCHES[0].schema)
    flip(path, data.draw(st.integers(0, 8 * path.stat().st_size - 1)))
    try:
        found = read(path)
    except DamagedError:
        return
    # A bit that no reader looks at: padding, the name of the format's version, the schema at the head (readers take the footer's).
    assert found == BATCHES


def test_no_bit_of_an_arrow_file_can_hide_a_batch(tmp_path: Path) -> None:
    """Every bit of a small file: whoever asks for all batches gets all of them, or an error."""
    batch = pa.record_batch({"number": pa.array([7], pa.uint8())})
    path, whole = tmp_path / "file", [batch, batch, batch]
    write_arrow_file(path, whole, batch.schema)
    data, damaged = path.read_bytes(), 0
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            found = ArrowFile(pa.BufferReader(bytes(changed)), lambda: DamagedError("", "", "")).batches()
        except DamagedError:
            damaged += 1
        else:
            assert found == whole
    assert damaged > len(data)


def test_a_file_of_fewer_batches_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    """A footer that tells of the first two of three: they are as they were written, and not all."""
    batch = pa.record_batch({"number": pa.array([7], pa.uint8())})
    path = tmp_path / "file"
    write_arrow_file(path, [batch] * 3, batch.schema)
    with (
        pa.ipc.open_file(str(path)) as reader,
        pa.ipc.new_file(str(tmp_path / "cut"), batch.schema) as writer,
    ):
        for place in range(2):
            found = reader.get_batch_with_custom_metadata(place)
            writer.write_batch(found.batch, custom_metadata=found.custom_metadata)
    file = ArrowFile(pa.memory_map(str(tmp_path / "cut")), lambda: DamagedError("cut", "stage", "cut"))
    assert [file.get_batch(place) for place in range(2)] == [batch] * 2
    with pytest.raises(DamagedError):
        file.batches()


def test_an_arrow_file_without_slices_has_one_that_is_empty(tmp_path: Path) -> None:
    schema = BATCHES[0].schema
    assert write_arrow_file(tmp_path / "file", [], schema) == 0
    file = ArrowFile(pa.memory_map(str(tmp_path / "file")), lambda: DamagedError("", "", ""))
    assert [batch.num_rows for batch in file.batches()] == [0]


def test_no_reader_of_ranges_of_a_large_object_takes_a_page_that_changed(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "corpusmill.pipeline.engine.bucket.WHOLE_BYTES", 1
    )  # so that every object is a large one
    texts = [hashlib.sha256(str(row).encode()).hexdigest() for row in range(2_000)]
    rows = [{"id": row.to_bytes(16), "text": text, "source": "web"} for row, text in enumerate(texts)]
    folders = {"documents": "documents", "redact": "redact"}

    def files() -> Files:
        task = Task(bucket.url("out"), "documents", "", {}, folders, 0, text=("redact",))
        return Files(task, Unit(0, 0))

    files().write_documents(0, pa.Table.from_pylist(rows, DOCUMENTS))
    edits = pa.table({"text": pa.array([text.upper() for text in texts], pa.large_string())})
    writer = Files(Task(bucket.url("out"), "redact", "", {}, folders, 0), Unit(0, 0))
    writer.write_parquet(part_name(0), edits, ROW_GROUP, with_text=True)
    read = [text for _, piece in files().rows(0, ["text"]) for text in piece["text"].to_pylist()]
    assert read == [text.upper() for text in texts]
    for stage in ("redact", "documents"):
        place = place_of(bucket.url(f"out/{stage}/{part_name(0)}"))
        data = bytearray(place.read_bytes())
        data[len(data) // 3] ^= 4
        place.put(data)
        for read_all in (
            lambda: list(files().rows(0, ["text"])),
            lambda stage=stage: files().layer(stage, 0, ["text"]),
        ):
            with pytest.raises(DamagedError) as error:
                read_all()
            assert (error.value.stage, error.value.name) == (stage, part_name(0))
        data[len(data) // 3] ^= 4
        place.put(data)


def test_a_file_is_hashed_again_when_it_has_changed_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "part-00000.parquet"
    path.write_bytes(b"as it was written")
    known = hash_file(path)
    assert check(path, "documents", path.name, known) == path
    flip(path, 11)
    with pytest.raises(DamagedError, match="not those that were written") as error:
        check(path, "documents", path.name, known)
    assert (error.value.stage, error.value.name) == ("documents", path.name)


def test_files_that_stages_read_again_are_mended_by_the_same_command(
    undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(undisturbed, out)
    damaged = [
        next((out / place).glob(f"*/{name}"))
        for place, name in [
            ("text/documents", "part-00001.parquet"),
            ("text/redact", "part-00000.parquet"),
            ("layers/filter.measures", "part-00002.parquet"),
            ("layers/dedup.signatures", "part-00000.parquet"),
            ("layers/dedup.verdict", "part-00001.parquet"),
            ("layers/shard.tokenizer", "tokenizer.json"),
        ]
    ]
    for path in damaged:
        flip(path, 8 * (path.stat().st_size // 3))
    # Without their manifests and commits these stages run again, and read all of the above.
    for stage in (
        "layers/filter.verdict",
        "layers/dedup.bands",
        "layers/ledger.dedup",
        "text/shard.scatter",
        "shards",
    ):
        for head in (out / stage).glob("*/_manifest.*"):
            head.unlink()
    done = corpusmill("run", recipe, "--out", out, *inputs(crawl))
    assert [path.name for path in damaged if f"{path}: its bytes were not" not in done.stderr] == []
    assert hashes(out) == hashes(undisturbed)


def test_a_slice_of_a_shuffle_that_changed_is_scattered_again(
    undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    driver = start(recipe, crawl, out)
    wait_for(driver, "stage_ended", "dedup.bands")
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    path = min(out.glob("layers/dedup.bands/*/*.arrow"), key=lambda path: -path.stat().st_size)
    flip(path, 8 * (path.stat().st_size // 2))
    done = corpusmill("run", recipe, "--out", out, *inputs(crawl))
    assert f"{path}: its bytes were not" in done.stderr
    assert hashes(out) == hashes(undisturbed)


def test_a_run_with_a_damaged_file_is_neither_read_nor_exported(undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(undisturbed, out)
    path = next(out.glob("text/redact/*/part-00000.parquet"))
    flip(path, 8 * (path.stat().st_size // 3))
    with pytest.raises(DamagedError, match=path.name):
        Run(out).table(["text"])
    done = corpusmill("export", out, "--to", tmp_path / "to", "--workers", "1", expect=1)
    assert f"{path}: its bytes are not those that were written" in done.stderr
