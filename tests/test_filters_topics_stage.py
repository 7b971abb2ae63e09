"""The topics stage in a run: by text, by host, by a fastText model, and as an earlier run found them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from runs import hashes
from test_filters_topics import SUBJECTS, planted

from corpusmill.filters.topic_hosts import domain_of, topic_of
from corpusmill.jobs.reporter import SilentReporter
from corpusmill.pipeline.engine.disk import Disk
from corpusmill.pipeline.engine.driver import Driver
from corpusmill.pipeline.engine.local import LocalRunner
from corpusmill.pipeline.errors import ModelError, RecipeError
from corpusmill.pipeline.recipe import parse_recipe
from corpusmill.pipeline.run import Run

HOSTS = ("docs.kitchen.co.uk", "kitchen.co.uk", "ships.github.io", "sails.github.io", "127.0.0.1", "rose.org")


def write(path: Path, texts: Sequence[str], hosts: Sequence[str] = HOSTS) -> None:
    """A document a line; the hosts take turns."""
    lines = [
        json.dumps({"text": text, "url": f"https://{hosts[number % len(hosts)]}/{path.stem}/{number}"})
        for number, text in enumerate(texts)
    ]
    path.write_text("\n".join(lines) + "\n")


def run(folder: Path, out: Path, topics: Mapping[str, Any], workers: int = 1, size: int = 40_000) -> None:
    recipe = parse_recipe(
        {
            "inputs": [{"path": f"{folder}/*.jsonl"}],
            "partition_bytes": size,
            "stages": [{"extract": {"with": "resiliparse"}}, {"topics": dict(topics)}],
        }
    )
    with LocalRunner(workers) as runner:
        Driver(Disk(out), recipe, runner, SilentReporter()).run()


def told(out: Path) -> dict[str, str]:
    """Address -> topic of every document."""
    table = Run(out).table(["url", "topic"])
    return dict(zip(table["url"].to_pylist(), table["topic"].to_pylist(), strict=True))


@pytest.fixture
def texts(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "texts"
    folder.mkdir()
    write(folder / "first.jsonl", planted(40)[0])
    yield folder


@pytest.mark.parametrize("topics", [{"count": 3}, {"by": "host", "count": 2}])
def test_any_number_of_workers_gives_the_same_bytes(
    texts: Path, tmp_path: Path, topics: dict[str, Any]
) -> None:
    run(texts, tmp_path / "one", topics)
    run(texts, tmp_path / "two", topics, workers=2)
    assert hashes(tmp_path / "one") == hashes(tmp_path / "two")
    assert len(list((tmp_path / "one").glob("layers/topics/*/part-*.parquet"))) > 1


def test_the_largest_domains_are_topics_and_other_hosts_go_by_their_top_level_domain(
    texts: Path, tmp_path: Path
) -> None:
    run(texts, tmp_path / "out", {"by": "host", "count": 2})
    found = {url.split("/")[2]: topic for url, topic in told(tmp_path / "out").items()}
    # Two hosts each of kitchen.co.uk and of the platform github.io take 40 of the 120 documents, each other host 20.
    assert found == {
        "docs.kitchen.co.uk": "kitchen.co.uk",
        "kitchen.co.uk": "kitchen.co.uk",
        "ships.github.io": "github.io",
        "sails.github.io": "github.io",
        "127.0.0.1": "other-address",
        "rose.org": "other-org",
    }


@pytest.mark.parametrize(
    ("url", "domain", "topic"),
    [
        ("https://a.b.example.co.uk:8080/x?y", "example.co.uk", "other-uk"),
        ("http://user@EXAMPLE.org./", "example.org", "other-org"),
        ("//bücher.example.de", "example.de", "other-de"),
        ("https://xn--bcher-kva.de/", "xn--bcher-kva.de", "other-de"),
        ("http://wiki.of.intern/", "of.intern", "other-intern"),
        ("http://localhost/", "localhost", "other-localhost"),
        ("http://[::1]:80/", "::1", "other-address"),
        ("http://a..b/", "a.b", "other-b"),
        ("", "", "none"),
        (None, "", "none"),
    ],
)
def test_a_domain_is_what_somebody_registered(url: str | None, domain: str, topic: str) -> None:
    assert domain_of(url) == domain
    assert topic_of(url, frozenset()) == topic
    assert topic_of(url, frozenset({domain})) == (domain or "none")


@pytest.mark.parametrize("topics", [{"count": 3}, {"by": "host", "count": 2}])
def test_topics_of_an_earlier_run_keep_their_names_and_documents_when_a_file_comes(
    texts: Path, tmp_path: Path, topics: dict[str, Any]
) -> None:
    run(texts, tmp_path / "before", topics)
    before = told(tmp_path / "before")
    # The new file holds no garden, and hosts that no earlier document was from.
    kitchen = [" ".join(SUBJECTS["kitchen"] * 3)] * 70
    write(texts / "second.jsonl", kitchen, ("new.net",))
    by = {"by": topics.get("by", "text")}
    run(texts, tmp_path / "after", {**by, "model": str(tmp_path / "before")})
    after = told(tmp_path / "after")
    assert {url: after[url] for url in before} == before
    added = {topic for url, topic in after.items() if url not in before}
    assert added == ({"other-net"} if by["by"] == "host" else {before["https://docs.kitchen.co.uk/first/0"]})
    # From its own folder, which may have moved: the same topics again.
    (layer,) = (tmp_path / "before").glob("layers/topics.fit/*")
    moved = layer.rename(tmp_path / "kept")
    run(texts, tmp_path / "again", {**by, "model": str(moved)})
    assert told(tmp_path / "again") == after


def test_domains_keep_their_names_when_a_file_comes(texts: Path, tmp_path: Path) -> None:
    run(texts, tmp_path / "before", {"by": "host", "count": 2})
    write(texts / "second.jsonl", planted(5, seed=3)[0], ("new.net", "more.org"))
    run(texts, tmp_path / "after", {"by": "host", "count": 2})
    before, after = told(tmp_path / "before"), told(tmp_path / "after")
    assert {url: after[url] for url in before} == before


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fastText model that tells the planted subjects apart."""
    import fasttext

    folder = tmp_path_factory.mktemp("model")
    lines = [f"__label__{subject} {text}" for text, subject in zip(*planted(60, seed=8), strict=True)]
    random.Random(5).shuffle(lines)
    (folder / "lines.txt").write_text("\n".join(lines) + "\n")
    model = fasttext.train_supervised(
        str(folder / "lines.txt"), dim=8, epoch=20, lr=0.5, thread=1, verbose=0, bucket=1000
    )
    model.save_model(str(folder / "subjects.bin"))
    return folder / "subjects.bin"


