"""TextMeasures: the columns that the Gopher and FineWeb rules cut, from one pass over the texts (kernel.py counts, this divides).

Shares and ratios of nothing are 0. Characters are code points; words are those of pipeline/text/words.py, punctuation included, and
"symbols" are words without a letter, digit or other sign that FineWeb does not call punctuation. Everything but `chars` is measured on
the first 2,097,152 characters of a text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from corpusmill.pipeline.engine.stage import Measure
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.text.chars import LOWER, UNICODE_VERSION
from corpusmill.pipeline.text.words import SPLITTER, exceptions, spelling_hash, table

GOPHER_STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
SHORT_LINE = 30
MAX_STOP_WORDS = 1000

Counts = npt.NDArray[np.int64]

ABOUT = {
    "chars": "code points of the whole text",
    "words": "words that are not symbols, 0 to 2,097,152",
    "symbols": "words that are punctuation alone, 0 to 2,097,152",
    "mean_word_length": "code points a word, symbols not counted, 0 or from 1",
    "hash_ratio": "`#` signs to words and symbols, from 0",
    "ellipsis_ratio": "`...` and `…` to words and symbols, from 0",
    "bullet_line_share": "lines, blank ones too, that begin with `•` or `-` after white space, 0 to 1",
    "ellipsis_line_share": "lines, blank ones too, that end with `...` or `…` before white space, 0 to 1",
    "alpha_word_share": "words and symbols with at least one letter, 0 to 1",
    "lines": "lines between newlines that are not blank",
    "terminal_line_share": "lines whose last character is terminal punctuation of any script, 0 to 1",
    "newline_ratio": "newlines to words and symbols, from 0",
    "dup_line_share": "lines that repeat an earlier one, 0 to 1",
    "dup_line_char_share": "characters of lines that repeat an earlier one, of all characters, 0 to 1",
    "dup_line_char_share_of_lines": "characters of lines that repeat an earlier one, of all but newlines, 0 to 1",
    "dup_paragraph_share": "paragraphs, cut at two or more newlines, that repeat an earlier one, 0 to 1",
    "dup_paragraph_char_share": "characters of paragraphs that repeat an earlier one, of all characters, 0 to 1",
    **{
        f"top_{n}gram_char_share": f"characters of the most frequent {n} words in a row, joined by spaces, times their count "
        "(overlaps count), of all characters, from 0"
        for n in range(2, 5)
    },
    **{
        f"dup_{n}gram_char_share": f"characters of {n} words in a row that stood before, of all characters, 0 to 1"
        for n in range(5, 11)
    },
}

INTEGERS = ("chars", "words", "symbols", "lines")


@dataclass(frozen=True)
class StopWords:
    """A list of which different words are counted; `any_case` counts "The" as "the"."""

    words: tuple[str, ...] = GOPHER_STOP_WORDS
    any_case: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", tuple(sorted(set(self.words))))

    def column(self) -> str:
        """`stop_words` for Gopher's eight, else that with a hash of the list."""
        if self == StopWords():
            return "stop_words"
        spelled = "\n".join((*self.words, str(self.any_case)))
        return f"stop_words_{xxhash.xxh3_64_hexdigest(spelled.encode())[:8]}"


def short_line_column(limit: int) -> str:
    return "short_line_share" if limit == SHORT_LINE else f"short_line_share_{limit}"


