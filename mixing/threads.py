"""One thread for the numeric libraries: sums of several threads are added in another order, and differ in the last digits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Of BLAS and OpenMP, as far as they are loaded; scipy and scikit-learn are, so that theirs is among them."""
    import scipy.linalg  # noqa: F401
    import sklearn.utils  # noqa: F401
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        yield
