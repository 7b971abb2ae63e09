"""The planted crawl from a disk, from a web server that breaks connections, and from a store: the same documents, byte for byte."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from extract_runs import Memory, laid_out
from faulty_proxy import Faults, faulty_proxy
from runs import command, corpusmill, write_recipe
from s3_server import SECRETS, Bucket
from web_server import Site, web_server

from corpusmill.pipeline import web
from corpusmill.pipeline.engine.attempts import Job, Queue
from corpusmill.pipeline.engine.inputs import find_inputs
from corpusmill.pipeline.engine.stage import Stage
from corpusmill.pipeline.engine.task import answer, task_of
from corpusmill.pipeline.errors import InputError
from corpusmill.pipeline.extract.operation import Extract
from corpusmill.pipeline.extract.source import Source
from corpusmill.pipeline.input import Input
from corpusmill.pipeline.registry import build
from corpusmill.pipeline.run import Run

EXTRACT = """
partition_bytes: 60 KB
stages: [extract: {with: trafilatura-fast}]
"""


@pytest.fixture(scope="module")
def files(crawl: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The crawl, its library as JSON Lines that can be cut, and as Parquet in several row groups, below one folder."""
    folder = tmp_path_factory.mktemp("files") / "top"
    folder.mkdir()
    for path in [*crawl.glob("crawl-*.warc.gz"), crawl / "library.jsonl.gz"]:
        shutil.copy(path, folder)
    table = pa.table({"text": [f"A text of its own, number {n}. " * 40 for n in range(3000)]})
    pq.write_table(table, folder / "rows.parquet", row_group_size=500, compression="none")
    (folder / "lines.jsonl").write_text(
        "".join(f'{{"text": "line {n} {"word " * n}"}}\n' for n in range(400))
    )
    return folder


