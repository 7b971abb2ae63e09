"""Web and e-mail addresses inside kernels: the splitter leaves them whole. Linear: no part of an address may hold an `@`."""

from __future__ import annotations

import numba

from corpusmill.pipeline.text import chars, words
from corpusmill.pipeline.text.spelling import Codes, Flags

FIGURE, LETTER, SMALL, HOST = words.FIGURE, words.LETTER, words.SMALL, words.HOST
NUMBER = chars.NUMBER
DOT, PLUS, MINUS, COLON, SLASH, AT, UNDERSCORE, QUESTION, NUMBER_SIGN = 46, 43, 45, 58, 47, 64, 95, 63, 35


@numba.njit(nogil=True)
def host_ends(code: Codes, flags: Flags, a: int, b: int) -> bool:
    """Whether code[a:b] is a host name of letters with, after it, nothing, a port or a path."""
    end = a
    label = a
    labels = 0
    while end < b and (
        flags[end] & HOST or code[end] == DOT or code[end] == MINUS or code[end] == UNDERSCORE
    ):
        if code[end] == DOT:
            if end == label or end - label > 64 or not flags[label] & HOST or not flags[end - 1] & HOST:
                return False
            labels += 1
            label = end + 1
        end += 1
    if labels == 0 or end - label < 2 or end - label > 63:
        return False
    for i in range(label, end):
        if not flags[i] & SMALL:
            return False
    if end < b and code[end] == COLON:
        port = end + 1
        while port < b and flags[port] & FIGURE:
            port += 1
        if port - end < 3 or port - end > 6:
            return False
        end = port
    return end == b or code[end] == SLASH or code[end] == QUESTION or code[end] == NUMBER_SIGN


@numba.njit(nogil=True)
def address(code: Codes, flags: Flags, a: int, b: int) -> bool:
    """Whether code[a:b] is a web or e-mail address: scheme and user are optional."""
    dots = False
    for i in range(a, b):
        dots |= code[i] == DOT
    if not dots:
        return False
    if host_ends(code, flags, a, b):
        return True
    i = a
    while i < b and (
        flags[i] & (LETTER | NUMBER)
        or code[i] == UNDERSCORE
        or code[i] == PLUS
        or code[i] == MINUS
        or code[i] == DOT
    ):
        i += 1
    scheme = i - a >= 2 and i + 2 < b and code[i] == COLON and code[i + 1] == SLASH and code[i + 2] == SLASH
    if scheme and host_ends(code, flags, i + 3, b):
        return True
    for at in range(a + 1, b - 1):  # noqa: SIM110 (numba has no any())
        if code[at] == AT and host_ends(code, flags, at + 1, b):
            return True
    return False
