"""What a stream really read of each component, counted from its rows and held against its plan's weights.

Rows are recognised by their bytes, not by the order that handed them out: what is found can disagree with what was planned.
The plan promises (shards/mixture.py): at each 4,096th sample of a phase a component has had its share to within 1 (2 where it has less than
one in 4,096), at any sample to within 3, in any window to within 5. Reading 6,000 rows of 128 and counting takes 0.2 s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from corpusmill.pipeline.errors import RunError
from corpusmill.shards import stream
from corpusmill.shards.mixture import BORDER, PPB
from corpusmill.shards.plan import Plan
from corpusmill.shards.reader import Shards

AT_BORDER, AT_RARE_BORDER, AT_ANY, IN_WINDOW = 1, 2, 3, 5


@dataclass(frozen=True)
class Counted:
    """Of one component: rows read up to each of `samples`, and the worst distances from its weight, in rows."""

    component: str
    weight_ppb: int
    samples: tuple[int, ...]
    rows: tuple[int, ...]
    worst_border: float
    worst_prefix: float
    worst_window: float

    def broken(self) -> list[str]:
        """What was promised and is not so."""
        rare = self.weight_ppb * BORDER < PPB
        bounds = (
            ("at a border", self.worst_border, AT_RARE_BORDER if rare else AT_BORDER),
            ("at a sample", self.worst_prefix, AT_ANY),
            ("in a window", self.worst_window, IN_WINDOW),
        )
        return [
            f"{self.component}: {found:.3f} rows off its weight {where}, {most} at most were promised"
            for where, found, most in bounds
            if found > most
        ]


def count_stream(out: Path, batch_size: int, samples: Sequence[int]) -> tuple[list[Counted], int]:
    """All components over the whole stream, which has one phase, and how many rows were read; `samples`: where to note counts.

    A row that stands in several components is told by the order; RunError for one that stands in none.
    """
    shards = Shards(out)
    if len(shards.plan.phases) != 1:
        raise RunError(f"{shards.path}: counts are for plans of one phase")
    owners = _owners(shards)
    read: list[int] = []
    with stream(out, batch_size=batch_size) as batches:
        for batch in batches:
            planned = shards.order.samples(len(read), len(read) + batch_size).component.tolist()
            for row, place in zip(batch["tokens"], planned, strict=True):
                there = owners.get(_key(row), ())
                if not there:
                    raise RunError(f"sample {len(read)} of {out} is a row of none of the plan's components")
                read.append(place if place in there else min(there))
    found = np.array(read, np.int64)
    return [counted(shards.plan, place, found, samples) for place in range(len(shards.components))], len(
        found
    )


def _owners(shards: Shards) -> dict[int, set[int]]:
    """Hash of a row -> the components that have it."""
    found: dict[int, set[int]] = defaultdict(set)
    for place, reader in enumerate(shards.components):
        for block in range(reader.manifest.blocks):
            for row in reader.view(block).tokens:
                found[_key(row)].add(place)
    return found


def _key(row: npt.NDArray[Any]) -> int:
    return xxhash.xxh3_64_intdigest(np.ascontiguousarray(row).tobytes())


def counted(plan: Plan, place: int, read: npt.NDArray[np.int64], samples: Sequence[int]) -> Counted:
    """Of the component at `place`; `read`: the place of each sample's component, in order."""
    name = plan.components[place].name
    weight = plan.phases[0].weights_ppb.get(name, 0)
    counts = np.concatenate([[0], np.cumsum(read == place)])
    # In parts of 10^9 of a row, as whole numbers: exact.
    off = counts * PPB - np.arange(len(counts)) * weight
    borders = off[::BORDER]
    ends = tuple(min(each, len(read)) for each in samples)
    return Counted(
        component=name,
        weight_ppb=weight,
        samples=ends,
        rows=tuple(int(counts[end]) for end in ends),
        worst_border=_in_rows(np.abs(borders).max()),
        worst_prefix=_in_rows(np.abs(off).max()),
        worst_window=_in_rows(off.max() - off.min()),
    )


def _in_rows(parts: Any) -> float:
    return float(Fraction(int(parts), PPB))
