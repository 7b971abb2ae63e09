"""Topics by a fastText model that the recipe gives: its most probable label of each text, and how probable.

The file has to be there under the same path wherever workers run, Ray's nodes among them; each loads it once and checks its hash.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from corpusmill.filters.fasttext_model import DISTRIBUTION, best, check_distributions, load
from corpusmill.filters.topics import COLUMN
from corpusmill.pipeline.engine.stage import Measure
from corpusmill.pipeline.errors import ModelError


@dataclass(frozen=True)
class LabelTopics(Measure):
    """`topic` and `topic_score` of each text."""

    path: str
    sha256: str

    libraries: ClassVar[tuple[str, ...]] = (DISTRIBUTION,)

    @staticmethod
    def hash_of(path: str) -> str:
        """sha256 of the file; ModelError when it cannot be read."""
        try:
            with Path(path).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ModelError(
                f"the topic model {path} cannot be read ({error.strerror}); give the path of a fastText file"
            ) from None

    def models(self) -> dict[str, str]:
        check_distributions()
        return {"topics": self.sha256}

    def warm(self) -> None:
        best(_model(self.path, self.sha256), "one line of text")

    def schema(self) -> pa.Schema:
        label = "most probable label of the topic model, or none"
        score = "probability of that label by the model, 0 to 1"
        return pa.schema(
            [
                pa.field(COLUMN, pa.string(), metadata={"about": label}),
                pa.field(f"{COLUMN}_score", pa.float64(), metadata={"about": score}),
            ]
        )

    def measure(self, rows: pa.Table) -> pa.Table:
        model = _model(self.path, self.sha256)
        # A loop over rows: a model takes one text a call, and the call is nearly all of the time.
        found = [(None, None) if text is None else best(model, text) for text in rows["text"].to_pylist()]
        labels = pa.array([label for label, _ in found], pa.string())
        scores = pa.array(
            [np.nan if score is None else score for _, score in found], pa.float64(), from_pandas=True
        )
        return pa.Table.from_arrays([labels, scores], schema=self.schema())


@lru_cache(maxsize=2)
def _model(path: str, sha256: str) -> Any:
    if LabelTopics.hash_of(path) != sha256:
        raise ModelError(f"{path} is not the topic model that the run began with; restore it or run again")
    return load(path)
