"""A web server on a free port of the loopback, in threads of this process, for as long as a context lasts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextlib.contextmanager
def loopback(handler: type[BaseHTTPRequestHandler], **attributes: object) -> Iterator[str]:
    """Its endpoint; each request is a `handler` with these attributes."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), attributes))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
