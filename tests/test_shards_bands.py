"""Bands of a measure as components: edges by hand, parts of equal text, the same bytes however a run is cut."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pin_results import text

from corpusmill.jobs.reporter import SilentReporter
from corpusmill.pipeline.engine.disk import Disk
from corpusmill.pipeline.engine.driver import Driver
from corpusmill.pipeline.engine.local import LocalRunner
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.recipe import parse_recipe
from corpusmill.pipeline.run import Run
from corpusmill.shards.bands import banded, edges
from corpusmill.shards.components import Band
from corpusmill.shards.layout import decode_manifest


def run(folder: Path, out: Path, by: list[Any], partition_bytes: int = 1 << 20, **shard: Any) -> Driver:
    recipe = parse_recipe(
        {
            "inputs": [{"path": f"{folder}/texts.jsonl", "source": "web"}],
            "max_drop": 1,
            "partition_bytes": partition_bytes,
            "stages": [
                "extract",
                {"filter": [{"gopher_quality": {"min_words": 1, "min_mean_word_length": None}}]},
                {
                    "shard": {
                        "tokenizer": {"train": "bpe", "vocab": 300},
                        "sequence_length": 16,
                        "block_bytes": 64,
                        "components": {"by": by},
                        **shard,
                    }
                },
            ],
        }
    )
    with LocalRunner(1) as runner:
        driver = Driver(Disk(out), recipe, runner, SilentReporter())
        driver.run()
    return driver


def names(out: Path) -> list[str]:
    paths = sorted(out.glob("shards/*/*/manifest.json"))
    return sorted(decode_manifest(path.read_bytes(), str(path)).name for path in paths)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Texts of 20 lengths, the longest twenty times the shortest."""
    lines = [json.dumps({"text": text(n, n // 2 + 1)}) for n in range(40)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_parts_hold_about_as_much_text_and_longer_documents_come_later(texts: Path) -> None:
    run(texts, texts / "out", ["source", {"band": "words", "parts": 4}])
    assert names(texts / "out") == [f"web.words-{part}of4" for part in (1, 2, 3, 4)]
    rows = Run(texts / "out").table(["words", "band.words", "text"]).to_pylist()
    sizes: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        sizes.setdefault(row["band.words"], []).append((row["words"], len(row["text"].encode())))
    ordered = [sizes[f"words-{part}of4"] for part in (1, 2, 3, 4)]
    for low, high in pairwise(ordered):
        assert max(words for words, _ in low) < min(words for words, _ in high)
    total = sum(size for band in ordered for _, size in band)
    largest = max(size for band in ordered for _, size in band)
    for band in ordered:  # an edge lies within half a pair of equally long documents of its place
        assert abs(sum(size for _, size in band) - total / 4) <= 2 * largest


def test_given_edges_are_taken_as_they_are(texts: Path) -> None:
    run(texts, texts / "out", [{"band": "words", "at": [50, 200]}, "source"])
    for row in Run(texts / "out").table(["words", "band.words"]).to_pylist():
        assert row["band.words"] == f"words-{1 + (row['words'] >= 50) + (row['words'] >= 200)}of3"


def test_bands_do_not_depend_on_how_the_corpus_is_cut(texts: Path) -> None:
    by = ["source", {"band": "words", "parts": 3}]
    found = []
    for place, size in enumerate((1 << 20, 12_000)):
        out = texts / f"out{place}"
        driver = run(texts, out, by, size)
        table = Run(out).table(["id", "band.words"]).to_pylist()
        found.append((len(driver.manifests["documents"].results), sorted(table, key=lambda row: row["id"])))
    assert found[0][0] == 1 < found[1][0]
    assert found[0][1] == found[1][1]


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 9)), min_size=1, max_size=40), st.integers(2, 5))
def test_edges_lie_where_as_much_is_below_as_can_be(pairs: list[tuple[int, int]], parts: int) -> None:
    values, weights = np.array(pairs, np.float64).T
    found = edges(values, weights, parts)
    assert found == sorted(found) and len(found) == parts - 1

    def miss(edge: float, place: int) -> float:
        return abs(float(weights[values < edge].sum()) - weights.sum() * (place + 1) / parts)

    for place, edge in enumerate(found):
        assert miss(edge, place) == pytest.approx(min(miss(value, place) for value in values))


def test_a_missing_measure_is_a_band_of_its_own() -> None:
    found = banded(np.array([0.1, np.nan, 0.5]), [0.5], ["low", "high"])
    assert found.tolist() == ["low", "none", "high"]
    assert edges(np.array([np.nan]), np.ones(1), 3) == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "how many parts"),
        ({"at": (1.0,), "parts": 2}, "how many parts"),
        ({"at": (2.0, 1.0)}, "numbers that rise"),
        ({"at": ()}, "numbers that rise"),
        ({"at": (float("nan"),)}, "numbers that rise"),
        ({"parts": 1}, "from 2"),
    ],
)
def test_bands_that_cannot_be_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        Band("words", **fields)


def test_a_band_of_words_or_of_nothing_is_refused_by_name(texts: Path) -> None:
    with pytest.raises(RecipeError, match="no earlier stage makes 'wrods'; did you mean 'words'"):
        run(texts, texts / "out", ["source", {"band": "wrods", "parts": 2}])
    with pytest.raises(RecipeError, match="unknown key"):
        run(texts, texts / "out", ["source", {"band": "words", "part": 2}])
