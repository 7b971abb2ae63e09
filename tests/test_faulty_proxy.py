"""The proxy that other tests break connections with does what it says, and the same for the same seed."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request, urlopen

import pytest
from faulty_proxy import Faults, Proxy, faulty_proxy
from s3_server import Bucket

BODY = bytes(range(256)) * 40


class Echo(BaseHTTPRequestHandler):
    """Answers with BODY; keeps what was put."""

    protocol_version = "HTTP/1.1"
    stored: list[bytes] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if len(data) == int(self.headers["Content-Length"]):
            self.stored.append(data)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    Echo.stored.clear()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    with faulty_proxy(f"127.0.0.1:{server.server_address[1]}") as proxy:
        yield proxy
    server.shutdown()
    server.server_close()
    thread.join()


def get(proxy: Proxy, path: str = "/x", data: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(proxy.endpoint.removeprefix("http://"), timeout=20)
    try:
        connection.request("GET" if data is None else "PUT", path, body=data)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_without_faults_bytes_pass_both_ways_and_are_counted(proxy: Proxy) -> None:
    assert get(proxy) == (200, BODY)
    assert get(proxy, data=BODY) == (200, b"")
    assert Echo.stored == [BODY]
    assert proxy.count() == Counter({"GET": 1, "PUT": 1}) and not proxy.broken()


def test_a_busy_answer_comes_from_the_proxy_alone(proxy: Proxy) -> None:
    proxy.faults = Faults(busy=1, retry_after=7, most=1)
    with pytest.raises(OSError) as caught:
        urlopen(Request(f"{proxy.endpoint}/x", data=BODY, method="PUT"))
    assert caught.value.code == 503 and caught.value.headers["Retry-After"] == "7"  # type: ignore[attr-defined]
    assert Echo.stored == []
    assert get(proxy, data=BODY)[0] == 200  # `most` in a row, then it passes


@pytest.mark.parametrize(("fault", "stored"), [("reset", []), ("lost", [BODY]), ("cut_upload", [])])
def test_broken_connections(proxy: Proxy, fault: str, stored: list[bytes]) -> None:
    proxy.faults = Faults(**{fault: 1.0})
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        get(proxy, data=BODY)
    assert Echo.stored == stored


def test_a_cut_answer_promises_more_than_it_gives(proxy: Proxy) -> None:
    proxy.faults = Faults(cut=1)
    with pytest.raises(http.client.IncompleteRead) as caught:
        get(proxy)
    assert caught.value.partial == BODY[: len(BODY) // 2]


def test_faults_follow_the_seed_and_the_request_alone() -> None:
    shares = {"busy": 0.2, "reset": 0.2, "cut": 0.2}
    requests = [(f"GET /{i}", seen) for i in range(300) for seen in range(3)]
    first = [Faults(seed=5, **shares).of(*each) for each in requests]
    assert first == [Faults(seed=5, **shares).of(*each) for each in requests]
    assert first != [Faults(seed=6, **shares).of(*each) for each in requests]
    assert all(fault is None for fault, (_, seen) in zip(first, requests, strict=True) if seen == 2)
    hit = Counter(first)
    assert all(80 < hit[kind] < 160 for kind in shares)  # of 600 that may be broken, a fifth each


def test_only_requests_that_match_are_broken(proxy: Proxy) -> None:
    proxy.faults = Faults(busy=1, only="^GET /this", most=100)
    assert get(proxy, "/this")[0] == 503 and get(proxy, "/that")[0] == 200


def test_an_s3_server_answers_through_it(bucket: Bucket) -> None:
    with faulty_proxy(bucket.endpoint) as proxy:
        through = Bucket(proxy.endpoint, bucket.name)
        through.client().put_object(Bucket=bucket.name, Key="a/b", Body=BODY)
        assert through.objects("a") == {"b": BODY} == bucket.objects("a")
        assert proxy.count()["PUT"] == 1
