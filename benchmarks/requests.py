"""Requests that a run makes on an object store, a partition and stage: inputs and OUT on moto's S3 server, counted by a proxy before it.

    python benchmarks/requests.py [--quick]

Two runs of one recipe over crawls of different sizes; what grows is a partition's share, what stays is a stage's. By its key every request
belongs to a stage. Task commits are counted apart: a task is minutes of work here in no case, so their share would say nothing.
Both are estimated before (`corpusmill estimate`); `estimated` puts its requests beside those counted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from faulty_proxy import Proxy, faulty_proxy
from runs import corpusmill, write_recipe
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
    if "crawl/" in text:
        return "inputs"
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


@dataclass(frozen=True)
class Counted:
    """Requests of a run, of the same command once more when all stood, and what was estimated before."""

    partitions: int
    first: Counts
    again: Counts
    estimated: dict[str, int]


def one_run(folder: Path, pages: int, again: bool) -> Counted:
    make_demo_crawl(folder / "crawl", pages)
    recipe = write_recipe(folder)
    with s3_server(folder / "server.log") as endpoint, faulty_proxy(endpoint) as proxy:
        os.environ.update(environment(proxy.endpoint, folder))
        bucket = make_bucket(endpoint)
        bucket.upload(folder / "crawl", "crawl")
        out, crawl = bucket.url("out"), bucket.url("crawl")
        asked = (
            recipe,
            "--input",
            f"web={crawl}/crawl-*.warc.gz",
            "--input",
            f"library={crawl}/library.jsonl.gz",
        )
        made = json.loads(corpusmill("estimate", *asked, "--workers", "2", "--json").stdout)
        proxy.clear()
        command = ("run", *asked, "--out", out, "--workers", "2")
        corpusmill(*command)
        first = counted(proxy)
        if again:
            corpusmill(*command)
        second = counted(proxy)
        return Counted(len(Run(out).partitions()), first, second, made["requests"])


def beside(run: Counted) -> dict[str, list[int]]:
    """[estimated, counted] of every kind of request that an estimate names."""
    inputs, out = run.first.get("inputs", Counter()), Counter[str]()
    for stage, counts in run.first.items():
        out.update(counts if stage != "inputs" else {})
    there = {
        "input_lists": inputs["list"],
        "input_looks": inputs["head"],
        "input_gets": inputs["get"],
        "out_puts": out["put"],
    }
    return {name: [run.estimated[name], n] for name, n in there.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="smaller crawls")
    small, large = (60, 120) if parser.parse_args().quick else (160, 640)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "small").mkdir()
        (Path(folder) / "large").mkdir()
        less = one_run(Path(folder) / "small", small, again=False)
        more = one_run(Path(folder) / "large", large, again=True)
    few, many, before, after = less.partitions, more.partitions, less.first, more.first
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
    reused = {kind: sum(count[kind] for count in more.again.values()) for kind in KINDS}
    print(
        json.dumps(
            {
                "benchmark": "requests",
                "partitions": [few, many],
                "ratios": {f"{kind}_a_partition": total[kind] for kind in KINDS},
                "checks": {},
                "all_stands": reused,
                "estimated": {"small": beside(less), "large": beside(more)},
            }
        )
    )


if __name__ == "__main__":
    main()
