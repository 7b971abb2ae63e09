"""What another trainer has left in its folder: losses.json or losses.csv, and the end of what it printed.

All of it is somebody else's and may be anything. A number that cannot be a loss is refused here, by run, file and target: one that is
taken stands in fits and verdicts, where nobody sees it any more.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.mixing.records import bits_per_byte
from corpusmill.pipeline.errors import RunError
from corpusmill.pipeline.registry import shown, suggestion

OUTPUT = "output.log"
KEYS = ("bits_per_byte", "loss", "document_bits", "document_bytes")

TAIL_BYTES = 2000

MOST_BYTES = 1 << 48
"""Of a document: more is no size, and sums of them would not be whole numbers any more."""

AGREE = 0.01
"""Part by which bits_per_byte may differ from what its documents say together: digits that were cut off."""


def tail(out: Path) -> str:
    """The end of what the program printed, for an error."""
    try:
        with (out / OUTPUT).open("rb") as log:
            log.seek(max(0, log.seek(0, io.SEEK_END) - TAIL_BYTES))
            said = log.read().decode(errors="replace").strip()
    except OSError:  # it may have removed its own folder
        return f"what it said is gone ({out / OUTPUT})"
    return f"it said at the end:\n{said}" if said else "it said nothing"


def read_losses(out: Path, targets: Collection[str], run: str) -> dict[str, dict[str, Any]]:
    """Fields of a record by target, from losses.json or losses.csv; RunError names what is missing or no loss."""
    as_json, as_csv = out / "losses.json", out / "losses.csv"
    path = as_json if as_json.is_file() else as_csv
    if not path.is_file():
        raise RunError(f"run {run}: the trainer wrote neither {as_json} nor {as_csv.name}; {tail(out)}")
    try:
        found = _object(path) if path == as_json else _table(path)
    except (OSError, ValueError, csv.Error) as error:
        raise RunError(f"run {run}: {path} cannot be read ({error})") from error
    except RecursionError:
        raise RunError(f"run {run}: {path} cannot be read (nested too deeply)") from None
    if not isinstance(found, dict):
        raise RunError(f'run {run}: {path}: an object of targets is needed, like {{"web": 0.93}}')
    if unknown := sorted(set(found) - set(targets)):
        raise RunError(
            f"run {run}: {path}: no target is called {unknown[0]!r}; {suggestion(str(unknown[0]), sorted(targets))}"
        )
    if missing := sorted(set(targets) - set(found)):
        raise RunError(f"run {run}: {path} says nothing of target {missing[0]}")
    return {target: _fields(value, f"run {run}: {path}: {target}") for target, value in found.items()}


def _object(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=_once)


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key!r} stands there twice")
        found[key] = value
    return found


def _table(path: Path) -> dict[str, dict[str, float]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        rows, names = list(reader), list(reader.fieldnames or ())
    if not rows or "target" not in names or "bits_per_byte" not in names:
        raise ValueError("columns target and bits_per_byte are needed")
    if len(set(names)) < len(names):
        raise ValueError("a column stands there twice")
    if any(None in row for row in rows):
        raise ValueError("a row has more cells than there are columns")
    if len({row["target"] for row in rows}) < len(rows):
        raise ValueError("a target stands there twice")
    return {
        row["target"]: {name: float(row[name]) for name in ("bits_per_byte", "loss") if row.get(name)}
        for row in rows
    }


def _fields(value: Any, where: str) -> dict[str, Any]:
    given = value if isinstance(value, dict) else {"bits_per_byte": value}
    if unknown := sorted(set(given) - set(KEYS)):
        raise RunError(f"{where}: unknown key {unknown[0]!r}; {suggestion(unknown[0], KEYS)}")
    fields: dict[str, Any] = {
        name: _number(given[name], f"{where}: {name}") for name in KEYS[:2] if name in given
    }
    if fields.get("bits_per_byte", 0.0) < 0:
        raise RunError(f"{where}: bits_per_byte is {fields['bits_per_byte']:g}; it cannot be below 0")
    if ("document_bits" in given) != ("document_bytes" in given):
        raise RunError(f"{where}: document_bits and document_bytes go together")
    if "document_bits" in given:
        fields |= _documents(given, where)
        said = bits_per_byte(fields["document_bits"], fields["document_bytes"])
        if not math.isclose(fields.setdefault("bits_per_byte", said), said, rel_tol=AGREE, abs_tol=1e-9):
            raise RunError(
                f"{where}: bits_per_byte is {fields['bits_per_byte']:g}, its documents have {said:g} together; leave out what is wrong"
            )
    if not {"bits_per_byte", "loss"} & fields.keys():
        raise RunError(f"{where}: neither bits_per_byte nor loss is there")
    return fields


def _documents(given: dict[str, Any], where: str) -> dict[str, Any]:
    bits, sizes = (_numbers(given[name]) for name in KEYS[2:])
    if bits is None or sizes is None or bits.shape != sizes.shape or not len(bits) or (bits < 0).any():
        raise RunError(
            f"{where}: document_bits and document_bytes are lists of numbers from 0, of one length and not empty"
        )
    if not ((sizes >= 1) & (sizes <= MOST_BYTES) & (sizes == np.floor(sizes))).all():
        raise RunError(f"{where}: document_bytes are whole numbers from 1; leave out a document without text")
    whole = sizes.astype(np.int64)
    return {"document_bits": bits, "document_bytes": whole, "eval_bytes": int(whole.sum())}


def _numbers(value: Any) -> npt.NDArray[np.float64] | None:
    """None for what is no list of finite numbers."""
    if not isinstance(value, list) or any(type(each) not in (int, float) for each in value):
        return None
    try:
        found = np.array(value, np.float64)
    except OverflowError:
        return None
    return found if np.isfinite(found).all() else None


def _number(value: Any, where: str) -> float:
    try:
        if type(value) in (int, float) and math.isfinite(value):
            return float(value)
    except OverflowError:  # a whole number that no float holds
        pass
    raise RunError(f"{where} is {shown(value)}; a finite number is needed")
