"""`corpusmill mix check` and `mix export`: what a mixture file asks of the shards at hand, and the same for other trainers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from corpusmill.jobs.tables import table_lines
from corpusmill.mixing.blend import FORMATS, blends
from corpusmill.mixing.caps import MANY_EPOCHS, Caps
from corpusmill.mixing.mixture import Kind, decode_mixture
from corpusmill.pipeline.engine.place import Where, place_of, readable
from corpusmill.pipeline.errors import BudgetError, InputError, RecipeError
from corpusmill.shards.data_sets import data_set_names
from corpusmill.shards.exhaust import redistributed
from corpusmill.shards.layout import Manifest, read_manifest
from corpusmill.shards.mixture import PPB
from corpusmill.shards.plan import Plan, capacity, check_plan
from corpusmill.shards.plan_file import find_plan, read_plan


@dataclass(frozen=True)
class Opened:
    """A mixture file over the shards of a run: as a plan without an end, the samples it asks for, and each component's manifest and kind."""

    plan: Plan
    samples: int
    manifests: dict[str, Manifest]
    kinds: dict[str, Kind]
    stops: bool  # where a component is used up


def open_mixture(file: Path, out: Where) -> Opened:
    """Errors name what is wrong in the file."""
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
    if given.budget_tokens is not None and given.budget_tokens < length:
        raise RecipeError(f"{file}: budget_tokens is {given.budget_tokens}, one sequence has {length}")
    samples = there.samples if given.budget_tokens is None else given.budget_tokens // length
    if samples is None:
        samples = sum(each.rows for each in components)
    if given.exhaust == "redistribute":
        plan = redistributed(plan, samples)
    return Opened(plan, samples, manifests, given.kinds, given.exhaust == "stop")


def checked_lines(file: Path, out: Where) -> tuple[list[str], bool]:
    """The table, and whether a component would be read more often than it may be."""
    opened = open_mixture(file, out)
    return _lines(opened, opened.plan.sequence_length)


def export_mixture(file: Path, out: Where, to: Where, data: str, format: str) -> list[str]:
    """Writes a file a stretch of constant weights into the new folder `to`; how a trainer is given each. `data`: where
    `export-tokens --format megatron` wrote, as the trainer will find it."""
    opened = open_mixture(file, out)
    target = place_of(to)
    if target.is_file() or target.sizes():
        raise InputError(f"{to} is there already: choose a new folder")
    kind = FORMATS[format]
    names = data_set_names({name: manifest.slug for name, manifest in opened.manifests.items()})
    places = {name: f"{data.rstrip('/')}/{each}" for name, each in names.items()}
    found = blends(opened.plan, places, _readable(opened, file))
    written = [(kind.name.format(number), kind.encode(blend)) for number, blend in enumerate(found)]
    for name, content in written:
        (target / name).put(content)
    length = opened.plan.sequence_length
    lines = [
        f"{blend.span} of {length} tokens: {target / name} ({kind.use})"
        for (name, _), blend in zip(written, found, strict=True)
    ]
    if len(found) > 1:
        lines.append(
            f"{len(found)} files, each for its samples: the trainer begins every data set anew with each, our stream goes on"
        )
    return lines


def _readable(opened: Opened, file: Path) -> int:
    """Samples that a trainer may read; BudgetError where a component would be read more often than it may be: no other trainer would say so."""
    most = capacity(opened.plan)
    if most is None or opened.samples <= most:
        return opened.samples
    if opened.stops and most:
        return most
    raise BudgetError(
        f"{file} asks for {opened.samples:,} samples, of which {most:,} keep every component within its max_epochs: "
        "`corpusmill mix check` says which is over; lower the budget, raise max_epochs, or state exhaust: stop or redistribute"
    )


def _lines(opened: Opened, length: int) -> tuple[list[str], bool]:
    plan, samples = opened.plan, opened.samples
    rows, over = [], _kinds_over(opened)
    for component, count in zip(plan.components, plan.mixture().counts(samples), strict=True):
        limit, epochs = component.max_epochs, count / component.epoch_rows
        row = {
            "component": component.name,
            **{
                f"from {phase.start:,}": f"{100 * phase.weights_ppb.get(component.name, 0) / PPB:.4f} %"
                for phase in plan.phases
            },
            "rows read": f"{count:,}",
            "of": f"{component.epoch_rows:,}",
            "epochs": f"{epochs:.2f}",
            "may be": "any" if limit is None else str(limit),
        }
        rows.append(row)
        if limit is not None and count > limit * component.epoch_rows:
            over.append(f"{component.name} would be read {epochs:.2f} times, {limit} are allowed")
        elif limit is None and epochs > MANY_EPOCHS:
            over.append(
                f"{component.name} would be read {epochs:.2f} times; {MANY_EPOCHS} are about as good as new data"
            )
    lines = [*table_lines(rows, False), f"budget: {samples:,} samples, {samples * length:,} tokens", *over]
    most = capacity(plan)
    if most is None or most >= samples:
        return (lines if over else [*lines, "nothing speaks against it"]), False
    if opened.stops:
        return [*lines, f"the stream ends after {most:,} samples (exhaust: stop)"], False
    return [*lines, f"{most:,} samples fit: lower the budget or those weights, or raise max_epochs"], True


def _kinds_over(opened: Opened) -> list[str]:
    """Synthetic text beyond what searches allow, phase by phase."""
    caps, found = Caps(), []
    for phase in opened.plan.phases:
        for kind, most in (("rephrased", caps.rephrased), ("generated", caps.generated)):
            share = sum(
                phase.weights_ppb.get(name, 0)
                for name, each in opened.kinds.items()
                if each.synthetic == kind
            )
            if share > most * PPB:
                found.append(
                    f"{kind} text has {100 * share / PPB:.2f} % from sample {phase.start:,} on; a search gives it {100 * most:g} % at most"
                )
    return found
