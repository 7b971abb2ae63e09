"""Requests that a run makes on an object store, a partition and stage: OUT on moto's S3 server, counted by a proxy before it.

    python benchmarks/requests.py [--quick]

Two runs of one recipe over crawls of different sizes; what grows is a partition's share, what stays is a stage's. By its key every request
belongs to a stage. Task commits are counted apart: a task is minutes of work here in no case, so their share would say nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from faulty_proxy import Proxy, faulty_proxy
from runs import corpusmill, inputs, write_recipe
from s3_server import environment, make_bucket, s3_server

from corpusmill.jobs.demo_pages import make_demo_crawl
from corpusmill.pipeline.run import Run

KINDS = ("put", "get", "head", "list", "delete", "others")

Counts = dict[str, Counter[str]]


def kind_of(method: str, target: str) -> str:
    """The price list's word for a request."""
    if method == "GET" and "list-type=2" in target:
        return "list"
    if method == "POST":
        return "others" if "delete" not in target else "delete"
    return method.lower()


def stage_of(target: str) -> str:
    """The stage in whose folder an object lies; `commits`, `metrics`, or `run` for what belongs to none."""
    text = unquote(target)
    if "_commits" in text:
        return "commits"
    found = re.search(r"out/(?:text|layers)/([^/?&]+)", text)
    if found:
        return found[1]
    return "shards" if "out/shards/" in text else "metrics" if "out/metrics" in text else "run"


def counted(proxy: Proxy) -> Counts:
    found: Counts = {}
    for request in proxy.requests:
        found.setdefault(stage_of(request.target), Counter())[kind_of(request.method, request.target)] += 1
    proxy.clear()
    return found


def one_run(folder: Path, pages: int, again: bool) -> tuple[int, Counts, Counts]:
    """Partitions, requests of the run, and of the same command once more when all stands."""
    make_demo_crawl(folder / "crawl", pages)
    recipe = write_recipe(folder)
    with s3_server(folder / "server.log") as endpoint, faulty_proxy(endpoint) as proxy:
        os.environ.update(environment(proxy.endpoint, folder))
        bucket = make_bucket(endpoint)
        command = ("run", recipe, "--out", bucket.url("out"), *inputs(folder / "crawl"), "--workers", "2")
        corpusmill(*command)
        first = counted(proxy)
        if again:
            corpusmill(*command)
        second = counted(proxy)
        return len(Run(bucket.url("out")).partitions()), first, second


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="smaller crawls")
    small, large = (60, 120) if parser.parse_args().quick else (160, 640)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "small").mkdir()
        (Path(folder) / "large").mkdir()
        few, before, _ = one_run(Path(folder) / "small", small, again=False)
        many, after, standing = one_run(Path(folder) / "large", large, again=True)
    print(f"{few} and {many} partitions; requests a partition more, then (in all of the larger run)")
    print(f"{'':<22}" + "".join(f"{kind:>16}" for kind in KINDS))
    growth: dict[str, dict[str, float]] = {}
    for stage in after:
        growth[stage] = {
            kind: (after[stage][kind] - before.get(stage, Counter())[kind]) / (many - few) for kind in KINDS
        }
        cells = (f"{growth[stage][kind]:.1f} ({after[stage][kind]})" for kind in KINDS)
        print(f"{stage:<22}" + "".join(f"{cell:>16}" for cell in cells))
    total = {kind: round(sum(values[kind] for values in growth.values()), 1) for kind in KINDS}
    reused = {kind: sum(count[kind] for count in standing.values()) for kind in KINDS}
    print(
        json.dumps(
            {
                "benchmark": "requests",
                "partitions": [few, many],
                "ratios": {f"{kind}_a_partition": total[kind] for kind in KINDS},
                "checks": {},
                "all_stands": reused,
            }
        )
    )


if __name__ == "__main__":
    main()
