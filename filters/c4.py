"""C4's rules (Raffel et al. 2020, "Exploring the Limits of Transfer Learning", section 2.2): lines that go, documents that are cut.

Measure and edit are two operations over one kernel (c4_kernel.py): the cuts see what the lines said, later rules read what is left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.filters.rule import FilterRule, bound, check_counts
from corpusmill.pipeline.engine.stage import Edit, Measure
from corpusmill.pipeline.rules import Cut
from corpusmill.pipeline.text.chars import LOWER, UNICODE_VERSION
from corpusmill.pipeline.text.words import SPLITTER, exceptions, table

ABOUT = {
    "c4_lines": "lines as str.splitlines has them, blank ones too",
    "c4_lines_kept": "lines that stay",
    "c4_lorem_ipsum": 'lines with "lorem ipsum" among those that are long enough to stay',
    "c4_curly_brackets": "lines with { among those that are long enough to stay and do not name javascript",
    "c4_sentences": "sentences of the lines that stay",
}


@dataclass(frozen=True)
class LineRules:
    """What decides about a line; None is off. `splitter` and `unicode` name the rules that sentences were counted with."""

    require_terminal_punctuation: bool
    remove_citations: bool
    min_words_per_line: int | None
    max_word_length: int | None
    drop_javascript: bool
    drop_policy: bool
    splitter: str = SPLITTER
    unicode: str = UNICODE_VERSION

    def options(self) -> npt.NDArray[np.int64]:
        """In the order of the kernel."""
        off = -1
        values = (
            int(self.require_terminal_punctuation),
            int(self.remove_citations),
            off if self.min_words_per_line is None else self.min_words_per_line,
            off if self.max_word_length is None else self.max_word_length,
            int(self.drop_javascript),
            int(self.drop_policy),
        )
        return np.array(values, dtype=np.int64)


def edited(
    column: pa.ChunkedArray, rules: LineRules
) -> tuple[npt.NDArray[np.int64], pa.Array, npt.NDArray[np.bool_]]:
    """(counts [texts, COLUMNS], edited texts, which of them differ from `column`)."""
    from corpusmill.filters.c4_kernel import COLUMNS, kernel
    from corpusmill.pipeline.text.kernels import texts, utf8

    data, offsets = utf8(column)
    count = len(offsets) - 1
    counts = np.zeros((count, COLUMNS), np.int64)
    out = np.empty(int(offsets[-1] - offsets[0]), np.uint8)
    ends = np.zeros(count + 1, np.int64)
    kernel()(data, offsets, table(), LOWER, *exceptions(), rules.options(), counts, out, ends)
    result = texts(out[: ends[-1]], ends)
    # Line breaks other than a newline are replaced one for one: equal lengths do not mean equal texts.
    same = np.array(
        [data[a:b].tobytes() == out[c:d].tobytes() for a, b, c, d in _bounds(offsets, ends)], dtype=np.bool_
    )
    return counts, result, ~same


def _bounds(old: npt.NDArray[np.int64], new: npt.NDArray[np.int64]) -> Any:
    return zip(old[:-1].tolist(), old[1:].tolist(), new[:-1].tolist(), new[1:].tolist(), strict=True)


def _warm() -> None:
    from corpusmill.filters.c4_kernel import kernel

    kernel()


@dataclass(frozen=True)
class C4Measures(Measure):
    """What C4's cuts need to know of the lines, before the edit."""

    version: ClassVar[int] = 1

    rules: LineRules

    def schema(self) -> pa.Schema:
        return pa.schema(
            [pa.field(name, pa.int64(), metadata={"about": about}) for name, about in ABOUT.items()]
        )

    def measure(self, rows: pa.Table) -> pa.Table:
        counts, _, _ = edited(rows["text"], self.rules)
        null = rows["text"].is_null().to_numpy() if rows["text"].null_count else None
        return pa.Table.from_arrays(
            [pa.array(column, pa.int64(), mask=null) for column in counts.T], schema=self.schema()
        )

    def warm(self) -> None:
        _warm()


@dataclass(frozen=True)
class C4Lines(Edit):
    """The text without the lines that go; other rows than those of `when` (string column -> values) keep theirs."""

    version: ClassVar[int] = 1

    rules: LineRules
    when: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("text", *self.when)

    def edit(self, rows: pa.Table) -> pa.Array:
        import pyarrow.compute as pc

        _, texts, changed = edited(rows["text"], self.rules)
        if rows["text"].null_count:
            changed &= rows["text"].is_valid().to_numpy()
        for column, values in self.when.items():
            changed &= pc.is_in(rows[column], pa.array(values, rows[column].type)).to_numpy()
        return pc.if_else(pa.array(changed), texts, pa.scalar(None, pa.large_string()))

    def warm(self) -> None:
        _warm()


@dataclass(frozen=True)
class C4(FilterRule):
    """Keeps lines with terminal punctuation, enough words and no boilerplate; cuts placeholder text, code and short pages. null is off.

    FineWeb sets `require_terminal_punctuation: false`. Word and phrase lists (javascript, policies) are those of C4's published code.
    """

    edited: ClassVar[str] = "c4"

    require_terminal_punctuation: bool = True
    remove_citations: bool = True
    min_words_per_line: int | None = 3
    max_word_length: int | None = 1000
    drop_javascript: bool = True
    drop_policy: bool = True
    drop_lorem_ipsum: bool = True
    drop_curly_brackets: bool = True
    min_sentences: int | None = 5

    def __post_init__(self) -> None:
        check_counts(self, "min_words_per_line", "max_word_length", "min_sentences")

    def _lines(self) -> LineRules:
        return LineRules(
            self.require_terminal_punctuation,
            self.remove_citations,
            self.min_words_per_line,
            self.max_word_length,
            self.drop_javascript,
            self.drop_policy,
        )

    def measures(self) -> tuple[Measure, ...]:
        return (C4Measures(self._lines()),)

    def cuts(self) -> tuple[Cut, ...]:
        return (
            *bound("c4_lorem_ipsum", at_most=0 if self.drop_lorem_ipsum else None),
            *bound("c4_curly_brackets", at_most=0 if self.drop_curly_brackets else None),
            *bound("c4_sentences", at_least=self.min_sentences),
        )

    def edit(self) -> Edit:
        return C4Lines(self._lines(), self.when)
