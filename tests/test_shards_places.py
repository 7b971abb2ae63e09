"""Shards on a store and on a web server: every command says of them what it says of the same shards on a disk, or what it cannot do there."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from s3_server import Bucket
from shard_runs import Run, documents, vocabulary_of
from shard_samples import Sample, small_shards, write_component
from shard_samples import documents as token_lists
from web_server import Site, web_server

from corpusmill.jobs.cli import main
from corpusmill.mixing.stage import Mix
from corpusmill.pipeline.engine import alone as claims
from corpusmill.pipeline.engine.alone import alone
from corpusmill.pipeline.engine.place import Place, place_of
from corpusmill.pipeline.errors import InputError, RunError, ShardError
from corpusmill.shards import stream
from corpusmill.shards.cache import Cache
from corpusmill.shards.hide import hide_document
from corpusmill.shards.reader import Shards
from corpusmill.shards.sidecar import Wanted
from corpusmill.shards.stage import Shard, TokenizerSource

TOTAL = 600
URL = "https://web.example/7"
PART = "fp/books/part-00001.arrow"
Say = Callable[..., list[str]]


@pytest.fixture
def local(tmp_path: Path) -> Path:
    root = tmp_path / "shards"
    small_shards(root, total=TOTAL)
    return root


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands take the cache of blocks that lies there."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)


@pytest.fixture
def store(bucket: Bucket, local: Path) -> Bucket:
    bucket.upload(local, "shards")
    return bucket


@pytest.fixture
def site(local: Path) -> Iterator[Site]:
    with web_server(local.parent) as site:
        yield site


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """The lines that a command prints; `expect` is its exit code."""

    def run(*arguments: Any, expect: int = 0) -> list[str]:
        assert main([str(argument) for argument in arguments]) == expect, capsys.readouterr().err
        printed = capsys.readouterr()
        return (printed.err if expect == 2 else printed.out).splitlines()

    return run


LOOKS = (
    ("plan", "show", "{}", "--json"),
    ("locate", "{}", "--at", "5:9", "--json"),
    ("where", "{}", "--url", URL, "--json"),
    ("where", "{}", "--warc", "books.warc.gz:3010"),
    ("quarantine", "{}", "--list"),
    ("show", "{}/plan.json"),
    ("show", "{}/" + PART),
    ("show", "{}/fp/books/docs-00000.parquet"),
    ("plan", "diff", "{}", "{}"),
    ("verify", "{}"),
)
"""Commands that only read."""


def with_path(command: tuple[str, ...], path: object) -> list[str]:
    return [part.replace("{}", str(path)) for part in command]


def test_commands_that_read_say_of_a_store_and_a_web_server_what_they_say_of_a_disk(
    store: Bucket, site: Site, local: Path, say: Say
) -> None:
    for command in LOOKS:
        expected = say(*with_path(command, local))
        assert expected
        assert say(*with_path(command, store.url("shards"))) == expected
        assert say(*with_path(command, site.url("shards"))) == expected


def test_documents_and_rows_are_exported_from_and_to_a_store(
    store: Bucket, site: Site, local: Path, say: Say, tmp_path: Path
) -> None:
    for form, more in (("megatron", ()), ("parquet", ("--samples", "3:40")), ("hf", ())):
        say("export-tokens", local, "--to", tmp_path / "here" / form, "--format", form, *more)
        expected = files(tmp_path / "here" / form)
        assert expected
        for name, source in (("s3", store.url("shards")), ("web", site.url("shards"))):
            say("export-tokens", source, "--to", tmp_path / name / form, "--format", form, *more)
            assert files(tmp_path / name / form) == expected
        there = store.url(f"exports/{form}")
        printed = say("export-tokens", store.url("shards"), "--to", there, "--format", form, *more)
        assert there in printed[0]
        assert store.objects(f"exports/{form}") == expected
        again = say("export-tokens", local, "--to", there, "--format", form, *more, expect=2)
        assert "is there already" in again[0]


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_audit_is_shown_of_a_store_and_a_web_server(store: Bucket, tmp_path: Path, say: Say) -> None:
    texts = [*(f"page {number} of many" for number in range(60)), "z" * 2000]
    (tmp_path / "tokenizer.json").write_bytes(vocabulary_of(300))
    tokenizer = TokenizerSource(str(tmp_path / "tokenizer.json"))
    shard = Shard(tokenizer, sequence_length=16, block_bytes=1 << 10, shard_bytes=1 << 14)
    out = Run(tmp_path / "run", [documents(texts)], shard, Mix()).out
    expected = say("show", out / "shards", "--audit")
    assert any("kept out of all components: " in line for line in expected)
    store.upload(out / "shards", "audited")
    assert say("show", store.url("audited"), "--audit") == expected
    with web_server(out) as site:
        assert say("show", site.url("shards"), "--audit") == expected


def test_plans_and_lists_written_on_a_store_have_the_bytes_of_those_on_a_disk(
    store: Bucket, local: Path, say: Say
) -> None:
    write_component(local / "later", Sample("web", [token_lists(8, 20)]))
    store.upload(local / "later", "shards/later")
    weights = "web=0.5,later=0.25,books=0.25"
    for path in (local, store.url("shards")):
        add = f"later={path}/later/fp/web"
        say("plan", "append", path, "--from", 200, "--weights", weights, "--add", add, "--ramp", 30)
        say("quarantine", path, "--url", URL, "--from", 9, "--reason", "odd")
        say("quarantine", path, "--at", "40:42", "--from", 40, "--reason", "base64")
        say("quarantine", path, "--lift", 0, "--from", 300, "--reason", "it was not")
        say("plan", "new", f"{path}/later/plan.json", "--add", f"{path}/later/fp/web", "--samples", 40)
    assert store.objects("shards") == files(local)  # and no claim is left
    says = say("plan", "new", store.url("plan.json"), "--add", local, expect=2)
    assert "does not lie below the plan's folder" in says[0]
    says = say("plan", "new", store.url("shards/later"), "--add", store.url("shards/later"), expect=2)
    assert "is there already" in says[0]


def test_a_web_server_is_not_written_to(site: Site, local: Path, say: Say) -> None:
    before = files(local)
    for command in (
        ("quarantine", "{}", "--url", URL, "--from", "9", "--reason", "odd"),
        ("plan", "append", "{}", "--from", "50", "--weights", "web=1"),
        ("plan", "new", "{}/other.json", "--add", "{}"),
    ):
        assert "can be read, not changed" in say(*with_path(command, site.url("shards")), expect=2)[0]
    to = site.url("new")
    assert "can only be read" in say("export-tokens", local, "--to", to, "--format", "megatron", expect=2)[0]
    assert files(local) == before


@pytest.mark.parametrize("where", ["store", "web"])
def test_damage_is_found_block_by_block_where_it_lies(
    request: pytest.FixtureRequest, local: Path, say: Say, where: str
) -> None:
    table = Shards(local).components[0].blocks
    block = int(np.flatnonzero(table["shard"] == 1)[2])
    data = bytearray((local / PART).read_bytes())
    data[int(table["offset"][block]) + int(table["length"][block]) - 70] ^= 1
    (local / PART).write_bytes(data)
    (local / "fp/code/docs-00000.parquet").unlink()
    sidecar = local / "fp/web/docs-00000.parquet"
    sidecar.write_bytes(sidecar.read_bytes()[:-5])
    place = (
        request.getfixturevalue("store").url("shards")
        if where == "store"
        else request.getfixturevalue("site").url("shards")
    )
    lines = say("verify", place, expect=1)
    assert lines == say("verify", local, expect=1)
    assert f"{PART}: is damaged: its hash is not the manifest's (block {block})" in lines
    assert "fp/code/docs-00000.parquet: is missing" in lines
    size = len(sidecar.read_bytes())
    assert f"fp/web/docs-00000.parquet: has {size} bytes, the manifest says {size + 5}" in lines


def test_a_block_table_is_made_again_on_a_store(store: Bucket, local: Path, say: Say) -> None:
    key = "shards/fp/books/blocks.arrow"
    store.client().delete_object(Bucket=store.name, Key=key)
    assert "blocks.arrow" in say("verify", store.url("shards"), expect=1)[0]
    assert "made again from the shards" in say("verify", store.url("shards"), "--repair")[0]
    assert store.objects("shards") == files(local)


@pytest.mark.parametrize("where", ["store", "disk"])
def test_entries_that_many_add_at_the_same_time_all_stay(
    bucket: Bucket, store: Bucket, local: Path, where: str
) -> None:
    path = local if where == "disk" else store.url("shards")
    wanted = [f"https://web.example/{number}" for number in range(3, 9)]
    meeting = threading.Barrier(len(wanted))

    def add(url: str) -> None:
        meeting.wait()
        hide_document(path, Wanted(url=url), 10, f"because of {url}")

    at_once([lambda url=url: add(url) for url in wanted])
    entries = Shards(path).quarantine.entries
    assert sorted(entry.reason for entry in entries) == [f"because of {url}" for url in wanted]
    assert not [name for name in store.objects("shards") if "claim" in name]


@pytest.mark.parametrize("where", ["store", "disk"])
def test_who_is_alone_in_a_folder_reads_what_the_one_before_wrote(
    bucket: Bucket, tmp_path: Path, where: str
) -> None:
    folder = place_of(bucket.url("folder") if where == "store" else tmp_path / "folder")
    file = folder / "count"

    def add() -> None:
        for _ in range(4):
            with alone(folder):
                before = int(file.read_latest()) if file.is_file() else 0
                time.sleep(0.01)
                file.put(str(before + 1).encode())

    at_once([add] * 4)
    assert file.read_bytes() == b"16"


def at_once(work: list[Callable[[], None]]) -> None:
    """In threads; an error of one is this one's."""
    failed: list[BaseException] = []

    def run(one: Callable[[], None]) -> None:
        try:
            one()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def test_a_claim_that_somebody_holds_is_named_and_one_of_a_killed_writer_is_taken_away(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = place_of(bucket.url("folder"))
    left: Place = folder / "claim-left"
    left.put(b"")
    monkeypatch.setattr(claims, "WAIT_S", 0.5)
    with pytest.raises(RunError, match="claim-left has been there for a minute"), alone(folder):
        raise AssertionError("it was not alone")
    time.sleep(2.1)  # the store counts seconds
    monkeypatch.setattr(claims, "STALE", timedelta(seconds=1))
    with alone(folder):
        assert not left.is_file()
    assert list(bucket.objects("folder")) == []


def test_a_plan_that_somebody_changed_meanwhile_is_not_written_over(
    local: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    from corpusmill.jobs import plans

    appended = plans.appended

    def late(*arguments: Any, **more: Any) -> Any:
        monkeypatch.undo()
        assert main(["plan", "append", str(local), "--from", "90", "--weights", "web=1"]) == 0
        return appended(*arguments, **more)

    monkeypatch.setattr(plans, "appended", late)
    with pytest.raises(ShardError, match="changed meanwhile"):
        plans.append(str(local), 100, 0, plans.Choices({"books": 1.0}))
    assert [phase.start for phase in Shards(local).plan.phases] == [0, 90]


def test_a_web_server_gives_the_tokens_of_a_disk_with_one_request_a_block(
    site: Site, local: Path, tmp_path: Path
) -> None:
    straight = tokens(local)
    assert np.array_equal(tokens(site.url("shards/plan.json"), Cache(tmp_path / "cache")), straight)
    ranges = [asked for asked in site.asked if "part-" in asked.path and asked.last != 0]
    blocks = sum(reader.manifest.blocks for reader in Shards(local).components)
    assert len(ranges) == len({(asked.path, asked.first) for asked in ranges}) == blocks
    probes = [asked.path for asked in site.asked if "part-" in asked.path and asked.last == 0]
    assert len(probes) == len(set(probes)) == 4  # one for each shard's length
    site.asked.clear()
    assert np.array_equal(tokens(site.url("shards"), Cache(tmp_path / "cache")), straight)
    assert not [asked for asked in site.asked if "fp/" in asked.path]


def tokens(path: object, cache: Cache | None = None) -> np.ndarray:
    with stream(str(path), 10, cache=cache) as batches:
        return np.concatenate([batch["tokens"] for batch in batches])


def test_a_web_server_that_is_busy_cuts_and_lies_changes_no_token(
    site: Site, local: Path, tmp_path: Path
) -> None:
    lies = ["503", "cut", "short", "shifted", "part", "hang up"]
    site.lies = {f"shards/{PART}": list(lies), "shards/fp/web/part-00000.arrow": list(lies)}
    site.lies["shards/plan.json"] = ["503", "cut"]
    assert np.array_equal(tokens(site.url("shards"), Cache(tmp_path / "cache")), tokens(local))
    assert not site.lies["shards/plan.json"] and not site.lies[f"shards/{PART}"]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("flipped", "is damaged: its hash is not the one in blocks.arrow"),
        ("cut", "bytes, its manifest says"),
        ("gone", "there is no such file"),
    ],
)
def test_a_damaged_file_of_a_web_server_is_named_before_a_wrong_token_leaves(
    site: Site, local: Path, tmp_path: Path, how: str, says: str
) -> None:
    straight = tokens(local)
    data = (local / PART).read_bytes()
    if how == "gone":
        (local / PART).unlink()
    else:
        damaged = bytes(byte ^ (how == "flipped" and i > 400) for i, byte in enumerate(data))
        (local / PART).write_bytes(damaged if how == "flipped" else data[:-300])
    at = 0
    with (
        stream(site.url("shards"), 6, cache=Cache(tmp_path / "cache")) as batches,
        pytest.raises((ShardError, InputError), match=says) as raised,
    ):
        for batch in batches:
            assert np.array_equal(batch["tokens"], straight[at : at + 6])
            at += 6
    assert site.url(f"shards/{PART}") in str(raised.value)


