"""Says soon that a store does not answer. Its client tries for minutes before an operation fails, in workers that nobody hears.

A thread of the command asks for the bucket each EVERY_S, with a client that asks once and waits for seconds: 720 small requests an hour.
What no packet comes back from is said after 10 to 15 s, then once a minute, and that it answers again. A refusal is an answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from corpusmill.pipeline import remote
from corpusmill.pipeline.engine.place import Place

EVERY_S = 5.0
EVERY_SILENT_S = 1.0
SILENT_S = 5.0
"""Silence that is worth a word: one lost request is not."""

AGAIN_S = 60.0
SHOWN = 200

SILENCE = ("curlCode", "NETWORK_CONNECTION", "Timeout", "UNAVAILABLE")
"""What the clients say when nobody answers; a store that refuses or is busy answers."""


class Pulse:
    """Asks while the context lasts; nothing is asked of a disk."""

    def __init__(self, place: Place, say: Callable[[str], None]) -> None:
        self._say = say
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        scheme, _, key = str(place).partition("://")
        if not place.local:
            self._scheme, self._bucket = scheme, key.partition("/")[0]
            self._thread = threading.Thread(target=self._listen, name="pulse", daemon=True)

    def __enter__(self) -> Pulse:
        if self._thread is not None:
            # Both clients now: to make one while a request of another is under way waits for its end (54 s with nobody answering).
            for patient in (True, False):
                remote.filesystem(self._scheme, patient=patient)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _listen(self) -> None:
        silent_since: float | None = None
        said_at: float | None = None
        while not self._end.wait(EVERY_S if silent_since is None else EVERY_SILENT_S):
            began = time.monotonic()
            why = self._ask()
            now = time.monotonic()
            if why is None:
                if silent_since is not None and said_at is not None:
                    self._say(f"{self._store} answers again, after {now - silent_since:.0f} s")
                silent_since = said_at = None
                continue
            silent_since = began if silent_since is None else silent_since
            if now - silent_since >= SILENT_S and (said_at is None or now - said_at >= AGAIN_S):
                self._say(
                    f"{self._store} has not answered for {now - silent_since:.0f} s ({why}): every request is tried again for some "
                    "minutes; then the command ends, and the same one goes on from there"
                )
                said_at = now

    @property
    def _store(self) -> str:
        return f"{self._scheme}://{self._bucket}"

    def _ask(self) -> str | None:
        """None when the store said anything at all, else what the client says."""
        try:
            remote.filesystem(self._scheme, patient=False).get_file_info(self._bucket)
        except OSError as error:
            message = " ".join(remote.redacted(str(error)).split())
            begins = [at for word in SILENCE if (at := message.find(word)) >= 0]
            if begins:
                return message[begins[0] :].partition("; Details")[0][:SHOWN]
        return None
