"""`corpusmill mix check`: what a mixture file asks of the shards at hand, before anything is trained on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from corpusmill.jobs.tables import table_lines
from corpusmill.mixing.mixture import decode_mixture
from corpusmill.pipeline.engine.place import Where, readable
from corpusmill.pipeline.errors import InputError
from corpusmill.shards.layout import read_manifest
from corpusmill.shards.mixture import PPB
from corpusmill.shards.plan import Plan, capacity, check_plan
from corpusmill.shards.plan_file import find_plan, read_plan

MANY_EPOCHS = 4
"""Times that a component can be repeated about as well as new data is read (Muennighoff et al. 2023)."""


def checked_lines(file: Path, out: Where) -> tuple[list[str], bool]:
    """The table, and whether a component would be read more often than it may be. Errors name what is wrong in the file."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read ({error})") from error
    path = find_plan(out if isinstance(out, Path) else readable(out))
    there = read_plan(path)
    manifests = {each.name: read_manifest(path.parent / each.folder) for each in there.components}
    given = decode_mixture(text, manifests, str(file))
    components = tuple(
        replace(each, max_epochs=given.max_epochs.get(each.name, each.max_epochs))
        for each in there.components
    )
    plan = replace(there, components=components, phases=given.phases, samples=None, past=())
    check_plan(plan, str(file))
    length = plan.sequence_length
    samples = there.samples if given.budget_tokens is None else given.budget_tokens // length
    if samples is None:
        samples = sum(each.rows for each in components)
    return _lines(plan, samples, length)


def _lines(plan: Plan, samples: int, length: int) -> tuple[list[str], bool]:
    rows, over = [], []
    for component, count in zip(plan.components, plan.mixture().counts(samples), strict=True):
        limit, epochs = component.max_epochs, count / component.rows
        row = {
            "component": component.name,
            **{
                f"from {phase.start:,}": f"{100 * phase.weights_ppb.get(component.name, 0) / PPB:.4f} %"
                for phase in plan.phases
            },
            "rows read": f"{count:,}",
            "of": f"{component.rows:,}",
            "epochs": f"{epochs:.2f}",
            "may be": "any" if limit is None else str(limit),
        }
        rows.append(row)
        if limit is not None and count > limit * component.rows:
            over.append(f"{component.name} would be read {epochs:.2f} times, {limit} are allowed")
        elif limit is None and epochs > MANY_EPOCHS:
            over.append(
                f"{component.name} would be read {epochs:.2f} times; {MANY_EPOCHS} are about as good as new data"
            )
    lines = [*table_lines(rows, False), f"budget: {samples:,} samples, {samples * length:,} tokens", *over]
    most = capacity(plan)
    if most is not None and most < samples:
        lines.append(f"{most:,} samples fit: lower the budget or those weights, or raise max_epochs")
    return (lines if over else [*lines, "nothing speaks against it"]), most is not None and most < samples
