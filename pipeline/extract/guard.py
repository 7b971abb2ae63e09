"""Extraction behind a guard: one long-lived child process a worker, which a bad page may end without harm to any other page.

Pages go in batches over a pipe, at 0.15 ms a page of 14 kB (2 % beside trafilatura-fast).
"""

from __future__ import annotations

import atexit
import subprocess
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from corpusmill.pipeline.engine.child import Child, ChildDied, blame
from corpusmill.pipeline.extract.page import Outcome, Page, Settings

PAGES_A_CHILD = 10_000
"""A child is replaced after so many pages, whatever its libraries keep (a start costs 0.5 s, these pages minutes)."""


class Guard(Child):
    """Extracts pages in a child process."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            "corpusmill.pipeline.extract.guard_child",
            {"settings": asdict(settings)},
            f"extraction with {settings.extractor}",
        )
        self.settings = settings
        self.served = 0

    def run(self, pages: Sequence[Page]) -> list[Outcome]:
        """An outcome a page, in order. Raises RunError when the child does not start."""
        outcomes: list[Outcome] = []
        deaths: Counter[int] = Counter()  # of the page in work, by return code
        while len(outcomes) < len(pages):
            before = len(outcomes)
            try:
                self._extract(pages[before:], outcomes)
            except ChildDied as death:
                if len(outcomes) > before:
                    deaths.clear()
                deaths[death.code] += 1
                reason = blame(deaths)
                if reason:
                    outcomes.append(Outcome(failed=reason))
                    deaths.clear()
        return outcomes

    def start(self) -> subprocess.Popen[bytes]:
        """The child, warm, and another one after PAGES_A_CHILD; RunError when it cannot start."""
        if self.served >= PAGES_A_CHILD:
            self.close()
        if self.child is None:
            self.served = 0
        return super().start()

    def _extract(self, pages: Sequence[Page], outcomes: list[Outcome]) -> None:
        """Append outcomes until all are in, the child has said that it ends, or it dies (ChildDied)."""
        self.ask(
            {"pages": [(page.record, page.mime) for page in pages]},
            *(page.block for page in pages),
        )
        answers = 0
        for _ in pages:
            head, payloads = self.answer()
            text = payloads[0].decode() if payloads else None
            outcomes.append(Outcome(text, head["reason"], head["failed"], head["meta"]))
            answers += 1
            if head["last"]:
                self.close()
                break
        self.served += answers


class _Local(threading.local):
    """A guard a thread: the parent-death signal is tied to the thread that started the child."""

    guard: Guard | None = None


_local = _Local()


def guard_of(settings: Settings) -> Guard:
    """This worker's guard, kept from unit to unit; another one when the settings differ."""
    if _local.guard is None or _local.guard.settings != settings:
        if _local.guard is not None:
            _local.guard.close()
        _local.guard = Guard(settings)
        atexit.register(_local.guard.close)
    return _local.guard
