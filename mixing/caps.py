"""The limits that a mixture gets without being asked: epochs, shares of synthetic text, floors of protected components.

Repeating a component up to 4 times is about as good as new data (Muennighoff et al. 2023); how often depends on the budget,
so the same components have other limits in a longer run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from corpusmill.mixing.constraints import Bounds, Group
from corpusmill.mixing.study import Component

MANY_EPOCHS = 4
"""Times that text can be repeated about as well as new text is read (Muennighoff et al. 2023)."""

LISTED = 6  # members that the name of a limit lists


@dataclass(frozen=True)
class Caps:
    """Shares that kinds of text may have, all their components together.

    Rephrased text helps most at about 30 % (arXiv 2510.01631), text that a model made up at less. Of text by a model that was
    itself trained on generated text nothing is published to rest a share on: 0.05 keeps it a trace.
    """

    rephrased: float = 0.30
    generated: float = 0.15
    later: float = 0.05  # generation 2 and later, of either kind
    protected: float = 0.5  # floor of a protected component, as a part of its share by size


def bounds_of(components: Sequence[Component], budget_tokens: int | None, caps: Caps | None = None) -> Bounds:
    """Each component's own floor and ceiling, and the limits of the module's head. Without a budget epochs are not limited."""
    caps = caps or Caps()
    groups = [
        *(_epochs(components, budget_tokens) if budget_tokens else ()),
        *_protected(components, caps.protected),
        *_kinds(components, caps),
    ]
    return Bounds(
        tuple(each.name for each in components),
        tuple(each.least for each in components),
        tuple(each.most for each in components),
        tuple(groups),
    )


def _epochs(components: Sequence[Component], budget_tokens: int) -> list[Group]:
    groups = []
    for each in components:
        share = each.max_epochs * each.tokens / budget_tokens
        what = f"{each.max_epochs:g} epochs of {each.tokens:,} tokens in a budget of {budget_tokens:,}"
        groups.append(Group(f"{each.name}, {what}", (each.name,), most=share))
    return groups


def _protected(components: Sequence[Component], part: float) -> list[Group]:
    total = sum(each.tokens for each in components) or 1
    return [
        Group(f"{each.name}, protected", (each.name,), least=part * each.tokens / total)
        for each in components
        if each.protected
    ]


def _kinds(components: Sequence[Component], caps: Caps) -> list[Group]:
    kinds = [
        (f"{kind} text", [each.name for each in components if each.synthetic == kind], most)
        for kind, most in (("rephrased", caps.rephrased), ("generated", caps.generated))
    ]
    later = [each.name for each in components if each.synthetic != "none" and each.generation >= 2]
    kinds.append(("synthetic text of generation 2 and later", later, caps.later))
    return [
        Group(f"{kind} ({_listed(members)})", tuple(members), most=most)
        for kind, members, most in kinds
        if members
    ]


def _listed(members: Sequence[str]) -> str:
    more = f" and {len(members) - LISTED} more" if len(members) > LISTED else ""
    return ", ".join(members[:LISTED]) + more
