"""`make demo-ray`: the demo's crawl goes through the pipeline twice, as a Ray job and by local workers, and the files are compared.

    OUT/crawl    the crawl      OUT/local    the local run      OUT/ray    the run of the Ray job

The Ray head is started for this and ended with it (head.py). 240 pages: 76 s on two cores.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from corpusmill.jobs.demo_pages import make_demo_crawl
from corpusmill.jobs.head import Head, head
from corpusmill.jobs.run import cores
from corpusmill.pipeline.errors import CorpusmillError, RunError

CLI = (sys.executable, "-m", "corpusmill.jobs.cli")
STAGE_ENDED = re.compile(r"\w+: [\d,]+ in, ")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="demo_ray", description="A Ray job writes the bytes of a local run."
    )
    parser.add_argument("--out", type=Path, default=Path("demo-out/on-ray"))
    parser.add_argument("--pages", type=int, default=240)
    parser.add_argument("--workers", type=int, default=cores())
    options = parser.parse_args(arguments)
    try:
        return demo_ray(options.out, options.pages, options.workers)
    except CorpusmillError as error:
        print(f"demo-ray: {error}", file=sys.stderr)
        return error.exit_code


def demo_ray(out: Path, pages: int, workers: int) -> int:
    """Run both and compare; 0 when every file is equal. What stands in OUT is gone on with, as by any run."""
    crawl = make_demo_crawl(out / "crawl", pages)
    inputs = ["--input", f"web={crawl.folder}/crawl-*.warc.gz", "--input", f"library={crawl.dump}"]
    print(f"\n1  {pages:,} pages by {workers} local workers: corpusmill run demo", flush=True)
    called(["run", "demo", "--out", str(out / "local"), *inputs, "--workers", str(workers)])
    print("\n2  A Ray head on this machine: own folder, ports and token, dashboard on loopback", flush=True)
    with head(workers) as started:
        print(f"   {started.address}\n\n3  The same as a Ray job: corpusmill submit demo", flush=True)
        submitted = ["submit", "demo", "--address", started.address, "--out", str(out / "ray"), *inputs]
        called(submitted, started)
    print("\n4  The head has ended. Are the files equal?", flush=True)
    return compare(hashes(out / "local"), hashes(out / "ray"))


def called(arguments: list[str], on: Head | None = None) -> None:
    """One command of ours; of what it says, the lines that end its stages."""
    environment = on.environment if on else None
    done = subprocess.run([*CLI, *arguments], env=environment, capture_output=True, text=True)
    if done.returncode:
        said = f"{done.stderr[-1500:]}{done.stdout[-1500:]}"
        raise RunError(f"corpusmill {arguments[0]} ended with {done.returncode}: {said}")
    for line in done.stdout.splitlines():
        if STAGE_ENDED.match(line):
            print(f"   {line}")


def hashes(out: Path) -> dict[str, str]:
    """sha256 of all data and manifests of a run: every file but those of OUT/metrics (seconds, hosts, attempts)."""
    files = (
        path for path in out.rglob("*") if path.is_file() and path.relative_to(out).parts[0] != "metrics"
    )
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)
    }


def compare(local: dict[str, str], ray: dict[str, str]) -> int:
    unequal = sorted(name for name in local.keys() | ray.keys() if local.get(name) != ray.get(name))
    for name in unequal:
        print(f"   {name}: local {local.get(name, 'none')[:16]}, Ray {ray.get(name, 'none')[:16]}")
    if unequal or not local:
        print(f"   {len(unequal)} of {len(local.keys() | ray.keys())} files differ")
        return 1
    together = hashlib.sha256("".join(f"{local[name]}  {name}\n" for name in sorted(local)).encode())
    print(
        f"   yes: {len(local)} files, data and manifests, have the same sha256 (of all: {together.hexdigest()[:16]})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
