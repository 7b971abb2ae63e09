"""The rules of Gopher (Rae et al. 2021, "Scaling Language Models", appendix A1), as FineWeb applies them. They only list cuts."""

from __future__ import annotations

from dataclasses import dataclass

from corpusmill.filters.measures import GOPHER_STOP_WORDS, StopWords, TextMeasures
from corpusmill.filters.rule import FilterRule, bound, check_counts, check_shares
from corpusmill.pipeline.engine.stage import Measure
from corpusmill.pipeline.rules import Cut


@dataclass(frozen=True)
class GopherRepetition(FilterRule):
    """Repeated lines, paragraphs and n-grams (table A1 of the paper). Fields are shares; null is off. An empty text is cut too.

    Lines and paragraphs that are blank do not count. "Characters" are shares of all characters of the text. The most frequent 2- to
    4-gram counts with the spaces between its words and with overlaps; repeated 5- to 10-grams without spaces and overlaps.
    """

    max_duplicate_paragraphs: float | None = 0.30
    max_duplicate_paragraph_characters: float | None = 0.20
    max_duplicate_lines: float | None = 0.30
    max_duplicate_line_characters: float | None = 0.20
    max_top_2gram_characters: float | None = 0.20
    max_top_3gram_characters: float | None = 0.18
    max_top_4gram_characters: float | None = 0.16
    max_duplicate_5gram_characters: float | None = 0.15
    max_duplicate_6gram_characters: float | None = 0.14
    max_duplicate_7gram_characters: float | None = 0.13
    max_duplicate_8gram_characters: float | None = 0.12
    max_duplicate_9gram_characters: float | None = 0.11
    max_duplicate_10gram_characters: float | None = 0.10

    def __post_init__(self) -> None:
        check_shares(self, *(name for name in self.__dataclass_fields__ if name.startswith("max_")))

    def measures(self) -> tuple[Measure, ...]:
        return (TextMeasures(short_lines=(), stop_words=()),)

    def cuts(self) -> tuple[Cut, ...]:
        return (
            Cut("chars", at_least=1),
            *bound("dup_paragraph_share", at_most=self.max_duplicate_paragraphs),
            *bound("dup_paragraph_char_share", at_most=self.max_duplicate_paragraph_characters),
            *bound("dup_line_share", at_most=self.max_duplicate_lines),
            *bound("dup_line_char_share", at_most=self.max_duplicate_line_characters),
            *bound("top_2gram_char_share", at_most=self.max_top_2gram_characters),
            *bound("top_3gram_char_share", at_most=self.max_top_3gram_characters),
            *bound("top_4gram_char_share", at_most=self.max_top_4gram_characters),
            *bound("dup_5gram_char_share", at_most=self.max_duplicate_5gram_characters),
            *bound("dup_6gram_char_share", at_most=self.max_duplicate_6gram_characters),
            *bound("dup_7gram_char_share", at_most=self.max_duplicate_7gram_characters),
            *bound("dup_8gram_char_share", at_most=self.max_duplicate_8gram_characters),
            *bound("dup_9gram_char_share", at_most=self.max_duplicate_9gram_characters),
            *bound("dup_10gram_char_share", at_most=self.max_duplicate_10gram_characters),
        )


@dataclass(frozen=True)
class GopherQuality(FilterRule):
    """Words, symbols, bullets, ellipses, letters and stop words (section A1.1 of the paper). null is off.

    Ratios of `#`, of ellipses and of words with a letter are to all words, punctuation marks included (FineWeb's reading, under which
    ordinary prose lies near 0.84). At least two different stop words of the paper's eight must occur.
    """

    min_words: int | None = 50
    max_words: int | None = 100_000
    min_mean_word_length: float | None = 3
    max_mean_word_length: float | None = 10
    max_hash_ratio: float | None = 0.1
    max_ellipsis_ratio: float | None = 0.1
    max_bullet_lines: float | None = 0.9
    max_ellipsis_lines: float | None = 0.3
    min_alpha_words: float | None = 0.8
    min_stop_words: int | None = 2
    stop_words: tuple[str, ...] = GOPHER_STOP_WORDS
    stop_words_any_case: bool = False

    def __post_init__(self) -> None:
        check_shares(self, "max_bullet_lines", "max_ellipsis_lines", "min_alpha_words")
        check_counts(self, "min_words", "max_words", "min_mean_word_length", "max_mean_word_length")
        check_counts(self, "max_hash_ratio", "max_ellipsis_ratio", "min_stop_words")

    def _stop_words(self) -> StopWords:
        return StopWords(self.stop_words, self.stop_words_any_case)

    def measures(self) -> tuple[Measure, ...]:
        stop_words = (self._stop_words(),) if self.min_stop_words is not None else ()
        return (TextMeasures(short_lines=(), stop_words=stop_words),)

    def cuts(self) -> tuple[Cut, ...]:
        return (
            *bound("words", at_least=self.min_words, at_most=self.max_words),
            *bound("mean_word_length", at_least=self.min_mean_word_length, at_most=self.max_mean_word_length),
            *bound("hash_ratio", at_most=self.max_hash_ratio),
            *bound("ellipsis_ratio", at_most=self.max_ellipsis_ratio),
            *bound("bullet_line_share", at_most=self.max_bullet_lines),
            *bound("ellipsis_line_share", at_most=self.max_ellipsis_lines),
            *bound("alpha_word_share", at_least=self.min_alpha_words),
            *bound(self._stop_words().column(), at_least=self.min_stop_words),
        )
