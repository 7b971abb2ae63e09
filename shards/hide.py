"""Entries for a quarantine list: a document, or samples, become rows and tokens of components, once, when they are added.

The list is put whole; it only grows, so a version that a cursor names stays in it. Who adds at the same time as others adds behind them:
nobody's entry is lost, on a disk or on a store (pipeline/engine/alone.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from corpusmill.pipeline.errors import CursorError, ShardError
from corpusmill.shards.plan import Plan
from corpusmill.shards.plan_file import folder_to_change
from corpusmill.shards.quarantine import (
    QUARANTINE_FILE,
    Entry,
    Hidden,
    Lift,
    Quarantine,
    Span,
    check_entries,
    read_quarantine,
)
from corpusmill.shards.reader import Shards
from corpusmill.shards.sidecar import Wanted
from corpusmill.shards.where import Document, documents

Tokens = tuple[int, int]
"""First token, and the one behind the last."""


def hide_document(
    path: str | Path, wanted: Wanted, start: int, reason: str, tokens: Tokens | None = None
) -> Quarantine:
    """Hides all documents that are meant from sample `start` on, or of each only `tokens` (counted in the document)."""
    shards = Shards(path)
    return _added(
        shards,
        [
            Entry(
                start,
                reason,
                document.component,
                shards.plan.components[component].manifest,
                _spans(document, tokens),
                document.id,
                document.url,
            )
            for component, document in documents(shards, wanted)
        ],
    )


def hide_samples(
    path: str | Path, first: int, stop: int, start: int, reason: str, tokens: Tokens | None = None
) -> Quarantine:
    """Hides the rows of samples `first` .. `stop` - 1 whenever they come from sample `start` on, or of each only `tokens`."""
    shards = Shards(path)
    end = shards.plan.samples
    if first < 0 or stop <= first or (end is not None and stop > end):
        raise CursorError(
            f"no samples {first} to {stop - 1}: the plan has {'no end' if end is None else f'0 to {end - 1}'}"
        )
    samples = shards.order.samples(first, stop)
    begin, behind = tokens or (0, shards.plan.sequence_length + 1)
    rows: dict[int, set[int]] = {}
    for component, row in zip(samples.component.tolist(), samples.row.tolist(), strict=True):
        rows.setdefault(component, set()).add(row)
    entries = []
    for place, found in sorted(rows.items()):
        component = shards.plan.components[place]
        spans = tuple((row, begin, behind) for row in sorted(found))
        entries.append(Entry(start, reason, component.name, component.manifest, spans))
    return _added(shards, entries)


def lift(path: str | Path, entry: int, start: int, reason: str) -> Quarantine:
    """Ends an entry: from sample `start` on its tokens are handed out again."""
    return _added(Shards(path), [Lift(start, reason, entry)])


def _spans(document: Document, tokens: Tokens | None) -> tuple[Span, ...]:
    first, last = tokens or (0, document.tokens)
    if not 0 <= first < last <= document.tokens:
        raise ShardError(
            f"document {document.id} has tokens 0 to {document.tokens - 1}, its end-of-text included; not {first} to {last - 1}"
        )
    spans = []
    for span in document.spans:
        start = max(span.start, span.start + first - span.token)
        end = min(span.end, span.start + last - span.token)
        if start < end:
            spans.append((span.row, start, end))
    return tuple(spans)


def _added(shards: Shards, entries: Sequence[Entry | Lift]) -> Quarantine:
    """The list as it stands now, with `entries` behind it: checked and written while nobody else writes."""
    from corpusmill.pipeline.engine.alone import alone

    if any(not entry.reason.strip() for entry in entries):
        raise ShardError("a reason is needed: whoever reads the list later has nothing else to go by")
    folder = folder_to_change(shards.path)
    with alone(folder):
        found = read_quarantine(folder, shards.plan)
        for entry in entries:
            if isinstance(entry, Entry):
                _check_new(shards.plan, found, entry)
        grown = Quarantine((*found.entries, *entries))
        check_entries(grown, shards.plan, str(folder / QUARANTINE_FILE))
        (folder / QUARANTINE_FILE).put(grown.encode())
    return grown


def _check_new(plan: Plan, found: Quarantine, entry: Entry) -> None:
    """Raises ShardError when all of it is hidden for good already."""
    place = [component.name for component in plan.components].index(entry.component)
    lasting = Quarantine(
        tuple(old for _, old, end in found.in_force() if end is None and old.start <= entry.start)
    )
    hidden = Hidden(lasting, plan)
    if all(
        set(range(start, end)) <= hidden.tokens(place, row, entry.start) for row, start, end in entry.spans
    ):
        raise ShardError(f"{entry} is in quarantine already from sample {entry.start} on or earlier")
