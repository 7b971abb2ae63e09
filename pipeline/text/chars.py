"""What a character is: one word of flags and one lower-case letter for each code point, the same under every Python.

`CLASS[code] & ALPHA` and `LOWER[code]`, code being a Unicode code point. The tables come from chars.npz (make_chars.py wrote it
from UNICODE_VERSION); loading takes 8 ms and 6.7 MB of memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

SPACE: Final = 1  # str.isspace
ALPHA: Final = 2  # str.isalpha: categories L*
NUMBER: Final = 4  # categories N*
MARK: Final = 8  # categories M*: combining
PUNCT: Final = 16  # categories P*
SYMBOL: Final = 32  # categories S*
NOSPACE: Final = 64  # letters and marks of Han, Hiragana, Katakana, Thai, Lao, Khmer and Myanmar
TERMINAL: Final = 128  # ends a sentence or line, in FineWeb's sense (159 characters; no quote, no ellipsis)
CONTROL: Final = 256  # category Cc, with tab and newline
LINEBREAK: Final = 512  # str.splitlines cuts here
BARE: Final = 1024  # a word of these alone is a symbol and no word, in FineWeb's sense
UPPER: Final = 2048  # categories Lu, Lt
DIGIT: Final = 4096  # category Nd
FORMAT: Final = 8192  # category Cf: zero-width and direction characters, soft hyphen, byte order mark
SENTENCE: Final = 16384  # a sentence ends after it, in the sense of FineWeb's sentence splitter
ICON: Final = 32768  # category So: pictures, emoji, dingbats


def _load() -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint32], str]:
    with np.load(Path(__file__).with_name("chars.npz"), allow_pickle=False) as table:
        classes = np.repeat(table["values"], table["lengths"])
        lower = np.arange(len(classes), dtype=np.uint32)
        lower[table["upper"]] = table["lower"]
        version = str(table["version"])
    return classes, lower, version


CLASS, LOWER, UNICODE_VERSION = _load()  # left writable: numba's signatures tell read-only arrays apart
