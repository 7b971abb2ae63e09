"""FineWeb's own rules (Penedo et al. 2024, "The FineWeb Datasets", section 3.5). They only list cuts."""

from __future__ import annotations

from dataclasses import dataclass

from corpusmill.filters.measures import SHORT_LINE, TextMeasures, short_line_column
from corpusmill.filters.rule import FilterRule, bound, check_counts, check_shares
from corpusmill.pipeline.engine.stage import Measure
from corpusmill.pipeline.rules import Cut


@dataclass(frozen=True)
class FineWebQuality(FilterRule):
    """Lines without a full stop, short lines, repeated lines and lists (0.12, 0.67, 0.01 in the paper; 0.3 in its code). null is off.

    A line ends well if its last character, white space included, is terminal punctuation of any script. A text without lines is cut.
    """

    min_terminal_lines: float | None = 0.12
    max_short_lines: float | None = 0.67
    short_line_length: int = SHORT_LINE
    max_duplicate_line_characters: float | None = 0.01
    max_newline_ratio: float | None = 0.3

    def __post_init__(self) -> None:
        check_shares(self, "min_terminal_lines", "max_short_lines", "max_duplicate_line_characters")
        check_counts(self, "short_line_length", "max_newline_ratio")

    def measures(self) -> tuple[Measure, ...]:
        short_lines = (self.short_line_length,) if self.max_short_lines is not None else ()
        return (TextMeasures(short_lines=short_lines, stop_words=()),)

    def cuts(self) -> tuple[Cut, ...]:
        return (
            Cut("lines", at_least=1),
            *bound("terminal_line_share", at_least=self.min_terminal_lines),
            *bound(short_line_column(self.short_line_length), at_most=self.max_short_lines),
            *bound("dup_line_char_share_of_lines", at_most=self.max_duplicate_line_characters),
            *bound("newline_ratio", at_most=self.max_newline_ratio),
        )
