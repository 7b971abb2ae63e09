"""Entries for a quarantine list: a document, or samples, become rows and tokens of components, once, when they are added.

The list is put whole; it only grows, so a version that a cursor names stays in it. Who adds at the same time as others adds behind them:
nobody's entry is lost, on a disk or on a store (pipeline/engine/alone.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.pipeline.errors import ShardError
from corpusmill.shards.cursor import AT_ONCE, need_samples, whole
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
    read_list,
    read_quarantine,
)
from corpusmill.shards.reader import Shards
from corpusmill.shards.sidecar import Wanted, is_text
from corpusmill.shards.where import Document, documents

if TYPE_CHECKING:
    from corpusmill.pipeline.engine.place import Place

Tokens = tuple[int, int]
"""First token, and the one behind the last."""


def hide_document(
    path: str | Path, wanted: Wanted, start: int, reason: str, tokens: Tokens | None = None
) -> Quarantine:
    """Hides all documents that are meant from sample `start` on, or of each only `tokens` (counted in the document)."""
    shards, start = Shards(path), whole("from", start)
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
    shards, start = Shards(path), whole("from", start)
    first, stop = whole("the first sample", first), whole("the sample behind the last", stop)
    need_samples(shards.plan, first, stop, AT_ONCE)
    samples = shards.order.samples(first, stop)
    width = shards.plan.sequence_length + 1
    begin, behind = tokens or (0, width)
    if not 0 <= begin < behind <= width:
        raise ShardError(f"no tokens {begin} to {behind - 1} in a sample: it has 0 to {width - 1}")
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
    return _added(Shards(path), [Lift(whole("from", start), reason, whole("entry", entry))])


def carry(root: Place, plan: Plan, names: Collection[str]) -> int:
    """What lists further down hide of the plan's components `names` goes into the list in `root`, from sample 0 on.

    To be called before the plan is written: components of another run would else be handed out whole again. Returns how many
    entries were added.
    """
    from corpusmill.pipeline.engine.alone import alone

    with alone(root):
        own = read_list(root)
        known = {(entry.component, entry.spans) for _, entry, end in own.in_force() if end is None}
        taken = [
            replace(entry, start=0, component=component.name)
            for component in plan.components
            if component.name in names
            for folder in _above(root, component.folder)
            for _, entry, end in read_list(folder).in_force()
            if end is None
            and entry.manifest == component.manifest
            and (component.name, entry.spans) not in known
        ]
        if taken:
            grown = Quarantine((*own.entries, *dict.fromkeys(taken)))
            check_entries(grown, plan, str(root / QUARANTINE_FILE))
            (root / QUARANTINE_FILE).put(grown.encode())
    return len(taken)


def _above(root: Place, folder: str) -> list[Place]:
    """`root`, and the folders between it and `folder`, which is below it."""
    found = [root]
    for name in folder.split("/"):
        found.append(found[-1] / name)
    return found


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

    for entry in entries:
        if not (isinstance(entry.reason, str) and entry.reason.strip()):
            raise ShardError("a reason is needed: whoever reads the list later has nothing else to go by")
        if not is_text(entry.reason):
            raise ShardError(f"the reason {entry.reason!r} is no text in UTF-8; give another")
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
