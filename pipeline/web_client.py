"""One GET to a web server: proxies, redirects, and what each refusal means. `web.py` decides what to ask and when to ask again.

Nothing that a server or proxy says is trusted to hold no secret: targets of redirects, proxies and log lines are blanked.
"""

from __future__ import annotations

import contextlib
import email.utils
import functools
import http.client
import logging
import os
import re
import time
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from corpusmill import __version__
from corpusmill.pipeline.errors import InputError, RecipeError
from corpusmill.pipeline.remote import CONNECT_SECONDS, REQUEST_SECONDS, WEB, redacted

REDIRECTS = 5
LITTLE = 1 << 16
BUSY = (408, 425, 429)

CONNECTIONS = 16
"""Connections that a process keeps to one server, and so the probes that run side by side."""


class Again(Exception):
    """An answer that is worth another try; `wait_s` is what the server asked for."""

    def __init__(self, why: str, wait_s: float | None = None, absent: bool = False) -> None:
        super().__init__(why)
        self.wait_s = wait_s
        self.absent = absent  # nobody answers at this address: perhaps it is misspelt


class Absent(InputError):
    """There is no such file."""


@contextlib.contextmanager
def answer_of(url: str, headers: Mapping[str, str]) -> Iterator[Any]:
    """The final answer to a GET, behind redirects; Again for a busy server, InputError for one that refuses."""
    with faults(url):
        answer = _follow(url, headers)
    try:
        status = answer.status
        if status in BUSY or status >= 500:
            raise Again(
                f"the server answers {status} {answer.reason or ''}".rstrip(), _retry_after(answer.headers)
            )
        if status == 412:
            raise changed(url, "the server has another version")
        if status in (404, 410):
            raise Absent(f"{url}: there is no such file ({status}); check the address")
        if status in (401, 403, 407):
            # Some servers say 403 to who asks too often: while reading, that is a matter of waiting.
            if "If-Match" in headers or "If-Unmodified-Since" in headers:
                raise Again(f"the server answers {status}", _retry_after(answer.headers))
            raise InputError(
                f"{url}: the server does not allow it ({status}); only what anybody may read can be named by https: "
                "check the address, or fetch the file first"
            )
        if status not in (200, 206, 416):
            raise InputError(f"{url}: the server answers {status} {answer.reason or ''}: check the address")
        encoding = answer.headers.get("Content-Encoding", "identity")
        if status != 416 and encoding.lower() != "identity":
            raise InputError(
                f"{url}: comes with Content-Encoding {encoding}, though asked not to, so its own bytes cannot be told from those of the "
                "transfer; have the server or the proxy before it send the file as it is, or fetch it first"
            )
        yield answer
    finally:
        # A connection whose answer was read to its end is used again, another is not: what is left is read if it is little.
        if answer.length_remaining is not None and answer.length_remaining <= LITTLE:
            answer.drain_conn()
        answer.close()


def _follow(url: str, headers: Mapping[str, str]) -> Any:
    """GET behind at most REDIRECTS redirects. Their targets may hold signatures: they are kept nowhere and named in no message."""
    target = url
    headers = {"Accept-Encoding": "identity", "User-Agent": f"corpusmill/{__version__}", **headers}
    for _ in range(REDIRECTS + 1):
        answer = _pool_for(target).request(
            "GET",
            target,
            headers=headers,
            preload_content=False,
            decode_content=False,
            redirect=False,
            retries=False,
        )
        place = answer.headers.get("Location")
        if answer.status not in (301, 302, 303, 307, 308) or place is None:
            return answer
        answer.drain_conn()
        before, target = urlsplit(target), urljoin(target, place)
        after = urlsplit(target)
        if after.scheme not in WEB or not after.hostname or "@" in after.netloc:
            raise InputError(f"{url}: redirects to something that is no plain web address")
        if before.scheme == "https" and after.scheme != "https":
            raise InputError(
                f"{url}: redirects from https to http, where anybody could change the bytes; name the http address if you mean it"
            )
    raise InputError(f"{url}: more than {REDIRECTS} redirects; name the file's final address")


def _pool_for(url: str) -> Any:
    parts = urlsplit(url)
    proxies = urllib.request.getproxies_environment()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    # typeshed knows it on macOS only; it is everywhere.
    if proxy and urllib.request.proxy_bypass_environment(parts.hostname or "", proxies):  # type: ignore[attr-defined]
        proxy = None
    return _pool(proxy, os.getpid())


@functools.cache
def _pool(proxy: str | None, process: int) -> Any:
    """Connections of one process, through a proxy or not: a forked one shares none with its parent."""
    import urllib3

    _quiet_log()
    timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=REQUEST_SECONDS)
    if proxy is None:
        return urllib3.PoolManager(maxsize=CONNECTIONS, timeout=timeout)
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if parts.scheme not in WEB or not parts.hostname:
        raise RecipeError(f"proxy {redacted(proxy)} of the environment: http://HOST:PORT is needed")
    headers = None
    if parts.username is not None:
        name, password = unquote(parts.username), unquote(parts.password or "")
        headers = urllib3.make_headers(proxy_basic_auth=f"{name}:{password}")
    plain = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return urllib3.ProxyManager(plain, proxy_headers=headers, maxsize=CONNECTIONS, timeout=timeout)


class _Discreet(logging.Filter):
    """Log lines of the client name whole targets, and those of redirects hold signatures."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = re.sub(r"\?\S+", "?***", redacted(record.getMessage())), ()
        return True


@functools.cache
def _quiet_log() -> None:
    for name in ("urllib3.connectionpool", "urllib3.connection", "urllib3.response", "urllib3.util.retry"):
        logging.getLogger(name).addFilter(_Discreet())


@contextlib.contextmanager
def faults(url: str) -> Iterator[None]:
    """What goes wrong on a connection, as Again, in words that hold no address; a certificate that is not trusted does not get better."""
    import urllib3.exceptions as of

    try:
        yield
    except (of.NameResolutionError, of.NewConnectionError) as error:
        why = "its name cannot be resolved" if isinstance(error, of.NameResolutionError) else "no connection"
        raise Again(why, absent=True) from None
    except of.ProxyError as error:
        raise Again(
            f"the proxy of the environment failed ({type(error.original_error).__name__})", absent=True
        ) from None
    except of.SSLError as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise InputError(
                f"{url}: the server's certificate is not trusted here: install its authority, or name it in SSL_CERT_FILE"
            ) from None
        raise Again("the encrypted connection broke") from None
    except of.TimeoutError:
        raise Again("the server says nothing") from None
    except (of.HTTPError, http.client.HTTPException, OSError) as error:
        raise Again(f"the connection broke ({type(error).__name__})") from None


def changed(url: str, how: str) -> InputError:
    return InputError(
        f"{url} changed while it was being read: {how}; when it has settled, run the same command with --update"
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, or a date."""
    value = headers.get("Retry-After", "").strip()
    if value.isdecimal():
        return float(value[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
