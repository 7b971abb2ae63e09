"""Streams from a real S3 server: the tokens of a disk, one request a block for a whole machine, damage named or mended."""

import contextlib
import fcntl
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from faulty_proxy import Faults, Proxy, faulty_proxy
from s3_server import Bucket
from shard_samples import small_shards

from corpusmill.pipeline.errors import CursorError, ShardError
from corpusmill.shards import locate, stream
from corpusmill.shards.cache import Cache
from corpusmill.shards.reader import Shards

TOTAL = 600
PART = "shards/fp/books/part-00001.arrow"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards")
    small_shards(root, total=TOTAL)
    return root


@pytest.fixture(scope="module")
def straight(local: Path) -> np.ndarray:
    return np.concatenate([batch["tokens"] for batch in stream(local, 10)])


@pytest.fixture
def store(bucket: Bucket, local: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Bucket, Proxy]]:
    """The shards below `shards` of a bucket; requests of this test are counted by a proxy."""
    bucket.upload(local, "shards")
    with faulty_proxy(bucket.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield bucket, proxy


def tokens(url: str, cache: Cache, size: int = 10) -> np.ndarray:
    with stream(url, size, cache=cache) as batches:
        return np.concatenate([batch["tokens"] for batch in batches])


def asked(proxy: Proxy) -> list[tuple[str, str]]:
    """(path, range) of every read of a shard."""
    return [
        (request.target, request.range or "")
        for request in proxy.requests
        if request.method == "GET" and ".arrow" in request.target and "blocks.arrow" not in request.target
    ]


def blocks(local: Path) -> int:
    return sum(reader.manifest.blocks for reader in Shards(local).components)


def test_a_store_gives_the_tokens_of_a_disk_with_one_request_a_block(
    store: tuple[Bucket, Proxy], local: Path, straight: np.ndarray, tmp_path: Path
) -> None:
    bucket, proxy = store
    assert np.array_equal(tokens(bucket.url("shards"), Cache(tmp_path / "cache")), straight)
    reads = asked(proxy)
    assert len(reads) == len(set(reads)) == blocks(local)
    assert all(re.fullmatch(r"bytes=\d+-\d+", part) for _, part in reads)
    proxy.clear()
    assert np.array_equal(tokens(bucket.url("shards/plan.json"), Cache(tmp_path / "cache"), 30), straight)
    assert asked(proxy) == []
    gets = [request.target for request in proxy.requests if request.method == "GET"]
    assert [target for target in gets if "plan.json" not in target] == []  # tables come once a machine


def test_masks_and_places_in_the_crawl_come_from_a_store_too(
    store: tuple[Bucket, Proxy], local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    url = store[0].url("shards")
    assert locate(url, 5, 9) == locate(local, 5, 9)
    want = ("loss_mask", "position_ids", "cu_seqlens")
    with stream(url, 20, want=want) as far, stream(local, 20, want=want) as near:
        for there, here in zip(far, near, strict=True):
            assert all(np.array_equal(there[name], here[name]) for name in here)


def test_a_store_that_is_busy_and_breaks_off_changes_no_token(
    store: tuple[Bucket, Proxy], straight: np.ndarray, tmp_path: Path
) -> None:
    bucket, proxy = store
    proxy.faults = Faults(seed=5, busy=0.1, reset=0.1, lost=0.1, cut=0.1)
    assert np.array_equal(tokens(bucket.url("shards"), Cache(tmp_path)), straight)
    assert proxy.broken()


def put(bucket: Bucket, data: bytes) -> None:
    bucket.client().put_object(Bucket=bucket.name, Key=PART, Body=data)


def until_error(url: str, cache: Cache, straight: np.ndarray) -> str:
    """Streams to the error, checking every token on the way."""
    with stream(url, 6, cache=cache) as batches:
        at = 0
        try:
            for batch in batches:
                assert np.array_equal(batch["tokens"], straight[at : at + 6])
                at += 6
        except ShardError as error:
            return str(error)
    return ""


def test_a_flipped_byte_is_fetched_twice_and_named_with_object_and_place(
    store: tuple[Bucket, Proxy], local: Path, straight: np.ndarray, tmp_path: Path
) -> None:
    bucket, proxy = store
    table = Shards(local).components[0].blocks
    block = int(np.flatnonzero(table["shard"] == 1)[2])
    offset, length = int(table["offset"][block]), int(table["length"][block])
    data = bytearray((local / "fp/books/part-00001.arrow").read_bytes())
    data[offset + length - 70] ^= 1
    put(bucket, bytes(data))
    says = until_error(bucket.url("shards"), Cache(tmp_path), straight)
    assert f"{bucket.url(PART)}: block {block} " in says and f"at byte {offset}" in says
    # Twice by who needs it, and twice by each thread that was at it at the same time: for the window, and for the batch.
    wanted = f"bytes={offset}-{offset + length - 1}"
    times = sum(part == wanted for path, part in asked(proxy) if path.endswith("part-00001.arrow"))
    assert times in (2, 4, 6)


def test_a_cut_object_and_a_missing_one_are_named(
    store: tuple[Bucket, Proxy], local: Path, straight: np.ndarray, tmp_path: Path
) -> None:
    bucket, _ = store
    whole = (local / "fp/books/part-00001.arrow").read_bytes()
    put(bucket, whole[: len(whole) // 3])
    says = until_error(bucket.url("shards"), Cache(tmp_path / "a"), straight)
    assert f"{bucket.url(PART)} has {len(whole) // 3} bytes, its manifest says {len(whole)}" in says
    bucket.client().delete_object(Bucket=bucket.name, Key=PART)
    assert bucket.url(PART) in until_error(bucket.url("shards"), Cache(tmp_path / "b"), straight)


@pytest.mark.parametrize("name", ["manifest.json", "blocks.arrow"])
def test_tables_of_a_store_that_are_damaged_or_missing_are_named_at_open(
    store: tuple[Bucket, Proxy], local: Path, tmp_path: Path, name: str
) -> None:
    bucket, _ = store
    key = f"shards/fp/books/{name}"
    data = bytearray((local / "fp/books" / name).read_bytes())
    data[len(data) // 2] ^= 4
    bucket.client().put_object(Bucket=bucket.name, Key=key, Body=bytes(data))
    with pytest.raises(ShardError, match=name):
        stream(bucket.url("shards"), 8, cache=Cache(tmp_path))
    bucket.client().delete_object(Bucket=bucket.name, Key=key)
    with pytest.raises(ShardError, match=f"{name} is missing"):
        stream(bucket.url("shards"), 8, cache=Cache(tmp_path))


@pytest.mark.parametrize("how", ["flipped", "cut", "empty"])
def test_a_damaged_cache_is_fetched_again_before_a_token_leaves(
    store: tuple[Bucket, Proxy], straight: np.ndarray, tmp_path: Path, how: str
) -> None:
    bucket, _ = store
    tokens(bucket.url("shards"), Cache(tmp_path))
    files = [path for path in tmp_path.iterdir() if path.suffix != ".part"]
    for path in files:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes({"flipped": bytes(data), "cut": bytes(data[:-9]), "empty": b""}[how])
    with stream(bucket.url("shards"), 10, cache=Cache(tmp_path)) as batches:
        assert np.array_equal(np.concatenate([batch["tokens"] for batch in batches]), straight)
        assert batches.stats().refetched >= 1
    found = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert found == sum(map(len, map(Path.read_bytes, files)))


RANK = """
import sys
from corpusmill.shards import stream
from corpusmill.shards.cache import Cache
url, folder, limit, rank, ranks = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
with stream(url, 12, rank, ranks, cache=Cache(folder, limit)) as batches:
    for batch in batches:
        sys.stdout.buffer.write(batch["tokens"].tobytes())
sys.stderr.write(repr(batches.stats()))
"""


def ranks(url: str, folder: Path, limit: int, count: int) -> list[subprocess.Popen[bytes]]:
    return [
        subprocess.Popen(
            [sys.executable, "-c", RANK, url, str(folder), str(limit), str(rank), str(count)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(count)
    ]


def together(runs: list[subprocess.Popen[bytes]]) -> np.ndarray:
    parts = []
    for run in runs:
        out, err = run.communicate(timeout=120)
        assert run.returncode == 0, err
        parts.append(np.frombuffer(out, np.uint16).reshape(-1, 12 // len(runs), 9))
    return np.concatenate(parts, axis=1).reshape(-1, 9)


def test_four_processes_of_a_machine_fetch_each_block_once(
    store: tuple[Bucket, Proxy], local: Path, straight: np.ndarray, tmp_path: Path
) -> None:
    bucket, proxy = store
    runs = ranks(bucket.url("shards"), tmp_path, 1 << 30, 4)
    assert np.array_equal(together(runs), straight)
    reads = asked(proxy)
    assert len(reads) == len(set(reads)) == blocks(local)
    tables = [r for r in proxy.requests if r.method == "GET" and "manifest.json" in r.target]
    assert len(tables) == 3  # components


def test_four_processes_on_a_small_cache_stay_within_its_bytes(
    store: tuple[Bucket, Proxy], local: Path, straight: np.ndarray, tmp_path: Path
) -> None:
    longest = max(int(reader.blocks["length"].max()) for reader in Shards(local).components)
    limit = 5 * longest
    runs = ranks(store[0].url("shards"), tmp_path, limit, 4)
    most = 0
    while any(run.poll() is None for run in runs[:1]):
        most = max(most, held(tmp_path))
        time.sleep(0.01)
    assert np.array_equal(together(runs), straight)
    assert 0 < max(most, held(tmp_path)) <= limit


def held(folder: Path) -> int:
    """Bytes of a cache, looked at while nobody may make room in it: otherwise one look could see what went and what came for it."""
    total = 0
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # a damaged or finished one
                total += path.stat().st_size
    finally:
        os.close(lock)
    return total


def test_what_a_killed_process_was_filling_is_taken_over(
    store: tuple[Bucket, Proxy], straight: np.ndarray, tmp_path: Path
) -> None:
    bucket, proxy = store
    proxy.faults = Faults(delay=1.0, delay_seconds=0.3, only=r"part-\d+\.arrow", most=10**6)
    for _ in range(2):
        (run,) = ranks(bucket.url("shards"), tmp_path, 1 << 30, 1)
        while not list(tmp_path.glob("*.part")):  # in the middle of a block
            time.sleep(0.005)
        run.kill()
        run.communicate()
    assert list(tmp_path.glob("*.part"))
    proxy.faults = Faults()
    assert np.array_equal(tokens(bucket.url("shards"), Cache(tmp_path)), straight)
    assert not list(tmp_path.glob("*.part"))


FORKED = """
import os, sys
from corpusmill.pipeline.errors import ShardError
from corpusmill.shards import stream
from corpusmill.shards.cache import Cache
batches = stream(sys.argv[1], 4, prefetch=0, cache=Cache(sys.argv[2], 1))
next(batches)
child = os.fork()
if child == 0:
    try:
        list(batches)
    except ShardError as error:
        os._exit(7 if "forked" in str(error) else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


def test_a_forked_child_is_refused_the_parents_client(store: tuple[Bucket, Proxy], tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKED, store[0].url("shards"), str(tmp_path)]
    assert subprocess.run(command, timeout=60).returncode == 0


def test_a_program_that_ends_while_blocks_are_on_their_way_ends(
    store: tuple[Bucket, Proxy], tmp_path: Path
) -> None:
    code = (
        "import sys; from corpusmill.shards import stream; from corpusmill.shards.cache import Cache;"
        "s = stream(sys.argv[1], 2, cache=Cache(sys.argv[2])); next(s)"
    )
    store[1].faults = Faults(delay=1.0, delay_seconds=0.1, only=r"part-\d+\.arrow", most=10**6)
    subprocess.run(
        [sys.executable, "-c", code, store[0].url("shards"), str(tmp_path)], check=True, timeout=60
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_torch_reads_a_store_in_this_process_and_in_workers_that_are_not_forked(
    store: tuple[Bucket, Proxy], straight: np.ndarray, tmp_path: Path, workers: int
) -> None:
    torch = pytest.importorskip("torch")
    from corpusmill.shards.torch import stream_loader

    url = store[0].url("shards")
    loader = stream_loader(url, 60, num_workers=workers, cache=Cache(tmp_path))
    assert np.array_equal(torch.cat([batch["tokens"] for batch in loader]).numpy(), straight)
    with pytest.raises(CursorError, match="cannot be forked"):
        stream_loader(url, 60, num_workers=1, cache=Cache(tmp_path), multiprocessing_context="fork")
