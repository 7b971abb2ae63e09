"""Tables of a search: what a user called a component or target changes nothing else in them."""

from __future__ import annotations

from corpusmill.jobs.search_tables import design_lines, effect_lines, records_lines
from corpusmill.jobs.tables import table_lines
from corpusmill.shards.mixture import PPB


def test_components_and_targets_called_like_a_column_do_not_take_its_place() -> None:
    run = {"name": "uniform", "role": "anchor", "seed": 17, "weights_ppb": [PPB // 4, 3 * PPB // 4]}
    head, row = design_lines({"components": ["seed", "run"], "runs": [run], "notes": []})
    assert head.split() == ["run", "role", "seed", "(seed)", "(run)"]
    assert row.split() == ["uniform", "anchor", "17", "25.00", "%", "75.00", "%"]
    record = {"run": "uniform", "seed": 17, "target": "run", "bits_per_byte": 1.5}
    head, row, _ = records_lines({"records": [record]})
    assert (head.split(), row.split()) == (["run", "seed", "(run)"], ["uniform", "17", "1.5000"])
    effect = {"component": "web", "way": "more", "before": 0.25, "after": 0.5, "target": "component"}
    head, row, _ = effect_lines([{**effect, "change": 0.5, "low": None, "high": None}])
    assert head.split() == ["component", "weight", "(component)"]
    assert row.split()[0] == "web" and row.split()[-1] == "+0.5000"


def test_names_of_columns_cannot_break_lines_or_speak_to_a_terminal() -> None:
    lines = list(table_lines([{"a\n\x1b[2Jb": 1}, {"c": 2}], False))
    assert lines == ["a \N{REPLACEMENT CHARACTER}[2Jb  c", "1", " " * 9 + "2"]
