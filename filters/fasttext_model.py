"""fastText models of any kind: loaded once a process, and the most probable label of a text.

One prediction costs what its text and the model's size make it: 0.7 ms for 4,000 characters by lid.176 (718 extracted pages). A text is one
line to a model: line ends and NUL become spaces. A text of white space has the label "none".
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from corpusmill.pipeline.errors import ModelError

NONE = "none"

DISTRIBUTION = "fasttext-community"

LINE_ENDS = str.maketrans(dict.fromkeys("\n\r\v\f\0", " "))  # what a model itself takes for white space

END = "</s>"  # a model's own sign for the end of a line: it reads no further


def check_distributions() -> None:
    """ModelError when two distributions provide the module `fasttext`: which one is imported would be chance."""
    from importlib.metadata import packages_distributions

    found = sorted(set(packages_distributions().get("fasttext", [])))
    if len(found) > 1:
        raise ModelError(
            f"the module fasttext comes from {' and '.join(found)}: their files overwrite each other; "
            f"run: pip uninstall -y {' '.join(found)} && pip install {DISTRIBUTION}"
        )


@lru_cache(maxsize=2)
def load(path: str) -> Any:
    check_distributions()
    import fasttext

    try:
        return fasttext.load_model(path).f
    except ValueError as error:
        raise ModelError(f"{path} is no fastText model ({error}); give a .bin or .ftz file") from None


def best(model: Any, text: str) -> tuple[str, float]:
    """(label, score from 0 to 1) of one text by what `load` gave; ("none", 0.0) where the model has no answer."""
    line = text.translate(LINE_ENDS).replace(END, " ")
    if not line or line.isspace():
        return NONE, 0.0
    # The binding's own predict() passes through a numpy call that numpy 2 refuses in some builds; the core's does not.
    found = model.predict(line + "\n", 1, 0.0, "strict")
    if not found:
        return NONE, 0.0
    score, label = found[0]
    return label.removeprefix("__label__"), min(max(float(score), 0.0), 1.0)