def test_what_a_web_server_cannot_give_is_said(site: Site, local: Path, say: Say) -> None:
    assert "no plan at" in say("plan", "show", site.url("nothing"), expect=2)[0]
    site.always = {"shards/quarantine.json": "403"}
    assert "does not allow it (403)" in say("locate", site.url("shards"), "--at", 1, expect=2)[0]
    site.always = {"shards/plan.json": "no ranges", f"shards/{PART}": "no ranges"}
    assert json.loads(say("plan", "show", site.url("shards"), "--json")[0])["samples"] == TOTAL
    with pytest.raises(InputError, match="takes no ranges"):
        tokens(site.url("shards"))
    address = site.url("shards").replace("//", "//user:word@")
    assert "credentials" in say("plan", "show", address, expect=2)[0]


def test_a_table_that_a_web_server_lacks_is_named(site: Site, local: Path, say: Say) -> None:
    shutil.rmtree(local / "fp/web")
    assert "fp/web/manifest.json is missing" in say("locate", site.url("shards"), "--at", 1, expect=2)[0]


def test_a_sidecar_of_a_store_can_be_read_by_itself(store: Bucket) -> None:
    with (place_of(store.url("shards")) / "fp/web/docs-00000.parquet").here() as copy:
        assert pq.read_metadata(copy).num_rows == 25
    assert not copy.exists()
