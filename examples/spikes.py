"""Steps that no step before was like, and the documents to blame: found by their loss, looked up, quarantined.

A step is judged by three numbers: its loss, its gradient norm, and the mean loss of its hardest row. One row of noise among 16 of prose
lifts the first by 1 to 3 robust standard deviations, as prose itself does at times, and the second no more than prose; the third by 12 to 36, where prose
stays below 6. (A decoder of 2 layers of 64, 3 orders of 300 steps: clean, with 300 random ids, with one id 300 times over. No step was refused without cause;
34 tokens of a planted document in a row were enough.) A source whose text is unlike all before may look like a spike where its phase begins.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from corpusmill.shards.hide import hide_document
from corpusmill.shards.locate import locate
from corpusmill.shards.sidecar import Wanted

LEAST_TARGETS = 8
"""Below that many, a mean loss says little of a row or of a piece."""


class Spikes:
    """Losses, gradient norms and hardest rows of the last steps; what lies far above them is a spike."""

    def __init__(self, window: int, at_least: int, sigmas: float) -> None:
        self.at_least, self.sigmas = at_least, sigmas
        self.last: deque[list[float]] = deque(maxlen=window)

    def bounds(self) -> list[float]:
        """Of loss, gradient norm and hardest row: median + `sigmas` robust standard deviations, of the median a hundredth at least, of norms the whole.

        A small model's norm more than trebles within some steps when it finds something out (seen on prose, no document being the cause).
        """
        if len(self.last) < self.at_least:
            return [math.inf] * 3
        losses, norms, rows = zip(*self.last, strict=True)
        return [
            above(losses, self.sigmas),
            above(norms, self.sigmas, least=1.0),
            above(rows, self.sigmas),
        ]


def above(values: Sequence[float], sigmas: float, least: float = 0.01) -> float:
    """A bound that a few outliers among `values` do not move: 1.4826 median deviations are a normal law's standard deviation."""
    middle = median(values)
    spread = 1.4826 * median(abs(value - middle) for value in values)
    return middle + sigmas * max(spread, least * middle)


def hardest(losses: torch.Tensor) -> torch.Tensor:
    """The mean loss of the row [T] that has the highest, among those with enough targets to judge by; 0 where there is none."""
    enough = (~losses.isnan()).sum(1) >= LEAST_TARGETS
    return losses[enough].nanmean(1).max() if enough.any() else torch.zeros(())


@dataclass
class Spike:
    """A step that was not taken: this rank's first sample and the losses of its targets."""

    first: int
    losses: torch.Tensor


@dataclass(frozen=True, order=True)
class Suspect:
    """A document by the mean loss of a piece of it in one sample."""

    loss: float
    id: str
    url: str
    sample: int


def suspects(data: str, spike: Spike) -> Iterator[Suspect]:
    """Pieces with enough targets in this rank's rows. The first token of a piece was guessed from another document."""
    for row, located in zip(
        spike.losses, locate(data, spike.first, spike.first + len(spike.losses)), strict=True
    ):
        for piece in located.pieces:
            losses = row[piece.start : piece.end - 1]
            if (~losses.isnan()).sum() >= LEAST_TARGETS:
                yield Suspect(float(losses.nanmean()), piece.id, piece.url or "", located.sample)


def quarantine(data: str, start: int, spike: Spike) -> list[dict[str, Any]]:
    """Hides, from sample `start` on, the documents of the spike's batch that stand out by their loss, four at most; says which.

    All ranks call it together; the first one writes the list that all of them read.
    """
    parts: list[list[Suspect]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(parts, list(suspects(data, spike)))
    found = sorted((each for part in parts for each in part), reverse=True)
    if not found:
        raise SystemExit(f"nothing in the batch at sample {spike.first} can be blamed: see the log")
    usual = median(each.loss for each in found)
    bound = min(found[0].loss, above([each.loss for each in found], sigmas=6))
    chosen = {each.id: each for each in reversed(found[:4]) if each.loss >= bound}
    hidden = []
    for each in chosen.values():
        reason = f"loss {each.loss:.2f} in sample {each.sample}, where a piece has {usual:.2f}"
        if dist.get_rank() == 0:
            hide_document(data, Wanted(id=each.id), start, reason)
        hidden.append(
            {"id": each.id, "url": each.url, "sample": each.sample, "from": start, "reason": reason}
        )
    dist.barrier()
    return hidden
