"""Which engine works on a vocabulary: the first that reads it and passes the battery, ours before an installed one; none that was wrong.

What was found stands in OUT/metrics/tokenizers, apart from the data, so that workers of one run share it and a run that goes on
keeps to it: `<key>/passed` from the battery, with the engine's name, `<key>/off` with the reason why the reference does all. The key
names the vocabulary, the engines with their versions, and the kind of machine. A battery costs 1.5 to 2 CPU seconds, once a run.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from functools import lru_cache

from corpusmill.pipeline.engine.place import Place
from corpusmill.pipeline.errors import ModelError
from corpusmill.pipeline.text.battery import first_difference
from corpusmill.pipeline.text.checked import Differs
from corpusmill.pipeline.text.engines import FAST, Engine, Fast, fast_name
from corpusmill.pipeline.text.tokenizer import Tokenizer

FOLDER = "tokenizers"
"""Below OUT/metrics."""


def fast_engine(tokenizer: Tokenizer, metrics: Place) -> Engine | None:
    """The fast engine for this vocabulary, ready; None where the reference has to do."""
    key = metrics / FOLDER / _key(tokenizer)
    if (key / "off").is_file():
        return None
    content = tokenizer.reference.content
    if (key / "passed").is_file():
        return _loaded(content, json.loads((key / "passed").read_bytes())["engine"])
    refused = []
    for name in engines():
        try:
            engine = _loaded(content, name)
            text = first_difference(tokenizer.reference, engine, tokenizer.special)
        except ModelError as error:
            refused.append(str(error))
            continue
        if text is None:
            _write(key / "passed", {"engine": name, "reference": tokenizer.reference.name})
            return engine
        refused.append(f"{name} gave other ids than {tokenizer.reference.name} for {text}")
    if not fast_name():
        refused.append(f"{FAST} is not installed: pip install {FAST}")
    _write(key / "off", {"why": "; ".join(refused)})
    return None


def engines() -> list[str]:
    """Names of the fast engines that are here, the fastest first."""
    from corpusmill.pipeline.text.byte_level import own_name

    return [own_name(), *filter(None, [fast_name()])]


def switch_off(tokenizer: Tokenizer, metrics: Place, found: Differs) -> None:
    """From now on the reference does all of this run."""
    why = f"{found.why} (document {found.document.hex()}); its unit was done again"
    _write(metrics / FOLDER / _key(tokenizer) / "off", {"why": why})


def switched_off(metrics: Place) -> Iterator[str]:
    """Why the reference does all in this run; nothing when a fast engine does."""
    folder = metrics / FOLDER
    for name in sorted(folder.sizes()):
        if name.endswith("/off"):
            yield str(json.loads((folder / name).read_bytes())["why"])


@lru_cache(maxsize=1)
def _loaded(content: bytes, name: str) -> Engine:
    if name == fast_name():
        return Fast(content)
    from corpusmill.pipeline.text.byte_level import ByteLevel  # brings numba

    return ByteLevel(content)


def _key(tokenizer: Tokenizer) -> str:
    parts = [tokenizer.sha256[:16], *engines(), tokenizer.reference.name, platform.machine()]
    return "-".join(parts).replace(" ", "-")


def _write(place: Place, value: dict[str, str]) -> None:
    place.put((json.dumps(value, sort_keys=True) + "\n").encode())
