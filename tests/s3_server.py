"""A real S3 server for tests: moto's, in a process of its own on a free port of the loopback, with credentials made up here."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

SECRETS = {
    "AWS_ACCESS_KEY_ID": "PLANTEDKEYID0SMALLCRAWL",
    "AWS_SECRET_ACCESS_KEY": "plantedSecret/of+the/tests/0123456789",
    "AWS_SESSION_TOKEN": "plantedSessionTokenOfTheTests0123456789",
}
"""Distinctive, so that a test can look for them in everything that a run leaves."""

FOREIGN = (
    "AWS_PROFILE",
    "AWS_ENDPOINT_URL_S3",
    "AWS_DEFAULT_REGION",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
)


@dataclass(frozen=True)
class Bucket:
    """A bucket of its own on the server at `endpoint`."""

    endpoint: str
    name: str

    def url(self, key: str = "") -> str:
        return f"s3://{self.name}/{key}".rstrip("/")

    def client(self) -> Any:
        """boto3's, which shares no code with the client under test."""
        import boto3

        return boto3.client("s3", endpoint_url=self.endpoint)

    def objects(self, prefix: str = "") -> dict[str, bytes]:
        """Key below `prefix` -> bytes, all versions of folder marks (keys that end with `/`) left out."""
        client = self.client()
        found = {}
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix):
            for item in page.get("Contents", ()):
                if not item["Key"].endswith("/"):
                    body = client.get_object(Bucket=self.name, Key=item["Key"])["Body"].read()
                    found[item["Key"].removeprefix(prefix).lstrip("/")] = body
        return found

    def upload(self, folder: Path, prefix: str) -> None:
        """All files of a local folder, under their relative names."""
        client = self.client()
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                client.put_object(
                    Bucket=self.name, Key=f"{prefix}/{path.relative_to(folder)}", Body=path.read_bytes()
                )


@contextlib.contextmanager
def s3_server(log: Path) -> Iterator[str]:
    """The endpoint of a server that runs until the context ends; `log` gets its request lines."""
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
            stdout=sink,
            stderr=sink,
            env={**os.environ, **SECRETS, "AWS_EC2_METADATA_DISABLED": "true"},
        )
    try:
        yield _endpoint(process, log)
    finally:
        process.kill()
        process.wait()


def _endpoint(process: subprocess.Popen[bytes], log: Path) -> str:
    for _ in range(1200):
        text = log.read_text(errors="replace")
        if found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", text):
            return found[1]
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError(f"the S3 server did not start:\n{text[-2000:]}")


def environment(endpoint: str, nowhere: Path) -> dict[str, str]:
    """What a client needs to reach the server and nothing else: files of the user are not looked at."""
    return SECRETS | {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SHARED_CREDENTIALS_FILE": str(nowhere / "no-credentials"),
        "AWS_CONFIG_FILE": str(nowhere / "no-config"),
    }


def enter(patch: Any, variables: Mapping[str, str]) -> None:
    """Put the variables in place of those of the user, by pytest's monkeypatch."""
    for name in FOREIGN:
        patch.delenv(name, raising=False)
    for name, value in variables.items():
        patch.setenv(name, value)


def make_bucket(endpoint: str) -> Bucket:
    bucket = Bucket(endpoint, f"b-{uuid.uuid4().hex[:12]}")
    with urlopen(Request(f"{endpoint}/{bucket.name}", method="PUT")) as answer:
        assert answer.status == 200
    return bucket
