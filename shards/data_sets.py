"""What is exported: whole documents component by component, or samples of the plan, as tables with a column `tokens`.

`documents` gives each component's documents whole, in the order of its shards, which is a full shuffle; `rows` gives samples of the
plan, mixed as the stream mixes them, T + 1 tokens each. What is in quarantine is left out of the first and stands as end-of-text
in the second. Memory: one shard's tokens (`documents`) or a few blocks (`rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.pipeline.errors import ShardError
from corpusmill.shards.components import slugs
from corpusmill.shards.cursor import need_samples
from corpusmill.shards.pack import doc_starts
from corpusmill.shards.quarantine import Entry
from corpusmill.shards.reader import ComponentReader, Shards
from corpusmill.shards.sidecar import Sidecar
from corpusmill.shards.stream import slicing

if TYPE_CHECKING:
    from corpusmill.pipeline.text.engines import HuggingFace

ROWS_A_FILE = 1 << 16
TOKENS_A_TABLE = 1 << 22  # 8 or 16 MB of ids: a row group of Parquet, a batch of the others

Tables = Iterator[pa.Table]


@dataclass(frozen=True)
class DataSet:
    """What becomes one data set: `files` make the tables of one file each, at least one, with `tokens` among their columns."""

    name: str
    vocab_size: int
    files: tuple[Callable[[], Tables], ...]


def data_set_names(folders: Mapping[str, str]) -> dict[str, str]:
    """Component -> the name of its data set: that of its folder, unless several runs each have such a one."""
    return dict(folders) if len(set(folders.values())) == len(folders) else slugs(folders)


def documents(shards: Shards, components: Sequence[str] = (), text: bool = False) -> list[DataSet]:
    """A data set a component, a file a shard: where each document came from, its scores, and its `tokens` with the boundary.

    `text` is decoded from the tokens, without the boundary.
    """
    known = {reader.component.name: reader for reader in shards.components}
    if unknown := sorted(set(components) - set(known)):
        raise ShardError(f"the plan holds no component {', '.join(unknown)}; it holds {', '.join(known)}")
    folders = data_set_names({name: reader.manifest.slug for name, reader in known.items()})
    return [
        DataSet(
            folders[name],
            reader.manifest.vocab_size,
            tuple(_Documents(shards, reader, number, text) for number in range(len(reader.manifest.shards))),
        )
        for name, reader in known.items()
        if not components or name in components
    ]


@dataclass(frozen=True)
class _Documents:
    """The documents of one shard, in its order."""

    shards: Shards
    reader: ComponentReader
    shard: int
    text: bool

    def __call__(self) -> Tables:
        decode = decoder_of(self.reader) if self.text else None
        sidecar = Sidecar(self.reader, self.shard)
        known = sidecar.file.read()
        starts = doc_starts(known["tokens"].to_numpy().astype(np.int64))
        stream, hidden = self._stream(starts, sidecar.first)
        kept = np.flatnonzero(~hidden)
        table = _described(known, self.reader.component.name)
        for part in _slices(starts[kept + 1] - starts[kept]):
            chosen = kept[part]
            lengths = starts[chosen + 1] - starts[chosen]
            ids = [stream[starts[one] : starts[one + 1]] for one in chosen.tolist()] or [stream[:0]]
            ends = pa.array(doc_starts(lengths), pa.int32())
            tokens = pa.ListArray.from_arrays(ends, pa.array(np.concatenate(ids)))
            made = table.take(chosen).append_column("tokens", tokens)
            if decode is not None:
                made = made.append_column(
                    "text", pa.array(map(decode, ids[: len(chosen)]), pa.large_string())
                )
            yield made

    def _stream(
        self, starts: npt.NDArray[np.int64], first: int
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """All documents end to end, whatever rows their pieces lie in; and those of which a quarantine hides anything for good."""
        stream = np.empty(int(starts[-1]), self.reader.manifest.dtype)
        hidden = np.zeros(len(starts) - 1, np.bool_)
        spans = _hidden(self.shards, self.reader)
        for block in np.flatnonzero(self.reader.blocks["shard"] == self.shard).tolist():
            view = self.reader.view(block)
            bounds, ends = view.lists("doc_ends")
            owners, offsets = view.lists("doc_ids")[1], view.lists("doc_offsets")[1]
            row = np.repeat(np.arange(len(view.tokens)), np.diff(bounds))
            begins = np.append(0, ends[:-1]).astype(np.int64)
            begins[bounds[:-1]] = 0
            owner = owners.astype(np.int64) - first
            places = (row, begins, ends, owner, starts[owner] + offsets.astype(np.int64))
            # A loop over pieces, as in packing: each is one slice.
            for at, begin, end, document, target in zip(*(each.tolist() for each in places), strict=True):
                stream[target : target + end - begin] = view.tokens[at, begin:end]
                for start, stop in spans.get(view.first_row + at, ()):
                    hidden[document] |= start < end and begin < stop
        return stream, hidden


def decoder_of(reader: ComponentReader) -> Callable[[npt.NDArray[Any]], str]:
    """Text of a document's tokens, its boundary left out."""
    manifest = reader.manifest
    engine = engine_of(reader)
    first = manifest.boundary in ("bos", "both")
    last = -1 if manifest.boundary in ("eos", "both") else None
    return lambda ids: engine.decode(ids[first:last].tolist())


