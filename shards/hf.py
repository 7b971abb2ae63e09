"""The two JSON files of a folder that `datasets.load_from_disk` opens, written without the library.

The data beside them are Arrow streams. `Sequence` is the name for lists that both old and new versions of `datasets` read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def description(schema: pa.Schema | None, files: Sequence[str]) -> dict[str, bytes]:
    """dataset_info.json and state.json for data files of one schema; None when there is nothing in them."""
    columns = schema or pa.schema([])
    info = {"features": {field.name: _feature(field.type) for field in columns}}
    state: dict[str, Any] = {
        "_data_files": [{"filename": name} for name in files],
        "_fingerprint": hashlib.sha256(json.dumps([info, *files]).encode()).hexdigest()[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    return {"dataset_info.json": _json(info), "state.json": _json(state)}


def _feature(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_list(kind):
        return {"feature": _feature(kind.value_type), "_type": "Sequence"}
    names = {"double": "float64", "float": "float32", "halffloat": "float16"}
    return {"dtype": names.get(str(kind), str(kind)), "_type": "Value"}


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
