"""Python loads this in every process of a run that has this folder on PYTHONPATH: marked pages then break whoever works on them, for real.

`corpusmill.pipeline.extract.page` and `corpusmill.filters.measures` are loaded as they are, then the function that gets the page's
bytes or the rows' texts looks for a mark first. What follows is no mock: a SIGSEGV, a loop without end, memory until none is given
(asked for and not touched, so that nobody else on the machine has less).
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys


def misbehave(data: bytes, where: str) -> None:
    """Do what a mark for this place says."""
    _, found, rest = data.partition(f"chaosmark {where} ".encode())
    if not found:
        return
    if rest.startswith(b"segfault"):
        import ctypes

        ctypes.string_at(0)
    if rest.startswith(b"spin"):
        while True:
            pass
    if rest.startswith(b"eat"):
        import numpy

        hoard = []
        while True:
            hoard.append(numpy.empty(1 << 27, dtype=numpy.uint8))


def hook_page(module) -> None:  # type: ignore[no-untyped-def]
    real = module.process

    def process(page, settings, extract):  # type: ignore[no-untyped-def]
        misbehave(page.block, "extract")
        return real(page, settings, extract)

    module.process = process


def hook_measures(module) -> None:  # type: ignore[no-untyped-def]
    from corpusmill.pipeline.engine.stage import Backstop

    real = module.TextMeasures.measure
    module.TextMeasures.backstop = Backstop(cpu_s=2.0)  # not a minute for each try

    def measure(self, rows):  # type: ignore[no-untyped-def]
        for text in rows["text"].to_pylist():
            misbehave(text.encode(), "measures")
        return real(self, rows)

    module.TextMeasures.measure = measure


HOOKS = {"corpusmill.pipeline.extract.page": hook_page, "corpusmill.filters.measures": hook_measures}


class Loader(importlib.abc.Loader):
    """The real loader, then the hook."""

    def __init__(self, real, hook) -> None:  # type: ignore[no-untyped-def]
        self.real, self.hook = real, hook

    def create_module(self, spec):  # type: ignore[no-untyped-def]
        return self.real.create_module(spec)

    def exec_module(self, module) -> None:  # type: ignore[no-untyped-def]
        self.real.exec_module(module)
        self.hook(module)


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name not in HOOKS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = Loader(spec.loader, HOOKS[name])
        return spec


sys.meta_path.insert(0, Finder())
