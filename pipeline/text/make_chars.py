"""Writes chars.npz, the table behind chars.py: `python -m corpusmill.pipeline.text.make_chars`.

It runs on a Python whose `unicodedata` is of version PINNED (Python 3.11 has 14.0.0), so that the table, and with it every
measure, is the same under Pythons that know newer Unicode. Takes 1 s; nobody needs to run it except to raise PINNED.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.text import chars

PINNED = "14.0.0"

# Letters and marks whose character name starts so belong to scripts that put no space between words.
NOSPACE_NAMES = (
    "CJK UNIFIED IDEOGRAPH",
    "CJK COMPATIBILITY IDEOGRAPH",
    "IDEOGRAPHIC",
    "HIRAGANA",
    "KATAKANA",
    "HALFWIDTH KATAKANA",
    "THAI ",
    "LAO ",
    "KHMER ",
    "MYANMAR ",
)

# FineWeb's terminal punctuation: Unicode's property Sentence_Terminal (15.1, less 13 characters of compatibility forms,
# Coptic and Balinese) and three Khmer signs.
TERMINAL = """
21 2e 3f 589 61d-61f 6d4 700-702 7f9 837 839 83d-83e 964-965 104a-104b 1362 1367-1368 166e 1735-1736 17d4-17d6 17d9-17da
1803 1809 1944-1945 1aa8-1aab 1b5a-1b5b 1b5e-1b5f 1b7d-1b7e 1c3b-1c3c 1c7e-1c7f 203c-203d 2047-2049 2e2e 2e3c 2e53-2e54
3002 a4ff a60e-a60f a6f3 a6f7 a876-a877 a8ce-a8cf a92f a9c8-a9c9 aa5d-aa5f aaf0-aaf1 abeb fe52 fe56-fe57 ff01 ff0e ff1f
ff61 10a56-10a57 10f55-10f59 10f86-10f89 11047-11048 110be-110c1 11141-11143 111c5-111c6 111cd 111de-111df 11238-11239
1123b-1123c 112a9 1144b-1144c 115c2-115c3 115c9-115d7 11641-11642 1173c-1173e 11944 11946 11a42-11a43 11a9b-11a9c
11c41-11c42 11ef7-11ef8 11f43-11f44 16a6e-16a6f 16af5 16b37-16b38 16b44 16e98 1bc9f 1da88
"""

# Of these the ones after which FineWeb's sentence splitter does not cut.
NOT_SENTENCE = """
61d-61e 837 839 83d-83e 17d4-17d6 17d9-17da 1b7d-1b7e 2e53-2e54 10f55-10f59 10f86-10f89 11944 11946 11ef7-11ef8 11f43-11f44 16e98
"""

# With TERMINAL, the characters of which FineWeb's "symbol" words consist: controls, most of ASCII punctuation, some of CJK.
BARE = """
0-8 b-1f 22-2d 2f 3a-3e 40 5b-60 7b-9f ab b4 bb 2013-2014 2019 201c-201e 2026 2236 2501 25ba 3001 3008-300d 3010-3011 ff05
ff08-ff09 ff0c ff11 ff1a-ff1b ff5e
"""

Table = npt.NDArray[np.uint16]

CATEGORY_FLAGS = {"N": chars.NUMBER, "M": chars.MARK, "P": chars.PUNCT, "S": chars.SYMBOL}


def points(ranges: str) -> list[int]:
    """Code points of "21 2e 61d-61f" in hexadecimal."""
    found: list[int] = []
    for item in ranges.split():
        first, _, last = item.partition("-")
        found.extend(range(int(first, 16), int(last or first, 16) + 1))
    return found


def flags(code: int) -> int:
    """The flags that `unicodedata` knows; surrogates have none, as no text contains them."""
    if 0xD800 <= code < 0xE000:
        return 0
    char = chr(code)
    category = unicodedata.category(char)
    found = CATEGORY_FLAGS.get(category[0], 0)
    found |= chars.SPACE if char.isspace() else 0
    found |= chars.ALPHA if char.isalpha() else 0
    found |= chars.LINEBREAK if len(f"a{char}b".splitlines()) == 2 else 0
    found |= chars.CONTROL if category == "Cc" else 0
    found |= chars.FORMAT if category == "Cf" else 0
    found |= chars.UPPER if category in ("Lu", "Lt") else 0
    found |= chars.DIGIT if category == "Nd" else 0
    found |= chars.ICON if category == "So" else 0
    named = unicodedata.name(char, "").startswith(NOSPACE_NAMES)
    found |= chars.NOSPACE if named and category[0] in "LM" else 0
    return found


def runs(values: Table) -> tuple[npt.NDArray[np.uint32], Table]:
    """Run lengths and run values of an array."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(values)) + 1])
    return np.diff(np.concatenate([starts, [len(values)]])).astype(np.uint32), values[starts]


def main() -> None:
    if unicodedata.unidata_version != PINNED:
        raise SystemExit(f"this Python has Unicode {unicodedata.unidata_version}, the table is of {PINNED}")
    classes = np.array([flags(code) for code in range(0x110000)], dtype=np.uint16)
    classes[points(TERMINAL)] |= chars.TERMINAL | chars.SENTENCE | chars.BARE
    classes[points(NOT_SENTENCE)] &= ~np.uint16(chars.SENTENCE)
    classes[points(BARE)] |= chars.BARE
    lengths, values = runs(classes)
    # "İ".lower() is two characters: the first is the simple lower case.
    pairs = [(code, ord(chr(code).lower()[0])) for code in range(0x110000) if chr(code).lower() != chr(code)]
    upper, lower = np.array(pairs, dtype=np.uint32).T
    path = Path(__file__).with_name("chars.npz")
    np.savez_compressed(
        path, lengths=lengths, values=values, upper=upper, lower=lower, version=np.array(PINNED)
    )


if __name__ == "__main__":
    main()
