from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from extract_runs import extract

from corpusmill.pipeline.errors import InputError
from corpusmill.pipeline.extract.parquet import Groups, spans

TEXTS = ["one", None, "", "four", "fünf"]


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_any_column_of_strings_is_text(tmp_path: Path, kind: pa.DataType) -> None:
    path = tmp_path / "a.parquet"
    encoded = [None if text is None else text.encode() for text in TEXTS] if kind == pa.binary() else TEXTS
    values = (
        pa.array(encoded, pa.string()).dictionary_encode()
        if pa.types.is_dictionary(kind)
        else pa.array(encoded, kind)
    )
    pq.write_table(pa.table({"text": values, "n": range(5)}), path)
    found = extract([path])
    assert found.column("text") == ["one", None, None, "four", "fünf"]
    assert found.column("reason") == [None, "no_text", "no_text", None, None]
    assert found.column("origin") == [{"file": "a.parquet", "offset": row, "length": 1} for row in range(5)]
    assert found.column("meta") == [f'{{"n": {row}}}' for row in range(5)]


def test_dates_urls_and_ids_are_taken_and_odd_types_become_meta(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    day = datetime(2026, 3, 1, 12, tzinfo=UTC)
    table = pa.table(
        {
            "text": ["a"],
            "url": ["u"],
            "id": [9],
            "date": [day],
            "blob": [b"\xff\x00"],
            "when": [day],
            "list": [[{"k": 1.5}]],
        }
    )
    pq.write_table(table, path)
    (row,) = extract([path]).table.to_pylist()
    assert (row["url"], row["record_id"], row["date"]) == ("u", "9", day)
    assert (
        row["meta"]
        == '{"blob": "\ufffd\\u0000", "list": [{"k": 1.5}], "when": "2026-03-01 12:00:00.000000Z"}'
    )


def test_values_that_python_cannot_hold_cost_no_row(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table(
        {
            "text": ["a", "b"],
            "date": pa.array([1_000_000_001, None], pa.timestamp("ns")),
            "far": pa.array([6_585_322 * 86_400_000, 0], pa.timestamp("ms", "UTC")),
            "days": pa.array([2**30, 0], pa.date32()),
            "zone": pa.array([0, None], pa.timestamp("s", "Mars/Base")),
            "inner": pa.array([{"t": [1]}, None], pa.struct([("t", pa.list_(pa.timestamp("ns")))])),
            "pairs": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.time64("ns"))),
        }
    )
    pq.write_table(table, path)
    first, second = extract([path]).table.to_pylist()
    assert first["date"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert (first["text"], second["text"]) == ("a", "b")
    meta = json.loads(first["meta"])
    assert meta.pop("days").endswith(f"{2**30}>")
    assert meta == {
        "far": "20000-01-01 00:00:00.000Z",
        "zone": "1970-01-01 00:00:00.000Z",
        "inner": {"t": ["1970-01-01 00:00:00.000000001"]},
        "pairs": [["k", "00:00:00.000000001"]],
    }


def test_a_column_of_days_dates_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a"], "date": pa.array([1], pa.date32())}), path)
    assert extract([path]).column("date") == [datetime(1970, 1, 2, tzinfo=UTC)]


def test_text_that_is_no_utf_8_is_mended_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    text = pa.array([b"caf\xe9 au lait", b"whole"]).view(pa.string())
    pq.write_table(pa.table({"text": text, "who": pa.StructArray.from_arrays([text], ["name"])}), path)
    found = extract([path])
    assert found.column("text") == ["caf\ufffd au lait", "whole"]
    assert json.loads(found.column("meta")[0]) == {"replaced": 1, "who": {"name": "caf\ufffd au lait"}}
    assert found.counts["invalid_utf8"] == 1


def test_row_groups_are_the_borders_of_partitions(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"text {row}" for row in range(1000)]}), path, row_group_size=100)
    whole = extract([path])
    cut = extract([path], partition_bytes=1)
    assert (whole.partitions, cut.partitions) == (1, 10)
    assert cut.table.equals(whole.table)


def test_small_row_groups_share_a_partition_and_a_large_one_stands_alone() -> None:
    found = Groups((0, 10, 20, 30, 40), (50, 50, 500, 10))
    assert spans(found, 100) == [(0, 20, 100), (20, 30, 500), (30, 40, 10)]


def test_a_file_without_rows_is_an_empty_partition(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    assert extract([path]).table.num_rows == 0


def test_a_file_without_the_text_column_says_which_it_has(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"content": ["a"], "n": [1]}), path)
    with pytest.raises(InputError, match=r"text_key \(columns: content, n\)"):
        extract([path])
    assert extract([path], text_key="content").column("text") == ["a"]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a"] * 100}), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"a\.parquet is a damaged Parquet file"):
        extract([path])
