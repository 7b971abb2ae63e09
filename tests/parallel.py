"""How tests are shared out to the processes of `pytest -n`: a file goes whole, since its fixtures cost more than its tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest
    from xdist.scheduler import LoadScopeScheduling
else:
    try:
        from xdist.scheduler import LoadScopeScheduling
    except ImportError:
        LoadScopeScheduling = object

ON_RAY = ("test_engine_ray", "test_jobs_submit")
"""Files that start a Ray: one after the other, or two clusters would share the memory and the cores of a small machine."""

LONGEST = tuple(
    "test_stores_run test_end_to_end test_chaos test_kills test_cost_estimate test_engine_replay test_engine_guarded test_engine_budgets "
    "test_remote_inputs test_demo test_shards_stores test_examples_train test_shards_append test_shards_schedule".split()
)
"""Begun first, in this order, so that no process is left with one of them when the others have nothing to do."""


def _stem(nodeid: str) -> str:
    return nodeid.partition("::")[0].rpartition("/")[2].removesuffix(".py")


def by_length(item: pytest.Item) -> int:
    """Sorts tests: Ray, the longest files, all others in the order they had."""
    first = (*ON_RAY, *LONGEST)
    stem = _stem(item.nodeid)
    return first.index(stem) if stem in first else len(first)


class FilesWhole(LoadScopeScheduling):  # type: ignore[misc, unused-ignore]
    """A unit of work is a file, or all files that start a Ray."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        config.option.loadscopereorder = False  # in the order of by_length
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return "ray" if _stem(nodeid) in ON_RAY else _stem(nodeid)
