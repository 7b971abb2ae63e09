"""What commands about shards print: documents behind samples, samples of a document, quarantine lists, plans."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from corpusmill.jobs.tables import plain
from corpusmill.shards.mixture import PPB
from corpusmill.shards.plan import Plan
from corpusmill.shards.quarantine import Lift, Quarantine
from corpusmill.shards.suspects import Suspect
from corpusmill.shards.where import Appearances

TEXT = 300  # letters of a document's text on a line for people


def as_json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, default=plain)


def suspect_lines(found: Sequence[Suspect], rows: int | None) -> Iterator[str]:
    """Some lines a document for people, at most `rows` documents; None: a line of JSON for each."""
    if rows is None:
        yield from (as_json(asdict(suspect)) for suspect in found)
        return
    for suspect in found[:rows]:
        yield f"{suspect.suspicion:.2f}  {shown(suspect.url)}  {suspect.id}"
        yield (
            f"      {shown(suspect.component)}, {shown(suspect.file)}:{suspect.offset}, {suspect.length} bytes; {suspect.tokens} tokens here, "
            f"longest run {suspect.longest_run}, rare {suspect.rare:.2f}, garbled {suspect.garbled:.2f}"
        )
        if suspect.scores:
            yield "      " + "  ".join(
                f"{name} {shown(_brief(value))}" for name, value in suspect.scores.items()
            )
        for piece in suspect.pieces:
            gone = ", in quarantine" if piece.quarantined else ""
            yield (
                f"      sample {piece.sample}: tokens {piece.start} to {piece.end - 1} of row {piece.row} (epoch {piece.epoch}, "
                f"{shown(piece.shard)}, block {piece.block}) are its tokens from {piece.token} on{gone}"
            )
        if suspect.text is not None:
            yield f"      | {shown(suspect.text)[:TEXT]}"
    if len(found) > rows:
        yield f"and {len(found) - rows} documents that are less suspicious (--rows, --json)"


def appearance_lines(found: Appearances, batch_size: int | None) -> Iterator[str]:
    document = found.document
    yield f"{shown(document.url)}  {document.id}"
    yield (
        f"      {shown(document.component)}, {shown(document.file)}:{document.offset}, {document.length} bytes; {document.tokens} tokens in "
        f"{len(document.spans)} rows; {len(found.times)} times below sample {found.until}"
    )
    for time in found.times:
        step = "" if batch_size is None else f"step {time.sample // batch_size}, "
        yield (
            f"      {step}sample {time.sample}: tokens {time.start} to {time.end - 1} of row {time.row} (epoch {time.epoch}) are its "
            f"tokens from {time.token} on"
        )


def entry_lines(found: Quarantine) -> Iterator[str]:
    if not found.entries:
        yield "nothing is in quarantine"
        return
    lifted = {number: end for number, _, end in found.in_force() if end is not None}
    for number, entry in enumerate(found.entries):
        until = f" to {lifted[number] - 1}" if number in lifted else ""
        start = f"at {entry.start}" if isinstance(entry, Lift) else f"from {entry.start}{until or ' on'}"
        yield f"{number}  {start}: {shown(str(entry))}: {shown(entry.reason)}"
    yield f"list {found.id}"


def plan_lines(plan: Plan, at: int | None) -> Iterator[str]:
    """The plan for people, with epochs before sample `at`."""
    end = "no end" if plan.samples is None else f"{plan.samples:,} samples"
    yield f"plan {plan.id}: {end} of {plan.sequence_length} tokens, seed {plan.seed}, window {plan.window}"
    for phase in plan.phases:
        ramp = f", over {phase.ramp:,} samples," if phase.ramp else ""
        weights = (
            f"{shown(name)} {weight / PPB:.6g}" for name, weight in phase.weights_ppb.items() if weight
        )
        yield f"  from {phase.start:,}{ramp}: {', '.join(weights)}"
    epochs = {} if at is None else plan.epochs(at)
    for component in plan.components:
        read = f"; read {epochs[component.name]:.4f} times before sample {at:,}" if epochs else ""
        most = f", {component.max_epochs} at most" if component.max_epochs else ""
        part = "" if component.first_rows is None else f"the first {component.first_rows:,} of "
        yield f"  {shown(component.name)}: {part}{component.rows:,} rows in {shown(component.folder)}{read}{most}"
    for past in plan.past:
        yield f"  below {past.start:,} as plan {past.id}"


def _brief(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value


def shown(value: Any) -> str:
    """On one line, with nothing that a terminal would obey: text and addresses come from the web."""
    text = " ".join(str("" if value is None else plain(value)).split())
    return "".join(ch if ch.isprintable() else "\N{REPLACEMENT CHARACTER}" for ch in text)
