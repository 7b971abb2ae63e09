"""A reverse proxy of HTTP that counts requests and breaks a share of them, as networks and busy stores do.

Whether a request is broken, and how, follows from the seed, the request (method, path, query, range) and how often it was seen: threads
and their timing play no part, and `most` faults in a row let a client that tries again succeed.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from loopback import loopback

KINDS = ("delay", "busy", "reset", "lost", "cut", "cut_upload")

REFUSAL = (
    "<?xml version='1.0'?><Error><Code>{}</Code><Message>This is what a test asked for.</Message></Error>"
)


@dataclass(frozen=True)
class Faults:
    """Shares (0 to 1, together at most 1) of the requests that match the pattern `only`.

    delay       answered after `delay_seconds`
    busy        answered with `status` and an error of S3 with `code`, and `Retry-After: retry_after` where given; the server behind never sees it
    reset       the connection is reset before the server behind sees anything
    lost        the server behind does it, the answer is lost with the connection
    cut         half of the answer's body, then the connection ends
    cut_upload  half of the request's body reaches the server behind, then both connections end
    """

    seed: int = 1
    delay: float = 0.0
    busy: float = 0.0
    reset: float = 0.0
    lost: float = 0.0
    cut: float = 0.0
    cut_upload: float = 0.0
    delay_seconds: float = 0.2
    status: int = 503
    code: str = "SlowDown"
    retry_after: int | None = None
    only: str = ""  # regular expression, searched in "METHOD /path?query"
    most: int = 2  # faults in a row for one request; then it passes

    def of(self, request: str, seen: int) -> str | None:
        """The fault for the `seen`-th time (from 0) that this request comes; None lets it pass."""
        if seen % (self.most + 1) == self.most or not re.search(self.only, request):
            return None
        digest = hashlib.sha256(f"{self.seed}\n{request}\n{seen}".encode()).digest()
        left = int.from_bytes(digest[:8], "big") / 2**64
        for kind in KINDS:
            left -= getattr(self, kind)
            if left < 0:
                return kind
        return None


@dataclass(frozen=True)
class Request:
    """One request as it came: `target` is path and query; `status` is None where no answer went back."""

    method: str
    target: str
    range: str | None
    status: int | None
    fault: str | None
    size_bytes: int  # of the bodies both ways


@dataclass
class Proxy:
    """`endpoint` passes on to `upstream` (HOST:PORT, plain HTTP). `faults` may be changed at any time."""

    upstream: str
    faults: Faults = Faults()
    requests: list[Request] = field(default_factory=list)
    endpoint: str = ""
    _seen: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self) -> Counter[str]:
        """Requests by method since the last `clear`."""
        with self._lock:
            return Counter(request.method for request in self.requests)

    def broken(self) -> Counter[str]:
        """Requests by fault since the last `clear`."""
        with self._lock:
            return Counter(request.fault for request in self.requests if request.fault)

    def arrived(self, method: str) -> int:
        """Requests that came, answered or not, ever."""
        with self._lock:
            return sum(times for request, times in self._seen.items() if request.startswith(f"{method} "))

    def clear(self) -> None:
        with self._lock:
            self.requests.clear()

    def next_fault(self, request: str) -> str | None:
        with self._lock:
            seen = self._seen[request]
            self._seen[request] += 1
        return self.faults.of(request, seen)

    def note(self, request: Request) -> None:
        with self._lock:
            self.requests.append(request)


@contextlib.contextmanager
def faulty_proxy(upstream: str, faults: Faults = Faults()) -> Iterator[Proxy]:
    """A proxy before `upstream` (HOST:PORT) on a free port of the loopback, in threads of this process."""
    proxy = Proxy(upstream.removeprefix("http://"), faults)
    with loopback(_Handler, proxy=proxy) as proxy.endpoint:
        yield proxy


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # answers go out in two writes, which would wait for each other
    proxy: Proxy
    _behind: http.client.HTTPConnection | None = None

    def _serve(self) -> None:
        fault = self.proxy.next_fault(f"{self.command} {self.path} {self.headers.get('Range', '')}".rstrip())
        body = self._body()
        try:
            if fault == "delay":
                time.sleep(self.proxy.faults.delay_seconds)
            if fault == "busy":
                self._note(fault, self.proxy.faults.status, len(body))
                self._answer_busy()
            elif fault in ("reset", "cut_upload"):
                if fault == "cut_upload":
                    self._upload_half(body)
                self._note(fault, None, len(body))
                self._reset()
            else:
                status, headers, answer = self._ask(body)
                self._note(fault, None if fault == "lost" else status, len(body) + len(answer))
                if fault == "lost":
                    self._reset()
                else:
                    self._answer(status, headers, answer, cut=fault == "cut")
        except (ConnectionError, http.client.HTTPException):  # either side has gone
            self.close_connection = True

    def _note(self, fault: str | None, status: int | None, size: int) -> None:
        """Before the answer, so that whoever has it finds the request counted."""
        self.proxy.note(Request(self.command, self.path, self.headers.get("Range"), status, fault, size))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_OPTIONS = _serve

    def _body(self) -> bytes:
        """The body as it was sent; one in chunks is passed on with its length."""
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(pieces)

    def _headers(self, size: int) -> list[tuple[str, str]]:
        dropped = ("transfer-encoding", "content-length", "connection", "expect")
        kept = [(name, value) for name, value in self.headers.items() if name.lower() not in dropped]
        return [*kept, ("Content-Length", str(size))] if size or self.command in ("PUT", "POST") else kept

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """The server's answer; a connection that it closed while idle is made again once."""
        for fresh in (False, True):
            if fresh or self._behind is None:
                self._behind = http.client.HTTPConnection(self.proxy.upstream, timeout=60)
            try:
                self._behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self._headers(len(body)):
                    self._behind.putheader(name, value)
                self._behind.endheaders(body or None)
                answer = self._behind.getresponse()
                return answer.status, answer.getheaders(), answer.read()
            except (ConnectionError, http.client.HTTPException):
                self._behind.close()
                if fresh:
                    raise
        raise AssertionError

    def _upload_half(self, body: bytes) -> None:
        host, _, port = self.proxy.upstream.partition(":")
        with socket.create_connection((host, int(port)), timeout=60) as behind:
            lines = [
                f"{self.command} {self.path} HTTP/1.1",
                *(f"{k}: {v}" for k, v in self._headers(len(body))),
            ]
            behind.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body[: len(body) // 2])

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, cut: bool) -> None:
        self.send_response_only(status)
        named = {name.lower() for name, _ in headers}
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection"):
                self.send_header(name, value)
        if "content-length" not in named and status not in (204, 304):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.close_connection = True

    def _answer_busy(self) -> None:
        self.send_response_only(self.proxy.faults.status)
        if self.proxy.faults.retry_after is not None:
            self.send_header("Retry-After", str(self.proxy.faults.retry_after))
        body = b"" if self.command == "HEAD" else REFUSAL.format(self.proxy.faults.code).encode()
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _reset(self) -> None:
        """RST instead of FIN."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # a client that was killed, between two requests
            super().handle()

    def finish(self) -> None:
        if self._behind is not None:
            self._behind.close()
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, *_: object) -> None:
        """Silent: `requests` has it all."""