def engine_of(reader: ComponentReader) -> HuggingFace:
    """The tokenizer of a component's shards, compared with the hash that they carry."""
    from corpusmill.pipeline.text.engines import HuggingFace

    path = reader.tokenizer
    try:
        return HuggingFace(reader.read_tokenizer(), str(path))
    except OSError as error:
        raise ShardError(f"{path} cannot be read ({error}); restore it, or leave out the text") from error


def _hidden(shards: Shards, reader: ComponentReader) -> dict[int, list[tuple[int, int]]]:
    """By row of the component: the tokens that a quarantine hides and never gives back."""
    found: dict[int, list[tuple[int, int]]] = {}
    for _, entry, end in shards.quarantine.in_force():
        assert isinstance(entry, Entry)
        if end is None and entry.component == reader.component.name:
            for row, start, stop in entry.spans:
                found.setdefault(row, []).append((start, stop))
    return found


def _described(known: pa.Table, component: str) -> pa.Table:
    """The sidecar's columns for people: ids in hex, no rows of shards, the number of tokens as `length_tokens`."""
    digits = pa.py_buffer(b"".join(known["id"].to_pylist()).hex().encode())
    ends = pa.py_buffer((32 * np.arange(known.num_rows + 1, dtype=np.int32)).tobytes())
    ids = pa.StringArray.from_buffers(known.num_rows, ends, digits)
    names = {"tokens": "length_tokens"}
    columns: dict[str, Any] = {"component": pa.array([component] * known.num_rows, pa.string()), "id": ids}
    for name in known.column_names:
        if name not in ("id", "doc", "digest", "first_row"):
            column = known[name]
            plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
            columns[names.get(name, name)] = plain
    return pa.table(columns)


def _slices(lengths: npt.NDArray[np.int64]) -> Iterator[slice]:
    """Consecutive documents of about TOKENS_A_TABLE tokens together; one slice of nothing where there are none."""
    group = np.cumsum(lengths) // TOKENS_A_TABLE
    bounds = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(lengths)]
    return (slice(a, b) for a, b in pairwise(bounds))


def rows(shards: Shards, first: int, stop: int) -> DataSet:
    """Samples `first` .. `stop` - 1 of the plan, `ROWS_A_FILE` a file: where each comes from, its `tokens` and `loss_mask`."""
    need_samples(shards.plan, first, stop)
    files = [_Rows(shards, at, min(at + ROWS_A_FILE, stop)) for at in range(first, stop, ROWS_A_FILE)]
    return DataSet("rows", shards.components[0].manifest.vocab_size, tuple(files))


@dataclass(frozen=True)
class _Rows:
    shards: Shards
    first: int
    stop: int

    def __call__(self) -> Tables:
        names = pa.array([component.name for component in self.shards.plan.components])
        step = max(1, TOKENS_A_TABLE // (self.shards.plan.sequence_length + 1))
        for at in range(self.first, self.stop, step):
            count = min(step, self.stop - at)
            batch = slicing(self.shards.plan, count, 0, 1, ("loss_mask",)).batch(self.shards, at)
            samples = self.shards.order.samples(at, at + count)
            yield pa.table(
                {
                    "sample": pa.array(np.arange(at, at + count)),
                    "component": names.take(pa.array(samples.component)),
                    "epoch": pa.array(samples.epoch),
                    "tokens": _lists(batch["tokens"]),
                    "loss_mask": _lists(batch["loss_mask"]),
                }
            )


def _lists(values: npt.NDArray[Any]) -> pa.Array:
    count, length = values.shape
    ends = pa.array(np.arange(count + 1) * length, pa.int32())
    return pa.ListArray.from_arrays(ends, pa.array(values.reshape(-1)))
