"""Where words begin: the rules of the splitter, as flags of characters, and the splitter for one text.

A text is cut at white space; each piece then loses opening characters at its front and closing ones at its end, one by one
(`(Hello!)` is `( Hello ! )`), and what is left is cut inside at ellipses, pictures, operators between digits, commas, hyphens,
slashes and colons before a letter, and a full stop between a small and a capital letter. Web addresses stay whole;
contractions.py lists the words that are cut or kept against the rules. Punctuation is a word too. Every character of a piece
belongs to exactly one word.

The rules are near to the blank English pipeline of spaCy, because the thresholds of FineWeb were set with it. Different are:
Han, Kana, Thai, Lao, Khmer and Myanmar letters are one word each, with the marks on them (there they are one long word);
addresses that begin with a number are cut like other words;
letters without case count as small ones. SPLITTER names the rules: thresholds are valid only with the splitter they were set with.
"""

# ruff: noqa: RUF001
from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.text import chars
from corpusmill.pipeline.text.contractions import EXCEPTIONS

SPLITTER: Final = "english-1"

# Flags above the 16 of chars.CLASS.
OPENS: Final = 1 << 16  # cut off at the front of a piece
CLOSES: Final = 1 << 17  # cut off at its end
QUOTE: Final = 1 << 18
BEFORE_STOP: Final = 1 << 19  # a full stop after it, at the end of a piece, is cut off
CURRENCY: Final = 1 << 20
FIGURE: Final = 1 << 21  # ASCII digits
LETTER: Final = 1 << 22  # with combining marks
SMALL: Final = 1 << 23  # letters that are no capitals
HOST: Final = 1 << 24  # may begin and end a label of a host name
INSIDE: Final = 1 << 25  # a cut inside a piece can begin here
START: Final = 1 << 31  # set by the splitter: a word begins here

QUOTES = "'\"”“`‘´’‚,„»«「」『』（）〔〕【】《》〈〉〈〉⟦⟧"
PUNCTUATION = "….,:;!?¿؟¡()[]{}<>_#*&。？！，、；：～·।،۔؛٪"
CURRENCIES = "$£€¥฿₽﷼₴₠₡₢₣₤₥₦₧₨₩₪₫₭₮₯₰₱₲₳₵₶₷₸₹₺₻₼₾₿"
UNITS = """
km km² km³ m m² m³ dm dm² dm³ cm cm² cm³ mm mm² mm³ ha µm nm yd in ft kg g mg µg t lb oz m/s km/h kmh mph hPa Pa mbar mb MB kb KB
gb GB tb TB T G M K % км км² км³ м м² м³ дм дм² дм³ см см² см³ мм мм² мм³ нм кг г мг м/с км/ч кПа Па мбар Кб КБ кб Мб МБ мб Гб ГБ
гб Тб ТБ كم كم² كم³ م م² م³ سم سم² سم³ مم مم² مم³ غرام جرام جم كغ ملغ كوب اكواب
"""
LONGEST: Final = 12  # code points of the longest exception or unit that is looked up

SLOTS: Final = 1 << 13  # of a table of spellings; that of the exceptions is under a quarter full


def _flagged(table: npt.NDArray[np.uint32], characters: str, flag: int) -> None:
    table[[ord(char) for char in characters]] |= np.uint32(flag)


@lru_cache(maxsize=1)
def table() -> npt.NDArray[np.uint32]:
    """For each code point chars.CLASS and the flags above; 4.5 MB, made once a process in 10 ms."""
    flags = chars.CLASS.astype(np.uint32)
    code = np.arange(len(flags))
    letter = (flags & chars.ALPHA) != 0
    small = letter & ((flags & chars.UPPER) == 0)
    flags[(flags & (chars.ALPHA | chars.MARK)) != 0] |= np.uint32(LETTER)
    flags[small] |= np.uint32(SMALL | BEFORE_STOP)
    flags[(flags & chars.ICON) != 0] |= np.uint32(OPENS | CLOSES | INSIDE)
    flags[(code >= 0xA1) & (code <= 0xFFFF)] |= np.uint32(HOST)
    _flagged(flags, "0123456789", FIGURE | BEFORE_STOP | HOST)
    _flagged(flags, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", HOST)
    _flagged(flags, QUOTES, QUOTE | OPENS | CLOSES | BEFORE_STOP)
    _flagged(flags, PUNCTUATION.replace(".", ""), OPENS | CLOSES | BEFORE_STOP)
    _flagged(flags, "%²-+|", BEFORE_STOP)
    _flagged(flags, "§%=", OPENS)
    _flagged(flags, "—–", OPENS | CLOSES)
    _flagged(flags, CURRENCIES, CURRENCY | OPENS)
    _flagged(flags, ".…+-*^,–—~:<>=/", INSIDE)
    return flags


def spelling_hash(word: str) -> int:
    """The 64-bit hash that the kernels give a word; 0 is free for "no word"."""
    value = 0xCBF29CE484222325
    for char in word:
        value = (value ^ ord(char)) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        value ^= value >> 32
    return value or 1


def hash_table(entries: Iterable[tuple[int, int]]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """(hash, value) pairs as what spelling.look_up reads: open addressing, slot = hash mod SLOTS; the hash 0 is a free slot."""
    keys = np.zeros(SLOTS, dtype=np.uint64)
    values = np.zeros(SLOTS, dtype=np.int64)
    for hashed, value in entries:
        slot = hashed % SLOTS
        while keys[slot]:
            slot = (slot + 1) % SLOTS
        keys[slot], values[slot] = hashed, value
    return keys, values


@lru_cache(maxsize=1)
def exceptions() -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """A table of hashes of spellings, and the lengths of their words, 4 bits each, first lowest.

    Units, which only count after a digit, are hashed with a leading "0" and have the value 0.
    """
    entries = {
        word: sum(length << 4 * i for i, length in enumerate(lengths)) for word, lengths in EXCEPTIONS.items()
    }
    entries |= {f"0{unit}": 0 for unit in UNITS.split()}
    return hash_table((spelling_hash(word), value) for word, value in entries.items())


def words(text: str) -> list[str]:
    """The words of one text, in order, punctuation among them. For one text: the kernels do columns (filters/measures.py)."""
    from corpusmill.pipeline.text.split import splitter

    code = np.frombuffer(text.encode("utf-32-le"), dtype=np.int32).copy()
    flags = table()[code]
    splitter()(code, flags, len(text), *exceptions())
    starts = np.flatnonzero(flags & np.uint32(START)).tolist()
    return ["".join(text[a:b].split()) for a, b in zip(starts, [*starts[1:], len(text)], strict=False)]
