"""Where a long text may be cut so that the ids of its pieces are those of the whole: at borders where the pretokenizer cuts anyway.

Time then grows with length: what an engine does with a piece of PIECE characters is all it ever does at once.
"""

from __future__ import annotations

import re
from typing import Any

from corpusmill.pipeline.text.engines import HuggingFace, flat_steps

PIECE = 1 << 20
"""Characters above which a text is cut. Pieces are between half of it and all of it where the text has borders."""

# A newline behind a visible character and before a letter: byte-level pretokenizers end a run of blanks there, and no
# pattern of theirs joins a line's end with the letters of the next. With more blanks before it, `\s+(?!\S)` would
# see the end of the text in one case and not in the other.
_BORDER = re.compile(r"(?<=\S)\n(?=[^\W\d_])")
_AROUND = 256  # characters on both sides of a border over which the cut is tried


class Cutter:
    """Cuts texts for one vocabulary."""

    def __init__(self, reference: HuggingFace) -> None:
        self._reference = reference
        self._cuts = splits_lines(reference.settings)

    def pieces(self, text: str) -> list[str]:
        """`text` cut at safe borders, the first at or after each half of PIECE; whole when it is short or has none."""
        if len(text) <= PIECE or not self._cuts:
            return [text]
        found, start = [], 0
        while len(text) - start > PIECE and (border := self._border(text, start + PIECE // 2)):
            found.append(text[start:border])
            start = border
        return [*found, text[start:]]

    def _border(self, text: str, start: int) -> int:
        """The first safe border from `start` on; 0 when there is none."""
        words = self._reference.words
        for match in _BORDER.finditer(text, start):
            place = match.end()
            before, after = text[max(0, place - _AROUND) : place], text[place : place + _AROUND]
            if words(before + after) == words(before) + words(after):
                return place
        return 0


def splits_lines(settings: dict[str, Any]) -> bool:
    """True for byte-level tokenizers that look at a text piece by piece: no prefix, no normaliser but Unicode's own forms.

    Each cut is tried on the text around it as well; here go those for which that would not show the difference.
    """
    normalizers = flat_steps(settings.get("normalizer"), "normalizers")
    steps = flat_steps(settings.get("pre_tokenizer"), "pretokenizers")
    levels = [step for step in steps if step["type"] == "ByteLevel"]
    return (
        all(step["type"] in ("NFC", "NFD", "NFKC", "NFKD") for step in normalizers)
        and all(step["type"] in ("ByteLevel", "Digits") or _plain_split(step) for step in steps)
        and len(levels) == 1
        and not levels[0].get("add_prefix_space")
        and (levels[0].get("use_regex", True) or any(step["type"] == "Split" for step in steps))
        and all(
            token["special"] or not ("\n" in token["content"] or token["lstrip"])
            for token in settings.get("added_tokens", [])
        )
    )


def _plain_split(step: dict[str, Any]) -> bool:
    pattern = step.get("pattern", {}).get("Regex", "(?<")
    return (
        step["type"] == "Split"
        and "(?<" not in pattern
        and "\\A" not in pattern
        and "^" not in pattern.replace("[^", "")
    )
