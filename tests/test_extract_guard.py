from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from extract_runs import article, http
from runs import alive

from corpusmill.pipeline.errors import RunError
from corpusmill.pipeline.extract.guard import Guard
from corpusmill.pipeline.extract.html import extractor
from corpusmill.pipeline.extract.page import Outcome, Page, Settings, process

HOSTILE = Settings(extractor="hostile:extract", cpu_s=2.0, memory_mb=600)


def page(text: str) -> Page:
    return Page("resource", "text/html", text.encode())


@pytest.fixture
def guard() -> Iterator[Guard]:
    guard = Guard(HOSTILE)
    yield guard
    guard.close()


def states(outcomes: list[Outcome]) -> list[str | None]:
    return [outcome.text or outcome.reason or outcome.failed for outcome in outcomes]


def child_of(guard: Guard) -> int:
    return guard.start().pid


@pytest.mark.parametrize(
    ("bad", "failure"),
    [
        ("segfault now", "crash:SIGSEGV"),
        ("spin for ever", "cpu_limit"),
        ("eat it all", "memory"),
        ("raise x", "exception:LookupError"),
        ("recurse on", "exception:RecursionError"),
    ],
)
def test_a_bad_page_costs_itself_alone(guard: Guard, bad: str, failure: str) -> None:
    outcomes = guard.run([page("one"), page("two"), page(bad), page("three"), page("four")])
    assert states(outcomes) == ["one", "two", failure, "three", "four"]


def test_every_page_of_a_batch_may_be_bad(guard: Guard) -> None:
    outcomes = guard.run([page("eat 1"), page("segfault 2"), page("eat 3"), page("raise 4"), page("ok")])
    assert states(outcomes) == ["memory", "crash:SIGSEGV", "memory", "exception:LookupError", "ok"]


def test_what_a_library_prints_does_not_reach_the_answers(guard: Guard) -> None:
    assert states(guard.run([page("print a"), page("print b")])) == ["print a", "print b"]


def test_a_kill_from_outside_changes_no_row(guard: Guard, tmp_path: Path) -> None:
    marker = tmp_path / "killed"
    outcomes = guard.run([page("one"), page(f"killed_once {marker}"), page("two")])
    assert marker.exists()
    assert states(outcomes) == ["one", f"killed_once {marker}", "two"]


def test_an_idle_child_may_be_killed(guard: Guard) -> None:
    for _ in range(5):
        os.kill(child_of(guard), signal.SIGKILL)
        assert states(guard.run([page("a"), page("b")])) == ["a", "b"]


def test_a_storm_of_kills_changes_no_row(guard: Guard) -> None:
    """At random moments, but two to a batch: on a slow machine a third could meet the same page, and that one would be blamed."""
    texts = [f"{number} " + "x" * 200_000 for number in range(60)]
    stop = threading.Event()
    left = [0]

    def storm() -> None:
        dice = random.Random(1)
        while not stop.wait(dice.uniform(0.05, 0.4)):
            child = guard.child
            if left[0] and child is not None and child.poll() is None:
                left[0] -= 1
                child.send_signal(signal.SIGKILL)

    thread = threading.Thread(target=storm)
    thread.start()
    try:
        for _ in range(8):
            left[0] = 2
            assert states(guard.run([page(text) for text in texts])) == texts
            time.sleep(0.05)
    finally:
        stop.set()
        thread.join()


def test_one_child_serves_all_batches(guard: Guard) -> None:
    first = child_of(guard)
    for _ in range(3):
        guard.run([page("a")])
    assert child_of(guard) == first


def test_an_extractor_that_cannot_start_is_an_error_at_once_with_its_last_words() -> None:
    guard = Guard(Settings(extractor="hostile:no_start"))
    with pytest.raises(RunError, match="this extractor cannot start"):
        guard.run([page("a")])


def test_outcomes_are_those_of_a_direct_call() -> None:
    settings = Settings(extractor="trafilatura-fast")
    extract = extractor(settings.extractor, settings.output)
    sent = [Page("response", "application/http", http(article(number).encode())) for number in range(5)]
    sent += [
        Page("response", "application/http", http(b"", status="404 x")),
        page("<p>\u00e4\ud7ff</p>"),
        page(""),
    ]
    guard = Guard(settings)
    try:
        assert guard.run(sent) == [process(each, settings, extract) for each in sent]
    finally:
        guard.close()


def test_a_megabyte_each_way_does_not_block(guard: Guard) -> None:
    texts = [f"{number} " + "x" * 3_000_000 for number in range(8)]
    assert [outcome.text for outcome in guard.run([page(text) for text in texts])] == texts


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
@pytest.mark.parametrize("work", ["idle", "spin for ever"])
def test_the_child_dies_with_its_parent_even_while_it_computes(work: str) -> None:
    script = textwrap.dedent(
        f"""
        import threading, time
        from corpusmill.pipeline.extract.guard import Guard
        from corpusmill.pipeline.extract.page import Page, Settings
        guard = Guard(Settings(extractor="hostile:extract", cpu_s=600.0))
        print(guard.start().pid, flush=True)
        if {work!r} != "idle":
            guard.run([Page("resource", "text/html", {work!r}.encode())])
        time.sleep(600)
        """
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        time.sleep(0.3)
        assert alive(child)
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + 20
        while alive(child) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not alive(child)


def test_the_folder_of_the_call_shadows_no_module_of_the_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("numpy", "trafilatura", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    guard = Guard(Settings())
    assert guard.start().poll() is None
    guard.close()
