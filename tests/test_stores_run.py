"""A run whose OUT lies on a real S3 server: the bytes of a run on a disk, whatever breaks on the way."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_proxy import Faults, Proxy, faulty_proxy
from runs import corpusmill, events, hashes, inputs
from s3_server import SECRETS, Bucket
from test_kills import start, wait_for, workers

WEATHER = Faults(
    seed=7, delay=0.02, busy=0.03, reset=0.02, lost=0.02, cut=0.03, cut_upload=0.02, delay_seconds=0.1
)
"""What a run meets that goes through `proxy`."""


@pytest.fixture
def proxy(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Runs of this test go to the server through a proxy, and keep their temporary files and logs below `tmp_path`."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with faulty_proxy(bucket.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


def stored(bucket: Bucket, prefix: str = "out") -> dict[str, str]:
    """sha256 of every object of a run, data and manifests, but for the metrics."""
    return {
        name: hashlib.sha256(data).hexdigest()
        for name, data in bucket.objects(prefix).items()
        if not name.startswith("metrics/")
    }


def no_secrets_in(*texts: bytes | str) -> None:
    for text in texts:
        for value in SECRETS.values():
            assert (value.encode() if isinstance(text, bytes) else value) not in text


def test_a_run_on_a_store_is_equal_to_one_on_a_disk_and_can_be_looked_at_in_place(
    bucket: Bucket, proxy: Proxy, undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path
) -> None:
    out = bucket.url("out")
    command = ("run", recipe, "--out", out, *inputs(crawl), "--workers", "2")
    first = corpusmill(*command)
    assert stored(bucket) == hashes(undisturbed)
    metrics = bucket.objects("out/metrics")
    made = {json.loads(line)["stage"] for line in metrics["run/driver.jsonl"].splitlines()}
    assert {"documents", "mix"} <= made and "documents.jsonl" in metrics

    proxy.clear()
    again = corpusmill(*command)
    assert not [event for event in events(again) if event["event"] == "task_done"]
    # A stage that stands is two reads (table and head) and a listing, each read with a question for the length before it; nothing is asked of
    # single files, and nothing is written but the probe of the start and what the run used.
    assert {request.target.split("/")[3] for request in proxy.requests if request.method == "PUT"} == {
        "metrics"
    }
    stages = len([event for event in events(again) if event["event"] == "stage_ended"])
    assert proxy.count()["GET"] < 10 * stages and proxy.count()["HEAD"] < 14 * stages
    assert stored(bucket) == hashes(undisturbed)

    on_disk, on_store = (corpusmill("show", place, "--json").stdout for place in (undisturbed, out))
    assert on_store == on_disk
    rows = ("--which", "dropped", "--columns", "url,stage,reason", "--rows", "50", "--json")
    assert corpusmill("show", out, *rows).stdout == corpusmill("show", undisturbed, *rows).stdout
    assert corpusmill("show", f"{out}/shards").stdout == corpusmill("show", undisturbed / "shards").stdout
    checked = corpusmill("verify", out)
    assert " 0 findings" in checked.stdout

    for place in (tmp_path / "clean", bucket.url("clean")):
        corpusmill("export", out, "--to", place, "--workers", "1")
    assert stored(bucket, "clean") == hashes(tmp_path / "clean")
    no_secrets_in(first.stdout, first.stderr, again.stderr, *bucket.objects().values())


@pytest.mark.parametrize(
    "stage",
    [
        "documents",
        pytest.param("shard.write", marks=pytest.mark.slow),
        pytest.param("dedup.edges", marks=pytest.mark.slow),
    ],
)
def test_kills_a_bad_network_and_a_second_driver_change_no_byte_and_give_no_secret_away(
    stage: str, bucket: Bucket, proxy: Proxy, undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path
) -> None:
    proxy.faults = WEATHER
    out = bucket.url("out")
    driver = start(recipe, crawl, out)  # type: ignore[arg-type]
    wait_for(driver, "stage_began", stage)
    time.sleep(0.3)
    for pid in workers(driver.pid):
        os.kill(pid, signal.SIGKILL)
    wait_for(driver, "task_done", stage)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    assert driver.stderr is not None
    said = [driver.stderr.read(), *two_drivers(recipe, crawl, out)]
    assert stored(bucket) == hashes(undisturbed)
    assert sum(proxy.broken().values()) > 30
    logs = [path.read_bytes() for path in (tmp_path / "tmp").rglob("*") if path.is_file()]
    no_secrets_in(*said, *logs, *bucket.objects().values())
    assert not [path for path in (tmp_path / "tmp").rglob(".tmp-*")]


def two_drivers(recipe: Path, crawl: Path, out: str) -> list[str]:
    """Two at once; what they said. One of them may find that the other has taken away what it was to read: then the same command goes on."""
    drivers = [start(recipe, crawl, out) for _ in range(2)]  # type: ignore[arg-type]
    said = [driver.communicate()[1] for driver in drivers]
    assert 0 in [driver.returncode for driver in drivers], said
    if any(driver.returncode for driver in drivers):
        said.append(corpusmill("run", recipe, "--out", out, *inputs(crawl), "--workers", "1").stderr)
    return said


@pytest.mark.slow
def test_two_drivers_on_one_prefix_end_equal(
    bucket: Bucket, proxy: Proxy, undisturbed: Path, crawl: Path, recipe: Path
) -> None:
    """From the first stage on, in good weather; above they meet in the middle of a run."""
    two_drivers(recipe, crawl, bucket.url("out"))
    assert stored(bucket) == hashes(undisturbed)


def test_gone_and_cut_objects_are_made_again(
    bucket: Bucket, proxy: Proxy, undisturbed: Path, crawl: Path, recipe: Path
) -> None:
    client = bucket.client()
    for path in sorted(undisturbed.rglob("*")):
        if path.is_file():
            client.put_object(
                Bucket=bucket.name, Key=f"out/{path.relative_to(undisturbed)}", Body=path.read_bytes()
            )
    names = sorted(hashes(undisturbed))
    gone = next(name for name in names if name.startswith("layers/filter.measures/") and "part-" in name)
    cut = next(name for name in names if name.startswith("text/documents/") and "part-" in name)
    sealed = next(name for name in names if name.endswith("/blocks.arrow"))
    client.delete_object(Bucket=bucket.name, Key=f"out/{gone}")
    for name in (cut, sealed):
        data = (undisturbed / name).read_bytes()
        client.put_object(Bucket=bucket.name, Key=f"out/{name}", Body=data[: len(data) // 2])
    findings = corpusmill("verify", bucket.url("out"), expect=1).stdout
    assert all(name in findings for name in (gone, cut, sealed))
    assert " 4 findings" in findings  # the table of blocks is missed by the run and by the shards
    corpusmill("run", recipe, "--out", bucket.url("out"), *inputs(crawl), "--workers", "2")
    assert stored(bucket) == hashes(undisturbed)


def test_another_recipe_is_refused_and_an_update_reuses_what_fits(
    bucket: Bucket, proxy: Proxy, crawl: Path, tmp_path: Path
) -> None:
    text = "partition_bytes: 120 KB\nstages:\n  - extract: {with: resiliparse}\n  - filter: [gopher_quality: {min_words: %d}]\n"
    (tmp_path / "recipe.yaml").write_text(text % 30)
    command = ("run", tmp_path / "recipe.yaml", *inputs(crawl), "--workers", "1", "--out")
    corpusmill(*command, bucket.url("out"))
    (tmp_path / "recipe.yaml").write_text(text % 60)
    refused = corpusmill(*command, bucket.url("out"), expect=2).stderr
    assert "made with another recipe" in refused and "min_words" in refused
    updated = corpusmill(*command, bucket.url("out"), "--update")
    assert {event["stage"] for event in events(updated) if event["event"] == "task_done"} == {
        "filter.verdict",
        "ledger.filter",
    }
    corpusmill(*command, tmp_path / "out")
    assert hashes(tmp_path / "out").items() <= stored(bucket).items()


@pytest.mark.parametrize("command", ["run", "show", "verify", "export"])
def test_what_a_store_refuses_is_one_line_and_exit_code_2(
    command: str, bucket: Bucket, proxy: Proxy, crawl: Path, recipe: Path, tmp_path: Path
) -> None:
    proxy.faults = Faults(busy=1, status=403, code="InvalidAccessKeyId", most=10_000)
    given = {"run": (recipe, *inputs(crawl), "--out"), "export": ("--to", tmp_path / "to")}.get(command, ())
    for address, said in ((bucket.url("out"), "refuses these credentials"), ("s3://there-is-none/out", None)):
        done = corpusmill(command, *given, address, expect=2)
        assert done.stderr.startswith("corpusmill: s3://") and done.stderr.count("\n") == 1
        assert said is None or said in done.stderr
        no_secrets_in(done.stdout, done.stderr)
        proxy.faults = Faults()
