"""A run on Ray whose OUT lies on a real S3 server: the bytes of a local run on a disk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from ray_heads import ray_head
from runs import command, hashes, inputs
from s3_server import SECRETS, Bucket
from test_stores_run import no_secrets_in, stored

pytestmark = [pytest.mark.ray, pytest.mark.slow]

WHERE = ("AWS_ENDPOINT_URL", "AWS_REGION")
"""Where the store is travels with the work; nodes are started without it."""


def run_on(
    head: Mapping[str, str], bucket: Bucket, crawl: Path, recipe: Path
) -> subprocess.CompletedProcess[str]:
    """A run whose own environment has the store and its credentials."""
    words = command("run", recipe, "--out", bucket.url("out"), *inputs(crawl), "--ray", head["CLUSTER"])
    ours = {**os.environ, **{name: value for name, value in head.items() if name.startswith("RAY_")}}
    return subprocess.run(words, env=ours, capture_output=True, text=True, timeout=900)


@pytest.mark.timeout(1200)
def test_out_on_a_store_has_the_bytes_of_a_local_run_on_a_disk(
    bucket: Bucket, undisturbed: Path, crawl: Path, recipe: Path, tmp_path: Path
) -> None:
    with ray_head(tmp_path, without=WHERE) as head:
        done = run_on(head, bucket, crawl, recipe)
    assert done.returncode == 0, done.stderr[-3000:]
    assert stored(bucket) == hashes(undisturbed)
    no_secrets_in(done.stdout, done.stderr, *bucket.objects().values())


def test_a_node_without_credentials_is_named_before_the_first_task(
    bucket: Bucket, crawl: Path, recipe: Path, tmp_path: Path
) -> None:
    with ray_head(tmp_path, without=(*WHERE, *SECRETS)) as head:
        done = run_on(head, bucket, crawl, recipe)
    assert done.returncode == 1 and f"cannot read {bucket.url('out')}" in done.stderr, done.stderr[-3000:]
    assert "credentials of its own" in done.stderr and "Traceback" not in done.stderr
    assert not [name for name in bucket.objects("out") if name.endswith(".parquet")]
    no_secrets_in(done.stdout, done.stderr)
