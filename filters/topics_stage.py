"""The recipe's `topics` stage: what a document is about, as the column `topic`; components can be told by it.

topics.fit   topics of a sample of text (topics.py), the largest domains (topic_hosts.py), or either as an earlier run found them
topics       the topic of every kept document
topics       with a fastText model, a measure: the most probable label of every document with text (topic_labels.py)
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from corpusmill.filters.topic_hosts import HOSTS_FILE, AssignHosts, FitHosts
from corpusmill.filters.topic_labels import LabelTopics
from corpusmill.filters.topics import COLUMN, MODEL_FILE, TOPICS_FILE, AssignTopics, FitTopics
from corpusmill.pipeline.engine.stage import Inputs, Result, SetOperation, TaskIO, Unit
from corpusmill.pipeline.engine.state import read_state
from corpusmill.pipeline.engine.task import load_class
from corpusmill.pipeline.errors import ModelError, RecipeError

COUNT, SAMPLE = 24, 20_000

FILES = {"text": (MODEL_FILE, TOPICS_FILE), "host": (HOSTS_FILE,)}
"""What `topics.fit` leaves, by what topics are told by."""


@dataclass(frozen=True)
class GivenTopics(SetOperation):
    """Files of an earlier `topics.fit`: name -> sha256. Where they lie is no field, so moving them makes nothing anew."""

    sha256: dict[str, str]
    path: InitVar[str] = ""

    area: ClassVar[Literal["layers"]] = "layers"

    def __post_init__(self, path: str) -> None:
        object.__setattr__(self, "_path", path)

    def models(self) -> dict[str, str]:
        return dict(self.sha256)

    def units(self, inputs: Inputs) -> list[Unit]:
        return [Unit(0, 1)]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        return io.result()

    def seal(self, results: Mapping[int, Result], inputs: Inputs) -> dict[str, bytes]:
        folder = Path(getattr(self, "_path"))  # noqa: B009  (set in __post_init__, unknown to the type checker)
        found = {name: _read(folder / name) for name in self.sha256}
        for name, data in found.items():
            if hashlib.sha256(data).hexdigest() != self.sha256[name]:
                raise ModelError(f"{folder / name} changed while the recipe ran; run it again")
        return found


@dataclass(frozen=True)
class Topics:
    """The topic of each kept document, for `components.by: [source, topic]`.

    by: `text` finds `count` topics at most in a sample of `sample` documents (small corpora have fewer, one for every 5 documents);
    `host` takes the `count` domains with the most documents as topics, and `other-<top-level domain>` for all other hosts.
    model: a fastText model (.bin, .ftz) whose labels are the topics; or the folder of an earlier run, or of its layer `topics.fit`, whose
    topics are to be told again, so that they keep their names when there is more text.
    """

    by: Literal["text", "host"] = "text"
    count: int = COUNT
    sample: int = SAMPLE
    model: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.count <= 1000:
            raise RecipeError(f"topics.count is {self.count}; it has to be from 1 to 1,000")
        if not self.count <= self.sample <= 1_000_000:
            raise RecipeError(
                f"topics.sample is {self.sample}; it has to be from count ({self.count}) to 1,000,000"
            )
        if self.model is not None and (self.count, self.sample) != (COUNT, SAMPLE):
            raise RecipeError("topics: count and sample are for finding topics; with a model leave them out")

    def extend(self, chain: Any, name: str) -> None:
        if COLUMN in chain.columns:
            raise RecipeError(f"{name}: an earlier stage says the topics already; leave one of them out")
        if self.model is not None and not Path(self.model).is_dir():
            if self.by == "host":
                raise RecipeError(
                    f"{name}: by: host reads no text, so {self.model} has nothing to label; leave one of them out"
                )
            chain.measure(name, LabelTopics(self.model, LabelTopics.hash_of(self.model)))
            # Labels drop nothing, but a row that raised in the model must not go on.
            chain.verdict(stage=name)
            return
        fit = f"{name}.fit"
        chain.set(fit, self._fit(chain.seed, name), kept=True)
        assign = AssignTopics(fit) if self.by == "text" else AssignHosts(fit)
        chain.set(name, assign, reads=(fit,), kept=True, writes=(COLUMN,))

    def _fit(self, seed: int, name: str) -> SetOperation:
        if self.model is not None:
            folder = _fitted(Path(self.model), self.by, name)
            hashes = {file: hashlib.sha256(_read(folder / file)).hexdigest() for file in FILES[self.by]}
            return GivenTopics(hashes, str(folder))
        fit = FitTopics if self.by == "text" else FitHosts
        return fit(seed, self.count, self.sample)


def _fitted(folder: Path, by: str, name: str) -> Path:
    """The folder itself, or the layer of a run in it, that holds topics by `by`."""
    places = [folder]
    state = read_state(folder)
    for stage in state.stages if state else ():
        if issubclass(load_class(stage.own["operation"]), (FitTopics, FitHosts, GivenTopics)):
            places.append(folder / stage.folder)
    for place in places:
        if all((place / file).is_file() for file in FILES[by]):
            return place
    raise RecipeError(
        f"{name}: {folder} holds no topics by {by}; give a fastText model, the folder of a run that found some, or that of its layer topics.fit"
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"topics: {path} cannot be read ({error.strerror})") from None
