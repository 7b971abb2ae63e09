"""A small real crawl and runs over it, shared by the end-to-end, kill and command-line tests."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

COLLECTIONS = Path(__file__).resolve().parents[2] / "shared" / "data"
"""Real files beside the checkout; tests that need them are skipped where they are not."""

RECIPE = """
seed: 17
partition_bytes: 120 KB
stages:
  - extract: {with: trafilatura}
  - filter:
      - language: {keep: [en], at_least: 0.65}
      - gopher_repetition: {}
      - gopher_quality: {min_words: 30, min_alpha_words: 0.6}
      - c4: {require_terminal_punctuation: false}
      - fineweb_quality: {}
  - dedup: {at_least: 0.7, bands: 14, rows: 8, ngram: 5}
  - redact: {emails: placeholder, ips: placeholder}
  - shard:
      tokenizer: {train: bpe, vocab: 600}
      sequence_length: 128
      block_bytes: 4096
      shard_bytes: 65536
  - mix: {weights: unimax}
"""


def write_recipe(folder: Path, text: str = RECIPE) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "corpusmill.jobs.cli", *map(str, arguments)]


def corpusmill(*arguments: str | Path, expect: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own and check its exit code."""
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=600)
    assert done.returncode == expect, (
        f"exit {done.returncode}, wanted {expect}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    )
    return done


def inputs(crawl: Path) -> list[str]:
    """The --input arguments for a crawl made by make_demo_crawl."""
    return ["--input", f"web={crawl}/crawl-*.warc.gz", "--input", f"library={crawl}/library.jsonl.gz"]


def hashes(out: Path) -> dict[str, str]:
    """sha256 of every file of a run, data and manifests, but for the metrics."""
    paths = [
        path
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.relative_to(out).parts[0] != "metrics"
    ]
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def events(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The JSON lines of a run's progress."""
    return [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
