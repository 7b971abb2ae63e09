"""A run whose OUT lies on a real S3 server: the bytes of a run on a disk, whatever breaks on the way."""

from __future__ import annotations

import hashlib
from pathlib import Path

from runs import corpusmill, hashes, inputs
from s3_server import Bucket


def stored(bucket: Bucket, prefix: str = "out") -> dict[str, str]:
    """sha256 of every object of a run, data and manifests, but for the metrics."""
    return {
        name: hashlib.sha256(data).hexdigest()
        for name, data in bucket.objects(prefix).items()
        if not name.startswith("metrics/")
    }


def test_a_run_on_a_store_gives_the_bytes_of_one_on_a_disk(
    bucket: Bucket, undisturbed: Path, crawl: Path, recipe: Path
) -> None:
    out = bucket.url("out")
    corpusmill("run", recipe, "--out", out, *inputs(crawl), "--workers", "2")
    assert stored(bucket) == hashes(undisturbed)
