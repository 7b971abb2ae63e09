"""Which engine works on a vocabulary: the fast one where it is installed, reads it, passes the battery, and has not been wrong since.

What was found stands in OUT/metrics/tokenizers, apart from the data, so that workers of one run share it and a run that goes on
keeps to it: `<key>/passed` from the battery, `<key>/off` with the reason why the reference does all. The key names the vocabulary,
both libraries with their versions, and the kind of machine. A battery costs 1.5 to 2 CPU seconds, once a run.
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
from corpusmill.pipeline.text.engines import Fast, fast_name
from corpusmill.pipeline.text.tokenizer import Tokenizer

FOLDER = "tokenizers"
"""Below OUT/metrics."""


def fast_engine(tokenizer: Tokenizer, metrics: Place) -> Fast | None:
    """The fast engine for this vocabulary, ready; None where the reference has to do."""
    if not fast_name():
        return None
    key = metrics / FOLDER / _key(tokenizer)
    if (key / "off").is_file():
        return None
    try:
        engine = _loaded(tokenizer.reference.content)
        if not (key / "passed").is_file():
            text = first_difference(tokenizer.reference, engine, tokenizer.special)
            if text is not None:
                raise ModelError(f"{engine.name} gave other ids than {tokenizer.reference.name} for {text}")
            _write(key / "passed", {"engine": engine.name, "reference": tokenizer.reference.name})
    except ModelError as error:
        _write(key / "off", {"why": str(error)})
        return None
    return engine


def switch_off(tokenizer: Tokenizer, metrics: Place, found: Differs) -> None:
    """From now on the reference does all of this run."""
    why = f"{fast_name()}: {found.why} (document {found.document.hex()}); its unit was done again"
    _write(metrics / FOLDER / _key(tokenizer) / "off", {"why": why})


def switched_off(metrics: Place) -> Iterator[str]:
    """Why a fast engine that is installed is not used in this run; nothing when it is."""
    folder = metrics / FOLDER
    for name in sorted(folder.sizes()):
        if name.endswith("/off"):
            yield str(json.loads((folder / name).read_bytes())["why"])


@lru_cache(maxsize=1)
def _loaded(content: bytes) -> Fast:
    return Fast(content)


def _key(tokenizer: Tokenizer) -> str:
    parts = [tokenizer.sha256[:16], fast_name(), tokenizer.reference.name, platform.machine()]
    return "-".join(parts).replace(" ", "-")


def _write(place: Place, value: dict[str, str]) -> None:
    place.put((json.dumps(value, sort_keys=True) + "\n").encode())
