"""Rows of the documents table on their way: drafts come in record order, pages are extracted in batches, tables go out."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from corpusmill.pipeline.documents import DOCUMENTS, ROW_GROUP
from corpusmill.pipeline.extract.page import Outcome, Page, whole
from corpusmill.pipeline.extract.warc import Damage

BATCH_PAGES = 32
BATCH_BYTES = 8_000_000
DAMAGE_SHOWN = 100
"""Places of damage that a unit lists; all are counted."""


@dataclass(slots=True)
class Draft:
    """A row to be: with a page that has to be extracted, or with its outcome."""

    id: bytes
    offset: int
    length: int
    outcome: Outcome
    page: Page | None = None
    url: str | None = None
    date: datetime | None = None
    record_id: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    stopped: str | None = None  # why it fails, untried

    @property
    def to_extract(self) -> bool:
        return self.page is not None and self.stopped is None


@dataclass
class Tally:
    """What a unit counts beside its rows. `first` and `next` are those of the range read last (see RangeReader)."""

    counts: Counter[str] = field(default_factory=Counter)
    damage: list[dict[str, Any]] = field(default_factory=list)
    first: int | None = None
    next: int | None = None

    def damaged(self, file: str, damage: Damage) -> None:
        self.counts["bad_record"] += 1
        if len(self.damage) < DAMAGE_SHOWN:
            self.damage.append(
                {"file": file, "offset": damage.offset, "end": damage.end, "reason": damage.reason}
            )

    def add(self, other: Tally) -> None:
        """Take over counts and damage of a range."""
        self.counts.update(other.counts)
        self.damage = [*self.damage, *other.damage][:DAMAGE_SHOWN]


def tables(
    drafts: Iterator[Draft],
    extract: Callable[[Sequence[Page]], list[Outcome]],
    file: str,
    source: str,
    counts: Counter[str],
) -> Iterator[pa.Table]:
    """Tables of up to ROW_GROUP rows in the order of `drafts`; counts rows, `kept`, `dropped.*` and `failed.*`."""
    waiting: list[Draft] = []
    pages = size = 0
    for draft in drafts:
        waiting.append(draft)
        if draft.page is not None:
            pages += 1
            size += len(draft.page.block)
        else:
            size += len(draft.outcome.text or "")
        if pages >= BATCH_PAGES or size >= BATCH_BYTES or len(waiting) >= ROW_GROUP:
            yield _table(waiting, extract, file, source, counts)
            waiting, pages, size = [], 0, 0
    if waiting:
        yield _table(waiting, extract, file, source, counts)


def _table(
    drafts: list[Draft],
    extract: Callable[[Sequence[Page]], list[Outcome]],
    file: str,
    source: str,
    counts: Counter[str],
) -> pa.Table:
    """A Python loop over rows: they come from Python objects, and each costs far less than its extraction."""
    pages = [draft for draft in drafts if draft.to_extract]
    answers = extract([draft.page for draft in pages if draft.page is not None]) if pages else []
    for draft, outcome in zip(pages, answers, strict=True):
        draft.outcome = outcome
    for draft in drafts:
        if draft.stopped is not None:
            draft.outcome = Outcome(failed=draft.stopped)
        counts["rows"] += 1
        counts[_state(draft.outcome)] += 1
    columns: dict[str, list[Any]] = {
        "id": [draft.id for draft in drafts],
        "text": [draft.outcome.text for draft in drafts],
        "url": [draft.url for draft in drafts],
        "source": [source] * len(drafts),
        "date": [draft.date for draft in drafts],
        "origin": [{"file": file, "offset": draft.offset, "length": draft.length} for draft in drafts],
        "record_id": [draft.record_id for draft in drafts],
        "meta": [meta_json({**draft.meta, **draft.outcome.meta}) for draft in drafts],
        "reason": [draft.outcome.reason for draft in drafts],
        "failed": [draft.outcome.failed for draft in drafts],
        "modality": [None] * len(drafts),
        "media": [None] * len(drafts),
    }
    return pa.table(
        {name: pa.array(columns[name], DOCUMENTS.field(name).type) for name in DOCUMENTS.names}
    ).cast(DOCUMENTS)


def _state(outcome: Outcome) -> str:
    if outcome.failed is not None:
        return f"failed.{outcome.failed}"
    return "kept" if outcome.reason is None else f"dropped.{outcome.reason}"


def meta_json(meta: dict[str, Any]) -> str | None:
    """One JSON object with sorted keys, or None for an empty one; NaN and infinities, which JSON lacks, become null."""
    if not meta:
        return None
    try:
        text = json.dumps(meta, sort_keys=True, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:
        text = json.dumps(_finite(meta), sort_keys=True, ensure_ascii=False, default=str)
    return whole(text)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def moment(value: Any) -> datetime | None:
    """An ISO 8601 string, a date or a time as UTC; None for anything else (without a zone it is taken for UTC)."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        return None
