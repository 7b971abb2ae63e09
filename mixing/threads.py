"""One thread for the numeric libraries: sums of several threads are added in another order, and differ in the last digits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


@contextmanager
def one_thread() -> Iterator[None]:
    """Of BLAS and OpenMP as scipy and scikit-learn have loaded them; 0.05 ms once they are."""
    with _pools().limit(limits=1):
        yield


@cache
def _pools() -> Any:
    """Looked for once: that takes 3 ms, more than a small prediction."""
    import scipy.linalg  # noqa: F401
    import sklearn.utils  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
