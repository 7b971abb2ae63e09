"""A web server for tests: files of a folder with ranges and ETags, or with a lie in place of the truth."""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import re
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import unquote, urlsplit

from loopback import loopback


@dataclass(frozen=True)
class Asked:
    """A request as it came: `first` and `last` of its range, None where it had none."""

    path: str
    first: int | None
    last: int | None
    headers: dict[str, str]
    port: int  # of the client: one a connection


@dataclass
class Site:
    """`endpoint` serves `folder`. `lies` are told once each, in order, to requests for a path behind those that `honest` spares;
    `always` is told to each."""

    folder: Path
    endpoint: str = ""
    lies: dict[str, list[str]] = field(default_factory=dict)
    always: dict[str, str] = field(default_factory=dict)
    honest: dict[str, int] = field(
        default_factory=dict
    )  # requests for a path that are answered truly before its lies begin
    redirects: dict[str, str] = field(default_factory=dict)
    validators: str = "etag"  # or weak, modified, none
    asked: list[Asked] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def url(self, path: str) -> str:
        return f"{self.endpoint}/{path}"

    def count(self) -> Counter[str]:
        with self._lock:
            return Counter(asked.path for asked in self.asked)

    def note(self, asked: Asked) -> str:
        """The lie for this request; "" for the truth."""
        with self._lock:
            self.asked.append(asked)
            if self.honest.get(asked.path, 0) > 0:
                self.honest[asked.path] -= 1
                return ""
            waiting = self.lies.get(asked.path, [])
            return waiting.pop(0) if waiting else self.always.get(asked.path, "")


@contextlib.contextmanager
def web_server(folder: Path) -> Iterator[Site]:
    """A site on a free port of the loopback, in threads of this process."""
    site = Site(folder)
    with loopback(_Handler, site=site) as site.endpoint:
        yield site


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    site: Site

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).lstrip("/")
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, last = (int(wanted[1]), int(wanted[2])) if wanted else (None, None)
        headers = {name.lower(): value for name, value in self.headers.items()}
        lie = self.site.note(Asked(path, first, last, headers, self.client_address[1]))
        with contextlib.suppress(ConnectionError):
            self._answer(path, first, last, lie)

    def _answer(self, path: str, first: int | None, last: int | None, lie: str) -> None:
        if path in self.site.redirects:
            return self._send(302, {"Location": self.site.redirects[path]}, b"")
        if lie == "hang up":
            self.close_connection = True
            return None
        if lie.isdecimal():
            return self._send(int(lie), {"Retry-After": "0"}, b"no")
        try:
            data = (self.site.folder / path).read_bytes()
        except OSError:
            return self._send(404, {}, b"no such file")
        valid = self._validators(self.site.folder / path, data)
        if lie == "other version":
            valid = {
                name: '"another"' if name == "ETag" else email.utils.formatdate(0, usegmt=True)
                for name in valid
            }
        if self._refused(valid):
            return self._send(412, valid, b"")
        if first is None or last is None or lie == "no ranges":
            promised = {} if lie != "no length" else {"Transfer-Encoding": "chunked"}
            return self._send(200, valid | promised, data, cut=lie == "cut")
        if first >= len(data):
            return self._send(416, {"Content-Range": f"bytes */{len(data)}"}, b"")
        return self._send_range(data, first, min(last, len(data) - 1), valid, lie)

    def _send_range(self, data: bytes, first: int, last: int, headers: dict[str, str], lie: str) -> None:
        total = len(data)
        if lie == "shifted":
            first, last = first + 1, min(last + 1, total - 1)
        if lie == "part":  # allowed: less than was asked for, and said so
            last = first + (last - first) // 2
        body = data[first : last + 1]
        if lie == "other size":
            total += 1
        if lie == "gzip":
            headers = headers | {"Content-Encoding": "gzip"}
        if lie == "short":
            body = body[:-1]
        if lie == "long":
            body += b"!"
        span = {} if lie == "no range" else {"Content-Range": f"bytes {first}-{last}/{total}"}
        chunked = {"Transfer-Encoding": "chunked"} if lie in ("long", "chunked") else {}
        self._send(206, headers | span | chunked, body, cut=lie == "cut")

    def _validators(self, path: Path, data: bytes) -> dict[str, str]:
        tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        changed = email.utils.formatdate(path.stat().st_mtime, usegmt=True)
        return {
            "etag": {"ETag": tag, "Last-Modified": changed},
            "weak": {"ETag": f"W/{tag}", "Last-Modified": changed},
            "modified": {"Last-Modified": changed},
            "none": {},
        }[self.site.validators]

    def _refused(self, valid: dict[str, str]) -> bool:
        match, since = self.headers.get("If-Match"), self.headers.get("If-Unmodified-Since")
        return bool((match and match != valid.get("ETag")) or (since and since != valid.get("Last-Modified")))

    def _send(self, status: int, headers: dict[str, str], body: bytes, cut: bool = False) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Transfer-Encoding" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if "Transfer-Encoding" in headers:
            body = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
        self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.close_connection = True

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the client has gone
            super().handle()

    def log_message(self, *_: object) -> None:
        """Silent: `asked` has it all."""
