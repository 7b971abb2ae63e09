"""Two recipes compared by what models learn from what they keep: the recipe's `ablate` stage, which is FineWeb's way of choosing filters.

    ablate.sides       who keeps each document: both recipes, or one                     mixing/ablation_sides.py
    ablate.dedup.*     clusters of duplicates in all that either keeps, nothing removed
    ablate.tokenizer   one vocabulary for both: given, or trained on all that either keeps
    ablate.a.*, ablate.b.*   what each keeps, in its own words, as shards; a share held out by cluster
    ablate.leaks       where targets are given: how much of them stands in what each keeps
    ablate.runs        a unit a recipe and seed: equal tokens, equal first weights       mixing/ablation_runs.py
    ablate             the verdict                                                       mixing/ablation_verdict.py

The two lists of stages go on from the same documents. What the second would measure as the first did is read, not measured again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from typing import Any, Literal, TypeVar

from corpusmill.mixing.ablation_runs import TrainSides
from corpusmill.mixing.ablation_sides import KEPT_BY, SideLeaks, Sides, WriteSide
from corpusmill.mixing.ablation_verdict import Compare
from corpusmill.mixing.proxy import SIZES, TOKENS_A_PARAMETER, Training
from corpusmill.mixing.search import LEAST_SEEDS
from corpusmill.pipeline.chain import Chain
from corpusmill.pipeline.engine.stage import Edit, Measure
from corpusmill.pipeline.engine.task import load_class
from corpusmill.pipeline.errors import RecipeError
from corpusmill.pipeline.recipe import parse_stages
from corpusmill.pipeline.registry import STAGES, build
from corpusmill.shards.components import Components
from corpusmill.shards.stage import Shard, TokenizerSource

Kind = TypeVar("Kind", bound=Chain)

NO_PART = ("extract", "shard", "mix", "ablate")
"""Stages that the recipes of an ablation do not have after what they share: documents are common, and shards its own."""


@dataclass(frozen=True)
class Ablate:
    """Trains small models on what the stages `a` keep and on what the stages `b` keep, which both go on from the stages before, and says which learn more.

    Without `targets` (folders of shards with the same tokenizer, by name) models are measured on documents that both keep, the share `holdout` of
    their clusters of duplicates. `tokens` of each training: 20 a parameter by default; `budget_tokens` of the real run has both repeat
    their text as it would.
    """

    a: tuple[str | dict[str, Any], ...] = ()
    b: tuple[str | dict[str, Any], ...] = ()
    tokenizer: TokenizerSource = field(default_factory=lambda: TokenizerSource(train="bpe", vocab=4096))
    sequence_length: int = 256
    block_bytes: int = 1 << 20
    holdout: float = 0.05
    targets: dict[str, str] = field(default_factory=dict)
    size: str = "1M"
    tokens: int | None = None
    budget_tokens: int | None = None
    eval_tokens: int = 200_000
    seeds: int = 3
    device: Literal["cpu", "cuda"] = "cpu"
    most_overlap: float = (
        0.1  # share of a given target's tokens that may stand word for word in what a recipe keeps
    )

    def training(self) -> Training:
        """RecipeError for a size that there is not."""
        known = SIZES.get(self.size)
        advised = TOKENS_A_PARAMETER * known.inside if known else 1
        tokens = advised if self.tokens is None else self.tokens
        return Training(self.size, tokens, self.budget_tokens, self.eval_tokens)

    def extend(self, chain: Chain, name: str) -> None:
        self._check(name)
        branches = {side: self._branch(chain, name, side) for side in ("a", "b")}
        sides = f"{name}.sides"
        ledgers = {side: _ledger(branch) for side, branch in branches.items()}
        chain.set(sides, Sides(**ledgers), reads=tuple(ledgers.values()))
        either = _branched(Either, chain, ledger=sides)
        # Whoever loses most of a source to duplicates does so in a recipe; here nobody loses anything.
        build(load_class(STAGES["dedup"]), {"max_source_loss": 1.0}, name).extend(either, f"{name}.dedup")
        tokenizer = f"{name}.tokenizer"
        operation = self.tokenizer.operation(chain.seed, name, "eos")
        _branched(Chain, chain, ledger=sides).set(tokenizer, operation, kept=True)
        shard = Shard(
            self.tokenizer,
            self.sequence_length,
            self.block_bytes,
            components=Components((KEPT_BY,)),
            holdout=self.holdout,
        )
        shards = {}
        for side, branch in branches.items():
            branch.columns[KEPT_BY], branch.clusters = sides, either.clusters
            shards[side] = shard.lay(branch, f"{name}.{side}", tokenizer, (KEPT_BY,), (), WriteSide)
        self._train(chain, name, sides, shards)

    def _train(self, chain: Chain, name: str, sides: str, shards: Mapping[str, str]) -> None:
        leaks, runs = f"{name}.leaks" if self.targets else None, f"{name}.runs"
        both = tuple(shards.values())
        if leaks:
            chain.set(
                leaks, SideLeaks(**shards, targets=self.targets, eval_tokens=self.eval_tokens), reads=both
            )
        train = TrainSides(
            **shards,
            leaks=leaks,
            targets=self.targets,
            training=self.training(),
            seeds=self.seeds,
            device=self.device,
            most_overlap=self.most_overlap,
            seed=chain.seed,
        )
        chain.set(runs, train, reads=(*both, *([leaks] if leaks else [])))
        chain.set(name, Compare(sides, runs, **shards), reads=(sides, runs, *both))

    def _branch(self, chain: Chain, name: str, side: str) -> Chain:
        """The chain that goes on by the stages of one recipe."""
        branch = _branched(Branch, chain)
        specs = parse_stages(getattr(self, side), f"{name}.{side}")
        names = [spec.name for spec in specs]
        for spec in specs:
            if spec.key in NO_PART:
                raise RecipeError(
                    f"{name}.{side}: {spec.key} has no part in an ablation: the stages in which the recipes differ are filter, dedup, redact and topics"
                )
            if names.count(spec.name) > 1:
                raise RecipeError(
                    f"{name}.{side}: two stages are called {spec.name!r}: give one of them another `name`"
                )
            spec.config.extend(branch, f"{side}_{spec.name}")
        return branch

    def _check(self, name: str) -> None:
        if self.seeds < LEAST_SEEDS:
            raise RecipeError(
                f"{name}: seeds is {self.seeds}; one seed is not an experiment, give {LEAST_SEEDS} or more"
            )
        if not 0 < self.holdout < 1:
            raise RecipeError(f"{name}: holdout is {self.holdout}; a share above 0 and below 1 is needed")
        if not 0 <= self.most_overlap <= 1:
            raise RecipeError(f"{name}: most_overlap is {self.most_overlap:g}; it is a share from 0 to 1")
        if self.targets and self.tokenizer.file is None:
            raise RecipeError(
                f"{name}: targets are shards, made with a tokenizer: give the same (tokenizer: {{file: tokenizer.json}})"
            )
        self.training().steps(self.sequence_length)
        if find_spec("torch") is None:
            raise RecipeError(
                f"{name}: models to compare recipes by need torch: pip install 'corpusmill[train]'"
            )


def _ledger(chain: Chain) -> str:
    assert chain.ledger is not None  # extract has one
    return chain.ledger


@dataclass
class Branch(Chain):
    """One of two ways on from the same stages. A measure or an edit that stands already, of the same text, is taken and not made again."""

    def measure(self, name: str, operation: Measure, suffix: str = "") -> None:
        super().measure(name, operation, suffix)
        if not operation.by_name and (twin := self._twin()):
            self._fallible[-1] = twin
            self.columns = {
                column: twin if holder == name else holder for column, holder in self.columns.items()
            }

    def edit(self, name: str, operation: Edit, kept: bool = False) -> None:
        super().edit(name, operation, kept)
        if twin := self._twin():
            self._fallible[-1] = twin
            self.text = (twin, *self.text[1:])

    def _twin(self) -> str | None:
        """The stage that does what the last one would do, which is then taken away."""
        made = self.stages[-1]
        for stage in self.stages[:-1]:
            if replace(stage, name=made.name) == made:
                self.stages.pop()
                return stage.name
        return None


@dataclass
class Either(Chain):
    """What either recipe keeps: its duplicates are found and none is removed, so that no verdict closes a stage."""

    def verdict(self, *names: str, stage: str | None = None) -> None:
        pass


def _branched(kind: type[Kind], chain: Chain, **other: Any) -> Kind:
    """A chain that appends to the same stages, and what it knows apart from them is its own."""
    known = {each.name: getattr(chain, each.name) for each in fields(chain)}
    known |= {"columns": dict(chain.columns), "_fallible": list(chain._fallible)}
    return kind(**{**known, **other})