@dataclass(frozen=True)
class TextMeasures(Measure):
    """All counts of one pass. `short_lines` are lengths up to which a line is short; each list of `stop_words` is a column."""

    version: ClassVar[int] = 1

    short_lines: tuple[int, ...] = (SHORT_LINE,)
    stop_words: tuple[StopWords, ...] = (StopWords(),)
    splitter: str = SPLITTER
    unicode: str = UNICODE_VERSION

    def __post_init__(self) -> None:
        if (self.splitter, self.unicode) != (SPLITTER, UNICODE_VERSION):
            raise RecipeError(
                f"measures were made with splitter {self.splitter} and Unicode {self.unicode}, this version of corpusmill has "
                f"{SPLITTER} and {UNICODE_VERSION}: leave both fields out and measure again"
            )
        if len(self.stop_words) > 60 or sum(len(stop.words) for stop in self.stop_words) > MAX_STOP_WORDS:
            raise RecipeError(
                f"stop words: at most 60 lists with {MAX_STOP_WORDS} words together; shorten the lists"
            )

    def joined(self, other: TextMeasures) -> TextMeasures:
        """One operation with the columns of both."""
        return replace(
            self,
            short_lines=tuple(sorted({*self.short_lines, *other.short_lines})),
            stop_words=tuple(sorted({*self.stop_words, *other.stop_words}, key=StopWords.column)),
        )

    def schema(self) -> pa.Schema:
        fields = [
            pa.field(name, pa.int64() if name in INTEGERS else pa.float64(), metadata={"about": text})
            for name, text in ABOUT.items()
        ]
        for limit in self.short_lines:
            about = f"lines of at most {limit} characters, 0 to 1"
            fields.append(pa.field(short_line_column(limit), pa.float64(), metadata={"about": about}))
        for stop in self.stop_words:
            about = f"different words of: {' '.join(stop.words)}{' (any case)' if stop.any_case else ''}"
            fields.append(pa.field(stop.column(), pa.int64(), metadata={"about": about}))
        return pa.schema(fields)

    def measure(self, rows: pa.Table) -> pa.Table:
        from corpusmill.pipeline.text.kernels import utf8

        data, offsets = utf8(rows["text"])
        counts, short, stops = self.counts(data, offsets)
        null = rows["text"].is_null().to_numpy() if rows["text"].null_count else None
        columns = [
            *ratios(counts),
            *(_share(short[:, k], lines_of(counts)) for k in range(short.shape[1])),
            *stops.T,
        ]
        schema = self.schema()
        arrays = [
            pa.array(column, field.type, mask=null) for column, field in zip(columns, schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=schema)

    def counts(self, data: npt.NDArray[np.uint8], offsets: Counts) -> tuple[Counts, Counts, Counts]:
        """The kernel's counts [texts, COLUMNS], short lines [texts, short_lines] and stop words [texts, stop_words]."""
        from corpusmill.filters.kernel import COLUMNS, kernel, stop_table

        texts = len(offsets) - 1
        counts = np.zeros((texts, COLUMNS), np.int64)
        short = np.zeros((texts, len(self.short_lines)), np.int64)
        stops = np.zeros((texts, len(self.stop_words)), np.int64)
        exact, folded = stop_table(self._entries(False)), stop_table(self._entries(True))
        limits = np.array(self.short_lines, dtype=np.int64)
        kernel()(data, offsets, table(), LOWER, *exceptions(), limits, *exact, *folded, counts, short, stops)
        return counts, short, stops

    def _entries(self, any_case: bool) -> list[tuple[int, int]]:
        """(hash of the word, bits of the lists that have it) of the lists of one kind."""
        bits: dict[str, int] = {}
        for k, stop in enumerate(self.stop_words):
            if stop.any_case != any_case:
                continue
            for word in stop.words:
                spelled = "".join(chr(LOWER[ord(char)]) for char in word) if any_case else word
                bits[spelled] = bits.get(spelled, 0) | 1 << k
        return [(spelling_hash(word), lists) for word, lists in bits.items()]

    def warm(self) -> None:
        from corpusmill.filters.kernel import kernel

        kernel()


def _share(part: Counts, whole: Counts) -> npt.NDArray[np.float64]:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


def lines_of(counts: Counts) -> Counts:
    from corpusmill.filters.kernel import LINES

    return counts[:, LINES]


def ratios(counts: Counts) -> list[npt.NDArray[np.int64] | npt.NDArray[np.float64]]:
    """The columns of ABOUT, in order, from the counts of the kernel."""
    from corpusmill.filters import kernel as k

    def of(column: int) -> Counts:
        return counts[:, column]

    read, pieces, lines = of(k.READ), of(k.PIECES), of(k.LINES)
    return [
        of(k.CHARS),
        of(k.WORDS),
        pieces - of(k.WORDS),
        _share(of(k.WORD_CHARS), of(k.WORDS)),
        _share(of(k.HASHES), pieces),
        _share(of(k.ELLIPSES), pieces),
        _share(of(k.BULLET_LINES), of(k.SHOWN_LINES)),
        _share(of(k.ELLIPSIS_LINES), of(k.SHOWN_LINES)),
        _share(of(k.ALPHA_WORDS), pieces),
        lines,
        _share(of(k.TERMINAL_LINES), lines),
        _share(of(k.NEWLINES), pieces),
        _share(of(k.DUP_LINES), lines),
        _share(of(k.DUP_LINE_CHARS), read),
        _share(of(k.DUP_LINE_CHARS), read - of(k.NEWLINES)),
        _share(of(k.DUP_PARAGRAPHS), of(k.PARAGRAPHS)),
        _share(of(k.DUP_PARAGRAPH_CHARS), read),
        *(_share(of(k.TOP + n), read) for n in range(3)),
        *(_share(of(k.REPEATED + n), read) for n in range(6)),
    ]
