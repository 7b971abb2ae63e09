"""The table of what benchmarks said: `python benchmarks/results.py OUTPUT...` takes what each printed (its last line) into RESULTS.md.

    python benchmarks/dedup.py > /tmp/dedup.txt && python benchmarks/results.py /tmp/dedup.txt

Rows of a benchmark that is named replace its old ones, all others stay. A peer that was not installed is a dash.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("RESULTS.md")
HEAD = """# What the benchmarks said

Ratios are of CPU seconds, medians over turns; what a key means stands at the head of `benchmarks/<benchmark>.py`, and the command that
makes it there too. `benchmarks/results.py` writes this file.

Those of `engine` are medians of three turns on a quiet machine. The plain loop alone took 36 to 44 s in its three turns, so that a ratio says
nothing finer than a tenth.

Those of `tokenize` are one pass over 72 million characters, all engines in turns within it, on a busy machine: the first of three, which gave 4.6 to 5.4 for
`vs_tiktoken_cold`, 8.7 to 9.7 for `vs_tiktoken_warm` and 16 to 20 for `vs_hf` (of a shorter part).

Those of `mixing` are of seeds that proposals and fits had not been improved on.

| benchmark | key | value | on |
|---|---|---|---|
"""


def main() -> None:
    rows = _rows(TABLE.read_text().splitlines()) if TABLE.exists() else []
    for path in sys.argv[1:]:
        result = json.loads(Path(path).read_text().splitlines()[-1])
        name = result["benchmark"]
        if "runner" in result:
            name += f" --partitions, {result['runner']}"
        rows = [row for row in rows if row[0] != name]
        rows += [(name, key, value, machine()) for key, value in _flat(result)]
    TABLE.write_text(HEAD + "".join(f"| {' | '.join(row)} |\n" for row in sorted(rows)))


def _rows(lines: list[str]) -> list[tuple[str, ...]]:
    cells = [
        tuple(word.strip() for word in line.strip("|").split("|")) for line in lines if line.startswith("|")
    ]
    return cells[2:]


def _flat(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Key and value, dotted where they are nested; sizes of a list by their `partitions`."""
    found = []
    for key, value in result.items():
        if key in ("benchmark", "runner"):
            continue
        if isinstance(value, dict):
            found += [(f"{key}.{name}", each) for name, each in _flat(value)]
        elif isinstance(value, list):
            found += [
                (f"{each['partitions']} partitions: {name}", text)
                for each in value
                for name, text in _flat(each)
            ]
        else:
            found.append((key, "-" if value is None else str(value)))
    return [(key, value) for key, value in found if not key.endswith(": partitions")]


def machine() -> str:
    """Cores, kind of processor and Python, without a name or a date."""
    model = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.partition(":")[2].strip()
            for line in cpuinfo.read_text().splitlines()
            if line.startswith("model name")
        ]
        model = names[0] if names else model
    return f"{os.cpu_count()} cores, {model}, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
