"""components.json: what is known of each component beside its tokens: the values that tell it, its kind, and how copied its text was.

A copy stands in OUT/shards. Cluster sizes are those of the last dedup: how many documents of the input a kept one stands for. They are of all
documents that the recipe keeps, those among them that the audit of tokens keeps out; `documents` are those in the shards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.pipeline.engine.stage import Inputs, Result, SetOperation, TaskIO, Unit
from corpusmill.pipeline.errors import ShardError
from corpusmill.pipeline.kinds import Kind
from corpusmill.shards.components import HOLDOUT, SYNTHETIC, Key, component_names, rest_of
from corpusmill.shards.kinds import kind_of
from corpusmill.shards.layout import canonical
from corpusmill.shards.scatter import keys_of

COMPONENTS_FILE = "components.json"


@dataclass(frozen=True)
class About(SetOperation):
    """One partition a unit: which keys its kept documents have, and their cluster sizes. Reads a few columns, no text."""

    write: str
    by: tuple[str, ...]
    seed: int
    holdout: float
    clusters: str | None  # the stage that has `cluster_size`
    kinds: dict[str, Kind]

    rate: ClassVar[float] = 200e6

    def units(self, inputs: Inputs) -> list[Unit]:
        return [
            Unit(part, sum(file.size_bytes for file in result.files), {}, (part,))
            for part, result in sorted(inputs.results("documents").items())
        ]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        (part,) = unit.parts
        columns = list(dict.fromkeys(["id", *self.by]))
        told = None if self.clusters is None else io.layer(self.clusters, part, ["cluster", "cluster_size"])
        sizes: dict[Key, list[npt.NDArray[np.int64]]] = {}
        for numbers, rows in io.rows(part, columns, kept=True):
            here = None if told is None else told.take(pa.array(numbers))
            keys = keys_of(rows, None if here is None else here["cluster"], self.by, self.seed, self.holdout)
            size = np.zeros(len(keys)) if here is None else here["cluster_size"].to_numpy()
            places: dict[Key, list[int]] = {}
            for place, key in enumerate(keys):
                places.setdefault(key, []).append(place)
            for key, chosen in places.items():
                sizes.setdefault(key, []).append(size[chosen].astype(np.int64))
        found = [
            {"key": list(key), **_counted(np.concatenate(parts))}
            for key, parts in sorted(sizes.items())
            if len(key) == len(self.by)  # else it is held out
        ]
        return io.result(
            rows=sum(map(len, (part for parts in sizes.values() for part in parts))), extra={"keys": found}
        )

    def seal(self, results: Mapping[int, Result], inputs: Inputs) -> dict[str, bytes]:
        totals: dict[Key, dict[str, int]] = {}
        for result in results.values():
            for each in result.extra["keys"]:
                counts = {name: value for name, value in each.items() if name != "key"}
                _add(totals.setdefault(tuple(each["key"]), dict.fromkeys(counts, 0)), counts)
        written = _documents(inputs.results(self.write).values())
        members = members_of(totals, self.by, written)
        said = {name: self._component(members[name], totals, written[name]) for name in sorted(written)}
        return {COMPONENTS_FILE: canonical({"by": list(self.by), "components": said})}

    def publish(self) -> dict[str, str]:
        return {COMPONENTS_FILE: f"shards/{COMPONENTS_FILE}"}

    def _component(
        self, keys: Sequence[Key], totals: Mapping[Key, Mapping[str, int]], documents: int
    ) -> dict[str, Any]:
        columns = [dict(zip(self.by, key, strict=True)) for key in keys]
        values = {name: columns[0][name] for name in self.by if len({each[name] for each in columns}) == 1}
        counts: dict[str, int] = dict.fromkeys(totals[keys[0]], 0)
        for key in keys:
            _add(counts, totals[key])
        clusters = None
        if self.clusters is not None:
            mean = round(counts["sizes"] / counts["documents"], 4)
            clusters = {"alone": counts["alone"], "mean_size": mean, "largest": counts["largest"]}
        return {"values": values, **asdict(self._kind(values)), "documents": documents, "clusters": clusters}

    def _kind(self, values: Mapping[str, str]) -> Kind:
        """Of a component's documents, which are all of one."""
        if "source" in values:
            return kind_of(self.kinds, values["source"])
        words = {kind.word: kind for kind in self.kinds.values()}
        return words.get(values.get(SYNTHETIC, ""), Kind())


def members_of(
    keys: Mapping[Key, Any], by: tuple[str, ...], names: Mapping[str, int]
) -> dict[str, list[Key]]:
    """Component -> the keys of its documents: its own, or those of the components that were too small. Of some keys no document has a token."""
    own = component_names(keys)
    found: dict[str, list[Key]] = {name: [] for name in names}
    for key in sorted(keys):
        rest = rest_of(key, by)
        for name in (".".join(key), own[key], ".".join(rest), *component_names([rest]).values()):
            if name in found:
                found[name].append(key)
                break
    if lost := [name for name, members in found.items() if not members]:
        raise ShardError(
            f"no kept document is of component {lost[0]}: delete the layers of the shard stage and run again"
        )
    return found


def _documents(results: Any) -> dict[str, int]:
    """Component for training -> documents in its shards."""
    found: dict[str, int] = {}
    for result in results:
        if "slug" in result.extra and not result.extra["slug"].startswith(f"{HOLDOUT}/"):
            name = result.extra["component"]
            found[name] = found.get(name, 0) + result.extra["documents"]
    return found


def _counted(sizes: npt.NDArray[np.int64]) -> dict[str, int]:
    return {
        "documents": len(sizes),
        "alone": int((sizes == 1).sum()),
        "sizes": int(sizes.sum()),
        "largest": int(sizes.max(initial=0)),
    }


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = max(total[name], value) if name == "largest" else total[name] + value
