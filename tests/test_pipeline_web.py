"""Files from web servers: their own bytes or an error, whatever servers, proxies and networks do."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from faulty_proxy import Faults, faulty_proxy
from web_server import Site, web_server

from corpusmill.pipeline import web
from corpusmill.pipeline.errors import InputError, RecipeError
from corpusmill.pipeline.remote import Unreachable
from corpusmill.pipeline.web import Patience, Probe, checked_url, probe, read_range, spooled

QUICK = Patience(attempts=4, first_s=0.001, longest_s=0.01)
DATA = b"".join(hashlib.sha256(bytes([n % 256, n // 256])).digest() for n in range(20_000))  # 640,000 bytes


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "file").write_bytes(DATA)
    (tmp_path / "empty").write_bytes(b"")
    with web_server(tmp_path) as site:
        yield site


def test_a_probe_tells_size_version_and_ranges(site: Site) -> None:
    found = probe(site.url("file"), QUICK)
    assert found.size_bytes == len(DATA) and found.ranges
    assert found.version == f'"{hashlib.sha256(DATA).hexdigest()[:16]}"'
    assert probe(site.url("empty"), QUICK).size_bytes == 0


@pytest.mark.parametrize("validators", ["weak", "modified"])
def test_without_a_strong_etag_the_time_of_change_is_the_version(site: Site, validators: str) -> None:
    site.validators = validators
    found = probe(site.url("file"), QUICK)
    assert found.version.endswith("GMT")
    assert read_range(site.url("file"), 5, 500, found, QUICK) == DATA[5:500]


@pytest.mark.parametrize(("start", "end"), [(0, 1), (0, len(DATA)), (7, 300_001), (len(DATA) - 1, len(DATA))])
def test_a_range_is_the_files_own(site: Site, start: int, end: int) -> None:
    found = probe(site.url("file"), QUICK)
    assert read_range(site.url("file"), start, end, found, QUICK) == DATA[start:end]
    assert len(site.asked) == 2


@pytest.mark.parametrize(
    "lie",
    [
        "503",
        "429",
        "500",
        "403",
        "hang up",
        "cut",
        "part",
        "no ranges",
        "shifted",
        "short",
        "long",
        "other size",
        "no range",
    ],
)
def test_after_a_fault_the_bytes_are_right_all_the_same(site: Site, lie: str) -> None:
    found = probe(site.url("file"), QUICK)
    site.lies["file"] = [lie]
    assert read_range(site.url("file"), 1000, 600_000, found, QUICK) == DATA[1000:600_000]


@pytest.mark.parametrize(
    "lie", ["503", "hang up", "no ranges", "shifted", "short", "long", "other size", "no range"]
)
def test_a_fault_that_stays_ends_in_an_error_and_never_in_bytes(site: Site, lie: str) -> None:
    found = probe(site.url("file"), QUICK)
    site.always["file"] = lie
    with pytest.raises(Unreachable, match=re.escape(site.url("file"))) as caught:
        # 100,000 bytes come in one answer: a server that is one byte short each time would be done after many.
        read_range(site.url("file"), 0, 100_000, found, QUICK)
    assert "the same command goes on" in str(caught.value)
    assert len(site.asked) == 1 + QUICK.attempts


def test_connections_are_used_again(site: Site) -> None:
    found = probe(site.url("file"), QUICK)
    probe(site.url("empty"), QUICK)
    with pytest.raises(InputError):
        probe(site.url("none"), QUICK)
    for at in (0, 1000, 2000):
        read_range(site.url("file"), at, at + 1000, found, QUICK)
    assert len({asked.port for asked in site.asked}) == 1


def test_only_what_is_missing_is_asked_for_again(site: Site) -> None:
    found = probe(site.url("file"), QUICK)
    site.lies["file"] = ["cut", "cut", "cut"]
    read_range(site.url("file"), 100_000, 500_000, found, QUICK)
    starts = [asked.first for asked in site.asked[1:]]
    # Each answer is cut in its middle: 400,000 bytes, then what is left of them, then of that.
    assert starts == [100_000, 300_000, 400_000, 450_000]
    assert all(asked.last == 499_999 for asked in site.asked[1:])


def test_patience_begins_anew_with_every_byte_that_comes(site: Site) -> None:
    found = probe(site.url("file"), QUICK)
    site.lies["file"] = ["503", "503", "503", "cut"] * 3
    assert read_range(site.url("file"), 0, 640_000, found, QUICK) == DATA


def test_a_file_that_drips_is_given_up(site: Site) -> None:
    found = probe(site.url("file"), QUICK)
    with pytest.raises(Unreachable, match="too slow"):
        read_range(site.url("file"), 0, 640_000, found, replace(QUICK, total_s=0.0))


@pytest.mark.parametrize(
    ("path", "lie"), [("none", ""), ("file", "410"), ("file", "403"), ("file", "401"), ("file", "451")]
)
def test_a_file_that_is_not_there_or_not_ours_is_the_users_to_mend(site: Site, path: str, lie: str) -> None:
    site.always["file"] = lie
    with pytest.raises(InputError, match=re.escape(site.url(path))):
        probe(site.url(path), QUICK)
    assert len(site.asked) == 1, "asking again would not help"


def test_a_changed_file_is_an_error_at_once(site: Site, tmp_path: Path) -> None:
    found = probe(site.url("file"), QUICK)
    (tmp_path / "file").write_bytes(DATA[::-1])
    with pytest.raises(InputError, match=r"changed while it was being read.*--update"):
        read_range(site.url("file"), 0, 1000, found, QUICK)
    assert len(site.asked) == 2


def test_a_server_that_ignores_the_condition_is_found_out_by_the_version_it_names(site: Site) -> None:
    found = probe(site.url("file"), QUICK)
    site.always["file"] = "other version"
    with pytest.raises(InputError, match="changed"):
        read_range(site.url("file"), 0, 1000, replace(found, version=found.version), QUICK)


def test_a_changed_length_is_found_without_any_version(site: Site, tmp_path: Path) -> None:
    site.validators = "none"
    found = probe(site.url("file"), QUICK)
    assert found == Probe(len(DATA), "", True)
    (tmp_path / "file").write_bytes(DATA + b"more")
    with pytest.raises(InputError, match="640,004 bytes, not 640,000"):
        read_range(site.url("file"), 0, 1000, found, QUICK)
    (tmp_path / "file").write_bytes(DATA[:10])
    with pytest.raises(InputError, match="shorter"):
        read_range(site.url("file"), 1000, 2000, found, QUICK)


def test_a_transfer_encoding_that_nobody_asked_for_is_refused(site: Site) -> None:
    found = probe(site.url("file"), QUICK)
    site.always["file"] = "gzip"
    with pytest.raises(InputError, match="Content-Encoding gzip"):
        read_range(site.url("file"), 0, 1000, found, QUICK)
    assert site.asked[-1].headers["accept-encoding"] == "identity"


def test_without_ranges_the_file_is_copied_whole_and_as_it_is(site: Site) -> None:
    site.always["file"] = "no ranges"
    found = probe(site.url("file"), QUICK)
    assert not found.ranges and found.size_bytes == len(DATA)
    site.lies["file"] = ["cut", "503", "hang up"]
    with spooled(site.url("file"), found, QUICK) as file:
        assert file.read() == DATA


def test_what_is_too_large_to_copy_or_has_no_length_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "SPOOL_BYTES", 1000)
    with pytest.raises(InputError, match=r"takes no ranges, and the file's 640,000 bytes"):
        spooled(site.url("file"), Probe(len(DATA), "", False), QUICK)
    assert site.asked == []


def test_redirects_are_followed_and_never_named(site: Site, tmp_path: Path) -> None:
    site.redirects["here"] = "/there?X-Amz-Signature=planted-secret"
    site.redirects["there"] = site.url("file?token=planted-secret")
    found = probe(site.url("here"), QUICK)
    assert read_range(site.url("here"), 3, 9, found, QUICK) == DATA[3:9]
    site.always["file"] = "503"
    with pytest.raises(Unreachable) as caught:
        read_range(site.url("here"), 3, 9, found, QUICK)
    assert "planted" not in str(caught.value) and site.url("here") in str(caught.value)


def test_endless_redirects_and_those_to_other_protocols_are_refused(site: Site) -> None:
    site.redirects["round"] = "/round"
    with pytest.raises(InputError, match="redirects"):
        probe(site.url("round"), QUICK)
    for target in ("ftp://host/x", "file:///etc/passwd", "http://user:planted@127.0.0.1/x"):
        site.redirects["away"] = target
        with pytest.raises(InputError, match="no plain web address") as caught:
            probe(site.url("away"), QUICK)
        assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://user:planted@host/file",
        "https://host/file?X-Amz-Signature=planted",
        "https://host/file#planted",
        "https://host",
        "https://host/folder/",
        "https:///file",
        "https://host/a b",
        "https://host/a/../b",
    ],
)
def test_addresses_that_cannot_be_kept_are_refused_before_they_are_used(url: str) -> None:
    with pytest.raises(RecipeError) as caught:
        checked_url(url)
    assert "planted" not in str(caught.value).replace("#planted", "")


def test_a_host_where_nobody_answers_is_named_soon(tmp_path: Path) -> None:
    with web_server(tmp_path) as gone:
        url = gone.url("x")
    with pytest.raises(Unreachable, match=f"{re.escape(url)}: no connection"):
        probe(url, QUICK)
    with pytest.raises(Unreachable, match="cannot be resolved"):
        probe("http://no-such-host.invalid/x", replace(QUICK, attempts=1))


def test_waits_double_and_the_servers_own_wish_is_heard(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(web.time, "sleep", waits.append)
    with faulty_proxy(site.endpoint, Faults(busy=1.0, status=429, retry_after=7, most=3)) as proxy:
        assert probe(f"{proxy.endpoint}/file", Patience()).size_bytes == len(DATA)
    assert waits == [7.0, 7.0, 7.0]
    waits.clear()
    site.lies["file"] = ["503"] * 6  # Retry-After: 0
    probe(site.url("file"), Patience())
    assert all(0.25 * 2**n <= wait <= 0.5 * 2**n for n, wait in enumerate(waits)) and len(waits) == 6


@pytest.mark.parametrize("seed", range(4))
def test_a_bad_network_costs_time_and_no_byte(site: Site, seed: int) -> None:
    faults = Faults(seed=seed, busy=0.2, reset=0.2, lost=0.1, cut=0.3, most=2)
    with faulty_proxy(site.endpoint, faults) as proxy:
        url = f"{proxy.endpoint}/file"
        found = probe(url, QUICK)
        read = b"".join(
            read_range(url, at, min(at + 50_000, len(DATA)), found, QUICK)
            for at in range(0, len(DATA), 50_000)
        )
        assert proxy.broken().total() > 0
    assert read == DATA


def test_a_proxy_of_the_environment_is_used_and_no_proxy_is_heard(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with faulty_proxy(site.endpoint) as proxy:
        monkeypatch.setenv("http_proxy", proxy.endpoint.replace("//", "//user:planted-password@"))
        # A forward proxy is asked for whole addresses; this one passes them on as they are, and the site takes the path of them.
        assert probe(site.url("file"), QUICK).size_bytes == len(DATA)
        assert [request.target for request in proxy.requests] == [site.url("file")]
        assert site.asked[-1].headers["proxy-authorization"].startswith("Basic ")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        probe(site.url("file"), QUICK)
        assert len(proxy.requests) == 1
    monkeypatch.delenv("no_proxy")
    monkeypatch.setenv("http_proxy", "http://user:planted-password@127.0.0.1:1")
    with pytest.raises(Unreachable) as caught:
        probe(site.url("file"), QUICK)
    assert "proxy" in str(caught.value) and "planted" not in str(caught.value)


def test_the_clients_log_holds_no_signature(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.redirects["here"] = "/file?X-Amz-Signature=planted-secret"
    with caplog.at_level(logging.DEBUG):
        probe(site.url("here"), QUICK)
    assert "GET /file?***" in caplog.text and "planted" not in caplog.text


def test_a_certificate_that_nobody_vouches_for_is_an_error_at_once(tmp_path: Path) -> None:
    """In a process of its own: the server's certificate is made by openssl and signed by itself."""
    command = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 1 -addext subjectAltName=DNS:localhost"
    made = subprocess.run(
        [*command.split(), "-keyout", tmp_path / "key", "-out", tmp_path / "certificate"], capture_output=True
    )
    if made.returncode:
        pytest.skip("openssl is not here")
    code = f"""
import http.server, ssl, sys, threading
from corpusmill.pipeline.errors import InputError
from corpusmill.pipeline.web import probe
server = http.server.ThreadingHTTPServer(("localhost", 0), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain({str(tmp_path / "certificate")!r}, {str(tmp_path / "key")!r})
server.socket = context.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
try:
    print(probe(f"https://localhost:{{server.server_address[1]}}/certificate").size_bytes)
except InputError as error:
    print(error)
"""
    quiet = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    for trusted, expected in (
        ("", "is not trusted"),
        (str(tmp_path / "certificate"), str((tmp_path / "certificate").stat().st_size)),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=quiet | ({"SSL_CERT_FILE": trusted} if trusted else {}),
        )
        assert expected in done.stdout, done.stderr
