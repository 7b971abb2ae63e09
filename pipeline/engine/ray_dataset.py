"""A finished run as a Ray Dataset: for users who go on with Ray Data, never for our own stages.

One read task a partition, and one block from each, read where it is needed; nothing is collected here. Needs `pip install 'ray[data]'`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from corpusmill.pipeline.errors import RunError
from corpusmill.pipeline.remote import surroundings

if TYPE_CHECKING:
    from corpusmill.pipeline.run import Run

COLUMNS = ("id", "url", "source", "text")


def dataset(run: Run, columns: Sequence[str] | None, kept: bool) -> Any:
    """A lazy `ray.data.Dataset` of `run`, on the Ray that this process is connected to.

    Its blocks come in the order of the partitions only under `execution_options.preserve_order` of Ray's DataContext, which is off by default.
    """
    try:
        from ray.data import Datasource, read_datasource
        from ray.data.block import BlockMetadata
        from ray.data.datasource import ReadTask
    except ImportError as error:
        raise RunError(f"Ray Data cannot be imported ({error}): pip install 'ray[data]'") from None
    from corpusmill.pipeline.run import partition_table

    names, which = list(columns or COLUMNS), "kept" if kept else "all"
    out, results = str(run.out.absolute()), run.manifest("documents").results
    # Names are checked here.
    schema = partition_table(run, min(results), names, which).schema if results else None

    class Partitions(Datasource):  # type: ignore[misc, unused-ignore]
        def get_name(self) -> str:
            return "corpusmill"

        def estimate_inmemory_data_size(self) -> int:
            return sum(file.size_bytes for result in results.values() for file in result.files)

        def get_read_tasks(
            self, parallelism: int, per_task_row_limit: int | None = None, **_: Any
        ) -> list[Any]:
            environment = surroundings()
            return [
                ReadTask(
                    partial(read_partition, out, part, names, which, environment),
                    BlockMetadata(
                        num_rows=None if kept else results[part].rows,
                        size_bytes=sum(file.size_bytes for file in results[part].files),
                        input_files=None,
                        exec_stats=None,
                    ),
                    schema=schema,
                    per_task_row_limit=per_task_row_limit,
                )
                for part in sorted(results)
            ]

    return read_datasource(Partitions(), override_num_blocks=max(1, len(results)))


def read_partition(
    out: str, part: int, columns: Sequence[str], which: str, environment: dict[str, str]
) -> Iterator[pa.Table]:
    """What a worker of Ray Data runs."""
    import os

    from corpusmill.pipeline.run import Run, partition_table

    os.environ.update(environment)
    yield partition_table(Run(out), part, columns, which)
