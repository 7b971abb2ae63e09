"""Rows that a backstop stopped, in a later run: tried again with more patience, or failed without a try.

CPU time, memory and crashes depend on the machine, so they are the one thing that two runs of a recipe may not have in common.
`--retry-failed` gives such rows another chance in place; what depends on their partitions follows. `--replay LIST` makes a run elsewhere
fail the rows of the list for the recorded reasons, untried: its bytes are those of the run that made the list.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from corpusmill.pipeline.engine.failures import Failure, failures_of
from corpusmill.pipeline.engine.stage import Result
from corpusmill.pipeline.errors import DamagedError, RecipeError

PATIENCE = 4.0
"""Factor on CPU time and memory of rows that are tried again."""

Known = Mapping[str, Mapping[int, Mapping[str, str]]]
"""Stage -> partition -> id in hex -> reason."""

Rows = Callable[[int], Iterable[Failure]]
"""Of a stage: the failed rows of a partition, read from its files."""


def is_backstop(reason: str) -> bool:
    """Whether a row might not fail elsewhere, or with more time and memory."""
    return reason in ("cpu_limit", "memory") or reason.startswith("crash:")


@dataclass(frozen=True)
class Replay:
    """What a run does about rows that failed before: nothing, try them again, or fail those of a list."""

    retry: bool = False
    known: Known = field(default_factory=dict)
    name: str = ""  # of the list

    @property
    def active(self) -> bool:
        return self.retry or bool(self.known)

    @property
    def patience(self) -> float:
        return PATIENCE if self.retry else 1.0

    def known_of(self, stage: str, units: Iterable[int]) -> dict[str, dict[str, str]]:
        """What a task with these units is told: unit -> id -> reason."""
        parts = self.known.get(stage, {})
        return {str(unit): dict(parts[unit]) for unit in units if unit in parts}

    def to_redo(self, stage: str, results: Mapping[int, Result], rows: Rows) -> list[int]:
        """Units that stand but have rows to be tried again, or not all rows failed that the list says."""
        if self.retry:
            return [unit for unit, result in results.items() if any(map(is_backstop, failures_of(result)))]
        return [
            unit
            for unit in self.known.get(stage, {})
            if unit in results and self._lacks(stage, results[unit], rows)
        ]

    def need_stages(self, names: Iterable[str]) -> None:
        """RecipeError when the list names a stage that this run does not have."""
        for stage in self.known:
            if stage not in names:
                raise RecipeError(
                    f"--replay {self.name}: this recipe has no stage {stage}, it has {', '.join(names)}"
                )

    def need_all(self, stage: str, results: Mapping[int, Result], rows: Rows) -> None:
        """RecipeError when a finished stage does not have the rows that the list names."""
        for part in self.known.get(stage, {}):
            if part not in results or self._lacks(stage, results[part], rows):
                raise RecipeError(
                    f"--replay {self.name}: rows that it names of stage {stage}, partition {part}, are not there: "
                    "it was made from other inputs or with another recipe"
                )

    def _lacks(self, stage: str, result: Result, rows: Rows) -> bool:
        """Counts say it cheaply; where they agree the rows do, since others may have failed for the same reasons."""
        known = self.known[stage][result.unit]
        if Counter(known.values()) - Counter(failures_of(result)):
            return True
        try:
            failed = {row.id: row.reason for row in rows(result.unit)}
        except (OSError, pa.ArrowException, DamagedError):  # gone or cut since it was made: it is made again
            return True
        return any(failed.get(key) != reason for key, reason in known.items())

    def unlisted(self, results: Mapping[int, Result], stage: str) -> Counter[str]:
        """Reason -> rows that a backstop stopped here and that the list does not name: their fate may be another where it was made."""
        found: Counter[str] = Counter()
        for result in results.values():
            found.update({why: n for why, n in failures_of(result).items() if is_backstop(why)})
        return found - Counter(
            reason for part in self.known.get(stage, {}).values() for reason in part.values()
        )


def read_list(path: Path) -> Replay:
    """A list as `corpusmill show OUT --failed --json` prints it."""
    known: dict[str, dict[int, dict[str, str]]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"--replay {path}: cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            stage, part, key, reason = row["stage"], row["part"], row["id"], row["reason"]
            fine = isinstance(part, int) and all(
                isinstance(each, str) and each for each in (stage, key, reason)
            )
        except (ValueError, KeyError, TypeError):
            fine = False
        if not fine:
            raise RecipeError(
                f"--replay {path}, line {number}: no row with stage, part, id and reason; "
                "make the list with `corpusmill show OUT --failed --json > LIST`"
            )
        known.setdefault(stage, {}).setdefault(part, {})[key] = reason
    return Replay(known=known, name=str(path))


NOTHING = Replay()
"""What most runs do about rows that failed before."""
