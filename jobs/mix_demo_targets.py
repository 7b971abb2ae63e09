"""Which held-out components `make mix-demo` measures on: those that stand word for word in no training component.

A search refuses targets that leak (mixing/overlap.py). Texts of packages quote each other, so some of the demo's do; they are shown
and left out here, as whoever meets the refusal would do it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corpusmill.mixing.overlap import Windows
from corpusmill.mixing.texts import first_documents, open_component
from corpusmill.pipeline.engine.place import Place

LEAST_DOCUMENTS = 8
"""Fewer say nothing: the interval of a gain is over a target's documents."""


@dataclass(frozen=True)
class Held:
    """A held-out component: how many of its documents are measured, and where most of their tokens stand as well."""

    name: str
    documents: int
    component: str
    share: float

    def usable(self, limit: float) -> bool:
        return self.documents >= LEAST_DOCUMENTS and self.share <= limit


def held_out(held: Mapping[str, Place], training: Mapping[str, Place], eval_tokens: int) -> list[Held]:
    """Folders by name -> what is known of each that is held out, of its first `eval_tokens`."""
    documents = {
        name: first_documents(open_component(folder), eval_tokens).tokens for name, folder in held.items()
    }
    windows = Windows.of(documents)
    most: dict[str, tuple[float, str]] = dict.fromkeys(held, (0.0, ""))
    for component, folder in training.items():
        reader = open_component(folder)
        seen = windows.seen(reader.view(0).tokens)
        for block in range(1, reader.manifest.blocks):
            seen |= windows.seen(reader.view(block).tokens)
        for each in windows.overlaps(component, seen):
            most[each.target] = max(most[each.target], (each.token_share, component))
    return [Held(name, len(documents[name]), most[name][1], most[name][0]) for name in held]


def importance(name: str, made: Sequence[str]) -> float:
    """Of a held-out component in the demo: 1 for text that people wrote, 0 for what stands in for junk."""
    return 0.0 if name.removeprefix("holdout/").startswith(tuple(made)) else 1.0
