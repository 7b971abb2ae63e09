"""Runs that another trainer made, from CSV: whoever has losses enters here and goes on with fitting.

Long, one file: a row a run and target.

    run,target,bits_per_byte,weight:web,weight:books        seed, proxy, loss, eval_tokens and eval_bytes may stand there too

Wide, two files joined by `run`, `run_id`, `index` or `name`: weights (a column a component) and losses (a column a target). olmix's
ratios.csv and metrics.csv are of this form, and RegMix's pair, whose `train_` and `metric/..._val_loss` are taken off the names.

Lower has to be better. An empty loss was not measured; everything else that is not a number is an error with file, line and column.
Weights may be rounded: a row within 0.01 of 1 is scaled to add up to 1 (RegMix's are off by up to 0.004).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from corpusmill.mixing.records import Record
from corpusmill.mixing.weights import in_ppb
from corpusmill.pipeline.errors import InputError
from corpusmill.pipeline.registry import suggestion

KEYS = ("run", "run_id", "index", "name")
"""Columns that can name a run in the wide form, the first that both files have. None of them is a weight or a loss."""

WEIGHT = "weight:"
LOSSES = ("bits_per_byte", "loss")
LONG = ("run", "target", *LOSSES, "seed", "proxy", "eval_tokens", "eval_bytes")
SUM_TOLERANCE = 0.01
MOST_WHOLE = 1 << 53  # from there on floats skip whole numbers: two seeds would be one
IMPORTED = "imported"  # the proxy of runs that name none


@dataclass(frozen=True)
class _Row:
    path: Path
    line: int
    cells: Mapping[str, str]

    def error(self, column: str, message: str) -> InputError:
        return InputError(f"{self.path}, line {self.line}, column {column!r}: {message}")

    def number(self, column: str, what: str) -> float:
        text = self.cells[column]
        try:
            value = float(text)
        except ValueError:
            raise self.error(column, f"{what} is {text!r}; a number is needed") from None
        if not math.isfinite(value):
            raise self.error(column, f"{what} is {text}; leave out a run that diverged")
        return value

    def measured(self, column: str) -> float | None:
        """A loss; None in an empty cell."""
        if not self.cells[column].strip():
            return None
        value = self.number(column, "a loss")
        if column == "bits_per_byte" and value < 0:
            raise self.error(column, f"a loss is {self.cells[column]}; bits per byte cannot be below 0")
        return value

    def named(self, column: str) -> str:
        """A run or target: an empty one is a cell that was lost."""
        if not self.cells[column].strip():
            raise self.error(column, f"the {column} has no name")
        return self.cells[column]

    def whole(self, column: str) -> int | None:
        if not self.cells.get(column, "").strip():
            return None
        value = self.number(column, column)
        if value != int(value) or not 0 <= value < MOST_WHOLE:
            raise self.error(
                column, f"{column} is {self.cells[column]}; a whole number from 0, below 2^53, is needed"
            )
        return int(value)


def import_runs(
    path: Path, losses: Path | None = None, components: Iterable[str] | None = None, unit: str = "loss"
) -> list[Record]:
    """Records of one long file, or of a file of weights and one of losses; `components` names those that are allowed.

    `unit` says what the losses of the wide form are: "loss" (nats a token, or whatever) or "bits_per_byte".
    """
    known = None if components is None else tuple(components)
    return _long(path, known) if losses is None else _wide(path, losses, known, unit)


def _long(path: Path, known: tuple[str, ...] | None) -> list[Record]:
    header, rows = _table(path)
    columns = {name: name.removeprefix(WEIGHT).strip() for name in header if name.startswith(WEIGHT)}
    for name in header:
        if name not in columns and name not in LONG:
            raise InputError(
                f"{path}: column {name!r} is not known; {suggestion(name, (*LONG, WEIGHT + 'COMPONENT'))}"
            )
    for name in ("run", "target"):
        if name not in header:
            raise InputError(
                f"{path}: there is no column {name!r}; a wide file needs one of losses beside it"
            )
    if not columns or not any(name in header for name in LOSSES):
        raise InputError(f"{path}: needs bits_per_byte or loss, and a column weight:NAME for each component")
    names = _components(path, columns.values(), known)
    weights: dict[str, tuple[int, ...]] = {}
    seen: set[tuple[str, str]] = set()
    records = []
    for row in rows:
        run, target = row.named("run"), row.named("target")
        if (run, target) in seen:
            raise row.error(
                "target", f"run {run} has a second row for {target}; give repeats names of their own"
            )
        seen.add((run, target))
        parts = _weights(row, columns)
        if weights.setdefault(run, parts) != parts:
            raise row.error("run", f"the weights of run {run} differ from those in an earlier row")
        loss, per_byte = (
            row.measured(name) if name in header else None for name in ("loss", "bits_per_byte")
        )
        if loss is None and per_byte is None:
            continue
        records.append(
            Record(
                run=run,
                target=target,
                components=names,
                requested_ppb=parts,
                seed=row.whole("seed") or 0,
                proxy=row.cells.get("proxy", "") or IMPORTED,
                eval_tokens=row.whole("eval_tokens"),
                eval_bytes=row.whole("eval_bytes"),
                loss=loss,
                bits_per_byte=per_byte,
            )
        )
    return _some(records, path)


def _wide(path: Path, losses: Path, known: tuple[str, ...] | None, unit: str) -> list[Record]:
    if unit not in LOSSES:
        raise InputError(f"{losses}: losses can be {' or '.join(LOSSES)}, not {unit!r}")
    header, rows = _table(path)
    loss_header, loss_rows = _table(losses)
    key = next((name for name in KEYS if name in header and name in loss_header), None)
    if key is None:
        raise InputError(f"{path} and {losses} share no column that names a run ({', '.join(KEYS)})")
    columns = _stripped([name for name in header if name and name not in KEYS], "train_", "")
    targets = _stripped([name for name in loss_header if name and name not in KEYS], "metric/", "_val_loss")
    if not columns or not targets:
        raise InputError(f"{path if not columns else losses} has no column beside those that name a run")
    names = _components(path, columns.values(), known)
    mixtures = _by_key(rows, key)
    results = _by_key(loss_rows, key)
    for one, other, there in ((mixtures, results, losses), (results, mixtures, path)):
        if lost := next((run for run in one if run not in other), None):
            raise one[lost].error(key, f"run {lost} is not in {there}; both files need every run")
    records = []
    for run, row in mixtures.items():
        parts = _weights(row, columns)
        for column, target in targets.items():
            value = results[run].measured(column)
            loss, per_byte = (value, None) if unit == "loss" else (None, value)
            if value is not None:
                records.append(
                    Record(run, target, names, parts, proxy=IMPORTED, loss=loss, bits_per_byte=per_byte)
                )
    return _some(records, losses)


def _table(path: Path) -> tuple[list[str], Iterator[_Row]]:
    """Header and rows; every row has a cell for each column."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error})") from error
    # Not by splitlines: it cuts at marks that may stand inside of names, and takes the line ends out of quoted cells.
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    cells_of = _read(reader, path)
    header = [name.strip() for name in next(cells_of, [])]
    if len(header) < 2:
        raise InputError(f"{path}: no table with commas and a line of column names on top")
    if twice := next((name for name in header if header.count(name) > 1), None):
        raise InputError(f"{path}: there are two columns {twice!r}")

    def rows() -> Iterator[_Row]:
        for cells in cells_of:
            if not any(cells):
                continue
            if len(cells) != len(header):
                raise InputError(
                    f"{path}, line {reader.line_num}: {len(cells)} cells where the header has {len(header)}"
                )
            yield _Row(path, reader.line_num, dict(zip(header, cells, strict=True)))

    return header, rows()


