"""A store that does not answer is said not to, while its client still tries."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable

import pytest
from faulty_proxy import Faults, faulty_proxy
from s3_server import Bucket

from corpusmill.pipeline import remote
from corpusmill.pipeline.engine import pulse
from corpusmill.pipeline.engine.place import place_of
from corpusmill.pipeline.engine.pulse import Pulse


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("EVERY_S", 0.05), ("EVERY_SILENT_S", 0.05), ("SILENT_S", 0.3), ("AGAIN_S", 0.5)):
        monkeypatch.setattr(pulse, name, value)


def until(true: Callable[[], object]) -> None:
    """Wait for it; a test that waits for ever is ended from outside."""
    while not true():
        time.sleep(0.02)


def test_a_store_that_went_away_is_named_again_and_again_until_it_is_back(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    with faulty_proxy(bucket.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        with Pulse(place_of(bucket.url("out")), said.append):
            until(lambda: proxy.arrived("HEAD") >= 3)
            assert said == []
            proxy.faults = Faults(reset=1.0, most=10**9)
            until(lambda: len(said) >= 2)
            proxy.faults = Faults()
            until(lambda: "answers again" in said[-1])
        asked = proxy.arrived("HEAD")
        time.sleep(0.3)
        assert proxy.arrived("HEAD") == asked  # the end of the context ends the questions
    lost, *_, back = said
    assert re.match(
        rf"s3://{bucket.name} has not answered for \d+ s \(.*\): every request is tried again", lost
    )
    assert back.startswith(f"s3://{bucket.name} answers again, after ")


@pytest.mark.parametrize("status", [403, 404, 503])
def test_a_store_that_refuses_or_is_busy_answers(
    status: int, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    with faulty_proxy(bucket.endpoint, Faults(busy=1.0, status=status, most=10**9)) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        with Pulse(place_of(bucket.url("out")), said.append):
            until(lambda: proxy.arrived("HEAD") >= 12)
    assert said == []


def test_where_no_packet_comes_back_it_is_said_too(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts and is silent, as one behind a dead link is."""
    monkeypatch.setattr("corpusmill.pipeline.remote.ASK_SECONDS", 0.5)
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        with Pulse(place_of(bucket.url("out")), said.append):
            until(lambda: said)
    assert "has not answered" in said[0]


def test_it_is_said_while_the_clients_own_patience_lasts(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command waits in its first request; the question is not to wait for that one."""
    remote._client.cache_clear()
    said: list[tuple[str, bool]] = []
    ended = threading.Event()

    def check() -> None:
        place_of(bucket.url("out")).check()
        ended.set()

    with faulty_proxy(bucket.endpoint, Faults(reset=1.0, most=10**9)) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        with Pulse(place_of(bucket.url("out")), lambda line: said.append((line, ended.is_set()))):
            thread = threading.Thread(target=check)
            thread.start()
            until(lambda: said)
            proxy.faults = Faults()
            thread.join()
    line, late = said[0]
    assert "has not answered" in line and not late and ended.is_set()
