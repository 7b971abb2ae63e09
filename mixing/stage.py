"""The recipe's `mix` stage: components and weights become mixture.yaml and the plan that a stream reads.

Nothing is read but manifests, and no shard is rewritten: other weights cost seconds.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from corpusmill.mixing import weights as baselines
from corpusmill.mixing.mixture import Exhaust, Given, Kind, decode_mixture, encode_mixture, load_mixture
from corpusmill.mixing.search import Search
from corpusmill.pipeline.chain import Chain
from corpusmill.pipeline.engine.stage import Inputs, Result, SetOperation, TaskIO, Unit
from corpusmill.pipeline.errors import BudgetError, RecipeError, ShardError
from corpusmill.shards.append import PLANS_FOLDER
from corpusmill.shards.components import HOLDOUT
from corpusmill.shards.exhaust import redistributed
from corpusmill.shards.holdout import in_turn
from corpusmill.shards.layout import HOLDOUT_FILE, PLAN_FILE, Manifest, read_manifest
from corpusmill.shards.mixture import PPB
from corpusmill.shards.plan import Phase, Plan, compile_plan
from corpusmill.shards.plan_file import decode_plan
from corpusmill.shards.write import Write

if TYPE_CHECKING:
    from corpusmill.mixing.search_chain import Purpose

MIXTURE_FILE = "mixture.yaml"

SPARE_SAMPLES = 4
"""Samples that UniMax leaves below a component's last epoch: quotas are exact to 3, weights to one part in 10^9."""

