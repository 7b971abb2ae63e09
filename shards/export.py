"""Shards for trainers that read other formats: Megatron's .bin and .idx, Parquet, and folders of Hugging Face `datasets`.

What is written comes as data sets (data_sets.py). Every file gets its name when it is whole, on a disk or a store. Memory: what a data
set's tables take, and 4 bytes a document for Megatron's index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.pipeline.engine.disk import Disk
from corpusmill.pipeline.engine.place import Place, place_of
from corpusmill.pipeline.errors import ShardError
from corpusmill.shards import hf
from corpusmill.shards.data_sets import DataSet, documents, rows
from corpusmill.shards.megatron import stored_dtype, write_index
from corpusmill.shards.reader import Shards

FORMATS = ("megatron", "parquet", "hf")


@dataclass(frozen=True)
class Exported:
    """`items` documents or rows with `tokens` tokens under `path`: a folder, or the prefix that Megatron takes."""

    path: Path | Place
    items: int
    tokens: int


def export_tokens(
    path: str | Path | Place,
    to: str | Path | Place,
    format: str,
    samples: tuple[int, int] | None = None,
    components: Sequence[str] = (),
    text: bool = False,
) -> list[Exported]:
    """Documents of all components, or of those named, into `to`, one data set each; with `samples` (first, behind the last) rows of the plan.

    `to` is a new folder. Raises ShardError for one that holds something, and for what the plan does not hold.
    """
    shards, target = Shards(path), place_of(to)
    if target.is_file() or target.sizes():
        raise ShardError(
            f"{to} is there already: choose a new folder, or delete what an interrupted export left"
        )
    if format not in FORMATS:
        raise ShardError(f"format is {format!r}; {', '.join(FORMATS)} can be written")
    if samples is not None and (components or text):
        raise ShardError(
            "samples are rows of the plan, mixed and without their text: leave out components and text, or samples"
        )
    data_sets = [rows(shards, *samples)] if samples is not None else documents(shards, components, text)
    target.check(write=True)
    write = {"megatron": _megatron, "parquet": _parquet, "hf": _hf}[format]
    found = [write(each, target) for each in data_sets]
    return [replace(each, path=each.path.path) if isinstance(each.path, Disk) else each for each in found]


def _megatron(data_set: DataSet, to: Place) -> Exported:
    dtype = stored_dtype(data_set.vocab_size)
    lengths: list[npt.NDArray[np.int32]] = []
    with whole(to / f"{data_set.name}.bin") as data:
        for file in data_set.files:
            for table in file():
                for tokens in table["tokens"].chunks:
                    data.write(tokens.flatten().to_numpy().astype(dtype).tobytes())
                    lengths.append(np.diff(tokens.offsets.to_numpy()).astype(np.int32))
    with whole(to / f"{data_set.name}.idx") as index:
        write_index(index, dtype, lengths)
    return Exported(
        to / data_set.name, sum(map(len, lengths)), sum(int(part.sum(dtype=np.int64)) for part in lengths)
    )


def _parquet(data_set: DataSet, to: Place) -> Exported:
    folder, items, tokens = to / data_set.name, 0, 0
    for number, file in enumerate(data_set.files):
        tables = file()
        table = next(tables)  # there is one, if only with no rows
        with (
            whole(folder / f"part-{number:05d}.parquet") as out,
            pq.ParquetWriter(out, table.schema, compression="zstd", use_dictionary=["component"]) as writer,
        ):
            for each in chain([table], tables):
                writer.write_table(each)
                items, tokens = items + each.num_rows, tokens + _count(each)
    return Exported(folder, items, tokens)


def _hf(data_set: DataSet, to: Place) -> Exported:
    folder, items, tokens = to / data_set.name, 0, 0
    names = [f"data-{number:05d}-of-{len(data_set.files):05d}.arrow" for number in range(len(data_set.files))]
    schema = None
    for name, file in zip(names, data_set.files, strict=True):
        tables = file()
        table = next(tables)
        schema = table.schema
        with whole(folder / name) as out, pa.ipc.new_stream(out, schema) as writer:
            for each in chain([table], tables):
                writer.write_table(each)
                items, tokens = items + each.num_rows, tokens + _count(each)
    for name, content in hf.description(schema, names).items():
        (folder / name).put(content)
    return Exported(folder, items, tokens)


def _count(table: pa.Table) -> int:
    return sum(len(chunk.flatten()) for chunk in table["tokens"].chunks)


@contextmanager
def whole(path: Place) -> Iterator[BinaryIO]:
    """A file that gets its name when it is written to the end."""
    temporary = path.temporary()
    try:
        with temporary.open("wb") as file:
            yield file
        path.put_file(temporary)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
