"""Places: the same operations on a disk and on a real S3 server, and a put that fails leaves what stood."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from faulty_proxy import Faults, Proxy, faulty_proxy
from misbehaviour import run, write_texts
from s3_server import SECRETS, Bucket

from corpusmill.pipeline import remote
from corpusmill.pipeline.engine import bucket as buckets
from corpusmill.pipeline.engine.disk import Disk
from corpusmill.pipeline.engine.place import Place, place_of
from corpusmill.pipeline.engine.store import hash_bytes
from corpusmill.pipeline.errors import InputError, RecipeError

BIG = os.urandom(12 << 20)  # a multipart upload of two parts


@pytest.fixture(params=["disk", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "disk":
        return place_of(tmp_path / "out")
    return place_of(request.getfixturevalue("bucket").url("out"))


@pytest.fixture
def proxy(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy before the server, and clients that give up early."""
    monkeypatch.setattr(remote, "ATTEMPTS", 2)
    monkeypatch.setattr(buckets, "TRIES", 2)
    with faulty_proxy(bucket.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


def test_what_is_put_is_read_listed_and_deleted(place: Place) -> None:
    assert place.sizes() == {} and not (place / "a").is_file()
    with pytest.raises(FileNotFoundError):
        (place / "a").read_bytes()
    (place / "a").put(b"old")
    (place / "a").put(b"one")
    (place / "a.zst").put(b"as it is")
    (place / "deep" / "er" / "b").put(b"")
    (place / "deep" / "c").put(memoryview(b"three"))
    assert (place / "a").read_bytes() == b"one" and (place / "a").read_text() == "one"
    assert place.sizes() == {"a": 3, "a.zst": 8, "deep/er/b": 0, "deep/c": 5}
    assert (place / "a.zst").read_bytes() == b"as it is"
    assert (place / "deep").sizes() == {"er/b": 0, "c": 5}
    assert ((place / "deep/c").size(), (place / "deep").size(), (place / "d").size()) == (5, None, None)
    assert list(place.read_all(["deep/c", "gone", "a"])) == [b"three", None, b"one"]
    place.unlink_all(["a", "gone", "a.zst"])
    (place / "deep/er/b").unlink()
    (place / "deep/er/b").unlink()
    assert place.sizes() == {"deep/c": 5}
    place.remove_tree()
    place.remove_tree()
    assert place.sizes() == {}


def test_prefixes_that_begin_alike_are_apart(place: Place) -> None:
    (place / "stage" / "x").put(b"1")
    (place / "stage2" / "x").put(b"2")
    (place / "stage").remove_tree()
    assert place.sizes() == {"stage2/x": 1}


@pytest.mark.parametrize("size", [0, 5, len(BIG)])
def test_a_finished_temporary_file_becomes_the_file_and_is_gone(place: Place, size: int) -> None:
    temporary = (place / "sub" / "file").temporary()
    temporary.write_bytes(BIG[:size])
    (place / "sub" / "file").put_file(temporary)
    assert not temporary.exists()
    file = place / "sub" / "file"
    assert file.read_bytes() == BIG[:size] and file.hash() == hash_bytes(BIG[:size])
    assert b"".join(file.pieces()) == BIG[:size]


def test_ranges_are_read(place: Place) -> None:
    (place / "big").put(BIG)
    source = (place / "big").random()
    with pa.OSFile(str(source)) if isinstance(source, Path) else source as file:
        assert file.read_at(1000, 11 << 20) == BIG[11 << 20 :][:1000]
    with (place / "big").mapped() as file:
        file.seek(-7, 2)
        assert file.read() == BIG[-7:]


def test_a_copy_has_the_bytes_and_outlives_its_source(place: Place) -> None:
    (place / "a").put(b"bytes")
    (place / "a").copy_to(place / "other" / "b")
    (place / "a").unlink()
    assert place.sizes() == {"other/b": 5} and (place / "other/b").read_bytes() == b"bytes"


def test_lines_are_added_to_what_stands(place: Place) -> None:
    file = place / "metrics" / "a.jsonl"
    file.append("1\n")
    file.append("2\n")
    place.flush()
    file.append("3\n")
    (place / "metrics").flush()
    assert file.read_bytes() == b"1\n2\n3\n"


def test_addresses_and_paths(tmp_path: Path) -> None:
    assert place_of(tmp_path) == Disk(tmp_path) == place_of(str(tmp_path))
    assert str(place_of("s3://b/k/") / "x" / "y") == "s3://b/k/x/y"
    assert str(place_of(str(place_of("gs://b") / "x"))) == "gs://b/x"
    assert (place_of("s3://b/k/a.parquet").name, place_of("s3://b/k/a.parquet").suffix) == (
        "a.parquet",
        ".parquet",
    )
    with pytest.raises(InputError, match="can only be read"):
        place_of("https://host/out")


def test_what_lies_in_the_current_folder_is_listed_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (place_of(".") / "metrics" / "a").put(b"one")
    assert place_of(".").sizes() == {"metrics/a": 3}


def test_a_relative_folder_may_be_named_after_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sources = write_texts(tmp_path / "in", ["one text", "another text"])
    made = run(Path("run-10:30/out"), sources, [{"filter": ["gopher_quality"]}])
    assert made.table(["text"], kept=False).num_rows == 2


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(RecipeError, match="cannot be made"):
        place_of(tmp_path / "file" / "out").check(write=True)


@pytest.mark.parametrize("data", [b"new" * 1000, BIG], ids=["one put", "multipart"])
@pytest.mark.parametrize("fault", ["busy", "reset", "cut_upload"])
def test_a_put_that_fails_half_way_leaves_the_old_object(
    proxy: Proxy, bucket: Bucket, fault: str, data: bytes
) -> None:
    file = place_of(bucket.url("out")) / "file"
    file.put(b"old")
    proxy.faults = Faults(**{fault: 1.0}, only="^PUT", most=1000)
    with pytest.raises(OSError, match="s3://"):
        file.put(data)
    with pytest.raises(OSError, match="s3://"):
        (place_of(bucket.url("out")) / "another").put(data)
    assert proxy.broken()[fault] > 2
    assert bucket.objects("out") == {"file": b"old"}


@pytest.mark.parametrize("fault", ["busy", "reset", "lost", "cut", "cut_upload"])
def test_faults_that_pass_cost_time_and_no_byte(proxy: Proxy, bucket: Bucket, fault: str) -> None:
    # A busy answer to the last request of a multipart upload always fails it in the client: one such is more than a try.
    proxy.faults = Faults(**{fault: 1.0}, most=1, only="^POST.*uploads$|^[^P]|^PUT")
    place = place_of(bucket.url("out"))
    (place / "small").put(b"small")
    (place / "big").put(BIG)
    assert (place / "small").read_bytes() == b"small" and (place / "big").read_bytes() == BIG
    assert place.sizes() == {"small": 5, "big": len(BIG)}
    (place / "small").unlink()
    assert proxy.broken()[fault] > 3
    assert bucket.objects("out") == {"big": BIG}


def test_a_process_killed_in_a_put_leaves_the_old_object(proxy: Proxy, bucket: Bucket) -> None:
    file = place_of(bucket.url("out")) / "file"
    file.put(b"old")
    proxy.faults = Faults(delay=1, delay_seconds=60, only="^(PUT|POST)")
    code = "import sys; from corpusmill.pipeline.engine.place import place_of; place_of(sys.argv[1]).put(bytes(12 << 20))"
    writer = subprocess.Popen([sys.executable, "-c", code, str(file)])
    waited = time.monotonic()
    while not proxy.arrived("POST") and time.monotonic() - waited < 60:
        time.sleep(0.05)
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    assert bucket.objects("out") == {"file": b"old"}


def test_an_interrupt_in_a_put_publishes_all_or_nothing(bucket: Bucket) -> None:
    """Ctrl-C at any moment: the stream's destructor would publish what was written so far."""
    code = (
        "import os, signal, sys, threading, time\n"
        "from corpusmill.pipeline.engine.place import place_of\n"
        "place = place_of(sys.argv[1]); data = bytes(3 << 20); inside, cut = False, 0\n"
        "def interrupted(*_):\n"
        "    global inside\n"
        "    if inside: inside = False; raise KeyboardInterrupt\n"
        "def interrupt():\n"
        "    for wait in range(60): time.sleep(0.003 * (wait % 7)); os.kill(os.getpid(), signal.SIGINT)\n"
        "signal.signal(signal.SIGINT, interrupted)\n"
        "thread = threading.Thread(target=interrupt); thread.start(); number = 0\n"
        "while thread.is_alive():\n"
        "    number += 1\n"
        "    try: inside = True; (place / str(number)).put(data)\n"
        "    except KeyboardInterrupt: cut += 1\n"
        "    inside = False\n"
        "place.put(data); assert cut > 5\n"
    )
    subprocess.run([sys.executable, "-c", code, bucket.url("out")], check=True, timeout=300)
    sizes = {len(data) for data in bucket.objects("out").values()}
    assert sizes == {3 << 20}


def test_what_killed_writers_left_for_a_store_is_removed(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    buckets.local_folder.cache_clear()
    mine = place_of(bucket.url("out/file")).temporary()
    mine.write_bytes(b"half")
    code = (
        "import sys; from corpusmill.pipeline.engine.place import place_of\n"
        "place_of(sys.argv[1]).temporary().write_bytes(b'half')"
    )
    subprocess.run(
        [sys.executable, "-c", code, bucket.url("out/file")],
        check=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert len(list(mine.parent.iterdir())) == 2
    place_of(bucket.url("out")).sweep()
    assert list(mine.parent.iterdir()) == [mine]
    assert mine.parent.stat().st_mode & 0o777 == 0o700
    buckets.local_folder.cache_clear()


def test_another_users_folder_for_temporary_files_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "theirs").mkdir()
    (tmp_path / f"corpusmill-{os.getuid()}").symlink_to(tmp_path / "theirs")
    buckets.local_folder.cache_clear()
    assert buckets.local_folder().parent == tmp_path and not list((tmp_path / "theirs").iterdir())
    assert buckets.local_folder() != tmp_path / f"corpusmill-{os.getuid()}"
    buckets.local_folder.cache_clear()


@pytest.mark.parametrize(
    ("status", "code", "step"),
    [
        (403, "AccessDenied", "refuses these credentials: see AWS_ACCESS_KEY_ID"),
        (403, "InvalidAccessKeyId", "refuses these credentials"),
        (403, "SignatureDoesNotMatch", "refuses these credentials"),
        (400, "ExpiredToken", "refuses these credentials"),
        (301, "PermanentRedirect", "another region: set AWS_REGION"),
        (400, "AuthorizationHeaderMalformed", "another region: set AWS_REGION"),
        (503, "SlowDown", "does not answer: see AWS_ENDPOINT_URL"),
    ],
)
@pytest.mark.parametrize("only", ["^GET", "^PUT"])
def test_what_a_store_refuses_is_said_with_the_next_step_before_any_work(
    proxy: Proxy, bucket: Bucket, status: int, code: str, step: str, only: str
) -> None:
    proxy.faults = Faults(busy=1, status=status, code=code, only=only, most=1000)
    with pytest.raises(InputError, match=step) as caught:
        place_of(bucket.url("out")).check(write=True)
    assert "\n" not in str(caught.value) and not any(value in str(caught.value) for value in SECRETS.values())


def test_a_missing_bucket_and_a_store_that_is_not_there(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for write in (False, True):
        with pytest.raises(InputError, match="no such bucket"):
            place_of("s3://there-is-none/out").check(write=write)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(InputError, match="does not answer"):
        place_of("s3://there-is-none/out").check()


@pytest.mark.parametrize("new", [b"new", b"much longer than the old one"])
def test_an_object_that_is_put_anew_during_a_read_is_read_whole(
    proxy: Proxy, bucket: Bucket, new: bytes
) -> None:
    place = place_of(bucket.url("run.json"))
    place.put(b"old, and long")
    client = bucket.client()
    client.head_object(Bucket=bucket.name, Key="run.json")  # it is warm, and will be in time
    proxy.clear()
    proxy.faults = Faults(delay=1, delay_seconds=3, only="^GET")
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(place.read_latest)
        while not proxy.count()["HEAD"]:  # its length is known now, its bytes are not
            time.sleep(0.01)
        client.put_object(Bucket=bucket.name, Key="run.json", Body=new)
        assert reading.result() in (new, b"old, and long")  # the old one where this machine stood still


def test_requests_of_each_operation(proxy: Proxy, bucket: Bucket) -> None:
    """What docs/stores.md says."""
    place = place_of(bucket.url("out"))

    def asked(work: object) -> Counter[str]:
        proxy.clear()
        work()  # type: ignore[operator]
        return proxy.count()

    assert asked(lambda: (place / "a").put(b"1")) == {"PUT": 1}
    assert asked(lambda: (place / "a").read_bytes()) == {"HEAD": 1, "GET": 1}
    assert asked(lambda: (place / "a").read_latest()) == {"HEAD": 2, "GET": 1}
    assert asked(lambda: (place / "a").size()) == {"HEAD": 1}
    assert asked(lambda: (place / "a").copy_to(place / "b")) == {"PUT": 1}
    assert asked(lambda: (place / "b").unlink()) == {"HEAD": 1, "DELETE": 1, "PUT": 1}
    for number in range(3):
        (place / f"c/{number}").put(b"")
    assert asked(lambda: place.sizes()) == {"GET": 1}
    assert asked(lambda: (place / "c").remove_tree()) == {
        "HEAD": 1,
        "GET": 1,
        "POST": 1,
        "DELETE": 1,
        "PUT": 1,
    }
