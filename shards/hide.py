"""Entries for a quarantine list: a document, or samples, become rows and tokens of components, once, when they are added.

The list is written whole under a temporary name and renamed; it only grows, so a version that a cursor names stays in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from corpusmill.pipeline.engine.store import put
from corpusmill.pipeline.errors import CursorError, ShardError
from corpusmill.shards.plan import plan_on_disk
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
    """The list with `entries` behind it, checked, written."""
    for entry in entries:
        if not entry.reason.strip():
            raise ShardError("a reason is needed: whoever reads the list later has nothing else to go by")
        if isinstance(entry, Entry):
            _check_new(shards, entry)
    grown = Quarantine((*shards.quarantine.entries, *entries))
    path = plan_on_disk(shards.path).parent / QUARANTINE_FILE
    check_entries(grown, shards.plan, str(path))
    # Finding a document can take minutes.
    if read_quarantine(path.parent, shards.plan).id != shards.quarantine.id:
        raise ShardError(f"{path} was changed meanwhile by somebody else: run the same command again")
    put(path, grown.encode())
    return grown


def _check_new(shards: Shards, entry: Entry) -> None:
    """Raises ShardError when all of it is hidden for good already."""
    place = [component.name for component in shards.plan.components].index(entry.component)
    lasting = Quarantine(
        tuple(old for _, old, end in shards.quarantine.in_force() if end is None and old.start <= entry.start)
    )
    hidden = Hidden(lasting, shards.plan)
    if all(
        set(range(start, end)) <= hidden.tokens(place, row, entry.start) for row, start, end in entry.spans
    ):
        raise ShardError(f"{entry} is in quarantine already from sample {entry.start} on or earlier")
