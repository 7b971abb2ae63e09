"""Extractors that misbehave for real, for the tests of the guard. A page's first word says what it does."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

ASKED: list[str] = []


def extract(page: str) -> str:
    """Crash, spin, eat memory, print or raise, as the page asks; else give the page back."""
    ASKED.append(page)
    word, _, rest = page.partition(" ")
    if word == "segfault":
        ctypes.string_at(0)
    if word == "spin":
        while True:
            pass
    if word == "eat":
        hoard = []
        while True:
            hoard.append(bytearray(1 << 24))
    if word == "print":
        print("noise", flush=True)
        os.write(1, b"more noise")
    if word == "raise":
        raise LookupError(rest)
    if word == "killed_once" and not Path(rest).exists():
        Path(rest).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "recurse":
        return extract(page)
    return page


def no_start(page: str) -> str:
    """Fails in the warm-up."""
    raise RuntimeError("this extractor cannot start")
