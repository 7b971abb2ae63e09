"""How long proxies take where a search will train them: what `corpusmill mix auto` measures before it chooses (stage `mix.pace`).

Its results are times, which differ from run to run: no stage of a search reads them, and the recipe that `mix auto` ends with has no such
stage. It runs in a worker like any proxy, so on Ray it measures the cluster's machines.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from corpusmill.mixing.search_chain import append_stats
from corpusmill.mixing.search_runs import TorchRuns, weight_of
from corpusmill.mixing.search_study import Study, read_study
from corpusmill.mixing.stage import Mix, shards_of
from corpusmill.mixing.study import DesignRun, Proxy
from corpusmill.mixing.weights import in_ppb, proportional
from corpusmill.pipeline.chain import Chain
from corpusmill.pipeline.engine.stage import Inputs, Result, TaskIO, Unit
from corpusmill.shards.layout import read_manifest

if TYPE_CHECKING:
    from corpusmill.mixing.pace import Pace

PACE_TOKENS = 8_000
"""Of each target that a proxy predicts while it is watched."""


@dataclass(frozen=True)
class PacedMix:
    """In place of a recipe's mix stage, until its proxies are chosen: the first stages of its search, and the times of `paced`."""

    mix: Mix
    paced: tuple[Proxy, ...]

    def extend(self, chain: Chain, name: str) -> None:
        assert self.mix.search is not None  # `mix auto` has seen to it
        shards = shards_of(chain, name)[0]
        short = replace(self.mix.search, eval_tokens=min(PACE_TOKENS, self.mix.search.eval_tokens))
        stats, leaks = append_stats(chain, name, short, self.mix.purpose(shards))
        operation = Paces(
            design="",  # none: its mixture is the one by size
            stats=stats,
            shards=shards,
            screen=None,
            proxies=self.paced,
            eval_tokens=short.eval_tokens,
        )
        chain.set(f"{name}.pace", operation, reads=(stats, shards, leaks))


@dataclass(frozen=True)
class Paces(TorchRuns):
    """A unit a proxy: its times on the mixture by size."""

    libraries: ClassVar[tuple[str, ...]] = ()  # times, not bytes

    def units(self, inputs: Inputs) -> list[Unit]:
        return [
            Unit(number, weight_of(proxy, self.rate), {"proxy": number})
            for number, proxy in enumerate(self.proxies)
        ]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        proxy = self.proxies[unit.fields["proxy"]]
        study = read_study(io, self.stats)
        shares = in_ppb(proportional({each.name: each.rows for each in study.components}))
        run = DesignRun(0, "anchor", "pace", tuple(shares[name] for name in study.names), io.seed)
        found = self._clocked(proxy, run, study, io)
        manifest = read_manifest(io.folder(self.shards) / study.slugs[study.names[0]])
        return io.result(extra={"vocabulary": manifest.vocab_size, **asdict(found)})

    def _clocked(self, proxy: Proxy, run: DesignRun, study: Study, io: TaskIO) -> Pace:
        from corpusmill.mixing.pace import Pace, pace

        if proxy.kind == "command":
            assert proxy.tokens is not None  # Proxy.check
            started = time.perf_counter()
            self._commanded(proxy, run, study, io)
            return Pace((time.perf_counter() - started) / proxy.tokens)
        self._reads(proxy, run, study, io)  # what a worker loads once, it has loaded then
        started = time.perf_counter()
        view, training, weights = self._reads(proxy, run, study, io)
        reading = time.perf_counter() - started
        found = pace(view, training, weights, run.seed, proxy.device)
        return replace(found, beside_s=found.beside_s + reading)