def test_labels_of_a_given_model_are_topics_with_their_scores(
    trained: Path, tmp_path: Path, texts: Path
) -> None:
    run(texts, tmp_path / "out", {"model": str(trained)})
    table = Run(tmp_path / "out").table(["url", "topic", "topic_score"])
    subjects = planted(40)[1]
    for url, topic, score in zip(*(table[name].to_pylist() for name in table.column_names), strict=True):
        assert topic == subjects[int(url.rpartition("/")[2])]
        assert 0.5 < score <= 1.0


def test_another_model_under_the_same_path_makes_topics_anew(
    trained: Path, tmp_path: Path, texts: Path
) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(trained.read_bytes())
    run(texts, tmp_path / "out", {"model": str(path)})
    (before,) = (tmp_path / "out/layers/topics").iterdir()
    import fasttext

    lines = tmp_path / "lines.txt"
    lines.write_text("__label__one bread butter\n__label__two ship anchor\n" * 20)
    fasttext.train_supervised(str(lines), dim=4, epoch=5, thread=1, verbose=0, bucket=100).save_model(
        str(path)
    )
    run(texts, tmp_path / "other", {"model": str(path)})
    (after,) = (tmp_path / "other/layers/topics").iterdir()
    assert before.name != after.name
    assert set(told(tmp_path / "other").values()) <= {"one", "two"}


@pytest.mark.parametrize(
    ("topics", "error", "message"),
    [
        ({"model": "missing.bin"}, ModelError, "topic model missing.bin cannot be read"),
        ({"model": ".", "by": "host"}, RecipeError, "holds no topics by host"),
        ({"model": ".", "count": 3}, RecipeError, "count and sample are for finding topics"),
        ({"by": "hosts"}, RecipeError, "topics: by: Input should be 'text' or 'host'"),
    ],
)
def test_mistakes_are_named_before_anything_runs(
    topics: dict[str, Any], error: type[Exception], message: str, tmp_path: Path, texts: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        run(texts, tmp_path / "out", topics)
    assert not (tmp_path / "out/text").exists()


def test_a_file_that_is_no_model_and_hosts_with_a_model_are_refused(trained: Path, texts: Path) -> None:
    with pytest.raises(RecipeError, match="by: host reads no text"):
        run(texts, texts / "out", {"model": str(trained), "by": "host"})
    with pytest.raises(ModelError, match="is no fastText model"):
        run(texts, texts / "out", {"model": str(texts / "first.jsonl")})
