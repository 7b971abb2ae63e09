"""Charts of a search's report as inline SVG: no scripts, no styles of their own, every text escaped.

Each has a title for those who cannot see it; the figures behind it stand in a table of the page or in the JSON beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

TICKS = 4


@dataclass(frozen=True)
class Scale:
    """Values to places along an axis."""

    low: float
    high: float
    start: float
    end: float
    first: float
    last: float
    """`low` and `high` are where the axis ends, `first` and `last` the values that it was made for."""

    @classmethod
    def of(cls, values: Iterable[float], start: float, end: float, room: float = 0.05) -> Scale:
        """With some room at both ends; one value alone stands in the middle."""
        found = list(values)
        low, high = (min(found), max(found)) if found else (0.0, 1.0)
        more = (high - low) * room if high > low else abs(high) or 1.0
        return cls(low - more, high + more, start, end, low, high)

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Evenly from the lowest value to the highest; one where all are equal."""
        if self.first == self.last:
            return [self.first]
        step = (self.last - self.first) / (TICKS - 1)
        return [self.first + step * number for number in range(TICKS)]


def svg(title: str, width: int, height: int, parts: Iterable[str]) -> str:
    """A drawing that a screen reader calls by its title."""
    name = escape(title, quote=True)
    return (
        f'<svg role="img" aria-label="{name}" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f"<title>{name}</title>{''.join(parts)}</svg>"
    )


def text(x: float, y: float, said: str, anchor: str = "start", kind: str = "label") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(said)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def dot(x: float, y: float, kind: str, said: str, radius: float = 2.6) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" class="{kind}"><title>{escape(said)}</title></circle>'


def bar(share: float, width: int = 90) -> str:
    """A share from 0 to 1 as a bar; the number stands beside it."""
    filled = max(0.0, min(1.0, share)) * width
    return (
        f'<svg aria-hidden="true" width="{width}" height="8" viewBox="0 0 {width} 8">'
        f'<rect width="{width}" height="8" class="track"/><rect width="{filled:.1f}" height="8" class="fill"/></svg>'
    )


@dataclass(frozen=True)
class Interval:
    """A row of a forest: open ends are None."""

    label: str
    value: float
    low: float | None
    high: float | None
    kind: str = "one"


def forest(title: str, rows: Sequence[Interval], axis: str, width: int = 760) -> str:
    """Intervals below each other around 0."""
    left, top, each = 330, 8, 20
    height = top + each * len(rows) + 34
    ends = [end for row in rows for end in (row.low, row.high, row.value) if end is not None]
    scale = Scale.of([0.0, *ends], left, width - 90)
    parts = [line(scale.at(0.0), top, scale.at(0.0), height - 30, "zero")]
    for place, row in enumerate(rows):
        y = top + each * place + each / 2
        parts.append(text(left - 10, y + 4, short(row.label, 46), "end"))
        low, high = (end if end is not None else row.value for end in (row.low, row.high))
        parts.append(line(scale.at(low), y, scale.at(high), y, f"reach {row.kind}"))
        parts.append(dot(scale.at(row.value), y, row.kind, f"{row.label}: {row.value:+.4f}", 4))
        parts.append(text(width - 84, y + 4, f"{row.value:+.4f}", kind="figure"))
    for tick in scale.ticks():
        parts.append(text(scale.at(tick), height - 16, f"{tick:+.3f}", "middle", "tick"))
    parts.append(text((left + width - 90) / 2, height - 2, axis, "middle", "tick"))
    return svg(title, width, height, parts)


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    kind: str
    said: str


def scatter(
    title: str,
    points: Sequence[Point],
    axes: tuple[str, str],
    curve: Sequence[tuple[float, float]] = (),
    diagonal: bool = False,
    size: tuple[int, int] = (300, 220),
) -> str:
    """Points, with a curve through them or the diagonal that they should lie on."""
    width, height = size
    xs, ys = [point.x for point in points], [point.y for point in points]
    if diagonal:
        xs = ys = xs + ys
    across = Scale.of([*xs, *(x for x, _ in curve)], 52, width - 8)
    up = Scale.of([*ys, *(y for _, y in curve)], height - 34, 22)
    parts = [text(52, 13, short(title, 42), kind="name")]
    parts.append(f'<rect x="52" y="22" width="{width - 60}" height="{height - 56}" class="frame"/>')
    if diagonal:
        parts.append(
            line(across.at(across.low), up.at(up.low), across.at(across.high), up.at(up.high), "zero")
        )
    if curve:
        path = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in curve)
        parts.append(f'<polyline points="{path}" class="curve"/>')
    parts += [dot(across.at(each.x), up.at(each.y), each.kind, each.said) for each in points]
    for value in sorted({across.first, across.last}):
        parts.append(text(across.at(value), height - 20, number(value), "middle", "tick"))
    for value in sorted({up.first, up.last}):
        parts.append(text(48, up.at(value) + 4, number(value), "end", "tick"))
    parts.append(text(width / 2 + 22, height - 5, f"across: {axes[0]}; up: {axes[1]}", "middle", "tick"))
    return svg(f"{title}: {axes[1]} against {axes[0]}", width, height, parts)


def number(value: float) -> str:
    return f"{value:.3g}"


def short(said: str, most: int) -> str:
    return said if len(said) <= most else said[: most - 1] + "…"