@pytest.fixture(scope="module")
def recipe_of_extract(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"), EXTRACT)


@pytest.fixture(scope="module")
def from_disk(
    files: Path, recipe_of_extract: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("disk") / "out"
    corpusmill("run", recipe_of_extract, "--out", out, "--input", f"{files}/*", "--workers", "1")
    return documents(out)


@pytest.fixture
def site(files: Path) -> Iterator[Site]:
    with web_server(files) as site:
        yield site


def documents(out: Path) -> dict[str, bytes]:
    folder = out / Run(out).state.stages[0].folder
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


def everything_said(out: Path, done: Sequence[subprocess.CompletedProcess[str]]) -> str:
    texts = [each.stdout + each.stderr for each in done]
    texts += [path.read_bytes().decode("latin-1") for path in out.rglob("*") if path.is_file()]
    return "\n".join(texts)


def by_name(endpoint: str, files: Path) -> list[str]:
    return [word for path in sorted(files.iterdir()) for word in ("--input", f"{endpoint}/{path.name}")]


def test_a_web_server_that_breaks_connections_gives_the_bytes_of_a_disk(
    site: Site, files: Path, recipe_of_extract: Path, from_disk: dict[str, bytes], tmp_path: Path
) -> None:
    faults = Faults(seed=5, busy=0.15, reset=0.1, lost=0.1, cut=0.2, retry_after=0)
    with faulty_proxy(site.endpoint, faults) as proxy:
        arguments = by_name(proxy.endpoint, files)
        corpusmill("run", recipe_of_extract, "--out", tmp_path / "out", *arguments, "--workers", "2")
        assert proxy.broken().total() > 10
    assert len(from_disk) >= 15
    assert documents(tmp_path / "out") == from_disk


def test_a_server_without_ranges_gives_the_bytes_of_a_disk(
    site: Site, files: Path, recipe_of_extract: Path, from_disk: dict[str, bytes], tmp_path: Path
) -> None:
    site.always = {path.name: "no ranges" for path in files.iterdir()}
    corpusmill(
        "run", recipe_of_extract, "--out", tmp_path / "out", *by_name(site.endpoint, files), "--workers", "2"
    )
    assert documents(tmp_path / "out") == from_disk


def test_a_store_gives_the_bytes_of_a_disk_and_no_secret_is_left(
    bucket: Bucket,
    files: Path,
    recipe_of_extract: Path,
    from_disk: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket.upload(files, "deep/top")
    faults = Faults(seed=2, busy=0.1, reset=0.1, cut=0.1, only="^GET")
    with faulty_proxy(bucket.endpoint, faults) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        arguments = ("--out", tmp_path / "out", "--input", bucket.url("deep/top/*"), "--workers", "2")
        done = corpusmill("run", recipe_of_extract, *arguments)
        bad = corpusmill(
            "run", recipe_of_extract, "--out", tmp_path / "bad", "--input", bucket.url("gone/*"), expect=2
        )
        assert proxy.broken().total() > 5
    assert documents(tmp_path / "out") == from_disk
    said = everything_said(tmp_path, [done, bad])
    assert not [name for name, value in SECRETS.items() if value in said]


def test_a_range_of_a_file_is_all_that_is_asked_for(
    site: Site, recipe_of_extract: Path, tmp_path: Path
) -> None:
    """Each byte of a large file comes about once, however many partitions it has; only its head and the ends of ranges come again."""
    data = (site.folder / "lines.jsonl").read_bytes() * 12
    (site.folder / "large").write_bytes(data)
    try:
        corpusmill(
            "run",
            recipe_of_extract,
            "--out",
            tmp_path / "out",
            "--input",
            site.url("large"),
            "--workers",
            "1",
        )
    finally:
        (site.folder / "large").unlink()
    partitions = len(documents(tmp_path / "out"))
    assert partitions == -(-len(data) // 60_000)
    came = sum(
        asked.last - asked.first + 1
        for asked in site.asked
        if asked.first is not None and asked.last is not None
    )
    # The search for the first line of a range begins a byte before it, and its last line ends behind it: 64 KiB each.
    assert len(data) <= came <= len(data) + (2 * partitions + 2) * (1 << 16)


def test_a_sample_of_one_input_is_what_a_sample_of_the_run_takes_of_it(files: Path, tmp_path: Path) -> None:
    whole, half = (find_inputs([Input(str(files / "lines.jsonl"), sample=sample)]) for sample in (None, 0.5))
    assert whole[0].identity != half[0].identity
    taken = {}
    for name, found, sample in (("run", whole, 0.5), ("input", half, None), ("smaller", half, 0.9)):
        operation = build(Extract, {}, "extract").operation(17, sample)
        memory = Memory()
        for unit in operation.units(laid_out(found, 1 << 30)):
            operation.run(unit, memory)
        taken[name] = memory.partitions[0]["id"].to_pylist()
    assert taken["run"] == taken["input"] == taken["smaller"]
    assert 150 < len(taken["run"]) < 250  # of 400; five standard deviations


def test_a_worker_killed_in_a_download_costs_its_task(
    site: Site, files: Path, recipe_of_extract: Path, from_disk: dict[str, bytes], tmp_path: Path
) -> None:
    faults = Faults(delay=1.0, delay_seconds=0.3, only="GET", most=10**6)
    with faulty_proxy(site.endpoint, faults) as proxy:
        run = subprocess.Popen(
            command(
                "run",
                recipe_of_extract,
                "--out",
                tmp_path / "out",
                *by_name(proxy.endpoint, files),
                "--workers",
                "2",
            ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        killed = 0
        while run.poll() is None:
            for child in _workers_of(run.pid)[:1] if killed < 3 else []:
                os.kill(child, signal.SIGKILL)
                killed += 1
            time.sleep(0.7)
        assert run.returncode == 0 and killed == 3
    assert documents(tmp_path / "out") == from_disk


def _workers_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []


def test_a_file_that_changes_after_it_was_found_stops_the_run_by_name(
    site: Site, recipe_of_extract: Path, tmp_path: Path
) -> None:
    """The server tells the truth while the run is laid out, and has another version when its bytes are read."""
    site.honest, site.always = {"lines.jsonl": 2}, {"lines.jsonl": "other version"}
    arguments = ("--out", tmp_path / "out", "--input", site.url("lines.jsonl"), "--workers", "1")
    done = corpusmill("run", recipe_of_extract, *arguments, expect=2)
    assert f"{site.url('lines.jsonl')} changed while it was being read" in done.stderr
    site.always = {}
    corpusmill("run", recipe_of_extract, *arguments)


def test_an_object_that_changes_after_it_was_found_is_refused(bucket: Bucket) -> None:
    client = bucket.client()
    client.put_object(Bucket=bucket.name, Key="in/a", Body=b"x" * 300_000)
    (file,) = find_inputs([Input(bucket.url("in/a"))])
    with (
        pytest.raises(InputError, match="changed while it was being read"),
        Source.open(file.address) as source,
    ):
        assert source.read_at(0, 10) == b"x" * 10
        client.put_object(Bucket=bucket.name, Key="in/a", Body=b"y" * 300_000)
        source.read_at(200_000, 10)
    client.put_object(Bucket=bucket.name, Key="in/a", Body=b"z" * 5)
    with pytest.raises(InputError, match="changed"):
        Source.open(file.address)
    client.delete_object(Bucket=bucket.name, Key="in/a")
    with pytest.raises(InputError, match="no such object"):
        Source.open(file.address)


def test_a_server_that_is_not_there_is_no_fault_of_the_recipe(
    files: Path, recipe_of_extract: Path, tmp_path: Path
) -> None:
    with web_server(files) as site:
        url = site.url("lines.jsonl")
    done = corpusmill("run", recipe_of_extract, "--out", tmp_path / "out", "--input", url, expect=1)
    assert f"{url}: no connection; the same command goes on" in done.stderr


def test_a_server_that_stays_away_costs_an_attempt_and_not_the_run(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = find_inputs([Input(site.url("lines.jsonl"))])
    operation = build(Extract, {"with": "trafilatura-fast"}, "extract").operation(17)
    units = operation.units(laid_out([file], 1 << 30))
    task = task_of(Stage("documents", operation), tmp_path, {"documents": "documents"}, 17, units)
    site.always = {"lines.jsonl": "503"}
    monkeypatch.setattr(web.time, "sleep", lambda _: None)
    queue, said = Queue(), json.loads(answer(json.dumps(asdict(task))))
    assert not queue.answered(Job(task), said)
    assert queue.waiting.popleft().attempt == 2
    assert f"{site.url('lines.jsonl')}: the server answers 503" in said["error"]["message"]