def _read(reader: Any, path: Path) -> Iterator[list[str]]:
    """Rows; what is no CSV is an error with its line."""
    try:
        yield from reader
    except csv.Error as error:
        raise InputError(
            f"{path}, line {reader.line_num}: {error}; is a quotation mark open, or is this no CSV?"
        ) from None


def _by_key(rows: Iterator[_Row], key: str) -> dict[str, _Row]:
    found: dict[str, _Row] = {}
    for row in rows:
        run = row.named(key)
        if run in found:
            raise row.error(key, f"run {run} stands in line {found[run].line} already")
        found[run] = row
    return found


def _stripped(columns: list[str], before: str, after: str) -> dict[str, str]:
    """Column -> name; what all columns begin or end with by a trainer's habit is taken off."""
    if not all(name.startswith(before) and name.endswith(after) for name in columns):
        return {name: name for name in columns}
    return {name: name.removeprefix(before).removesuffix(after) for name in columns}


def _components(path: Path, found: Iterable[str], known: tuple[str, ...] | None) -> tuple[str, ...]:
    names = tuple(found)
    if "" in names:
        raise InputError(f"{path}: a column of weights names no component")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{path}: two columns are weights of {twice!r}")
    for name in names if known is not None else ():
        if name not in (known or ()):
            raise InputError(f"{path}: no component is called {name!r}; {suggestion(name, known or ())}")
    if missing := [name for name in known or () if name not in names]:
        raise InputError(f"{path}: there is no column for component {missing[0]!r}; add one (of zeros)")
    return names


def _weights(row: _Row, columns: Mapping[str, str]) -> tuple[int, ...]:
    """Parts of 10^9, in the order of columns."""
    shares = {name: row.number(column, "a weight") for column, name in columns.items()}
    for column, name in columns.items():
        if not 0 <= shares[name] <= 1 + SUM_TOLERANCE:
            raise row.error(column, f"a weight is {row.cells[column]}; shares from 0 to 1 are needed")
    total = sum(shares.values())
    if abs(total - 1) > SUM_TOLERANCE:
        first, *_, last = [*columns, *columns]
        raise row.error(f"{first} ... {last}", f"the weights add up to {total:.6g}, not 1")
    parts = in_ppb({name: Fraction(share) for name, share in shares.items()})
    return tuple(parts[name] for name in columns.values())


def _some(records: list[Record], path: Path) -> list[Record]:
    if not records:
        raise InputError(f"{path}: no run has a loss")
    return records
