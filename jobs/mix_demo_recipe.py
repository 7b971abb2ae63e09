"""The recipes of `make mix-demo`, as files that a reader can change and run again: without a search, then with one."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

TEXT = """\
# {about}
seed: 17
partition_bytes: 500 KB
inputs:
{inputs}
stages:
  - extract: {{with: trafilatura}}
  - filter:                                  # a weak one: what mixtures are worth shows on what it leaves
      - gopher_quality: {{min_words: 30, min_alpha_words: 0.5}}
  - dedup: {{at_least: 0.7, bands: 14, rows: 8, ngram: 5}}     # copies of what is held out go as well
  - topics: {{count: {topics}}}
  - shard:
      tokenizer: {{train: bpe, vocab: 1024}}
      sequence_length: 128
      block_bytes: 4096                      # a component has eight blocks at least; real runs leave this out
      holdout: 0.2
      components: {{by: [source, topic]}}
"""

SEARCH = """\
  - mix:
      epochs: 1.2                            # of the run that the weights are for: epochs of a component are limited by it
      search:
        proxy: {proxy}
        verify: {{proxies: [{sizes}], seeds: {seeds}}}
        runs: {runs}
        candidates: 2
        eval_tokens: {eval_tokens}
        sample_tokens: 200000
        targets:
{targets}
"""

WANTED = """\
seed: 17
inputs:
  - {{path: "{path}", source: wanted}}
stages:
  - extract: {{}}
  - shard: {{tokenizer: {{file: "{tokenizer}"}}, sequence_length: 128, block_bytes: 4096}}
"""


@dataclass(frozen=True)
class Sizes:
    """How much is tried. `proxy` and `trials`: as a recipe writes them."""

    proxy: str
    trials: tuple[str, ...]
    runs: int
    seeds: int
    eval_tokens: int


def base(about: str, inputs: Mapping[str, str], generated: Collection[str], topics: int) -> str:
    """Up to shards; `inputs`: source -> path; `generated`: sources that a model wrote."""
    lines = (
        f"  - {{path: {json.dumps(path)}, source: {source}{', synthetic: generated' if source in generated else ''}}}"
        for source, path in inputs.items()
    )
    return TEXT.format(about=about, inputs="\n".join(lines), topics=topics)


def search(sizes: Sizes, targets: Mapping[str, Mapping[str, object]]) -> str:
    """The mix stage."""
    named = [f"          {json.dumps(name)}: {json.dumps(dict(aim))}" for name, aim in targets.items()]
    return SEARCH.format(
        proxy=sizes.proxy,
        sizes=", ".join(sizes.trials),
        seeds=sizes.seeds,
        runs=sizes.runs,
        eval_tokens=sizes.eval_tokens,
        targets="\n".join(named),
    )