Baseline = Literal["proportional", "uniform", "unimax", "temperature"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Mix:
    """Weights by name, by hand ({web: 0.7, books: 0.3}) or from a mixture file, for a budget of tokens or epochs.

    Without a budget the stream ends after as many samples as there are rows, or where a component has been read `max_epochs` times. `exhaust` says what happens
    there: `repeat` refuses a budget that would go on, `stop` ends the stream, `redistribute` goes on with the others in their proportions.
    """

    weights: Baseline | dict[str, float] = "proportional"
    file: str | None = None
    temperature: float | None = None  # of `weights: temperature`; 1 is proportional, large is uniform
    budget_tokens: int | None = None
    epochs: float | None = None  # budget as a multiple of all tokens
    max_epochs: int = 4  # repeating up to 4 times is about as good as new data (Muennighoff et al. 2023)
    exhaust: Exhaust = "repeat"
    window: int = 16  # blocks that are shuffled together
    search: Search | None = None  # find the weights by proxies; `weights` by hand are then the mixture in use

    def extend(self, chain: Chain, name: str) -> None:
        self._check(name)
        text = _read(self.file, name) if self.file else None
        shards, write = shards_of(chain, name)
        verdict = None
        if self.search is not None:
            from corpusmill.mixing.search_chain import append

            verdict = append(chain, name, self.search, self.purpose(shards))
        operation = WriteMixture(
            shards=shards,
            weights=self.weights,
            text=text,
            temperature=self.temperature,
            budget_tokens=self.budget_tokens,
            epochs=self.epochs,
            max_epochs=self.max_epochs,
            exhaust=self.exhaust,
            window=self.window,
            seed=chain.seed,
            holdout=write.holdout,
            verdict=verdict,
        )
        chain.set(name, operation, reads=(shards, *([verdict] if verdict else [])))

    def purpose(self, shards: str) -> Purpose:
        """What a search is told of this stage."""
        from corpusmill.mixing.search_chain import Purpose

        current = self.weights if isinstance(self.weights, dict) else None
        return Purpose(shards, self.budget_tokens, self.epochs, self.max_epochs, current)

    def _check(self, name: str) -> None:
        if self.file and self.weights != "proportional":
            raise RecipeError(f"{name}: weights come from {self.file}; leave out weights, or file")
        if (self.temperature is not None) != (self.weights == "temperature"):
            raise RecipeError(
                f"{name}: temperature goes with `weights: temperature`, and that needs one (1 is proportional)"
            )
        if self.search is not None:
            if self.file or not (self.weights == "proportional" or isinstance(self.weights, dict)):
                raise RecipeError(
                    f"{name}: search finds the weights; leave out {'file' if self.file else f'weights: {self.weights}'}"
                )
            self.search.check(name)
        if self.budget_tokens is not None and self.epochs is not None:
            raise RecipeError(f"{name}: budget_tokens and epochs both say how long to read; give one")
        if isinstance(self.weights, dict):
            # Their names are known to the last stage only, their sum is said now.
            baselines.manual(self.weights, dict.fromkeys(self.weights, 1), f"{name}: weights")
        for key in ("budget_tokens", "epochs", "max_epochs", "window"):
            value = getattr(self, key)
            if value is not None and not 0 < value < float("inf"):
                raise RecipeError(f"{name}: {key} is {value}; it has to be above 0")


def shards_of(chain: Chain, name: str) -> tuple[str, Write]:
    """The stage whose shards are mixed."""
    writes = [(stage.name, stage.operation) for stage in chain.stages if isinstance(stage.operation, Write)]
    if not writes:
        raise RecipeError(f"{name}: there is nothing to mix; put a shard stage before it")
    return writes[-1]


def _read(path: str, name: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{name}: mixture file {path} cannot be read ({error})") from error
    load_mixture(text, path)  # what is wrong in itself is said before the first stage runs
    return text


@dataclass(frozen=True)
class WriteMixture(SetOperation):
    """Compiles the plan in the driver, from manifests alone; both files are published under their fixed names."""

    shards: str
    weights: Baseline | dict[str, float]
    text: str | None
    temperature: float | None
    budget_tokens: int | None
    epochs: float | None
    max_epochs: int
    exhaust: Exhaust
    window: int
    seed: int
    holdout: bool = False  # whether there are components that are held out
    verdict: str | None = None  # the stage whose result has the weights

    libraries: ClassVar[tuple[str, ...]] = ("pyyaml",)

    def models(self) -> dict[str, str]:
        return {} if self.text is None else {MIXTURE_FILE: hashlib.sha256(self.text.encode()).hexdigest()}

    def units(self, inputs: Inputs) -> list[Unit]:
        return [Unit(0, 1)]

    def run(self, unit: Unit, io: TaskIO) -> Result:
        return io.result()

    def seal(self, results: Mapping[int, Result], inputs: Inputs) -> dict[str, bytes]:
        folder = inputs.folder(self.shards)
        results_of = inputs.results(self.shards).values()
        slugs = sorted({result.extra["slug"] for result in results_of if "slug" in result.extra})
        # plan.json stands in OUT/shards, which can be moved as a whole.
        relative = folder.removeprefix("shards/")
        every = [(f"{relative}/{slug}", read_manifest(inputs.root / folder / slug)) for slug in slugs]
        held = [item for item in every if item[1].slug.startswith(f"{HOLDOUT}/")]
        found = [item for item in every if item not in held]
        manifests = {manifest.name: manifest for _, manifest in found}
        given = self._given(manifests) if self.verdict is None else _judged(inputs, self.verdict)
        plan = self._plan(found, given)
        exhaust = given.exhaust or self.exhaust
        budget = None if plan.samples is None else plan.samples * plan.sequence_length
        return {
            MIXTURE_FILE: encode_mixture(plan, manifests, budget, exhaust, given.evidence, given.kinds),
            PLAN_FILE: plan.encode(),
            **({HOLDOUT_FILE: in_turn(held, self.seed).encode()} if held else {}),
        }

    def publish(self) -> dict[str, str]:
        held = {HOLDOUT_FILE: f"shards/{HOLDOUT_FILE}"} if self.holdout else {}
        return {MIXTURE_FILE: MIXTURE_FILE, PLAN_FILE: f"shards/{PLAN_FILE}", **held}

    def replaces(self, target: str, there: bytes, made: bytes) -> dict[str, bytes]:
        """A plan that a later command let go on from the one made here stays; any other is kept under its id for its cursors."""
        if target != f"shards/{PLAN_FILE}":
            return {target: made}
        try:
            old, new = decode_plan(there, target), decode_plan(made, target)
        except ShardError:  # damaged, or of another version: no cursor leads there
            return {target: made}
        if new.id in {past.id for past in old.past}:
            return {}
        return {target: made, f"shards/{PLANS_FOLDER}/{old.id}.json": there}

    def _given(self, manifests: Mapping[str, Manifest]) -> Given:
        if self.text is None:
            verdict = (
                {"verdict": "manual"}
                if isinstance(self.weights, dict)
                else {"verdict": "baseline", "weights": self.weights}
            )
            return Given((Phase(0, self._weights(manifests)),), verdict)
        given = decode_mixture(self.text, manifests, MIXTURE_FILE)
        if given.budget_tokens is not None and (self.budget_tokens is not None or self.epochs is not None):
            raise RecipeError(
                f"mix: {MIXTURE_FILE} states a budget of {given.budget_tokens} tokens, the recipe another; leave one out"
            )
        return given

    def _weights(self, manifests: Mapping[str, Manifest]) -> dict[str, int]:
        sizes = {name: manifest.rows for name, manifest in sorted(manifests.items())}
        if isinstance(self.weights, dict):
            unnamed = sorted(set(sizes) - set(self.weights))
            if unnamed:
                log.warning(
                    "mix: no weight is given for %s: they are left out of the stream", ", ".join(unnamed)
                )
            return baselines.in_ppb(baselines.manual(self.weights, sizes, "mix: weights"))
        if self.weights == "proportional":
            return baselines.in_ppb(baselines.proportional(sizes))
        if self.weights == "uniform":
            return baselines.in_ppb(baselines.uniform(sizes))
        if self.weights == "temperature":
            return baselines.in_ppb(baselines.tempered(sizes, self.temperature or 1.0))
        budget = self._samples(self.budget_tokens, manifests)
        spare = SPARE_SAMPLES + budget // PPB
        most = {name: max(1, size * self.max_epochs - spare) for name, size in sizes.items()}
        return baselines.in_ppb(baselines.unimax(most, budget))

    def _samples(self, budget_tokens: int | None, manifests: Mapping[str, Manifest]) -> int:
        """How many rows to read: the budget's, else `epochs` times all there are."""
        length = next(iter(manifests.values())).sequence_length
        if budget_tokens is not None:
            if budget_tokens < length:
                raise RecipeError(f"mix: budget_tokens is {budget_tokens}, one sequence has {length}")
            return budget_tokens // length
        rows = sum(manifest.rows for manifest in manifests.values())
        return max(1, int(rows * (self.epochs or 1)))

    def _plan(self, found: list[tuple[str, Manifest]], given: Given) -> Plan:
        manifests = {manifest.name: manifest for _, manifest in found}
        limits = {name: given.max_epochs.get(name, self.max_epochs) for name in manifests}
        stated = given.budget_tokens if given.budget_tokens is not None else self.budget_tokens
        wanted = self._samples(stated, manifests)

        exhaust = given.exhaust or self.exhaust

        def compiled(samples: int | None, exhaust: str, phases: tuple[Phase, ...] = given.phases) -> Plan:
            return compile_plan(
                found,
                phases,
                seed=self.seed if given.seed is None else given.seed,
                window=self.window,
                samples=samples,
                max_epochs=limits,
                exhaust=exhaust,
            )

        if exhaust == "redistribute":
            return compiled(wanted, "repeat", redistributed(compiled(None, "repeat"), wanted).phases)
        most = compiled(None, "stop").samples
        if most is None or wanted <= most:
            return compiled(wanted, exhaust)
        asked = stated is not None or self.epochs is not None
        if asked and wanted > most + _slack(given.phases[-1]):
            return compiled(wanted, exhaust)  # an error with the epochs, or the end that `stop` asks for
        if not most:
            raise BudgetError(
                "mix: a component has too few rows for its weight; lower the weight or raise max_epochs"
            )
        if not asked:
            log.warning(
                "mix: the stream ends after %d samples of %d, where a component has been read max_epochs times",
                most,
                wanted,
            )
        return compiled(most, exhaust)


def _judged(inputs: Inputs, verdict: str) -> Given:
    (result,) = inputs.results(verdict).values()
    extra = result.extra
    kinds = {name: Kind(*kind) for name, kind in extra["kinds"].items()}
    phase = Phase(0, extra["weights_ppb"])
    return Given((phase,), extra["evidence"], max_epochs=extra["max_epochs"], kinds=kinds)


def _slack(phase: Phase) -> int:
    """Samples in which the rarest component gets 8: quotas and rounding put its last row a few samples off its share."""
    return 8 * PPB // min(weight for weight in phase.weights_ppb.values() if weight) + 1
