"""Print the audit of shards: `corpusmill show SHARDS --audit`. Needs the core install only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from corpusmill.shards.audited import MEASURES, QUANTILES, Audited, audited, by_reason, kept_out


def audit_lines(path: str, rows: int, as_json: bool) -> Iterator[str]:
    """A part a component, then what was kept out; `rows` documents at most of each list."""
    components = audited(path, min(rows, 3))
    out = kept_out(path)
    reasons = by_reason(out)
    if as_json:
        for each in components:
            yield json.dumps({**asdict(each), "at": QUANTILES}, ensure_ascii=False)
        yield json.dumps({"kept_out": reasons})
        return
    for each in components:
        yield from _component_lines(each)
    if reasons:
        yield "kept out of all components: " + ", ".join(f"{name} {n:,}" for name, n in reasons.items())
        for row in out.slice(0, rows).to_pylist():
            yield f"  {row['reason']:<16} {row[row['reason']]:>12,.6g}  {row['url'] or row['id'].hex()}"
        if out.num_rows > rows:
            yield f"  ... and {out.num_rows - rows:,} more in kept_out.parquet beside the components"
    else:
        yield "kept out: none"


def _component_lines(found: Audited) -> Iterator[str]:
    part = (
        "" if found.shards_read == found.shards else f", by {found.shards_read} of its {found.shards} shards"
    )
    yield (
        f"{found.component}: {found.documents:,} documents, {found.tokens:,} tokens{part}; "
        f"padding {found.padding:.2%} of targets, {found.split:.2%} of documents split"
    )
    yield f"  {'':<16}" + "".join(f"{f'{q:.1%}':>12}" for q in QUANTILES) + "  highest"
    for name in MEASURES:
        values = "".join(f"{value:>12,.6g}" for value in found.quantiles[name])
        yield f"  {name:<16}{values}  " + "  ".join(str(row["url"] or row["id"]) for row in found.worst[name])
    spelt = (
        f"{number} {'' if text is None else ascii(text)} {share:.2%}" for number, text, share in found.ids
    )
    yield f"  most frequent ids: {', '.join(spelt)}"
