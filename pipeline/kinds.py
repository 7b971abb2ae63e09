"""What the text of a source is: written by people or by models, and whether it is to be protected. The recipe's inputs say it.

A kind belongs to a source, and every document, layer and sidecar carries its source: so what is known of a text is known to its last
token, and saying it otherwise costs the components and no extraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from corpusmill.pipeline.errors import RecipeError

if TYPE_CHECKING:
    from corpusmill.pipeline.input import Input

Synthetic = Literal["none", "rephrased", "generated"]
"""Whose words: of people; of a model that said again what people had said; of a model's own."""

NATURAL = "natural"


@dataclass(frozen=True)
class Kind:
    """`generation`: 0 of natural text, 1 where a model read that, one more for each model between. `protected`: keeps a floor in mixtures."""

    synthetic: Synthetic = "none"
    generation: int = 0
    protected: bool = False

    @property
    def word(self) -> str:
        """natural, rephrased-1, generated-2-protected …: another word for every kind."""
        made = NATURAL if self.synthetic == "none" else f"{self.synthetic}-{self.generation}"
        return f"{made}-protected" if self.protected else made


def kinds_of(inputs: Sequence[Input]) -> dict[str, Kind]:
    """Source -> kind, of sources that are not just natural; RecipeError where two inputs of a source say different things."""
    found: dict[str, Kind] = {}
    for each in inputs:
        known = found.setdefault(each.source, each.kind_of_text)
        if known != each.kind_of_text:
            raise RecipeError(
                f"inputs: source {each.source} is {known.word} and {each.kind_of_text.word}: give the inputs sources of their own, or say the same of both"
            )
    return {source: kind for source, kind in sorted(found.items()) if kind != Kind()}
