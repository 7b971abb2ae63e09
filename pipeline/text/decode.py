"""UTF-8 of an Arrow column as code points, inside kernels. Arrow guarantees valid UTF-8; a text that were not could not be read past its end."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from corpusmill.pipeline.text.spelling import Codes, Flags


@numba.njit(nogil=True)
def code_points(data: Any, a: Any, b: Any) -> Any:
    """Code points in data[a:b]: bytes that are no continuation."""
    found = 0
    for i in range(a, b):
        found += (data[i] & 0xC0) != 0x80
    return found


@numba.njit(nogil=True)
def decode(data: Any, a: Any, b: Any, table: Any, code: Codes, flags: Flags) -> Any:
    """Fills `code` and `flags` (words.table() of each) from data[a:b], as far as they reach; the result is the number filled."""
    n = 0
    i = a
    while i < b and n < len(code):
        c: Any = np.int64(data[i])
        if c < 0x80:
            i += 1
        elif c < 0xE0 and i + 1 < b:
            c = (c & 0x1F) << 6 | (data[i + 1] & 0x3F)
            i += 2
        elif c < 0xF0 and i + 2 < b:
            c = (c & 0x0F) << 12 | np.int64(data[i + 1] & 0x3F) << 6 | (data[i + 2] & 0x3F)
            i += 3
        elif i + 3 < b:
            c = (
                (c & 0x07) << 18
                | np.int64(data[i + 1] & 0x3F) << 12
                | np.int64(data[i + 2] & 0x3F) << 6
                | (data[i + 3] & 0x3F)
            )
            i += 4
        else:
            c = 0xFFFD
            i = b
        code[n] = c
        flags[n] = table[min(c, 0x10FFFF)]
        n += 1
    return n
